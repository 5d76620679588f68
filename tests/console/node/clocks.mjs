// Clocks that are an hour off: the browser's, and that of a gateway.
import { execFile, spawn } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { check, claim, equal, module, until } from "./claims.mjs";
import { follows, open, visitor } from "./browser.mjs";
import { dev, inState, let_go, make, told, tokens } from "./fleet.mjs";

const HOUR_S = 3600;
const OFF = { "an hour ahead": HOUR_S, "an hour behind": -HOUR_S };

/** Within a page: what it takes for now is so many milliseconds later. Its timers go on as they are. */
function moved(by) {
  const Right = Date;
  globalThis.Date = class extends Right {
    constructor(...given) {
      super(...(given.length === 0 ? [Right.now() + by] : given));
    }
    static now = () => Right.now() + by;
  };
}

/** A gateway of the fleet whose clock is off by so many seconds; its address. */
async function gateway(library, seconds, later) {
  const file = `${told.folder}/clock-${seconds}`;
  const bytes = new BigInt64Array([BigInt(seconds)]);
  await writeFile(file, new Uint8Array(bytes.buffer));
  const { nats_url, database_url } = dev();
  const env = { ...process.env, NATS_URL: nats_url, DATABASE_URL: database_url, LD_PRELOAD: library, CHAOS_CLOCK: file };
  const words = ["gateway", "--listen", "127.0.0.1:0", "--auth", "tokens", "--log-format", "json"];
  const started = spawn(told.program, words, { env, stdio: ["ignore", "pipe", "pipe"] });
  const ended = new Promise((resume) => started.on("exit", resume));
  later(async () => {
    started.kill("SIGTERM");
    await ended;
  });
  let url;
  for (const stream of [started.stdout, started.stderr])
    createInterface({ input: stream }).on("line", (line) => (url ??= /"listening for callers"/.test(line) ? /"address":"([^"]+)"/.exec(line)?.[1] : undefined));
  return `http://${await until("the gateway says where it listens", () => url, 20_000)}`;
}

/** A page follows a call to its end, and says how long it took as Postgres has it. */
async function followed(browser, baseURL, prepare = async () => {}) {
  const { page, context, close } = await visitor(browser, null, { baseURL });
  await prepare(context);
  const answer = await context.request.post("/console/login", { form: { token: tokens.ann }, maxRedirects: 0 });
  equal(answer.status(), 303, "the answer to the sign-in");
  const gate = crypto.randomUUID();
  const call = await make("gated", { gate }, { token: tokens.ann });
  await inState(call, "running");
  await page.goto(`/console/calls/${call}`);
  await follows(page);
  await let_go(gate);
  await inState(call, "succeeded");
  const sentence = page.locator("#head .sentence");
  await until("the end is on the page", async () => (await sentence.innerText()).includes("succeeded"), 2_500);
  const said = await sentence.innerText();
  check(/\d(\.\d+)? m?s\b/.test(said) && !/\d h\b|-\d/.test(said), "a time of seconds", said);
  await page.goto("/console");
  const row = await page.locator(`#rows tr[data-key="${call}"]`).innerText();
  check(!/\d h\b|-\d+ /.test(row), "a row with a time of seconds", row);
  const strip = await page.locator("#minutes tbody tr").last().innerText();
  check(/[1-9]/.test(strip.replace(/^\S+/, "")), "the calls of this minute in the strip", strip);
  await close();
}

await module(async (later) => {
  const library = `${told.folder}/clock.so`;
  const source = new URL("../../chaos/clock/clock.c", import.meta.url).pathname;
  await promisify(execFile)("cc", ["-shared", "-fPIC", "-O1", "-o", library, source]);
  const browser = await open(later);
  for (const [name, seconds] of Object.entries(OFF)) {
    await claim(`the browser's clock is ${name}: a call is followed to its end, and took seconds`, () =>
      followed(browser, told.url, (context) => context.addInitScript(moved, 1000 * seconds)));
    await claim(`the gateway's clock is ${name}: who signs in stays, a call is followed to its end, and took seconds`, async () =>
      followed(browser, await gateway(library, seconds, later)));
  }
});
