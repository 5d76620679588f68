// The form of the playground against schemas that are too much for one: recursion, 500 properties, no type, a pattern that takes for ever
// in a browser, and markup in names. The page stays quick, and what cannot be a form can be written as JSON.
import { check, claim, equal, module, until } from "./claims.mjs";
import { open, visitor } from "./browser.mjs";
import { tokens } from "./fleet.mjs";

/** Loads a tool's page; how long that and the longest task of its script took. */
async function load(page, tool) {
  const start = performance.now();
  await page.goto(`/console/tools/${tool}`);
  await page.locator("#arguments-json").waitFor();
  const took = Math.round(performance.now() - start);
  const longest = await page.evaluate(() => Math.round(Math.max(0, ...globalThis.__long)));
  check(took < 4_000, `${tool} within 4 s`, took);
  return `${took} ms, longest task ${longest} ms`;
}

async function verdict(page, text) {
  await page.locator("#arguments-json").fill(text);
  await page.locator("button[value=check]").click();
  const shown = page.locator("#playground-section .done, #playground-section .problem").first();
  await shown.waitFor();
  return shown.innerText();
}

await module(async (later) => {
  const browser = await open(later);
  const { page, context, seen } = await visitor(browser, tokens.ann);
  await context.addInitScript(() => {
    globalThis.__long = [];
    new PerformanceObserver((list) => globalThis.__long.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: "longtask", buffered: true });
  });
  await claim("recursion ends in fields for JSON, and what is added on the way is written", async () => {
    const took = await load(page, "shape_recursive");
    const name = page.getByLabel(/^name/).first();
    await name.fill("root");
    await page.getByRole("button", { name: "Add" }).first().click();
    equal(JSON.parse(await page.locator("#arguments-json").inputValue()).tree.name, "root", "the name of the root");
    const fields = await page.locator("#form-from-schema").locator("input, textarea, select").count();
    check(fields < 210, "at most some 200 fields", fields);
    return took;
  });
  await claim("500 properties are written as JSON, and checked", async () => {
    const took = await load(page, "shape_wide");
    const fields = await page.locator("#form-from-schema").locator("input, select, textarea").count();
    check(fields < 210, "at most some 200 fields", fields);
    const said = await verdict(page, '{"field_499": "7"}');
    check(said.includes('"field_499": 7'), "the door to mend it", said);
    return took;
  });
  await claim("properties without a type are fields for JSON", async () => {
    const took = await load(page, "shape_typeless");
    await page.getByLabel(/^any/).first().fill('{"x": [1, 2.50]}');
    const text = await page.locator("#arguments-json").inputValue();
    check(text.includes("2.50"), "the JSON as it was typed", text);
    return took;
  });
  await claim("a pattern that takes for ever in a browser is never evaluated there, and the door answers", async () => {
    const took = await load(page, "shape_pattern");
    await page.getByLabel(/^slow/).first().fill(`${"a".repeat(60)}!`);
    const start = performance.now();
    const said = await verdict(page, JSON.stringify({ slow: `${"a".repeat(60)}!` }));
    const checked = Math.round(performance.now() - start);
    check(said.includes("/slow"), "the door to refuse it with its place", said);
    check(checked < 4_000, "an answer within 4 s", checked);
    equal(await page.locator("[pattern]").count(), 0, "fields with a pattern");
    return `${took}; checked in ${checked} ms`;
  });
  await claim("markup in names, values and descriptions is text", async () => {
    const took = await load(page, "shape_markup");
    const legend = await page.locator("#form-from-schema").innerText();
    check(legend.includes("</script><script>") && legend.includes("<img src=x"), "the names as they are", legend);
    await until("a choice is made", async () => {
      await page.locator("#form-from-schema select").first().selectOption({ index: 1 });
      return (await page.locator("#arguments-json").inputValue()).includes("<b>");
    });
    equal(await page.evaluate(() => globalThis.__ran ?? 0), 0, "scripts run");
    return took;
  });
  await claim("no page of these had an error of its script", () => Promise.resolve(equal([seen.errors, seen.dialogs, seen.foreign], [[], [], []], "errors, dialogs and foreign requests")));
});
