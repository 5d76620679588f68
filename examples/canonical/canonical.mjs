// The canonical text of a JSON value and its SHA-256, as docs/canonical.md defines them.
//
// Copy it freely: it needs Node 18 and nothing else. JSON.parse will not do, for it rounds numbers,
// keeps the last of two equal keys and moves keys such as "10" to the front. So there is a reader here.

import { createHash } from "node:crypto";

/** The canonical text of a JSON text. Throws a SyntaxError when it has none. */
export function canonical(text) {
  return write(read(text));
}

/** The SHA-256 of the canonical text, in hexadecimal. */
export function sha256(text) {
  return createHash("sha256").update(canonical(text), "utf8").digest("hex");
}

/** A number as it was written: never computed with, so that no digit is lost. */
export class Num {
  constructor(token) {
    this.token = token;
  }
}

const SPACE = /[ \t\n\r]*/y;
const TOKEN =
  /[{}[\],:]|"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null/y;
const WORDS = { null: null, true: true, false: false };
const HALF_A_PAIR = /\p{Surrogate}/u;

/** Objects become a Map, numbers a Num, everything else what it is. */
export function read(text) {
  let at = 0;
  let token;

  function next() {
    SPACE.lastIndex = at;
    SPACE.exec(text);
    at = TOKEN.lastIndex = SPACE.lastIndex;
    token = TOKEN.exec(text)?.[0];
    at += token?.length ?? 0;
    return token;
  }

  function fail(expected) {
    throw new SyntaxError(`expected ${expected} before character ${at}`);
  }

  // Each of these begins with `token` on its first token and leaves it on its last.
  function value() {
    if (token === "{") return object();
    if (token === "[") return array();
    if (token?.[0] === '"') return string();
    if (token in WORDS) return WORDS[token];
    if (token !== undefined && /^[-0-9]/.test(token)) return new Num(token);
    return fail("a value");
  }

  function object() {
    const entries = new Map();
    if (next() === "}") return entries;
    for (;;) {
      if (token?.[0] !== '"') fail("a key");
      const key = string();
      if (entries.has(key)) throw new SyntaxError("the same key stands twice in one object");
      if (next() !== ":") fail("a colon");
      next();
      entries.set(key, value());
      if (next() === "}") return entries;
      if (token !== ",") fail("a comma or the end of the object");
      next();
    }
  }

  function array() {
    const items = [];
    if (next() === "]") return items;
    for (;;) {
      items.push(value());
      if (next() === "]") return items;
      if (token !== ",") fail("a comma or the end of the array");
      next();
    }
  }

  function string() {
    const found = JSON.parse(token);
    if (HALF_A_PAIR.test(found)) throw new SyntaxError("a string holds half of a surrogate pair");
    return found;
  }

  next();
  const found = value();
  if (next() !== undefined || at < text.length) fail("the end");
  return found;
}

function write(value) {
  if (value instanceof Num) return value.token;
  if (Array.isArray(value)) return `[${value.map(write).join(",")}]`;
  if (value instanceof Map) {
    const keys = [...value.keys()].sort(byCodePoint);
    return `{${keys.map((key) => `${JSON.stringify(key)}:${write(value.get(key))}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

/** The order of code points is the order of UTF-8 bytes. JavaScript's own order is another: that of UTF-16 units. */
function byCodePoint(one, other) {
  return Buffer.compare(Buffer.from(one), Buffer.from(other));
}
