// What strangers write: markup, scripts, templates, formulas of spreadsheets, marks that turn the order of letters, controls and a line of
// a megabyte; in arguments, keys of objects, results, errors, notes, keys and paths. On no page a dialog opens, a script of theirs runs,
// another origin is asked or the policy is broken, and what is shown is the text as it was written.
import { check, claim, equal, figure, module, until } from "./claims.mjs";
import { follows, open, visitor, watch } from "./browser.mjs";
import { api, get, inState, make, post, told, tokens, toolfleet } from "./fleet.mjs";

const TENANT = "hostile";
const how = { token: tokens.all, tenant: TENANT };
const MEGABYTE = 1024 * 1024;
const RUN = "window.__ran=(window.__ran||0)+1";
const PAYLOADS = {
  script: `<script>${RUN};alert(1)</script>`,
  image: `"><img src=x onerror="${RUN};alert(2)"><svg onload=${RUN}>`,
  breakout: `</textarea></pre></code></title></style></script><script>${RUN}</script><iframe srcdoc="<script>parent.__ran=1</script>">`,
  attribute: `' " onmouseover=${RUN} autofocus onfocus=${RUN} style=background:url(//evil.example/a) x='`,
  elsewhere: '<base href=//evil.example/><link rel=stylesheet href=//evil.example/x.css><meta http-equiv=refresh content="0;url=//evil.example/"><form action=//evil.example>',
  url: `javascript:${RUN}`,
  template: "{{7*7}} ${7*7} <%= 7*7 %> #{7*7} {{constructor.constructor('alert(1)')()}} __proto__",
  formula: '=cmd|\' /C calc\'!A0 @SUM(1) +1 -1 =HYPERLINK("http://evil.example")',
  bidi: "invoice\u202egnp.exe \u2066hidden\u2069 \u200bzero\u200d\u061c \u2028line",
  control: "bell\u0007 escape\u001b[31mred\u001b[0m back\u0008 csi\u009b delete\u007f",
  comment: "<!-- --><![CDATA[ ]]> <?php ?> <!DOCTYPE x [<!ENTITY a 'b'>]> &lt;b&gt; &#60;script&#62;",
};
/** What has to be seen as its code: it is not seen otherwise, or turns the order of what is. */
const ODD = "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff]";

/** Calls that say all of it, in every place where a stranger can. */
async function written() {
  const all = Object.fromEntries(Object.entries(PAYLOADS).map(([name, text]) => [`${name} ${text}`, text]));
  const ids = { echo: await make("echo", { ...PAYLOADS, ...all, deep: [all, [[all]]] }, how) };
  for (const [name, text] of Object.entries(PAYLOADS)) ids[`refuse_${name}`] = await make("refuse", { text }, how);
  ids.key = await make("echo", { a: 1 }, { ...how, key: `k-<script>${RUN}</script>'"` });
  ids.doubt = await make("doubtful", all, how);
  ids.waiting = await make("ask", all, how);
  ids.settled = await make("doubtful", all, how);
  ids.decided = await make("ask", all, how);
  ids.blocks = await make("echo", { content: Object.values(PAYLOADS).map((text) => ({ type: "text", text })), image: 1 }, how);
  ids.links = await make("echo", { content: [{ type: "resource_link", uri: `javascript:${RUN}`, name: PAYLOADS.image }, { type: "image", mimeType: "image/svg+xml", data: "PHN2Zz4=" }] }, how);
  ids.long = await make("long_line", { text: PAYLOADS.image, length: MEGABYTE, lines: ["B".repeat(120_000), "C".repeat(120_000)] }, how);
  const note = Object.values(PAYLOADS).join(" ").slice(0, 1900);
  await inState(ids.settled, "in_doubt", 20_000, how);
  await post(`/v1/calls/${ids.settled}/settle`, { outcome: "applied", note, result: all }, how);
  const { waiting } = await get("/v1/waiting?limit=1000", how);
  const { args_hash } = waiting.find((one) => one.call_id === ids.decided);
  await post(`/v1/calls/${ids.decided}/deny`, { args_hash, note }, how);
  const pause = { do: "pause", tool: "shape_typeless", tenant: TENANT, note };
  const paused = await api("POST", "/v1/control", { ...how, body: pause });
  equal([paused.status, paused.body.error?.code], [400, "invalid_arguments"], "what becomes of a control's note with characters that are not seen");
  await post("/v1/control", { ...pause, note: [PAYLOADS.script, PAYLOADS.image, PAYLOADS.breakout].join(" ") }, how);
  await inState(ids.doubt, "in_doubt", 20_000, how);
  for (const name of ["echo", "blocks", "links", "long", "key"]) await inState(ids[name], "succeeded", 20_000, how);
  for (const name of Object.keys(PAYLOADS)) await inState(ids[`refuse_${name}`], "failed", 20_000, how);
  return ids;
}

function places(ids) {
  const some = told.short ? [PAYLOADS.script, PAYLOADS.breakout, PAYLOADS.attribute, PAYLOADS.bidi] : Object.values(PAYLOADS);
  const inQuery = some.map(encodeURIComponent);
  const tenant = `tenant=${TENANT}`;
  return [
    ...["", "/doubts", "/waiting", "/tools", "/workers", "/protection"].map((page) => `/console${page}?${tenant}`),
    ...["echo", "refuse", "ask", "shape_markup"].map((tool) => `/console/tools/${tool}?${tenant}`),
    ...Object.values(ids).map((id) => `/console/calls/${id}?${tenant}`),
    ...["arguments-run", "result-json"].map((part) => `/console/calls/${ids.echo}/whole/${part}?${tenant}`),
    ...inQuery.flatMap((text) => [
      `/console?${tenant}&tool=${text}`,
      `/console?${tenant}&text=${text}`,
      `/console?${tenant}&session=${text}&since=${text}`,
      `/console?tenant=${text}`,
      `/console/find?q=${text}`,
      `/console/streams?session=${text}`,
      `/console/calls/${text}`,
      `/console/calls/${ids.echo}/whole/${text}?${tenant}`,
      `/console/tools/${text}`,
      `/console/login?to=${text}`,
      `/console/enter/${text}`,
    ]),
  ];
}

/** Has the page say what its policy refuses, before anything else runs in it. */
const listen = (context) => context.addInitScript(() => {
  globalThis.__broken = [];
  document.addEventListener("securitypolicyviolation", (event) => globalThis.__broken.push(`${event.violatedDirective} ${event.blockedURI}`));
});

/** What a page did that none may do. */
async function misdeeds(page, seen) {
  const { ran, broken } = await page.evaluate(() => ({ ran: globalThis.__ran ?? 0, broken: globalThis.__broken }));
  const found = { dialogs: seen.dialogs.length, ran, foreign: seen.foreign.length, policy: broken.length + seen.refused.length, errors: seen.errors.length };
  const said = [...seen.dialogs, ...seen.foreign, ...broken, ...seen.refused, ...seen.errors];
  for (const list of Object.values(seen)) list.length = 0;
  return { found, said };
}

/** Odd characters that stand in a page as they are, outside fields in which somebody edits them. */
const oddOnes = (page) => page.evaluate((pattern) => {
  const odd = new RegExp(pattern);
  const walker = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    if (!parent.closest("textarea, script") && odd.test(walker.currentNode.data)) found.push(`text in ${parent.localName}.${parent.className}#${parent.id}`);
  }
  for (const element of document.querySelectorAll("*"))
    for (const { name, value } of element.attributes) if (name !== "value" && odd.test(value)) found.push(`${name} of ${element.localName}.${element.className}`);
  return found;
}, ODD);

/** A token whose name is markup, if one can be had: its name stands at the top of each page, and in the moves of what it decides. */
async function named(browser, call) {
  const name = `<img src=x onerror="${RUN}">`;
  const words = ["tokens", "create", "--name", name, "--tenant", TENANT, "--scope", "read,settle,call", "--note", PAYLOADS.script];
  const token = await toolfleet(...words).then((text) => text.trim(), () => null);
  if (token === null) return "tokens of such names are refused";
  const { page, context, seen, close } = await visitor(browser, token);
  await listen(context);
  await post(`/v1/calls/${call}/settle`, { outcome: "applied", note: PAYLOADS.script }, { token });
  await page.goto(`/console/calls/${call}`);
  check((await page.locator(".who").innerText()).startsWith("<img"), "its name as text", await page.locator(".who").innerText());
  const { found, said } = await misdeeds(page, seen);
  equal(Object.values(found), [0, 0, 0, 0, 0], `misdeeds (${said.join()})`);
  await close();
  return "such a name is taken";
}

await module(async (later) => {
  const browser = await open(later);
  const { page, context, seen } = await visitor(browser, tokens.all);
  await listen(context);
  const sum = { dialogs: 0, ran: 0, foreign: 0, policy: 0, errors: 0 };
  await claim("the watch itself notices a dialog, a script, a foreign request and a broken policy", async () => {
    await page.goto("/console/login");
    await page.goto(`/console?tenant=${TENANT}`);
    await page.evaluate(async () => {
      alert("a dialog");
      const script = Object.assign(document.createElement("script"), { textContent: "window.__ran = 1" });
      document.body.append(script, Object.assign(document.createElement("img"), { src: "http://127.0.0.1:9/x.png" }));
      globalThis.__ran = 1;
      await new Promise((resume) => setTimeout(resume, 0));
    });
    await until("the policy is broken twice", () => page.evaluate(() => globalThis.__broken.length >= 2));
    const { found } = await misdeeds(page, seen);
    check(found.dialogs === 1 && found.ran === 1 && found.policy >= 2, "all of them to be noticed", found);
  });
  const ids = await written();
  const [pages, odd] = [places(ids), new Set()];
  await claim(`nothing of strangers does anything on ${pages.length} pages, with all that folds opened`, async () => {
    const bad = [];
    const lookAt = async ({ page, seen }, path) => {
      await page.goto(path);
      for (const each of await page.locator("details").all()) await each.evaluate((details) => (details.open = true));
      if (path.includes("/tools/")) await page.locator("body").evaluate((body) => body.querySelectorAll("input, select, textarea").forEach((field) => field.focus()));
      const { found, said } = await misdeeds(page, seen);
      for (const [name, count] of Object.entries(found)) sum[name] += count;
      if (said.length > 0 || found.ran > 0) bad.push(`${path.slice(0, 120)}: ${said.join("; ").slice(0, 200)}`);
      // What is shown whole is text as it is stored, in a page of the browser's own.
      if (!path.includes("/whole/")) for (const one of await oddOnes(page)) odd.add(`${new URL(page.url()).pathname.slice(0, 40)} ${one}`);
    };
    // Two tabs take the pages from one list.
    const beside = await context.newPage();
    const left = [...pages];
    const work = async (tab) => {
      while (left.length > 0) await lookAt(tab, left.shift());
    };
    await Promise.all([work({ page, seen }), work({ page: beside, seen: watch(beside) })]);
    await beside.close();
    figure(`${pages.length} pages: ${sum.dialogs} dialogs, ${sum.ran} scripts run, ${sum.foreign} requests to other origins, ${sum.policy} breaks of the policy, ${sum.errors} errors`);
    check(bad.length === 0, "nothing", bad.slice(0, 6));
  });
  await claim("every page has the whole policy, may stand in no frame and is in no cache, and the cookie is kept from scripts", async () => {
    const policy = [
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'",
      "base-uri 'none'; frame-ancestors 'none'",
    ].join("; ");
    for (const path of ["/console", `/console/calls/${ids.echo}`, "/console/tools/echo", "/console/login", "/console/calls/x", "/console/find?q=x"]) {
      const headers = (await context.request.get(path)).headers();
      equal([headers["content-security-policy"], headers["x-frame-options"], headers["x-content-type-options"]], [policy, "DENY", "nosniff"], `the headers of ${path}`);
      check(/no-store|no-cache/.test(headers["cache-control"] ?? ""), `${path} to be kept nowhere`, headers);
    }
    const [cookie] = (await context.cookies()).filter(({ name }) => name.startsWith("toolfleet_console_"));
    equal([cookie.httpOnly, cookie.sameSite], [true, "Strict"], "the cookie");
    equal(await page.evaluate(() => document.cookie), "", "what scripts see of cookies");
    check(!cookie.value.includes(tokens.all.split("_")[2]), "a cookie without the token in it", cookie.value);
  });
  await claim("a sign-in leads to no other site", async () => {
    for (const to of ["//evil.example/", "https://evil.example/console", "/console\\@evil.example", "javascript:alert(1)"]) {
      const answer = await context.request.post("/console/login", { form: { token: tokens.all, to }, maxRedirects: 0 });
      equal([answer.status(), answer.headers().location], [303, "/console"], `where ${to} leads`);
    }
  });
  await claim("characters that are not seen, or turn the order of others, are shown as their codes", () => Promise.resolve(check(odd.size === 0, "no such character outside of fields", [...odd].slice(0, 8))));
  await claim("what was written is shown as it was, letter by letter", async () => {
    await page.goto(`/console/calls/${ids.refuse_breakout}?tenant=${TENANT}`);
    equal(JSON.parse(await page.locator("#arguments-run").textContent()), { text: PAYLOADS.breakout }, "the arguments");
    equal(JSON.parse(await page.locator("#retry-arguments").inputValue()), { text: PAYLOADS.breakout }, "the field in which they are edited");
    check((await page.locator("#error-json").textContent()).includes("</textarea></pre>"), "the markup in the error", await page.locator("#error-json").textContent());
  });
  await claim("a line of 1 MiB, behind arguments of 250 kB, is cut, with a way to all of it, and the page is there in time", async () => {
    const start = performance.now();
    await page.goto(`/console/calls/${ids.long}?tenant=${TENANT}`);
    const took = Math.round(performance.now() - start);
    const lengths = await page.locator("pre.json").evaluateAll((parts) => parts.map((part) => part.textContent.length));
    check(Math.max(...lengths) < 70_000, "at most 64 KiB of each part", lengths);
    check((await page.locator("#result a", { hasText: "Show all" }).count()) === 1, "a link to all of it", await page.locator("#result").innerHTML().then((html) => html.slice(-300)));
    await page.locator("#result a", { hasText: "Show all" }).click();
    await until("all of it is shown", async () => (await page.locator("body").textContent()).length > MEGABYTE);
    check(took < 5_000, "the page within 5 s", took);
    return `${took} ms to load`;
  });
  await claim("sessions with markup are refused at the door", async () => {
    for (const text of [PAYLOADS.script, PAYLOADS.image]) {
      const answer = await api("POST", "/v1/call/echo", { ...how, body: {}, headers: { "Toolfleet-Session": text } });
      equal(answer.status, 400, `the status of a call with the session ${text}`);
    }
  });
  await claim("who has markup for a name does nothing with it", () => named(browser, ids.doubt));
  await claim("calls of strangers that come while the page follows do nothing either", async () => {
    await page.goto(`/console?tenant=${TENANT}`);
    await follows(page);
    const more = await make("refuse", { text: PAYLOADS.image }, how);
    await until("the news are there", async () => (await page.locator("#news").innerText()).includes("new"));
    await inState(more, "failed", 20_000, how);
    const { found, said } = await misdeeds(page, seen);
    equal(Object.values(found), [0, 0, 0, 0, 0], `misdeeds (${said.join()})`);
  });
  await claim("a Check and a run of the playground with all of it do nothing either", async () => {
    await page.goto(`/console/tools/echo?tenant=${TENANT}`);
    await page.locator("#arguments-json").fill(JSON.stringify(PAYLOADS));
    await page.locator("button[value=check]").click();
    await page.locator("#verdict").waitFor();
    equal(JSON.parse(await page.locator("#arguments-json").inputValue()), PAYLOADS, "what stands in the field after the Check");
    await page.locator("#key").fill(`<img src=x onerror=${RUN}>`);
    await page.locator("button[value=run]").click();
    await page.waitForLoadState();
    const { found, said } = await misdeeds(page, seen);
    equal(Object.values(found), [0, 0, 0, 0, 0], `misdeeds (${said.join()})`);
  });
});
