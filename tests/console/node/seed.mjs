// Calls of every kind, made once for all modules: what the pages show. The ids are kept beside what run.py tells.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { until } from "./claims.mjs";
import { get, inState, make, post, story, told, tokens } from "./fleet.mjs";

const FILE = `${told.folder}/seed.json`;
const SESSION = { "Toolfleet-Session": "chat-17" };

/** The ids of the calls, by what they are good for. */
export async function seeded() {
  if (existsSync(FILE)) return JSON.parse(readFileSync(FILE, "utf8"));
  const own = { token: tokens.ann };
  const charge = (account, cents, more) => make("charge", { account, cents }, { ...own, ...more });
  const looks = await Promise.all(Array.from({ length: 30 }, (_, n) => make("look", { word: `word ${n}`, n }, { ...own, headers: n % 3 ? {} : SESSION })));
  const ids = {
    look: looks[0],
    retried: await make("flaky", {}, { ...own, headers: SESSION }),
    failed: await make("down", { n: 1 }, { ...own, headers: SESSION }),
    charged: await charge("c-1", 4200, { key: "order-1" }),
    declined: await charge("declined-17", 9900, { key: "order-2", headers: SESSION }),
    doubt: await charge("hangs-1", 1900, { key: "order-3" }),
    doubt_rival: await charge("hangs-2", 2900, { key: "order-4" }),
    doubt_plain: await charge("hangs-3", 3900, { key: "order-5" }),
    doubt_keys: await charge("hangs-4", 4900, { key: "order-6" }),
    // By somebody else: who makes a call cannot be one of the two who agree to it.
    waiting: await make("transfer", { account: "c-2", cents: 250_000 }),
    waiting_plain: await make("transfer", { account: "c-3", cents: 350_000 }),
    later: await make("report", { month: "2026-11" }, own),
    corrected: await make("charge", '{"account": "c-4", "cents": "5"}', own),
    running: await make("gated", { gate: "never" }, own),
  };
  await breakerAndPause(own);
  const turn = { calls: [{ tool: "look", args: { word: "one" } }, { tool: "look", args: { word: "two" } }], order: "call_index", on_final: "await" };
  ids.turn = (await post("/v1/turns", turn, { ...own, headers: { "Idempotency-Key": "turn-of-the-tests" } })).turn_id;
  await Promise.all([
    ...["look", "retried", "charged", "corrected"].map((name) => inState(ids[name], "succeeded", 30_000)),
    ...["failed", "declined"].map((name) => inState(ids[name], "failed", 30_000)),
    ...["doubt", "doubt_rival", "doubt_plain", "doubt_keys"].map((name) => inState(ids[name], "in_doubt", 30_000)),
    ...["waiting", "later"].map((name) => inState(ids[name], "awaiting_client", 30_000)),
  ]);
  writeFileSync(FILE, JSON.stringify(ids));
  return ids;
}

/** A pause that holds a call, a breaker that is open, and a limit that is used up. */
async function breakerAndPause(own) {
  await post("/v1/control", { do: "pause", tool: "paused", tenant: "default", note: "the vendor repairs something" }, own);
  for (let n = 0; n < 4; n += 1) await make("breaks", {}, own);
  for (let n = 0; n < 2; n += 1) await make("limited", {}, own);
  // A dispatcher that does not know of the pause yet lets a call through: one is made until one is held.
  await until("a call is held by the pause", async () => (await story(await make("paused", { n: 1 }, own))).call.held, 20_000);
  await until("the breaker is open", async () => (await get("/v1/breakers", own)).breakers.some((it) => it.state === "open"), 20_000);
}

/** The pages, by the name of their pictures. */
export function pages(ids) {
  const call = (name) => `/console/calls/${ids[name]}`;
  return {
    live: "/console",
    live_failed: "/console?state=failed",
    call_retried: call("retried"),
    call_failed: call("failed"),
    call_corrected: call("corrected"),
    call_running: call("running"),
    call_doubt: call("doubt"),
    call_waiting: call("waiting"),
    doubts: "/console/doubts",
    waiting: "/console/waiting",
    tools: "/console/tools",
    tool: "/console/tools/set_limit",
    workers: "/console/workers?all=true",
    protection: "/console/protection",
    streams: "/console/streams?session=chat-17",
    found_nothing: "/console/find?q=nothing-of-this-name",
    refusal: "/console/calls/01a22098-043d-7082-a05f-e020ab8629c6",
  };
}
