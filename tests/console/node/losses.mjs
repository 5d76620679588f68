// Journeys of loss: the gateway is killed while somebody looks, and comes back; a token is revoked while its page follows.
import { readFileSync } from "node:fs";
import { check, claim, equal, module, until } from "./claims.mjs";
import { follows, open, visitor } from "./browser.mjs";
import { dev, inState, let_go, make, told, tokens, toolfleet } from "./fleet.mjs";

const toldNow = (page) => page.locator("#told").innerText();

async function gateway(browser) {
  const { page, close } = await visitor(browser, tokens.ann);
  const gate = crypto.randomUUID();
  const call = await make("gated", { gate }, { token: tokens.ann });
  await inState(call, "running");
  await page.goto(`/console/calls/${call}`);
  await follows(page);
  await page.evaluate(() => (globalThis.loadedOnce = true));
  const [pid] = dev().gateway_pids;
  process.kill(pid, "SIGKILL");
  await until("#told says that the connection is lost", async () => (await toldNow(page)).includes("connection is lost"), 5_000);
  const shown = await page.locator("#head").innerText();
  check(shown.includes("running"), "what was shown to stay", shown);
  await until("dev has started another gateway", async () => !dev().gateway_pids.includes(pid) && dev().gateway_pids.length === 1, 30_000);
  await until("it answers", async () => (await fetch(`${told.url}/console/login`)).status === 200, 30_000);
  const back = performance.now();
  await until("#told is empty again", async () => (await toldNow(page)) === "", 20_000);
  const took = Math.round(performance.now() - back);
  await let_go(gate);
  await inState(call, "succeeded");
  await until("the page is live again", async () => (await page.locator("#head .sentence").innerText()).includes("succeeded"), 2_500);
  equal(await page.evaluate(() => globalThis.loadedOnce), true, "the page to be the one that was loaded");
  await close();
  return `live again ${took} ms after the gateway answers`;
}

/** A worker of `toolfleet dev` is killed: the next one proves it gone, so that it did not happen can be said. */
async function devWorker(browser) {
  const { page, close } = await visitor(browser, tokens.ann);
  const call = await make("charge", { account: `hangs-${crypto.randomUUID()}`, cents: 5 }, { token: tokens.ann });
  await inState(call, "running");
  const [pid] = dev().worker_pids;
  process.kill(pid, "SIGKILL");
  await until("dev has started another worker", async () => dev().worker_pids.length === 1 && !dev().worker_pids.includes(pid), 30_000);
  await inState(call, "in_doubt", 30_000);
  await page.goto(`/console/calls/${call}`);
  await follows(page);
  const form = page.locator("form.settle");
  await until("it is offered", async () => (await form.locator("fieldset > label input[value=not_applied]").count()) === 1, 15_000);
  await form.locator("fieldset > label input[value=not_applied]").check();
  await form.locator("textarea[name=note]").fill("the bank has no such charge");
  await form.getByRole("button").click();
  const settled = await inState(call, "failed");
  equal(settled.call.effect_known, "not_applied", "the verdict");
  await close();
}

/** Postgres and its sessions, which hang from now on, or go on. */
function signalPostgres(name) {
  const parent = dev().postgres_pid;
  const children = readFileSync(`/proc/${parent}/task/${parent}/children`, "utf8").trim().split(" ");
  for (const pid of [parent, ...children.map(Number)]) process.kill(pid, name);
}

/** While Postgres hangs pages say so, and what goes on; then they are live again without a reload. */
async function postgres(browser, later) {
  const { page, close } = await visitor(browser, tokens.ann);
  await page.goto("/console");
  await follows(page);
  await page.evaluate(() => (globalThis.loadedOnce = true));
  const bar = page.locator("#away");
  equal(await bar.innerText(), "", "the bar");
  let isStopped = true;
  signalPostgres("SIGSTOP");
  const goOn = async () => isStopped && signalPostgres("SIGCONT");
  later(goOn);
  const start = performance.now();
  try {
    await until("the bar says it", async () => (await bar.innerText()).includes("Postgres is away"), 30_000);
  } finally {
    await goOn();
    isStopped = false;
  }
  const took = Math.round(performance.now() - start);
  await until("the bar is gone", async () => (await bar.innerText()) === "", 30_000);
  equal(await page.evaluate(() => globalThis.loadedOnce), true, "the page to be the one that was loaded");
  await close();
  return `said ${took} ms after it hung`;
}

/** Every process of the fleet is killed at once while somebody looks at a write that is under way. */
async function everything(browser) {
  const { page, close } = await visitor(browser, tokens.ann);
  const call = await make("charge_slowly", { account: `hangs-${crypto.randomUUID()}`, cents: 5 }, { token: tokens.ann });
  await inState(call, "running");
  await page.goto(`/console/calls/${call}`);
  await follows(page);
  await page.evaluate(() => (globalThis.loadedOnce = true));
  const pids = ({ postgres_pid, nats_pid, dispatcher_pids, worker_pids, gateway_pids }) =>
    [postgres_pid, nats_pid, ...dispatcher_pids, ...worker_pids, ...gateway_pids].filter((pid) => pid);
  const before = pids(dev());
  for (const pid of before) process.kill(pid, "SIGKILL");
  await until("#told says that the connection is lost", async () => (await toldNow(page)).includes("connection is lost"), 5_000);
  await until("dev has started all of them again", () => pids(dev()).filter((pid) => !before.includes(pid)).length === before.length, 60_000);
  await until("#told is empty again", async () => (await toldNow(page)) === "", 60_000);
  await inState(call, "in_doubt", 60_000);
  const start = performance.now();
  await until("the page has the doubt", async () => (await page.locator("#head .sentence").innerText()).includes("in doubt"), 10_000);
  const took = Math.round(performance.now() - start);
  equal(await page.evaluate(() => globalThis.loadedOnce), true, "the page to be the one that was loaded");
  const next = await make("look", { word: "after" }, { token: tokens.ann });
  await inState(next, "succeeded");
  await close();
  return `the doubt is on the page ${took} ms after the API has it`;
}

/** The id of a token stands in it. */
const idOf = (token) => token.split("_")[1];

async function revoked(browser, path) {
  const name = `leaving-${crypto.randomUUID().slice(0, 8)}`;
  const token = (await toolfleet("tokens", "create", "--name", name, "--tenant", "default", "--scope", "read", "--note", "to be revoked")).trim();
  const visiting = await until("the gateway knows the token", () => visitor(browser, token), 10_000);
  await visiting.page.goto(path);
  await follows(visiting.page);
  await toolfleet("tokens", "revoke", idOf(token), "--note", "the browser tests");
  const start = performance.now();
  await visiting.page.waitForURL("**/console/login**", { timeout: 8_000 });
  const took = Math.round(performance.now() - start);
  const answer = await visiting.context.request.get("/console", { maxRedirects: 0 });
  equal([answer.status(), answer.headers().location?.startsWith("/console/login")], [303, true], "what the cookie still opens");
  await visiting.close();
  return `${took} ms after the revocation`;
}

await module(async (later) => {
  const browser = await open(later);
  await claim("(i) the gateway is killed: #told says so, what was shown stays, and the page is live again without reload", () => gateway(browser));
  await claim("(c) a worker of dev that is killed is proven gone by the next one, and its call can be settled as not happened", () => devWorker(browser));
  await claim("(i) Postgres hangs: the first page says so and what goes on, and is live again without reload", () => postgres(browser, later));
  await claim("everything is killed at once: the page that stayed open is live again without reload, and shows the doubt", () => everything(browser));
  await claim("(j) a token is revoked: the first page becomes the sign-in", () => revoked(browser, "/console"));
  await claim("(j) a token is revoked: the inbox becomes the sign-in", () => revoked(browser, "/console/doubts"));
});
