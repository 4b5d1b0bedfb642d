'use strict';
// Saves one queue to one file again and again, until it is killed; `saved` goes to stdout after the first time.
const { QueueKeeper } = require('../..');

const [file, rows] = process.argv.slice(2);
const keeper = new QueueKeeper();
const value = { nextRenderTime: 1_700_000_040_000 };
for (let i = 0; i < Number(rows); i++) {
  keeper.apply({ type: 'put', id: `https://shop.example/product/${i}|desktop`, value });
}

(async () => {
  for (let round = 0; ; round++) {
    // The size of the file differs from save to save.
    keeper.apply({ type: 'put', id: `https://shop.example/${'x'.repeat(round % 977)}`, value });
    await keeper.saveSnapshot(file);
    if (round === 0) process.stdout.write('saved\n');
  }
})();
