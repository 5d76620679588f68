// Holds canonical.mjs against the published vectors.

import { readFileSync } from "node:fs";

import { Num, canonical, read, sha256 } from "./canonical.mjs";

const { vectors, invalid } = JSON.parse(
  readFileSync(new URL("../../schemas/canonical.json", import.meta.url), "utf8"),
);
const wrong = [];

for (const vector of vectors) {
  const spellings = {
    "as published": vector.input,
    canonical: vector.canonical,
    respelled: respelled(read(vector.input)),
  };
  for (const [spelling, text] of Object.entries(spellings)) {
    if (canonical(text) !== vector.canonical || sha256(text) !== vector.sha256) {
      wrong.push(`${vector.name}, ${spelling}: ${canonical(text)}`);
    }
  }
}
for (const { name, input } of invalid) {
  let found;
  try {
    found = canonical(input);
  } catch (error) {
    if (error instanceof SyntaxError) continue;
    throw error;
  }
  wrong.push(`${name} has a form: ${found}`);
}
console.log(wrong.join("\n") || `${vectors.length} vectors and ${invalid.length} invalid texts agree`);
process.exitCode = wrong.length > 0 ? 1 : 0;

/** The same value with its keys backwards, every character escaped, and room everywhere. */
function respelled(value) {
  if (value instanceof Num) return value.token;
  if (typeof value === "string") {
    const units = Array.from({ length: value.length }, (_, at) => value.charCodeAt(at));
    return `"${units.map((unit) => `\\u${unit.toString(16).toUpperCase().padStart(4, "0")}`).join("")}"`;
  }
  if (Array.isArray(value)) return `[ ${value.map(respelled).join(" , ")}\n]`;
  if (value instanceof Map) {
    const entries = [...value].reverse();
    return `{ ${entries.map(([key, item]) => `${respelled(key)}\t: ${respelled(item)}`).join(" ,\r\n")} }`;
  }
  return String(value);
}
