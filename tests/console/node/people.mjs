// Journeys of two people: a call that needs both their yes, one of whom changes the language; a no; and somebody without the right.
import { check, claim, equal, module, until } from "./claims.mjs";
import { follows, open, visitor } from "./browser.mjs";
import { carriedOut, inState, make, story, tokens } from "./fleet.mjs";

const transfer = async (account) => {
  const call = await make("transfer", { account, cents: 990_000 }, { token: tokens.all });
  await inState(call, "awaiting_client");
  return call;
};

/** The article of a call on the page of what waits, which is followed. */
async function article(page, call) {
  const found = page.locator(`#waiting-${call}`);
  await until("the call is on the page", async () => {
    await page.goto("/console/waiting");
    return (await found.count()) === 1;
  });
  await follows(page);
  return found;
}

async function bothSayYes(browser) {
  const account = `c-${crypto.randomUUID()}`;
  const call = await transfer(account);
  const [ann, bob] = [await visitor(browser, tokens.ann), await visitor(browser, tokens.bob)];
  const [hers, his] = [await article(ann.page, call), await article(bob.page, call)];
  const said = await hers.innerText();
  check(said.includes(account) && said.includes("990000") && said.includes("0 of 2") && said.includes("the yes of two people"), "the arguments, the reason and how many have said yes", said);
  await hers.locator("input[name=note]").fill("ordered by phone");
  await hers.getByRole("button", { name: "Approve" }).click();
  await ann.page.locator(".done").waitFor();
  equal([(await story(call)).call.state, await carriedOut(account)], ["awaiting_client", 0], "the call after one of two yeses");
  await until("the other's page shows the first yes without reload", async () => (await his.innerText()).includes("1 of 2 · ann"), 2_500);
  await claim("(e) the same person's second yes is refused, and said so", async () => {
    const again = await article(ann.page, call);
    await again.locator("input[name=note]").fill("once more");
    await again.getByRole("button", { name: "Approve" }).click();
    await ann.page.locator(".problem, .done").waitFor();
    equal([(await story(call)).call.state, await carriedOut(account)], ["awaiting_client", 0], "the call after two yeses of one person");
  });
  await his.locator("input[name=note]").fill("checked with Eve");
  await his.getByRole("button", { name: "Approve" }).click();
  await bob.page.locator(".done").waitFor();
  const { events } = await inState(call, "succeeded");
  equal(await carriedOut(account), 1, "how often it is carried out");
  const moves = JSON.stringify(events);
  check(moves.includes("ann") && moves.includes("bob"), "both in the history", moves);
  await bob.page.goto(`/console/calls/${call}`);
  const shown = await bob.page.locator("#moves").innerText();
  check(shown.includes("ann") && shown.includes("bob"), "both in the moves of the page", shown);
  await Promise.all([ann.close(), bob.close()]);
}

async function sayNo(browser) {
  const account = `c-${crypto.randomUUID()}`;
  const call = await transfer(account);
  const bob = await visitor(browser, tokens.bob);
  await bob.page.goto(`/console/calls/${call}`);
  const form = bob.page.locator("#decide");
  await form.locator("input[name=note]").fill("not this customer");
  await form.getByRole("button", { name: "Deny" }).click();
  await bob.page.locator(".done").waitFor();
  const { call: denied } = await inState(call, "failed");
  equal([denied.error.code, await carriedOut(account)], ["denied", 0], "the call");
  await bob.close();
}

/** A yes for other arguments than those that are shown: the hash of another call. */
async function otherHash(browser) {
  const [call, other] = [await transfer(`c-${crypto.randomUUID()}`), await transfer(`c-${crypto.randomUUID()}`)];
  const ann = await visitor(browser, tokens.ann);
  const hers = await article(ann.page, other);
  const hash = await hers.locator("input[name=args_hash]").inputValue();
  const answer = await ann.context.request.post(`/console/calls/${call}/approve`, { form: { args_hash: hash, note: "this one" } });
  const body = await answer.text();
  check(body.includes('class="problem"') && body.includes("conflict"), "a conflict on the page", body.slice(0, 200));
  await ann.close();
}

async function mayNot(browser) {
  const call = await transfer(`c-${crypto.randomUUID()}`);
  const looker = await visitor(browser, tokens.looker);
  const found = await article(looker.page, call);
  equal(await found.locator("form").count(), 0, "forms for who may only look");
  const hash = (await found.locator(".hash").textContent()).trim();
  await looker.context.request.post(`/console/calls/${call}/approve`, { form: { args_hash: hash, note: "please" } });
  const decided = (await story(call)).events.filter((event) => event.actor.startsWith("looker"));
  equal(decided, [], "what a yes without the right has done");
  await looker.close();
}

/** A form that another site sends in the reader's browser. */
async function otherSite(browser) {
  const call = await transfer(`c-${crypto.randomUUID()}`);
  const ann = await visitor(browser, tokens.ann);
  const hash = await (await article(ann.page, call)).locator("input[name=args_hash]").inputValue();
  const send = (headers) => ann.context.request.post(`/console/calls/${call}/approve`, { form: { args_hash: hash, note: "x" }, headers });
  for (const headers of [{ "Sec-Fetch-Site": "cross-site" }, { "Sec-Fetch-Site": "same-site" }, { Origin: "https://evil.example" }]) {
    const answer = await send(headers);
    equal(answer.status(), 403, `the status of a form with ${JSON.stringify(headers)}`);
  }
  equal((await story(call)).events.filter((event) => event.actor.startsWith("ann")), [], "moves of ann");
  await ann.close();
}

await module(async (later) => {
  const browser = await open(later);
  await claim("(e) a transfer runs once two people have said yes, not before, and once", () => bothSayYes(browser));
  await claim("a no ends it, from its own page", () => sayNo(browser));
  await claim("a yes for other arguments than those shown is refused as a conflict", () => otherHash(browser));
  await claim("who may only look sees no form, and a yes sent all the same counts nothing", () => mayNot(browser));
  await claim("forms that another site sends are refused", () => otherSite(browser));
});
