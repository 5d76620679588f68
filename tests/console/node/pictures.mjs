// A picture of every page with real data, light and dark, wide and narrow, English and Chinese; and that no page has to be scrolled
// sideways at 360 px, nor at 200 % zoom, which is half as many pixels of CSS.
import { claim, check, figure, module, until } from "./claims.mjs";
import { open, overhang, visitor } from "./browser.mjs";
import { pages, seeded } from "./seed.mjs";
import { inState, make, told, tokens } from "./fleet.mjs";

const LOOKS = [
  { scheme: "light", width: 1280, locale: "en-GB" },
  { scheme: "dark", width: 360, locale: "zh-CN" },
  { scheme: "dark", width: 1280, locale: "en-GB" },
  { scheme: "light", width: 360, locale: "en-GB" },
  { scheme: "light", width: 1280, locale: "zh-CN" },
  { scheme: "dark", width: 1280, locale: "zh-CN" },
  { scheme: "dark", width: 360, locale: "en-GB" },
  { scheme: "light", width: 360, locale: "zh-CN" },
];
/** The most picture lines of a page: a full page of fifty calls says no more below. */
const HEIGHT_MAX = 3000;

async function taken(page, name) {
  const height = Math.min(await page.evaluate(() => document.documentElement.scrollHeight), HEIGHT_MAX);
  const { width } = page.viewportSize();
  await page.screenshot({ path: `${told.pictures}/${name}.png`, fullPage: true, clip: { x: 0, y: 0, width, height } });
}

/** The form of a tool, filled, after a Check that has mended something. */
async function checked(page) {
  await page.goto("/console/tools/set_limit");
  await page.getByRole("textbox", { name: /^account/ }).fill("c-9");
  await page.getByRole("textbox", { name: /^limit/ }).fill('"5"');
  await page.locator("#arguments-json").fill('{"account": "c-9", "limit": "5", "tags": ["a", "b"], "address": {"city": "Bern"}}');
  await page.locator("button[value=check]").click();
  await page.locator("#verdict").waitFor();
}

async function look(browser, ids, { scheme, width, locale }) {
  const one = await visitor(browser, tokens.ann, { scheme, width, locale });
  const stranger = await visitor(browser, null, { scheme, width, locale });
  const [language, wide] = [locale.slice(0, 2), []];
  const keep = async (page, name) => {
    const over = await overhang(page);
    if (over > 0) wide.push(`${name} by ${over} px`);
    await taken(page, `${name}-${scheme}-${width}-${language}`);
  };
  for (const [name, path] of Object.entries(pages(ids))) {
    await one.page.goto(path);
    await keep(one.page, name);
  }
  await checked(one.page);
  await keep(one.page, "tool_checked");
  await stranger.page.goto("/console/login");
  await keep(stranger.page, "login");
  await Promise.all([one.close(), stranger.close()]);
  return wide;
}

await module(async (later) => {
  const [browser, ids] = [await open(later), await seeded()];
  const looks = told.short ? LOOKS.slice(0, 2) : LOOKS;
  const claimed = (how) =>
    claim(`no page has to be scrolled sideways: ${how.scheme}, ${how.width} px, ${how.locale}`, async () => {
      const wide = await look(browser, ids, how);
      check(wide.length === 0, "no page to be wider than its window", wide);
      return `${Object.keys(pages(ids)).length + 2} pictures`;
    });
  // Two at a time: a browser is not done sooner with more.
  for (let n = 0; n < looks.length; n += 2) await Promise.all(looks.slice(n, n + 2).map(claimed));
  const narrow = async (width) => {
    const { page, close } = await visitor(browser, tokens.all, { width });
    await page.goto("/console/streams");
    await page.locator("h1").evaluate((title) => (title.style.width = "2000px"));
    check((await overhang(page)) > 1000, "a page that is too wide to be noticed", await overhang(page));
    await claim(`no page has to be scrolled sideways for who may see all tenants: ${width} px${width === 640 ? ", as at 200 % zoom" : ""}`, async () => {
      const wide = [];
      for (const [name, path] of Object.entries(pages(ids))) {
        await page.goto(path);
        const over = await overhang(page);
        if (over > 0) wide.push(`${name} by ${over} px`);
      }
      check(wide.length === 0, "no page to be wider than its window", wide);
    });
    await close();
  };
  await Promise.all([640, 360].map(narrow));
  await claim("at 1280 px the table of calls shows all of its columns", async () => {
    const { page, close } = await visitor(browser, tokens.ann);
    await page.goto("/console");
    const [inner, outer] = await page.locator(".wide", { has: page.locator("table.calls") }).evaluate((wide) => [wide.scrollWidth, wide.clientWidth]);
    check(inner <= outer, `a table of at most ${outer} px`, inner);
    await close();
  });
  await claim("the strip has a place for each of ten minutes, and calls of this minute stand at its end", async () => {
    const { page, close } = await visitor(browser, tokens.ann);
    await until("the strip has them", async () => {
      // Anew in each round: a minute may end between the call and the look.
      await inState(await make("look", { word: "now" }, { token: tokens.ann }), "succeeded");
      await page.goto("/console");
      const [, , width] = (await page.locator("svg.strip").getAttribute("viewBox")).split(" ").map(Number);
      const places = await page.locator("svg.strip rect").evaluateAll((bars) => bars.map((bar) => [bar.x.baseVal.value, bar.width.baseVal.value]));
      const [last, bar] = places.at(-1);
      check(bar <= width / 10 && last >= 0.9 * width - 1, "the last bar in the last tenth, and no wider than that", { width, last, bar });
      return true;
    });
    await close();
  });
  await claim("the pages have no English words for states in Chinese", async () => {
    const { page, close } = await visitor(browser, tokens.all, { locale: "zh-CN" });
    const english = [];
    for (const path of ["/console", "/console/workers?all=true", "/console/protection", `/console/calls/${ids.failed}`]) {
      await page.goto(path);
      for (const word of await page.locator(".state").allInnerTexts()) if (/[a-z]/i.test(word)) english.push(`${path}: ${word.trim()}`);
    }
    check(english.length === 0, "no English state", [...new Set(english)]);
    const state = await page.goto("/console/protection").then(() => page.locator("#breakers .state-open").first().innerText());
    check(state.trim() !== "进行中", "an open breaker to be called something else than a call that is in progress", state);
    await close();
  });
  await claim("pages are in the language that is chosen, and times in the reader's zone", async () => {
    const { page, close } = await visitor(browser, tokens.ann);
    await page.goto("/console");
    await page.locator("button[name=language]").click();
    await until("the page is Chinese", async () => (await page.locator("html").getAttribute("lang")) === "zh-CN");
    await page.goto(`/console/calls/${ids.failed}`);
    const time = page.locator("#facts time").first();
    const [at, written] = [await time.getAttribute("datetime"), await time.textContent()];
    const here = new Date(at).toLocaleString("sv-SE", { timeZone: "Europe/Zurich" });
    check(written === here, `the time ${at} to be written as ${here}`, written);
    await close();
  });
  figure(`the pictures are in ${told.pictures}`);
});
