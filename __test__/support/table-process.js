/**
 * A process of table.test.js, to be killed: writes rows and says on stdout which of them were acknowledged.
 * `node table-process.js FOLDER ROUND`
 */

const fs = require('node:fs');
const { openTable, startWriter } = require('../../lib/standalone/table.js');

async function main() {
  const [folder, round] = process.argv.slice(2);
  const writer = await startWriter(folder);
  const table = openTable(folder, writer.connect());
  await Promise.all(
    Array.from({ length: 8 }, async (_, lane) => {
      for (let number = 0; ; number++) {
        const key = `https://shop.example/${lane}/${number % 50}`;
        const written = await table.put(key, { nextRenderTime: number, round: Number(round) });
        // Synchronously: what is in the pipe has been acknowledged.
        fs.writeSync(1, `${JSON.stringify([key, number, written?.version])}\n`);
      }
    }),
  );
}

main();
