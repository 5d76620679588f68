// Journeys along a session and a turn: from the page of Streams to the events as they come, and to what the speaker has told.
import { check, claim, equal, module, until } from "./claims.mjs";
import { open, visitor } from "./browser.mjs";
import { seeded } from "./seed.mjs";
import { inState, let_go, make, tokens } from "./fleet.mjs";

const SOON_MS = 2_000;

/** The text that a tab shows while it still comes. */
const shown = (page) => page.evaluate(() => document.body?.innerText ?? "");

/** Opens a link whose page never ends: it is looked at while it comes. */
async function opened(page, link) {
  const path = await page.getByRole("link", { name: link }).getAttribute("href");
  await page.goto(path, { waitUntil: "commit" });
}

async function session(page) {
  const [name, gate] = [`chat-${crypto.randomUUID()}`, crypto.randomUUID()];
  const headers = { "Toolfleet-Session": name };
  const call = await make("gated", { gate }, { token: tokens.ann, headers });
  await inState(call, "running");
  await page.goto("/console/streams");
  await page.locator("main input[name=session]").fill(name);
  await page.getByRole("button", { name: "Show" }).click();
  await page.waitForURL(`**session=${name}*`);
  await opened(page, "Its events as they come");
  await until("what has happened is there", async () => (await shown(page)).includes("event: started"));
  check(!(await shown(page)).includes("event: finished"), "no end before the end", await shown(page));
  await let_go(gate);
  await inState(call, "succeeded");
  const start = performance.now();
  await until("the end comes while the page is looked at", async () => (await shown(page)).includes("event: finished"), SOON_MS);
  return `${Math.round(performance.now() - start)} ms after the API`;
}

async function turn(page, id) {
  await page.goto(`/console/streams?session=${id}`);
  await opened(page, "What the speaker tells of this turn");
  await until("the turn is told to its end", async () => (await shown(page)).includes("response.completed"));
  const text = await shown(page);
  equal(text.split("response.output_item.done").length - 1 >= 2, true, "both items of the turn");
}

async function callsOf(page) {
  await page.goto("/console/streams?session=chat-17");
  await page.getByRole("link", { name: "Calls" }).click();
  await page.locator("#rows tr").first().waitFor();
  equal(await page.locator("form.filters input[name=session]").inputValue(), "chat-17", "the filter");
}

await module(async (later) => {
  const [browser, ids] = [await open(later), await seeded()];
  const { page } = await visitor(browser, tokens.ann);
  await claim("(h) a session is followed from its page: its events come while it is looked at", () => session(page));
  await claim("(h) a turn is told from its page, to its end", () => turn(page, ids.turn));
  await claim("(h) the page of a session leads to its calls", () => callsOf(page));
});
