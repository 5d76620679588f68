// Without the script of the console: which journeys can be gone. What follows a page cannot; everything else is links and forms.
import { check, claim, equal, module, until } from "./claims.mjs";
import { open, visitor } from "./browser.mjs";
import { seeded } from "./seed.mjs";
import { carriedOut, get, inState, make, post, tokens } from "./fleet.mjs";

const callOf = (page) => new URL(page.url()).pathname.split("/")[3];

async function signInAndOut(browser) {
  const { page, close } = await visitor(browser, null, { script: false });
  await page.goto("/console/doubts");
  check(page.url().includes("/console/login?to="), "the way to the page to lead to the sign-in", page.url());
  await page.locator("#token").fill("tf_000000000000_wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.locator(".problem").waitFor();
  await page.locator("#token").fill(tokens.ann);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL("**/console/doubts");
  equal(await page.locator(".who").innerText(), "ann", "who is signed in");
  await page.locator("button[name=language]").click();
  equal(await page.locator("html").getAttribute("lang"), "zh-CN", "the language");
  await page.locator("button[name=language]").click();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL("**/console/login");
  await page.goto("/console/doubts");
  check(page.url().includes("/console/login"), "the page to be closed after the sign-out", page.url());
  await close();
}

async function onceLink(browser) {
  const { page, close } = await visitor(browser, null, { script: false });
  const { path } = await post("/console/links", undefined, { token: tokens.ann });
  await page.goto(path);
  check((await page.locator("main").innerText()).includes("ann"), "the link to say under which name it signs in", await page.locator("main").innerText());
  await page.locator("main button").click();
  equal(new URL(page.url()).pathname, "/console", "where the link leads");
  const other = await visitor(browser, null, { script: false });
  await other.page.goto(path);
  check((await other.page.locator(".problem").innerText()).includes("signed somebody in already"), "the link to work once", await other.page.locator("main").innerText());
  await Promise.all([close(), other.close()]);
}

async function failed(page, ids) {
  await page.goto("/console");
  await page.getByRole("link", { name: "Failed only" }).click();
  await page.locator(`tr[data-key="${ids.declined}"] a`).first().click();
  check(/the bank declines declined-17/i.test(await page.locator("#error").innerText()), "the bank's words", await page.locator("#error").innerText());
}

async function settle(page, call) {
  await page.goto("/console/doubts");
  const article = page.locator(`#doubt-${call}`);
  await article.locator("summary").first().click();
  await article.locator("input[value=applied]").check();
  await article.locator("textarea[name=note]").fill("the bank has it");
  await article.locator("textarea[name=result]").fill('{"n": 9007199254740993}');
  await article.getByRole("button").click();
  await page.locator(".done").waitFor();
  equal((await inState(call, "succeeded")).call.effect_known, "applied", "the verdict");
  const shown = await page.locator("#result").innerText();
  check(shown.includes("9007199254740993"), "every digit of the result that was handed in", shown);
}

async function approve(page, bob, call) {
  for (const one of [page, bob.page]) {
    await one.goto(`/console/calls/${call}`);
    await one.locator("#decide input[name=note]").fill("seen");
    await one.locator("#decide").getByRole("button", { name: "Approve" }).click();
    await one.locator(".done").waitFor();
  }
  await inState(call, "succeeded");
}

async function playground(page) {
  const account = `c-${crypto.randomUUID()}`;
  await page.goto("/console/tools/charge");
  equal(await page.locator("#form-from-schema").isVisible(), false, "whether an empty form is seen");
  await page.locator("#arguments-json").fill(`{"account": "${account}", "cents": "5"}`);
  await page.locator("button[value=check]").click();
  check((await page.locator("#verdict").textContent()).includes("string_to_integer"), "what was mended", await page.locator("#verdict").textContent());
  await page.locator("button[value=run]").click();
  await page.locator("button[value=run_now]").click();
  await page.waitForURL("**/console/calls/*");
  await inState(callOf(page), "succeeded");
  equal(await carriedOut(account), 1, "how often it is carried out");
}

async function again(page, ids) {
  await page.goto(`/console/calls/${ids.charged}`);
  await page.locator("#retry-arguments").fill('{"account": "c-again", "cents": 7}');
  await page.locator("form[action*='/retry'] button").click();
  await page.waitForURL((url) => url.pathname.includes("/console/calls/") && !url.pathname.includes(ids.charged));
  equal((await inState(callOf(page), "succeeded")).call.args.cents, 7, "the new call's cents");
}

async function cancel(page) {
  const call = await make("gated", { gate: "nobody-opens-it" }, { token: tokens.ann });
  await inState(call, "running");
  await page.goto(`/console/calls/${call}`);
  await page.getByRole("button", { name: "Cancel this call" }).click();
  await inState(call, "cancelled");
}

/** With a token of this kind a tool is paused, and the pause lifted. */
async function pause(browser, who) {
  const { page, close } = await visitor(browser, tokens[who], { script: false });
  const holds = async () => (await get("/v1/control?tool=shape_wide")).controls.length;
  await page.goto("/console/protection");
  await page.getByText("Pause calls of a tool or of a queue").click();
  const form = page.locator("#switch-pause");
  await form.locator("input[name=tool]").fill("shape_wide");
  await form.locator("input[name=note]").fill("repairs");
  await form.getByRole("button").click();
  const problem = page.locator(".problem");
  check((await problem.count()) === 0, "the pause to be set", (await problem.count()) > 0 && (await problem.innerText()));
  equal(await holds(), 1, "pauses of the tool");
  const row = page.locator("#controls tr", { hasText: "shape_wide" });
  await row.locator("summary").click();
  await row.locator("input[name=note]").fill("it works again");
  await row.getByRole("button", { name: "Lift" }).click();
  await until("the pause is lifted", async () => (await holds()) === 0);
  await close();
}

await module(async (later) => {
  const [browser, ids] = [await open(later), await seeded()];
  const [{ page }, bob] = [await visitor(browser, tokens.ann, { script: false }), await visitor(browser, tokens.bob, { script: false })];
  const sentence = (text) => `without the script: ${text}`;
  await claim(sentence("signing in leads back to the page, a wrong token is refused, the language is chosen, signing out ends it"), () => signInAndOut(browser));
  await claim(sentence("a link signs in once"), () => onceLink(browser));
  await claim(sentence("(a) the charge that failed is found, and why"), () => failed(page, ids));
  await claim(sentence("(d) a call in doubt is settled with its result"), () => settle(page, ids.doubt_plain));
  await claim(sentence("(e) two people approve"), () => approve(page, bob, ids.waiting_plain));
  await claim(sentence("(f) a write is checked, and run once its key is shown"), () => playground(page));
  await claim(sentence("(g) a call is made again with edited arguments"), () => again(page, ids));
  await claim(sentence("a call is cancelled"), () => cancel(page));
  await claim(sentence("a token of all tenants pauses a tool, and lifts that"), () => pause(browser, "all"));
  await claim(sentence("a token of one tenant pauses a tool, and lifts that"), () => pause(browser, "ann"));
  await claim(sentence("every page of the navigation is there"), async () => {
    await page.goto("/console");
    const paths = await page.locator("nav[aria-label] a[data-go]").evaluateAll((links) => links.map((link) => link.getAttribute("href")));
    for (const path of paths) {
      const answer = await page.goto(path);
      // Workers are for tokens of all tenants; this one is told so.
      const expected = path.includes("workers") ? 403 : 200;
      equal([answer.status(), (await page.locator("h1").innerText()).length > 0], [expected, true], path);
    }
    return `${paths.length} pages`;
  });
});
