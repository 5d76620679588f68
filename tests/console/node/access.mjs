// For everybody: axe finds nothing serious on any page, light and dark, and the way from a call in doubt to its verdict is gone by
// keyboard alone.
import { readFileSync } from "node:fs";
import { check, claim, equal, figure, module, until } from "./claims.mjs";
import { follows, open, visitor } from "./browser.mjs";
import { pages, seeded } from "./seed.mjs";
import { inState, told, tokens } from "./fleet.mjs";

const AXE = readFileSync(told.axe, "utf8");
const GRAVE = ["serious", "critical"];

/** What axe finds on this page: `rule (impact): where`. */
async function faults(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const found = ({ id, impact, nodes }) => ({ impact, text: `${id} (${impact}) at ${nodes.slice(0, 3).map((node) => node.target.join(" ")).join(", ")}` });
  return violations.map(found);
}

async function axeOn(browser, ids, scheme) {
  const [one, stranger] = [await visitor(browser, tokens.all, { scheme }), await visitor(browser, null, { scheme })];
  const [grave, others] = [[], new Set()];
  const look = async (page, name) => {
    for (const { impact, text } of await faults(page)) {
      if (GRAVE.includes(impact)) grave.push(`${name}: ${text}`);
      else others.add(`${name}: ${text}`);
    }
  };
  for (const [name, path] of Object.entries(pages(ids))) {
    await one.page.goto(path);
    if (name === "doubts") await one.page.locator("details > summary").first().click();
    await look(one.page, name);
  }
  await one.page.keyboard.press("?");
  await one.page.locator("dialog[open]").waitFor();
  await look(one.page, "the list of keys");
  await stranger.page.goto("/console/login");
  await look(stranger.page, "login");
  await Promise.all([one.close(), stranger.close()]);
  if (others.size > 0) figure(`axe, ${scheme}, ${others.size} not serious, the first: ${[...others][0]}`);
  check(grave.length === 0, "no serious or critical fault", grave);
}

/** That axe sees what it is asked for: a field without a name, and a text that is too faint. */
async function noticed(browser) {
  const { page, close } = await visitor(browser, tokens.all);
  await page.goto("/console/doubts");
  await page.evaluate(() => {
    const faint = Object.assign(document.createElement("p"), { textContent: "too faint" });
    Object.assign(faint.style, { color: "#999", background: "#fff" });
    document.getElementById("main").append(faint, document.createElement("input"));
  });
  const found = (await faults(page)).filter(({ impact }) => GRAVE.includes(impact)).map(({ text }) => text.split(" ")[0]);
  equal(found.sort(), ["color-contrast", "label"], "what axe says of them");
  await close();
}

/** From the live page to a verdict, with keys alone. */
async function byKeys(browser, call) {
  const { page, close } = await visitor(browser, tokens.ann);
  const focused = () => page.evaluate(() => document.activeElement?.outerHTML.slice(0, 300) ?? "");
  const tabTo = async (what, is, most = 40) => {
    for (let n = 0; n < most; n += 1) {
      await page.keyboard.press("Tab");
      if (await page.evaluate(is, call)) return;
    }
    check(false, `Tab to come to ${what} within ${most} steps`, await focused());
  };
  await page.goto("/console");
  await page.keyboard.press("Tab");
  equal(await page.evaluate(() => document.activeElement.className), "skip", "the first stop of Tab");
  await page.locator("#main").evaluate((main) => main.focus());
  await page.keyboard.press("g");
  await page.keyboard.press("d");
  await page.waitForURL("**/console/doubts*");
  await follows(page);
  // j goes from doubt to doubt until it is the one that is meant.
  for (let n = 0; n < 60; n += 1) {
    await page.keyboard.press("j");
    if (await page.evaluate((id) => document.activeElement?.closest("[data-key]")?.dataset.key === id, call)) break;
  }
  const at = await page.evaluate(() => document.activeElement?.closest("[data-key]")?.dataset.key ?? null);
  equal(at, call, "the doubt that j has come to");
  await tabTo("the verdict", (id) => document.activeElement?.closest(`#settle-${CSS.escape(id)}`) !== null && document.activeElement.localName === "summary");
  const outlined = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  check(outlined !== "none", "the focus to be seen", outlined);
  await page.keyboard.press("Enter");
  await tabTo("the outcomes", () => document.activeElement?.name === "outcome");
  await page.keyboard.press("Space");
  equal(await page.evaluate(() => document.activeElement.checked && document.activeElement.value), "applied", "the outcome that Space has chosen");
  await tabTo("the note", () => document.activeElement?.name === "note");
  await page.keyboard.type("the bank has it, j k f p ? typed here do nothing");
  await tabTo("the button", () => document.activeElement?.localName === "button" && document.activeElement.closest("form.settle") !== null);
  await page.keyboard.press("Enter");
  await page.locator(".done").waitFor();
  const settled = await inState(call, "succeeded");
  equal(settled.events.at(-1).actor.startsWith("ann"), true, `the verdict's author to be ann (${settled.events.at(-1).actor})`);
  await close();
}

/** Each key, and that none of them does anything while somebody types. */
async function keys(browser) {
  const { page, close } = await visitor(browser, tokens.all);
  const places = { l: "/console", d: "/console/doubts", w: "/console/waiting", t: "/console/tools", o: "/console/workers", p: "/console/protection", s: "/console/streams" };
  // From a page that the first key leads away from.
  await page.goto("/console/streams");
  for (const [key, path] of Object.entries(places)) {
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await page.waitForURL((url) => url.pathname === path);
    await page.waitForLoadState("domcontentloaded");
  }
  await page.goto("/console");
  await page.keyboard.press("/");
  equal(await page.evaluate(() => document.activeElement.id), "search", "the field that / goes to");
  await page.keyboard.type("f?gd");
  equal([await page.locator("#search").inputValue(), new URL(page.url()).pathname, await page.locator("dialog[open]").count()], ["f?gd", "/console", 0], "what typing has done");
  await page.locator("#search").evaluate((field) => field.blur());
  await page.keyboard.press("f");
  await page.waitForURL("**/console?state=failed*");
  await page.keyboard.press("?");
  await page.locator("dialog[open]").waitFor();
  await page.keyboard.press("Escape");
  await until("Escape closes the list", async () => (await page.locator("dialog[open]").count()) === 0);
  await page.locator("#pause:not([hidden])").waitFor();
  await page.keyboard.press("p");
  await until("p stops the flow", async () => (await page.locator("#pause").getAttribute("aria-pressed")) === "true");
  await close();
}

await module(async (later) => {
  const [browser, ids] = [await open(later), await seeded()];
  await claim("axe notices a field without a name, and a text that is too faint", () => noticed(browser));
  const claimed = (scheme) => claim(`axe finds nothing serious on ${Object.keys(pages(ids)).length + 2} pages, ${scheme}`, () => axeOn(browser, ids, scheme));
  await Promise.all(["light", "dark"].map(claimed));
  await claim("a call in doubt is found, looked at and settled by keyboard alone", () => byKeys(browser, ids.doubt_keys));
  await claim("g l d w t o p s / f ? Escape p do what the list says, and nothing while somebody types", () => keys(browser));
});
