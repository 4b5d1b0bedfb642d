/**
 * The only way onto the page: text nodes and elements, no markup. What is there already is changed in place, so that
 * nothing flickers and neither focus nor a place in the page is lost.
 */

import { pieces } from './text.js';

/** @typedef {import('./text.js').Part} Part */
/** @typedef {import('./text.js').Parts} Parts */

/**
 * @param {string} selector
 * @param {ParentNode} [within]
 * @returns {any}
 */
export function one(selector, within = document) {
  const found = within.querySelector(selector);
  if (!found) throw new Error(`the page has no ${selector}`);
  return found;
}

/**
 * @param {string} name
 * @param {Record<string, string>} [attributes]
 * @param {...Node} children
 * @returns {any}
 */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** @param {Node} node @param {string} text */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** @param {HTMLElement} node @param {boolean} hidden */
export function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

/** What each node shows. @type {WeakMap<Node, { shape: string, parts: Parts }>} */
const shown = new WeakMap();

/**
 * Shows parts in a node. Where only words, numbers and times differ, the elements stay.
 *
 * @param {Element} node
 * @param {Parts} parts
 */
export function show(node, parts) {
  const shape = parts.map(shapeOf).join(' ');
  const before = shown.get(node);
  shown.set(node, { shape, parts });
  if (before?.shape !== shape) {
    node.replaceChildren(...parts.map(create));
    return;
  }
  parts.forEach((part, index) => {
    const child = node.childNodes[index];
    if (typeof part === 'string') setText(child, part);
    else if ('strong' in part) setText(child, part.strong);
    else if ('at' in part) setTime(/** @type {Element} */ (child), part);
  });
}

/** Parts of one shape differ in nothing that `show` would not change. @param {Part} part */
function shapeOf(part) {
  if (typeof part === 'string') return 'text';
  if ('outside' in part) return `outside ${JSON.stringify(part.outside)}`;
  if ('none' in part) return `none ${part.none}`;
  return 'at' in part ? 'at' : 'strong';
}

/** @param {Part} part @returns {Node} */
function create(part) {
  if (typeof part === 'string') return document.createTextNode(part);
  if ('outside' in part) return isolate(part.outside);
  if ('strong' in part) return element('strong', {}, document.createTextNode(part.strong));
  if ('at' in part) {
    const time = element('time');
    setTime(time, part);
    return time;
  }
  const why = element('span', { class: 'sr-only' }, document.createTextNode(part.none));
  const dash = element('span', { 'aria-hidden': 'true' }, document.createTextNode('–'));
  return element('span', { class: 'none', title: part.none }, dash, why);
}

/** @param {Element} node @param {{ at: number, text: string, full: string }} part */
function setTime(node, part) {
  setText(node, part.text);
  node.setAttribute('datetime', new Date(part.at).toISOString());
  node.setAttribute('title', part.full);
}

/** Its own direction, and no invisible character. @param {string} text */
function isolate(text) {
  const bdi = element('bdi', { dir: 'ltr' });
  for (const piece of pieces(text)) {
    const inner = document.createTextNode(piece.text);
    bdi.append(piece.odd ? element('span', { class: 'odd' }, inner) : inner);
  }
  if (text === '') bdi.append(element('span', { class: 'odd' }, document.createTextNode('empty')));
  return bdi;
}

/** @param {Element} list @param {Parts[]} items */
export function showList(list, items) {
  while (list.children.length > items.length) list.lastElementChild?.remove();
  items.forEach((item, index) => {
    show(list.children[index] ?? list.appendChild(element('li')), item);
  });
}

/**
 * A list of terms, each with one or more lines about it.
 *
 * @param {Element} dl
 * @param {{ term: string, is: Parts, more?: Parts, level?: string }[]} facts
 */
export function showFacts(dl, facts) {
  while (dl.children.length > facts.length) dl.lastElementChild?.remove();
  facts.forEach((fact, index) => {
    const group =
      dl.children[index] ??
      dl.appendChild(
        element('div', {}, element('dt'), element('dd'), element('dd', { class: 'sub' })),
      );
    setText(group.children[0], fact.term);
    show(group.children[1], fact.is);
    show(group.children[2], fact.more ?? []);
    setHidden(/** @type {HTMLElement} */ (group.children[2]), !fact.more);
    group.setAttribute('data-level', fact.level ?? '');
  });
}

/**
 * @typedef {object} Cell
 * @property {Parts} is
 * @property {Parts} [more]   in small letters below
 * @property {number} [share]  0 to 1: a bar behind the number
 * @property {string} [level]
 */

/** The rows of each table by their key. @type {WeakMap<Element, Map<string, HTMLTableRowElement>>} */
const rowsOf = new WeakMap();

/**
 * @template T
 * @param {HTMLTableSectionElement} body
 * @param {T[]} items
 * @param {(item: T) => string} keyOf
 * @param {(item: T) => Cell[]} cellsOf  the first one heads the row
 */
export function showRows(body, items, keyOf, cellsOf) {
  const before = rowsOf.get(body) ?? new Map();
  /** @type {Map<string, HTMLTableRowElement>} */
  const after = new Map();
  for (const item of items) {
    let key = keyOf(item);
    while (after.has(key)) key += ' ';
    after.set(key, before.get(key) ?? element('tr'));
  }
  for (const [key, row] of before) if (after.get(key) !== row) row.remove();
  [...after.values()].forEach((row, index) => {
    if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
    showCells(row, cellsOf(items[index]));
  });
  rowsOf.set(body, after);
  const table = body.closest('table');
  if (table?.classList.contains('cards')) sayTable(table);
}

/** Shown as cards a table is none to assistive software, unless it is said. @param {HTMLTableElement} table */
function sayTable(table) {
  table.setAttribute('role', 'table');
  for (const body of table.querySelectorAll('thead, tbody')) body.setAttribute('role', 'rowgroup');
  for (const row of table.rows) {
    row.setAttribute('role', 'row');
    for (const cell of row.cells) {
      const head = cell.scope === 'col' ? 'columnheader' : 'rowheader';
      cell.setAttribute('role', cell.tagName === 'TH' ? head : 'cell');
    }
  }
}

/** @param {HTMLTableRowElement} row @param {Cell[]} cells */
function showCells(row, cells) {
  const heads = row.closest('table')?.querySelectorAll('thead th');
  while (row.children.length > cells.length) row.lastElementChild?.remove();
  cells.forEach((cell, index) => {
    let td = row.children[index];
    if (!td) {
      td = element(index === 0 ? 'th' : 'td', index === 0 ? { scope: 'row' } : {});
      td.append(element('span', { class: 'is' }), element('span', { class: 'sub' }));
      row.append(td);
    }
    const head = heads?.[index];
    // Named again beside each cell where the table is shown as cards.
    td.setAttribute('data-label', head?.textContent ?? '');
    td.classList.toggle('n', head?.classList.contains('n') ?? false);
    td.setAttribute('data-level', cell.level ?? '');
    show(td.children[0], cell.is);
    show(td.children[1], cell.more ?? []);
    setHidden(/** @type {HTMLElement} */ (td.children[1]), !cell.more);
    setBar(td, cell.share);
  });
}

/** @param {Element} cell @param {number | undefined} share */
function setBar(cell, share) {
  let bar = /** @type {HTMLElement | null} */ (cell.querySelector('.bar'));
  if (!share) {
    bar?.remove();
    return;
  }
  bar ??= cell.appendChild(element('span', { class: 'bar', 'aria-hidden': 'true' }));
  const width = `${Math.round(share * 1_000) / 10}%`;
  if (bar && bar.style.width !== width) bar.style.width = width;
}

/** Heads of columns. @param {Element} row @param {string[]} names */
export function showHeads(row, names) {
  while (row.children.length > names.length) row.lastElementChild?.remove();
  names.forEach((name, index) => {
    const head =
      row.children[index] ??
      row.appendChild(element('th', { scope: 'col', ...(index > 0 && { class: 'n' }) }));
    setText(head, name);
  });
}

/** Whether somebody has text of this element selected, which a change would undo. @param {Element} node */
export function isSelected(node) {
  const selection = document.getSelection();
  return Boolean(
    selection &&
      !selection.isCollapsed &&
      selection.rangeCount > 0 &&
      selection.containsNode(node, true),
  );
}

/**
 * A table wider than its place can be scrolled by keyboard, and is named; one that fits is no stop on the way.
 *
 * @param {HTMLElement} place
 */
export function scrollable(place) {
  const title =
    place.closest('details')?.querySelector('summary') ??
    place.closest('section')?.querySelector('h2');
  const name = title?.textContent ?? '';
  const look = () => {
    if (place.scrollWidth > place.clientWidth) {
      place.tabIndex = 0;
      place.setAttribute('role', 'group');
      place.setAttribute('aria-label', name);
    } else if (document.activeElement !== place) {
      place.removeAttribute('tabindex');
      place.removeAttribute('role');
      place.removeAttribute('aria-label');
    }
  };
  const observer = new ResizeObserver(look);
  observer.observe(place);
  if (place.firstElementChild) observer.observe(place.firstElementChild);
}
