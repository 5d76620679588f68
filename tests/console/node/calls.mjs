// Journeys about calls: the charge that failed and why, a retry that is watched, a call that is taken back, and one that is made again.
import { check, claim, equal, module, until } from "./claims.mjs";
import { follows, open, visitor } from "./browser.mjs";
import { seeded } from "./seed.mjs";
import { carriedOut, inState, let_go, make, story, tokens } from "./fleet.mjs";

/** How soon a page has to show what the API has. */
const SOON_MS = 2_000;
const text = (page, where) => page.locator(where).innerText();
const callOf = (page) => new URL(page.url()).pathname.split("/")[3];

/** How long after `inApi` a page shows it; the clock starts when the API has it. */
async function shownSoon(what, inApi, onPage) {
  await until(`the API has ${what}`, inApi, 20_000);
  const start = performance.now();
  await until(`the page shows ${what}`, onPage, SOON_MS);
  return `${Math.round(performance.now() - start)} ms`;
}

async function findFailed(page, ids) {
  await page.goto("/console");
  await page.getByRole("link", { name: "Failed only" }).click();
  const states = await page.locator("#rows tr td:nth-child(2) .state").allInnerTexts();
  check(states.length >= 2 && states.every((state) => state.trim() === "failed"), "only failed calls", states);
  const row = page.locator(`tr[data-key="${ids.declined}"]`);
  check((await row.innerText()).includes("tool_error"), "the row to say which error", await row.innerText());
  await row.locator("a").first().click();
  await page.waitForURL(`**/${ids.declined}*`);
  const [sentence, error, attempts, moves] = await Promise.all(["#head", "#error", "#attempts", "#moves"].map((part) => text(page, part)));
  check(sentence.includes("failed") && sentence.includes("did not happen"), "the sentence to say failed, and that nothing happened", sentence);
  check(/the bank declines declined-17: no funds/i.test(error), "the error to have the bank's words", error);
  check(attempts.includes("dev-worker-1"), "the attempt to name its worker", attempts);
  check(moves.includes("dev-worker-1"), "the moves to name the worker", moves);
}

/** Each way to come to a call that one knows something of. */
async function search(page, ids) {
  const found = async (words) => {
    await page.goto("/console");
    await page.locator("#search").fill(words);
    await page.locator("#search").press("Enter");
    await page.waitForURL((url) => url.pathname !== "/console/find" && (url.pathname !== "/console" || url.search !== ""));
    return page.url();
  };
  equal((await found(ids.declined)).includes(ids.declined), true, "the id to lead to the call");
  equal((await found("charge order-2")).includes(ids.declined), true, "tool and key to lead to the call");
  const bySession = await found("chat-17");
  check(bySession.includes("session=chat-17"), "a session to lead to its calls", bySession);
  await page.goto("/console");
  await page.locator("input[name=text]").fill("declined-17");
  await page.getByRole("button", { name: "Filter" }).click();
  await page.waitForURL("**text=declined-17*");
  const keys = await page.locator("#rows tr").evaluateAll((rows) => rows.map((row) => row.dataset.key));
  equal(keys, [ids.declined], "the calls with that text");
}

async function byTrace(page) {
  const trace = "4bf92f3577b34da6a3ce929d0e0e4736";
  const call = await make("look", { word: "traced" }, { token: tokens.ann, headers: { traceparent: `00-${trace}-00f067aa0ba902b7-01` } });
  await inState(call, "succeeded");
  await page.goto(`/console/find?q=${trace}`);
  check(page.url().includes(call) || (await page.locator("main").innerHTML()).includes(call), "the call of the trace id that the search box promises to find", page.url());
}

async function watchRetry(page) {
  const gate = crypto.randomUUID();
  const call = await make("flaky", { gate }, { token: tokens.ann });
  await inState(call, "running");
  await page.goto(`/console/calls/${call}`);
  await follows(page);
  await page.evaluate(() => (globalThis.loadedOnce = true));
  await let_go(`${gate}-1`);
  let took;
  await claim("(b) a retry is watched: its lane is there at most 2 s after the API has it, without reload", async () => {
    took = await shownSoon("attempt 2", async () => (await story(call)).attempts.length === 2, async () => (await page.locator("#timeline rect.lane").count()) === 2);
    equal(await page.evaluate(() => globalThis.loadedOnce), true, "the page to be the one that was loaded");
    return took;
  });
  await claim("(b) its table of attempts shows it as well", () => until("attempt 2 in #attempts", async () => (await page.locator("#attempts tbody tr").count()) === 2, SOON_MS).then(() => undefined));
  await let_go(`${gate}-2`);
  await claim("(b) its end is shown at most 2 s after the API has it", () =>
    shownSoon("the end", async () => (await story(call)).call.state === "succeeded", async () => (await text(page, "#head .sentence")).includes("succeeded")));
  await claim("(b) with the end the result is there, and no form to cancel it any more", () =>
    until("the result and no form", async () => (await text(page, "#result")).includes("done") && (await page.locator("#cancel-reason").count()) === 0, SOON_MS).then(() => undefined));
}

/** The first page, followed, with this call in it: an answer of the API that somebody had within the last second counts for this page, too. */
async function liveWith(page, call) {
  await until("the call is on the first page", async () => {
    await page.goto("/console");
    return (await page.locator(`tr[data-key="${call}"]`).count()) === 1;
  });
  await follows(page);
}

async function liveTable(page) {
  const gate = crypto.randomUUID();
  const call = await make("gated", { gate }, { token: tokens.ann });
  await inState(call, "running");
  await liveWith(page, call);
  const row = page.locator(`tr[data-key="${call}"]`);
  check((await row.innerText()).includes("running"), "the row to say running", await row.innerText());
  const order = () => page.locator("#rows tr").evaluateAll((rows) => rows.map((one) => one.dataset.key).join());
  const before = await order();
  const news = await make("look", { word: "new" }, { token: tokens.ann });
  await let_go(gate);
  const took = await shownSoon("the end", async () => (await story(call)).call.state === "succeeded", async () => (await row.innerText()).includes("succeeded"));
  await until("the new call is announced", async () => (await text(page, "#news")).includes("1 new"), SOON_MS);
  equal(await order(), before, "the order of the rows");
  await page.locator("#news").click();
  await page.locator(`tr[data-key="${news}"]`).waitFor();
  return took;
}

async function paused(page) {
  const gate = crypto.randomUUID();
  const call = await make("gated", { gate }, { token: tokens.ann });
  await inState(call, "running");
  await liveWith(page, call);
  await page.locator("#pause").click();
  await let_go(gate);
  await inState(call, "succeeded");
  // What follows shows it within two seconds: who watches beside it sees it, and this page does not.
  const beside = await visitor(page.context().browser(), tokens.ann);
  await beside.page.goto("/console");
  await follows(beside.page);
  const last = await make("look", { word: "beside" }, { token: tokens.ann });
  await until("the page beside it has news", async () => (await text(beside.page, "#news")).includes("new"));
  const row = page.locator(`tr[data-key="${call}"]`);
  check((await row.innerText()).includes("running"), "the row of the page that was stopped to say running still", await row.innerText());
  await page.locator("#pause").click();
  await until("the row goes on", async () => (await row.innerText()).includes("succeeded"));
  await beside.close();
  await inState(last, "succeeded");
}

async function cancel(page) {
  const call = await make("gated", { gate: "nobody-opens-it" }, { token: tokens.ann });
  await inState(call, "running");
  await page.goto(`/console/calls/${call}`);
  await page.locator("#cancel-reason").fill("it was a mistake");
  await page.getByRole("button", { name: "Cancel this call" }).click();
  const { events } = await inState(call, "cancelled");
  check(JSON.stringify(events).includes("it was a mistake"), "the reason in the moves", events);
}

async function again(page, ids) {
  await page.goto(`/console/calls/${ids.declined}`);
  const form = page.locator("form[action*='/retry']");
  check((await form.innerText()).includes("once more"), "the form to warn of a second effect", await form.innerText());
  await page.locator("#retry-arguments").fill('{"account": "c-7", "cents": 9007199254740993}');
  await form.getByRole("button").click();
  await page.waitForURL((url) => url.pathname.includes("/console/calls/") && !url.pathname.includes(ids.declined));
  const made = await inState(callOf(page), "succeeded");
  equal([made.call.args.account, made.attempts.length], ["c-7", 1], "the new call");
  const shown = await text(page, "#arguments-run");
  check(shown.includes("9007199254740993"), "every digit of the edited number", shown);
}

async function twice(context, page, ids) {
  await page.goto(`/console/calls/${ids.declined}`);
  const key = await page.locator("form[action*='/retry'] input[name=key]").inputValue();
  const account = `c-${key}`;
  const form = { key, arguments: JSON.stringify({ account, cents: 1 }) };
  const send = () => context.request.post(`/console/calls/${ids.declined}/retry`, { form, maxRedirects: 0 });
  const answers = await Promise.all([send(), send(), send()]);
  const places = new Set(answers.map((answer) => answer.headers().location));
  equal([answers.map((answer) => answer.status()), places.size], [[303, 303, 303], 1], "three answers that lead to one call");
  const call = [...places][0].split("/").at(-1);
  await inState(call, "succeeded");
  equal(await carriedOut(account), 1, "how often the service has carried it out");
}

await module(async (later) => {
  const [browser, ids] = [await open(later), await seeded()];
  const { page, context, seen } = await visitor(browser, tokens.ann);
  await claim("(a) the charge that failed is found from the first page, with what the bank said", () => findFailed(page, ids));
  await claim("(a) a call is found by its id, by tool and key, by its session, and by a text in its arguments", () => search(page, ids));
  await claim("(a) a call is found by its trace id", () => byTrace(page));
  await watchRetry(page);
  await claim("(b) the table changes row by row and announces new calls without moving what is read", () => liveTable(page));
  await claim("(b) a flow that was stopped stands still, and goes on when it is let", () => paused(page));
  await claim("a call that runs is cancelled, with the reason in its moves", () => cancel(page));
  await claim("(g) a call is made again with edited arguments, every digit kept, and the page goes to the new one", () => again(page, ids));
  await claim("(g) the form sent three times at once makes one call, which is carried out once", () => twice(context, page, ids));
  await claim("no page of these journeys had an error of its script", () => Promise.resolve(equal(seen.errors, [], "the errors")));
});
