/** The parts of the page that show numbers. Each takes what is known and changes what it shows in place. */

import { showDue } from './due.js';
import { showKeeper } from './keeper.js';
import { listenToChoices, showClasses, showLateness } from './late.js';
import { showNodes } from './nodes.js';
import { showComing, showFlow } from './rates.js';
import { Section } from './section.js';

/** @param {() => void} again  called where a choice changes what is shown */
export function createSections(again) {
  listenToChoices(again);
  return [
    new Section('nodes', showNodes),
    new Section('due', showDue),
    new Section('lateness', showLateness),
    new Section('coming', showComing),
    new Section('flow', showFlow),
    new Section('classes', showClasses),
    new Section('keeper', showKeeper),
  ];
}
