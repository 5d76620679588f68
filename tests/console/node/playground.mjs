// Journeys in the playground: the form writes the JSON, Check shows what is mended, and a write is run once its key has been shown, once.
import { createHash } from "node:crypto";
import { check, claim, equal, module, until } from "./claims.mjs";
import { open, visitor } from "./browser.mjs";
import { carriedOut, get, inState, tokens } from "./fleet.mjs";

const json = async (page) => JSON.parse(await page.locator("#arguments-json").inputValue());
const field = (page, name) => page.getByLabel(new RegExp(`^${name}`)).first();

async function formWrites(page) {
  await page.goto("/console/tools/set_limit");
  await page.locator("#form-from-schema:not([hidden])").waitFor();
  await field(page, "account").fill("c-1");
  await field(page, "limit").fill("9007199254740993");
  await field(page, "city").fill("Bern");
  await field(page, "factor").fill("1.50");
  await field(page, "currency").selectOption({ index: 2 });
  await field(page, "urgent").check();
  await page.getByRole("button", { name: "Add" }).click();
  await page.locator("#form-from-schema .item textarea").fill("first");
  const text = await page.locator("#arguments-json").inputValue();
  for (const part of ["9007199254740993", "1.50"]) check(text.includes(part), `the JSON to have ${part} as it was typed`, text);
  const rest = await json(page);
  for (const name of ["limit", "factor"]) delete rest[name];
  equal(rest, { account: "c-1", address: { city: "Bern" }, currency: "CHF", tags: ["first"], urgent: true }, "the rest of the JSON");
  await page.locator("#arguments-json").fill('{"account": "by hand", "limit": 1}');
  equal(await page.locator("#form-from-schema > fieldset").evaluate((fields) => fields.disabled), true, "whether the form is off while the JSON is edited");
  await page.getByRole("button", { name: "Make the form again" }).click();
  equal(await field(page, "account").inputValue(), "by hand", "the form made again");
}

/** How many calls there are with this text in their arguments. */
const callsWith = async (text) => (await get(`/v1/history?tool=charge&limit=10&text=${text}`)).calls.length;

/** A write from Check to its run. */
async function write(page, account) {
  await page.goto("/console/tools/charge");
  await page.locator("#arguments-json").fill(`{"account": "${account}", "cents": "5"}`);
  await page.locator("button[value=check]").click();
  const verdict = JSON.parse(await page.locator("#verdict").textContent());
  equal([verdict.verdict, verdict.args.cents, verdict.coercions.map((one) => one.path)], ["accepted", 5, ["/cents"]], "the door's verdict on a text for a number");
  equal(await callsWith(account), 0, "calls after a Check");
  await page.locator("button[value=run]").click();
  await page.locator("button[value=run_now]").waitFor();
  const key = await page.locator("#key").inputValue();
  const said = await page.locator("#playground .problem").innerText();
  check(key.length > 10 && said.includes(key), "the key to be shown before the write", said);
  equal(await callsWith(account), 0, "calls before it is confirmed");
  await page.locator("button[value=run_now]").click();
  await page.waitForURL("**/console/calls/*");
  const call = new URL(page.url()).pathname.split("/")[3];
  const { call: made } = await inState(call, "succeeded");
  equal([made.args.cents, await carriedOut(account), await callsWith(account)], [5, 1, 1], "what was run, and how often");
  await until("the page has both arguments and what was corrected", async () => {
    await page.reload();
    const shown = await page.locator("#arguments").innerText();
    return shown.includes('"cents": "5"') && shown.includes('"cents": 5\n') && shown.includes("/cents");
  });
  return key;
}

async function sameKey(page, account, key) {
  const first = page.url();
  await page.goto("/console/tools/charge");
  await page.locator("#arguments-json").fill(`{"account": "${account}", "cents": "5"}`);
  await page.locator("#key").fill(key);
  await page.locator("button[value=run]").click();
  await page.locator("button[value=run_now]").click();
  await page.waitForURL("**/console/calls/*");
  equal([page.url(), await carriedOut(account)], [first, 1], "where the same key leads, and how often it was carried out");
  await page.goto("/console/tools/charge");
  await page.locator("#arguments-json").fill(`{"account": "${account}", "cents": 6}`);
  await page.locator("#key").fill(key);
  await page.locator("button[value=run]").click();
  await page.locator("button[value=run_now]").click();
  const said = await page.locator(".problem", { hasText: "idempotency_key_reused" }).innerText();
  check(said.includes("idempotency_key_reused"), "the same key with other arguments to be refused", said);
}

async function refused(page) {
  await page.goto("/console/tools/charge");
  await page.locator("#arguments-json").fill('{"account": "c-1", "cents": "many"}');
  await page.locator("button[value=check]").click();
  const said = await page.locator("#playground-section .done, #playground-section .problem").first().innerText();
  check(said.includes("/cents"), "the verdict to name the place", said);
  equal(await page.locator("#arguments-json").inputValue(), '{"account": "c-1", "cents": "many"}', "what was typed, after the Check");
  await page.locator("#arguments-json").fill("{not json");
  await page.locator("button[value=check]").click();
  const bad = await page.locator("#playground-section .done, #playground-section .problem").first().innerText();
  check(/invalid|JSON/i.test(bad), "text that is no JSON to be refused with a sentence", bad);
}

async function looker(browser) {
  const { page, close, context } = await visitor(browser, tokens.looker);
  await page.goto("/console/tools/charge");
  equal([await page.locator("button[value=check]").count(), await page.locator("button[value=run]").count()], [1, 0], "buttons Check and Run for who may only look");
  const account = `stolen-${crypto.randomUUID()}`;
  const args = JSON.stringify({ account, cents: 5 });
  const { version } = await get("/v1/tools/charge");
  const seen = createHash("sha256").update(`charge ${version}\n${args}`).digest("hex");
  const answer = await context.request.post("/console/tools/charge", { form: { arguments: args, key: account, do: "run_now", seen } });
  check((await answer.text()).includes("forbidden"), "a refusal on the page", await answer.text());
  equal([await callsWith(account), await carriedOut(account)], [0, 0], "calls after a run without the right");
  await close();
}

await module(async (later) => {
  const browser = await open(later);
  const { page, seen } = await visitor(browser, tokens.ann);
  const account = `c-${crypto.randomUUID()}`;
  let key = "";
  await claim("the form of a schema writes the JSON, with numbers as they are typed, and is off while the JSON is edited", () => formWrites(page));
  await claim("(f) Check mends “5” for 5 and stores nothing; the write is run once its key has been shown, once", async () => {
    key = await write(page, account);
    return key;
  });
  await claim("(f) the same key leads to the same call, and with other arguments it is refused", () => sameKey(page, account, key));
  await claim("what does not fit is refused with its place, and stays in the form", () => refused(page));
  await claim("who may only look may check and not run", () => looker(browser));
  await claim("no page of these journeys had an error of its script", () => Promise.resolve(equal(seen.errors, [], "the errors")));
});
