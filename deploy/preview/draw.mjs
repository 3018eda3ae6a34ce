// node draw.mjs PROMETHEUS FOLDER NAME=PAGE?QUERY...: draws dashboards of dashboards/generated, fed by that Prometheus, into FOLDER/NAME.png.
// Exit code 1 when a page had an error or a query failed. Chromium is $CHROMIUM or /usr/bin/chromium.
import { existsSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import UPNG from 'upng-js';
import { build, preview } from 'vite';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const WIDTH = 1400;
const PATIENCE = 60000; // ms for all queries of one page

const COLOURS = 96; // a heat map of 512 ranks is noise, which packs badly: half a megabyte with all its colours

function small(png) {
  const image = UPNG.decode(png);
  return Buffer.from(UPNG.encode(UPNG.toRGBA8(image), image.width, image.height, COLOURS));
}

const [url, folder, ...shots] = process.argv.slice(2);
const configFile = join(HERE, 'vite.config.js');
const dist = join(HERE, 'dist', 'index.html');
const newest = Math.max(...readdirSync(join(HERE, 'app')).map((name) => statSync(join(HERE, 'app', name)).mtimeMs));
process.chdir(HERE);
if (!existsSync(dist) || statSync(dist).mtimeMs < newest) await build({ configFile, logLevel: 'error' });
const proxy = { '/prom': { target: url, rewrite: (path) => path.replace(/^\/prom/, '') } };
const server = await preview({ configFile, logLevel: 'error', preview: { host: '127.0.0.1', port: 0, proxy } });
const address = `http://127.0.0.1:${server.httpServer.address().port}`;
const flags = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: flags });
let bad = 0;
try {
  for (const shot of shots) {
    const [name, query] = [shot.slice(0, shot.indexOf('=')), shot.slice(shot.indexOf('=') + 1)];
    const [page, variables] = query.split('?');
    const tab = await browser.newPage({ viewport: { width: WIDTH, height: 1000 } });
    const said = [];
    tab.on('console', (message) => message.type() === 'error' && said.push(message.text().slice(0, 300)));
    tab.on('pageerror', (error) => said.push(String(error.stack).slice(0, 500)));
    await tab.goto(`${address}/?page=${page}&${variables}`);
    await tab.waitForFunction(() => window.height || window.problems?.length, null, { timeout: PATIENCE });
    await tab.setViewportSize({ width: WIDTH, height: (await tab.evaluate(() => window.height)) ?? 400 });
    let before = -1;
    for (let waited = 0, asked = 0; waited < PATIENCE && (asked !== before || asked === 0); waited += 2000) {
      before = asked;
      await tab.waitForTimeout(2000);
      asked = await tab.evaluate(() => window.asked.length);
    }
    writeFileSync(join(folder, `${name}.png`), small(await tab.screenshot()));
    const answers = await tab.evaluate(() => window.asked);
    const problems = [...new Set([...said, ...(await tab.evaluate(() => window.problems))])];
    const empty = answers.filter((answer) => answer.series === 0).map((answer) => answer.expr);
    console.log(`${name}: ${answers.length} queries, ${empty.length} without an answer${empty.map((expr) => `\n  no data: ${expr}`).join('')}`);
    for (const problem of problems) console.log(`  problem: ${problem}`);
    bad += problems.length;
    await tab.close();
  }
} finally {
  await browser.close();
  await server.close();
}
process.exit(bad ? 1 : 0);
