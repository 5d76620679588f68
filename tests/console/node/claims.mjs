// What is asserted: a line for each claim, with what was expected and seen where it did not hold. Waiting is always for a
// fact and has a bound; nothing waits for time alone.
const POLL_MS = 50;
const counts = { held: 0, broken: 0 };

/** A claim that did not hold; its message says what was expected and what was seen. */
export class NotSo extends Error {}

const shown = (value) => {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text?.length > 600 ? `${text.slice(0, 600)}…` : text;
};

/** Ends the claim unless it `holds`. */
export function check(holds, expected, seen) {
  if (!holds) throw new NotSo(`expected ${expected}; seen: ${shown(seen)}`);
}

export const equal = (seen, expected, what) => check(JSON.stringify(seen) === JSON.stringify(expected), `${what} to be ${shown(expected)}`, seen);

/** The first truthy answer of `fact`; what is thrown by it counts as not yet. */
export async function until(what, fact, ms = 10_000) {
  const end = performance.now() + ms;
  for (;;) {
    let seen;
    try {
      seen = await fact();
      if (seen) return seen;
    } catch (error) {
      seen = error.message.split("\n")[0];
    }
    check(performance.now() < end, `within ${ms} ms: ${what}`, seen ?? "nothing");
    await new Promise((resume) => setTimeout(resume, POLL_MS));
  }
}

/** Runs `proof` and prints whether the sentence holds. What the proof gives is printed behind it. */
export async function claim(sentence, proof) {
  try {
    const figure = await proof();
    counts.held += 1;
    console.log(`ok      ${sentence}${figure === undefined ? "" : ` (${figure})`}`);
    return true;
  } catch (error) {
    counts.broken += 1;
    const why = error instanceof NotSo ? error.message : error.stack.split("\n").slice(0, 12).join("\n        ");
    console.log(`not ok  ${sentence}\n        ${why}`);
    return false;
  }
}

/** Something that was found out and is not asserted. */
export const figure = (text) => console.log(`figure  ${text}`);

/** Runs a module: its own mistakes count as claims that do not hold, and everything it has opened is closed. */
export async function module(work) {
  const closers = [];
  const later = (close) => closers.push(close);
  try {
    await work(later);
  } catch (error) {
    counts.broken += 1;
    console.log(`not ok  the module runs to its end\n        ${error.stack}`);
  }
  for (const close of closers.reverse()) await close().catch((error) => console.log(`        closing: ${error.message}`));
  console.log(`        ${counts.held} hold, ${counts.broken} do not`);
  process.exit(counts.broken === 0 ? 0 : 1);
}
