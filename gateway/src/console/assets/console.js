// The script of the console. Every page works without it: it keeps pages live, writes times in the reader's zone, and
// adds keys and a form for arguments. It fetches this origin only; what others wrote goes in as text, never as HTML.
(() => {
  "use strict";
  const SLICE_MS = 20; // A task must end within 50 ms, and the browser needs a part of them to lay out and draw.
  const FIELDS = "input, select, textarea";

  const byId = (id) => document.getElementById(id);
  const sleep = (ms) => new Promise((resume) => setTimeout(() => resume(performance.now()), ms));

  function make(name, properties, ...children) {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  }

  /** Does `work` for each item, and lets the browser draw and answer whenever a slice of time is used up. */
  async function inSlices(items, work) {
    let start = performance.now();
    for (const item of items) {
      work(item);
      if (performance.now() - start > SLICE_MS) start = await sleep(0);
    }
  }

  const told = byId("told") ?? make("div");
  /** Says the words that `#told` has under this name, or nothing. */
  const tell = (name) => (told.textContent = told.dataset[name] ?? "");

  // ---- Times: the page has them in UTC, which stays in the title.
  function writeTime(element) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) return;
    const here = new Date(at - 60_000 * at.getTimezoneOffset()).toISOString();
    element.textContent = element.dataset.form === "date" ? here.slice(0, 19).replace("T", " ") : here.slice(11, 19);
  }
  const writeTimes = (page) => inSlices(page.querySelectorAll("time[datetime]"), writeTime);

  // ---- Swap: the live parts of this page are replaced by those of the same page fetched again.
  const touched = new WeakSet(); // Fields in which the reader has typed or chosen something.
  /** Whether the reader is typing, has typed, or has marked text in there: replacing it would lose that. */
  function isInUse(element, marked) {
    const fields = [...element.querySelectorAll(FIELDS)];
    const isTyped = fields.some((field) => touched.has(field) || field === document.activeElement);
    return isTyped || marked.some((node) => element.contains(node));
  }

  /** What an element is known by among those that take its part's place. */
  function markOf(element) {
    const attributes = ["href", "name", "value", "aria-label"].map((name) => element.getAttribute(name));
    return element.id || [element.localName, element.parentElement?.id, ...attributes].join("\n");
  }

  /** Puts `fresh` in the place of `old` if they differ; false if it has to wait because `old` is in use. */
  function replace(old, fresh, marked) {
    const details = [old, ...old.querySelectorAll("details")].filter((one) => one.id && "open" in one);
    for (const { id, open } of details) Object.assign(fresh.ownerDocument.getElementById(id) ?? {}, { open });
    if (old.classList.contains("here")) fresh.classList.add("here");
    if (!old.isConnected || old.isEqualNode(fresh)) return true;
    if (isInUse(old, marked)) return false;
    const mark = old.contains(document.activeElement) && markOf(document.activeElement);
    old.replaceWith(fresh);
    if (mark) [fresh, ...fresh.querySelectorAll("*")].find((it) => markOf(it) === mark)?.focus({ preventScroll: true });
    return true;
  }

  /** The parts of a page that are replaced each for itself, by name: live fragments, or the rows of those with rows. */
  function partsOf(page) {
    const parts = page.querySelectorAll("[data-live]:not([data-rows]), [data-rows] > [data-key]");
    return new Map(Array.from(parts, (part) => [`${part.parentElement.id} ${part.dataset.key ?? part.id}`, part]));
  }

  /** Brings this page to the state of the one fetched; false if a part has to wait. */
  async function swap(page) {
    await writeTimes(page);
    const [here, there] = [partsOf(document), partsOf(page)];
    // New rows are counted and not inserted: they would push away the row that is being read.
    const news = [...there].filter(([name, part]) => part.dataset.key && !here.has(name)).length;
    Object.assign(byId("news") ?? {}, { hidden: news === 0, textContent: (told.dataset.new ?? "#").replace("#", news) });
    // To ask for the selection makes the browser lay out the page: this is for once a swap, not once a row.
    const { isCollapsed, anchorNode, focusNode } = document.getSelection();
    const marked = isCollapsed ? [] : [anchorNode, focusNode];
    let isWhole = true;
    await inSlices(here, ([name, old]) => {
      if (there.has(name) && !replace(old, there.get(name), marked)) isWhole = false;
    });
    return isWhole;
  }

  // ---- Follow: the server says that the page has changed, and the script fetches it again.
  const ticks = byId("main")?.dataset.ticks;
  const flow = { source: null, timer: 0, failures: 0, isPaused: false, isBusy: false, again: false };

  /** This page as it is now. If one has to sign in first, the page is loaded again and becomes the login. */
  async function fetchPage() {
    const how = { headers: { "Toolfleet-Console": "fragments" }, redirect: "manual", cache: "no-store" };
    const answer = await fetch(location.href, { ...how, signal: AbortSignal.timeout(15_000) });
    if (answer.type === "opaqueredirect" || answer.status === 401) location.reload();
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (answer.ok) return page;
    byId("away")?.replaceWith(page.getElementById("away") ?? make("div", { id: "away" })); // What is away is said all the same.
    throw new Error(`status ${answer.status}`);
  }

  /** Fetches and swaps, never two at a time: a tick that comes meanwhile is served by one more round. */
  async function refresh() {
    flow.again = true;
    if (flow.isBusy) return;
    flow.isBusy = true;
    try {
      while (flow.again && flow.source) {
        flow.again = false;
        const page = await fetchPage();
        if (flow.failures > 0) tell();
        flow.failures = 0;
        // A part in use waits. This page is tried again until the reader is done, or a newer one is to be had.
        while (!(await swap(page)) && !flow.again && flow.source) await sleep(500);
      }
    } catch {
      lose();
    }
    flow.isBusy = false;
  }

  function stop() {
    clearTimeout(flow.timer);
    flow.source = flow.source?.close() ?? null;
  }

  function connect() {
    stop();
    // A browser keeps few connections to one origin: a tab that is not seen gives its own back.
    if (!ticks || flow.isPaused || document.hidden) return;
    (byId("pause") ?? make("button")).hidden = false;
    const source = (flow.source = new EventSource(ticks));
    source.addEventListener("open", refresh); // What changed before this moment has had no tick.
    source.addEventListener("changed", refresh);
    source.addEventListener("over", () => location.reload());
    source.addEventListener("error", lose);
  }

  /** A source tries again by itself after some errors, and never after others: this one way serves both. */
  function lose() {
    stop();
    if (flow.isPaused || document.hidden) return;
    tell("lost");
    // The source hides its status. That of the page leads to the login where one has to sign in again.
    flow.timer = setTimeout(() => fetchPage().then(connect, lose), 1000 * Math.min(2 ** flow.failures, 15));
    flow.failures += 1;
  }

  function togglePause(button) {
    flow.isPaused = !flow.isPaused;
    button.setAttribute("aria-pressed", String(flow.isPaused));
    button.textContent = button.dataset[flow.isPaused ? "resume" : "pause"] ?? button.textContent;
    tell();
    connect();
  }

  // ---- Streams: each text grows in its box, of which the end is kept, and stays at its end unless the reader has left it.
  async function grow(box) {
    const answer = await fetch(box.dataset.stream, { redirect: "manual" }).catch(() => null);
    const reader = answer?.body?.pipeThrough(new TextDecoderStream()).getReader();
    for (let read; (read = await reader?.read().catch(() => null)) && !read.done; await sleep(SLICE_MS)) {
      const isAtEnd = box.scrollTop + box.clientHeight > box.scrollHeight - 40;
      box.textContent = (box.textContent + read.value).slice(-65_536);
      if (isAtEnd) box.scrollTop = box.scrollHeight;
    }
  }

  // ---- Clicks and keys.
  function copy(from) {
    document.getSelection().selectAllChildren(from);
    // This way is old. The new one is for https and localhost only, and consoles are reached without.
    if (document.execCommand("copy")) tell("copied");
    document.getSelection().removeAllRanges();
  }

  function onClick(event) {
    const button = event.target.closest("#pause, [data-copy]");
    if (button?.id === "pause") togglePause(button);
    else if (byId(button?.dataset.copy)) copy(byId(button.dataset.copy));
  }

  function moveBy(step) {
    const rows = [...document.querySelectorAll("[data-key]")];
    const at = rows.findIndex((row) => row.classList.contains("here"));
    const row = rows[Math.max(at + step, 0)] ?? rows[at];
    rows.forEach((each) => each.classList.toggle("here", each === row));
    row?.querySelector("a[href]")?.focus();
  }

  const help = byId("help");
  let goUntil = 0;
  const KEYS = new Map([
    ["/", () => byId("search")?.focus()],
    ["j", () => moveBy(1)],
    ["k", () => moveBy(-1)],
    ["f", () => byId("failed-only")?.click()],
    ["p", () => byId("pause")?.click()],
    ["g", () => (goUntil = performance.now() + 1500)],
    ["?", () => (help?.open ? help.close() : help?.showModal())],
    ...Array.from(document.querySelectorAll("nav a[data-go]"), (link) => [`g ${link.dataset.go}`, () => link.click()]),
  ]);

  function onKey(event) {
    if (event.target.closest?.(`${FIELDS}, [contenteditable]`) || event.isComposing || event.ctrlKey || event.altKey || event.metaKey) return;
    if (help?.open && event.key !== "?") return;
    const key = performance.now() < goUntil ? `g ${event.key}` : event.key;
    goUntil = 0;
    if (!KEYS.has(key)) return;
    event.preventDefault();
    KEYS.get(key)();
  }

  // ---- Playground: a form made from the tool's schema writes the arguments. A `pattern` is never evaluated.
  const [MAX_DEPTH, MAX_FIELDS] = [6, 200];
  const STRING_OR_NUMBER = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;
  const MARK = `number ${Math.random()} `;
  const words = { add: "Add", remove: "Remove", required: "required", kind: "Kind", edited: "By hand", reset: "Reset" };
  const form = { schema: {}, fieldsLeft: 0, lastId: 0 };

  /** Reads JSON with numbers as marked strings, because numbers of JavaScript lose digits; else gives `undefined`. */
  function parse(text) {
    try {
      JSON.parse(text); // Refuses what is not JSON before numbers are marked.
      return JSON.parse(text.replace(STRING_OR_NUMBER, (token) => (token[0] === '"' ? token : `"${MARK}${token}"`)));
    } catch {
      return undefined;
    }
  }

  const isObject = (value) => Object.prototype.toString.call(value) === "[object Object]";
  const own = (value, key) => (isObject(value) && Object.hasOwn(value, key) ? value[key] : undefined);

  /** The JSON of what `parse` read, with keys in order: texts that mean the same give the same. */
  function write(value) {
    if (typeof value === "string" && value.startsWith(MARK)) return value.slice(MARK.length);
    if (Array.isArray(value)) return `[${value.map(write).join()}]`;
    if (!isObject(value)) return JSON.stringify(value);
    return `{${Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${write(value[key])}`).join()}}`;
  }

  /** JSON with one part a line. A line end in JSON is always between tokens, so what follows it may be indented. */
  function block(open, parts, close) {
    const lines = parts.filter((part) => part !== null).join(",\n").replaceAll("\n", "\n  ");
    return lines ? `${open}\n  ${lines}\n${close}` : open + close;
  }

  /** The schema with its reference followed; an `allOf` of one part is how some generators write a reference. */
  function resolve(schema, hops = MAX_DEPTH) {
    const { $ref, allOf, ...rest } = isObject(schema) && hops > 0 ? schema : {};
    if ($ref === undefined && allOf?.length !== 1) return allOf ? {} : rest;
    const steps = String($ref).split("/").slice(1).map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
    return { ...resolve($ref === undefined ? allOf[0] : steps.reduce(own, form.schema), hops - 1), ...rest };
  }

  /** The type that a value has if it is not null; several types make a name that no control has. */
  const typeOf = ({ type, properties }) =>
    [type ?? (properties ? "object" : "")].flat().filter((name) => name !== "null").join(", ");

  // A control is a node with `read(must)`: the JSON of what it holds, or null if it is empty and need not be there.
  /** A field for JSON as it stands. Text that is none goes in as a string, for the server to complain about. */
  function typed(node, shown, isRight) {
    const read = () => {
      const text = node.value.trim();
      node.ariaInvalid = String(text !== "" && !isRight(text));
      return text === "" ? null : isRight(text) ? text : JSON.stringify(text);
    };
    return { node: Object.assign(node, { value: shown ?? "" }), read };
  }

  const isJson = (text) => parse(text) !== undefined;
  const isNumber = (text) => /^[-\d]/.test(text) && isJson(text);
  const isText = (value) => typeof value === "string" && !value.startsWith(MARK);
  const raw = (_, value) => typed(make("textarea", { rows: 1 }), write(value), isJson);
  const number = (_, value) => typed(make("input", { inputMode: "decimal" }), isText(value) ? value : write(value), isNumber);
  function string(_, value) {
    const node = make("textarea", { rows: 1, value: isText(value) ? value : "" });
    return { node, read: (must) => (must || node.value ? JSON.stringify(node.value) : null) };
  }

  /** Neither ticked nor unticked until the reader says so: leaving a value out is not the same as `false`. */
  function boolean(_, value) {
    const node = make("input", { type: "checkbox", checked: value === true, indeterminate: value === undefined });
    return { node, read: (must) => (must || !node.indeterminate ? String(node.checked) : null) };
  }

  const select = (names, chosen, properties) =>
    make("select", properties, ...["–", ...names].map((name, i) => new Option(name, name, false, i === chosen + 1)));
  function fixed(values, value) {
    const texts = values.map(write);
    const node = select(texts, texts.indexOf(write(value)));
    return { node, read: (must) => texts[node.selectedIndex - 1] ?? (must && texts.length === 1 ? texts[0] : null) };
  }

  const holds = (control, value) =>
    [true, false].some((must) => write(parse(control.read(must) ?? "{}")) === write(value));

  /** One of several schemas: the first that can hold the value, until the reader chooses. */
  function choice(schemas, value, depth) {
    form.fieldsLeft -= schemas.length;
    const controls = schemas.map((schema) => controlFor(schema, value, depth + 1));
    const names = schemas.map((schema, index) => schema.title ?? (typeOf(schema) || `${index + 1}`));
    const chosen = value === undefined ? -1 : controls.findIndex((control) => holds(control, value));
    const slot = make("div");
    const current = () => controls[node.selectedIndex - 1];
    const oninput = () => slot.replaceChildren(current()?.node ?? "");
    const node = select(names, chosen, { ariaLabel: words.kind, oninput });
    oninput();
    return { node: make("div", {}, node, slot), read: (must) => current()?.read(must) ?? null };
  }

  function labelled(name, schema, must, { node }) {
    const title = [name, must ? make("span", { className: "required" }, words.required) : ""];
    const hint = make("p", { className: "hint", id: `hint-${(form.lastId += 1)}` }, resolve(schema).description ?? "");
    if (!node.matches(FIELDS)) return make("fieldset", {}, make("legend", {}, ...title), hint, node);
    node.id = `field-${form.lastId}`;
    node.setAttribute("aria-describedby", hint.id);
    return make("div", { className: "field" }, make("label", { htmlFor: node.id }, ...title), node, hint);
  }

  function object(schema, value, depth) {
    const names = Object.keys(schema.properties ?? {});
    if (names.length === 0 || names.length > form.fieldsLeft) return raw(schema, value);
    form.fieldsLeft -= names.length;
    const required = new Set(schema.required);
    const fields = names.sort((a, b) => required.has(b) - required.has(a)).map((name) => {
      const must = required.has(name);
      const control = controlFor(schema.properties[name], own(value, name), depth + 1);
      const pair = (text) => text && `${JSON.stringify(name)}: ${text}`;
      return { must, pair, read: control.read, node: labelled(name, schema.properties[name], must, control) };
    });
    const isEmpty = () => fields.every((field) => field.read(false) === null);
    const text = () => block("{", fields.map(({ pair, read, must }) => pair(read(must))), "}");
    return { node: make("div", {}, ...fields.map((field) => field.node)), read: (must) => (must || !isEmpty() ? text() : null) };
  }

  const button = (word, onclick) => make("button", { type: "button", onclick }, word);
  function array(schema, value, depth) {
    const values = Array.isArray(value) ? value : [];
    if (!isObject(schema.items) || values.length > form.fieldsLeft) return raw(schema, value);
    const items = new Set();
    const append = (item) => {
      if ((form.fieldsLeft -= 1) < 0) return;
      const control = controlFor(schema.items, item, depth + 1);
      const remove = button(words.remove, () => items.delete(control) && row.remove());
      const row = make("div", { className: "item" }, labelled(items.size + 1, schema.items, false, control), remove);
      items.add(control);
      list.append(row);
    };
    const list = make("div");
    values.forEach((item) => append(item));
    const read = (must) => (must || items.size > 0 ? block("[", Array.from(items, (it) => it.read(true)), "]") : null);
    return { node: make("div", {}, list, button(words.add, () => append())), read };
  }

  const CONTROLS = new Map(Object.entries({ object, array, string, number, integer: number, boolean }));
  function controlFor(asked, value, depth) {
    const { oneOf, anyOf, title, ...schema } = resolve(asked);
    if (depth > MAX_DEPTH || form.fieldsLeft <= 0) return raw(schema, value);
    const values = schema.const === undefined ? schema.enum : [schema.const];
    if (values?.length <= MAX_FIELDS) return fixed(values, value);
    const choices = (oneOf ?? anyOf ?? []).map((part) => ({ ...schema, ...resolve(part) }));
    const others = choices.filter(({ type }) => type !== "null");
    if (others.length > 1) return choice(others, value, depth);
    if (others.length === 1) return controlFor(others[0], value, depth + 1);
    return (CONTROLS.get(typeOf(schema)) ?? raw)(schema, value, depth);
  }

  function playground() {
    const [box, text, source] = ["form-from-schema", "arguments-json", "schema"].map(byId);
    if (!box || !text || !source) return;
    Object.assign(words, box.dataset);
    form.schema = parse(source.textContent);
    const fields = make("fieldset");
    let control;
    const build = () => {
      form.fieldsLeft = MAX_FIELDS;
      control = controlFor(form.schema, parse(text.value || "{}"), 0);
      fields.replaceChildren(control.node);
      fields.disabled = false;
    };
    build();
    fields.disabled = !holds(control, parse(text.value || "{}"));
    const writeText = () => (text.value = control.read(true));
    fields.addEventListener("input", writeText);
    fields.addEventListener("click", (event) => event.target.type === "button" && writeText());
    text.addEventListener("input", () => (fields.disabled = true));
    // The style sheet shows this line while the fields are disabled.
    box.replaceChildren(fields, make("p", {}, words.edited, " ", button(words.reset, build)));
    box.hidden = control.node.matches("textarea");
  }

  const listeners = { input: (event) => touched.add(event.target), click: onClick, keydown: onKey, visibilitychange: connect };
  for (const [name, listener] of Object.entries(listeners)) document.addEventListener(name, listener);
  document.querySelectorAll("[data-stream]").forEach(grow);
  addEventListener("pageshow", playground); // By then the browser has put back what was typed before.
  writeTimes(document).then(connect);
})();
