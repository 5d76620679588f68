// Journeys about doubt: a worker is killed, its call comes into the inbox, nothing is offered that cannot be known, and the verdict is in
// the history; and somebody else was first.
import { spawn } from "node:child_process";
import { openSync, mkdirSync } from "node:fs";
import { check, claim, equal, module, until } from "./claims.mjs";
import { follows, open, visitor } from "./browser.mjs";
import { seeded } from "./seed.mjs";
import { dev, get, inState, make, post, story, told, tokens, toolfleet } from "./fleet.mjs";

const count = async (page) => Number(await page.locator("#count-doubts").innerText());
/** The count once the page is as new as the API: what it was loaded with may be a second old. */
const countNow = (page) =>
  until("the count is that of the API", async () => {
    const { open: now } = await get("/v1/overview", { token: tokens.ann });
    return (await count(page)) === (now.in_doubt ?? 0) && { count: now.in_doubt ?? 0 };
  }).then((found) => found.count);

/** A worker of its own folder, whose death no other worker of this machine can prove. */
async function ownWorker(later) {
  const { nats_url, database_url } = dev();
  const folder = `${told.folder}/far`;
  mkdirSync(folder, { mode: 0o700, recursive: true });
  const log = openSync(`${told.folder}/far.log`, "a");
  const words = ["worker", "--queues", "far", "--name", "far-worker", "--state-dir", folder, "--concurrency", "2"];
  const env = { ...process.env, NATS_URL: nats_url, DATABASE_URL: database_url };
  const worker = spawn(told.program, words, { env, stdio: ["ignore", log, log] });
  later(async () => worker.exitCode === null && worker.kill("SIGKILL"));
  return worker;
}

const workers = () => get("/v1/workers?all=true").then(({ workers }) => workers.filter((one) => one.name === "far-worker"));

/** Which verdicts the form of a doubt offers without more: what stands in a closed box of its own is not offered. */
const offered = (form) => form.locator("fieldset > label input[name=outcome]").evaluateAll((inputs) => inputs.map((input) => input.value));

async function killed(browser, later) {
  const ann = await visitor(browser, tokens.ann);
  const { page } = ann;
  const worker = await ownWorker(later);
  const account = "c-far";
  const call = await make("charge_far", { account: `hangs-${account}`, cents: 7700 }, { token: tokens.ann });
  await inState(call, "running", 30_000);
  await page.goto("/console/doubts");
  await follows(page);
  await page.evaluate(() => (globalThis.loadedOnce = true));
  const before = await countNow(page);
  worker.kill("SIGKILL");
  await claim("(c) a call of a worker that was killed comes into the inbox without reload, and into the count of the navigation", async () => {
    await inState(call, "in_doubt", 60_000);
    const start = performance.now();
    await until("the inbox announces it", async () => (await page.locator("#news").innerText()).includes("1 new"), 2_500);
    await until("the count says so", async () => (await count(page)) === before + 1, 2_500);
    equal(await page.evaluate(() => globalThis.loadedOnce), true, "the page to be the one that was loaded");
    return `${Math.round(performance.now() - start)} ms after the API`;
  });
  await page.locator("#news").click();
  const article = page.locator(`#doubt-${call}`);
  await article.waitFor();
  await claim("(c) it says what was sent, that its worker is not proven gone, and until when nothing else can be said", async () => {
    const said = await article.innerText();
    check(said.includes("hangs-c-far") && said.includes("7700"), "what was sent", said);
    check(said.includes("not proven gone"), "that the worker is not proven gone", said);
  });
  await claim("(c) before the attempt's own time is over only “it happened” is offered", async () => {
    await article.locator("summary").first().click();
    const [doubt] = (await get("/v1/doubts?limit=1000")).doubts.filter((one) => one.call_id === call);
    check(new Date(doubt.attempt_until) > new Date(doubt.now), "a doubt whose attempt has time left (the machine was too slow for this test otherwise)", doubt);
    equal(await offered(article.locator("form.settle")), ["applied"], "what is offered");
    const said = await article.innerText();
    check(said.includes("cannot be known before"), "the page to say why", said);
  });
  await claim("(c) a rule of the ledger, not of the page: “did not happen” is refused when it is sent all the same", async () => {
    const form = { outcome: "not_applied", note: "I guess" };
    const answer = await ann.context.request.post(`/console/calls/${call}/settle`, { form });
    const body = await answer.text();
    check(body.includes('class="problem"'), "a refusal on the page", body.slice(0, 300));
    equal((await story(call)).call.state, "in_doubt", "the call");
  });
  await claim("(c) when that time is over, it is still not offered while the worker may act; by time alone is a box of its own", async () => {
    await until("the attempt's time is over", async () => {
      const [doubt] = (await get("/v1/doubts?limit=1000")).doubts.filter((one) => one.call_id === call);
      return new Date(doubt.attempt_until) < new Date(doubt.now);
    }, 40_000);
    await until("the inbox that is open offers more, without reload", async () => (await offered(article.locator("form.settle"))).includes("abandoned"), 3_000);
    await page.goto(`/console/calls/${call}`);
    const form = page.locator("form.settle");
    equal(await offered(form), ["applied", "abandoned"], "what is offered");
    equal(await form.locator("details input[name=by_time_only]").isVisible(), false, "whether the box is open by itself");
    const said = await form.innerText();
    check(said.includes("cannot be known while its worker may still act"), "the page to say why", said);
  });
  await claim("(c) the command that it shows names the worker as the command wants it: by its id", async () => {
    const [{ worker_id }] = await workers();
    const command = await page.locator("form.settle pre.text").textContent();
    check(command.includes(worker_id), `a command with ${worker_id}`, command);
  });
  await claim("(c) once the worker is fenced, the page that is open offers that it did not happen", async () => {
    await page.goto("/console/doubts");
    await follows(page);
    const [gone] = await until("the worker is dead", async () => (await workers()).filter((one) => one.state === "dead"), 30_000);
    await toolfleet("workers", "fence", gone.worker_id, "--note", "killed by the test that has started it");
    await until("the form offers it without reload", async () => (await offered(article.locator("form.settle"))).includes("not_applied"), 3_000);
  });
  await claim("(c) the verdict is in the history, under the name of who said it", async () => {
    await article.locator("summary").first().click();
    const form = article.locator("form.settle");
    await form.locator("input[value=not_applied]").check();
    await form.locator("textarea[name=note]").fill("the bank has no such charge");
    await form.getByRole("button").click();
    await page.locator(".done").waitFor();
    const done = await page.locator(".done").innerText();
    check(done.includes("not_applied") && done.includes("the bank has no such charge"), "the verdict as it was said", done);
    const head = await page.locator("#head").innerText();
    check(head.includes("did not happen"), "the page to say that it did not happen", head);
    const { call: settled, events } = await story(call);
    equal([settled.state, settled.effect_known], ["failed", "not_applied"], "the call in the API");
    check(events.at(-1).actor.startsWith("ann"), "ann as the author", events.at(-1));
    const moves = await page.locator("#moves").innerText();
    check(moves.includes("ann"), "ann in the moves of the page", moves);
  });
  await ann.close();
}

/** Somebody settles while another has the form open. */
async function rival(browser, call) {
  const { page, close } = await visitor(browser, tokens.ann);
  await page.goto("/console/doubts");
  const article = page.locator(`#doubt-${call}`);
  await article.locator("summary").first().click();
  await article.locator("input[value=applied]").check();
  await article.locator("textarea[name=note]").fill("I say it happened");
  await post(`/v1/calls/${call}/settle`, { outcome: "abandoned", note: "bob was first" }, { token: tokens.bob });
  await article.getByRole("button").click();
  await page.locator(".problem").waitFor();
  const said = (await page.locator(".problem, p.first").allInnerTexts()).join(" ");
  check(said.includes("bob"), "the conflict to name who was first", said);
  const { events } = await story(call);
  equal(events.filter((event) => event.actor.startsWith("ann")).length, 0, "moves of ann");
  await close();
  return said.replaceAll("\n", " ").slice(0, 160);
}

/** The first doubt of a tenant that had none. */
async function firstOne(browser) {
  const tenant = `calm-${crypto.randomUUID().slice(0, 8)}`;
  const { page, close } = await visitor(browser, tokens.all);
  await page.goto(`/console/doubts?tenant=${tenant}`);
  await follows(page);
  const nothing = page.getByText("No call is in doubt.");
  equal(await nothing.isVisible(), true, "whether the empty inbox says that it is");
  await inState(await make("doubtful", {}, { tenant }), "in_doubt", 20_000, { tenant });
  await until("the doubt is announced", async () => (await page.locator("#news").innerText()).includes("1 new"), 2_500);
  equal(await nothing.isVisible(), false, "whether it still says that there is none");
  await close();
}

/** A call goes in doubt while its page is looked at, and is settled by another. */
async function watched(browser) {
  const { page, close } = await visitor(browser, tokens.ann);
  const call = await make("charge_slowly", { account: `hangs-${crypto.randomUUID()}`, cents: 5 }, { token: tokens.ann });
  await inState(call, "running");
  await page.goto(`/console/calls/${call}`);
  await follows(page);
  const forms = async () => [await page.locator("form.settle").count(), await page.locator("#cancel-reason").count()];
  equal(await forms(), [0, 1], "forms of a verdict, and to cancel it, while it runs");
  await inState(call, "in_doubt");
  await until("the form of a verdict is there, and none to cancel it", async () => {
    equal(await forms(), [1, 0], "forms of a verdict, and to cancel it, in doubt");
    return true;
  }, 2_500);
  await post(`/v1/calls/${call}/settle`, { outcome: "applied", note: "meanwhile" }, { token: tokens.bob });
  await until("the form is gone", async () => (await page.locator("form.settle").count()) === 0, 2_500);
  await close();
}

/** What is being typed stays when the page changes around it. */
async function typing(browser) {
  const { page, close } = await visitor(browser, tokens.ann);
  const account = `hangs-${crypto.randomUUID()}`;
  const call = await make("charge", { account, cents: 5 }, { token: tokens.ann });
  await inState(call, "in_doubt");
  const article = page.locator(`#doubt-${call}`);
  await until("the doubt is on the page", async () => {
    await page.goto("/console/doubts");
    return (await article.count()) === 1;
  });
  await follows(page);
  await article.locator("summary").first().click();
  await article.locator("textarea[name=note]").fill("half a sent");
  const before = await countNow(page);
  await post(`/v1/calls/${call}/settle`, { outcome: "applied", note: "meanwhile" }, { token: tokens.bob });
  await until("the count has changed", async () => (await count(page)) === before - 1);
  equal(await article.locator("textarea[name=note]").inputValue(), "half a sent", "what was typed");
  await close();
}

async function reader(browser, call) {
  const { page, context, close } = await visitor(browser, tokens.looker);
  await page.goto(`/console/calls/${call}`);
  equal(await page.locator("form.settle").count(), 0, "forms for who may only look");
  const said = await page.locator("#settle").innerText();
  check(said.includes("scope settle"), "the page to say which right is missing", said);
  const answer = await context.request.post(`/console/calls/${call}/settle`, { form: { outcome: "applied", note: "x" } });
  equal([answer.status() >= 400 || (await answer.text()).includes('class="problem"'), (await story(call)).call.state], [true, "in_doubt"], "a verdict that is sent all the same");
  await close();
}

await module(async (later) => {
  const [browser, ids] = [await open(later), await seeded()];
  await killed(browser, later);
  await claim("an inbox that was empty does not say so beside the news", () => firstOne(browser));
  await claim("the page of a call that goes in doubt while it is looked at has the form then, and loses it with another's verdict", () => watched(browser));
  await claim("(d) who settles against a rival reads the conflict and who was first", () => rival(browser, ids.doubt_rival));
  await claim("(d) what is being typed stays when the call is settled by another", () => typing(browser));
  await claim("who may only look sees the doubt and no form, and is refused", () => reader(browser, ids.doubt));
});
