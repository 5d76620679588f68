// A NATS service with two tools, to be copied: `translate` reads, `add_term` writes and recognises repetitions.
//
//     tools.translate  {"text": "good morning", "to": "fr"}        -> {"text": "bonjour"}
//     tools.add_term   {"term": "fox", "to": "fr", "is": "renard"} -> {"terms": 1}
//
// It says no with a service error of 4xx, stops when its call is taken back, and works on nothing whose time is over.
// Needs `npm install @nats-io/transport-node @nats-io/services`. The first line on stdout is {"ready":true}.
// The keys are kept in memory here; a service that must recognise them after a crash keeps them with its data.

import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Svcm } from "@nats-io/services";
import { connect } from "@nats-io/transport-node";

const { values: told } = parseArgs({
  options: {
    nats: { type: "string", default: process.env.NATS_URL ?? "nats://127.0.0.1:4222" },
    "slow-ms": { type: "string", default: "0" },
    prefix: { type: "string", default: "toolfleet" },
  },
});

/** What the caller can mend: a code of 4xx and a sentence for a language model. */
class Refusal extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

function text(args, name) {
  const value = args[name];
  if (typeof value !== "string" || value.length < 1 || value.length > 256) {
    throw new Refusal(400, `give ${name} as a text of 1 to 256 characters`);
  }
  return value;
}

const terms = new Map();
const answers = new Map();

async function translate(args, _headers, signal) {
  const [words, to] = [text(args, "text"), text(args, "to")];
  await sleep(Number(told["slow-ms"]), undefined, { signal });
  const known = terms.get(`${to}/${words}`);
  if (known === undefined) {
    throw new Refusal(404, `there is no translation of that into ${to}; add it with add_term`);
  }
  return { text: known };
}

async function addTerm(args, headers, signal) {
  const [term, to, is] = ["term", "to", "is"].map((name) => text(args, name));
  const key = headers?.get("Idempotency-Key");
  // The second time under a key changes nothing and answers as the first time.
  if (!key || !answers.has(key)) {
    terms.set(`${to}/${term}`, is);
    if (key) answers.set(key, { terms: terms.size });
  }
  const answer = answers.get(key) ?? { terms: terms.size };
  await sleep(Number(told["slow-ms"]), undefined, { signal });
  return answer;
}

const at = new URL(told.nats); // this client takes user and password beside the URL, not in it
const client = await connect({
  servers: at.host,
  maxReconnectAttempts: -1,
  ...(at.username && { user: decodeURIComponent(at.username), pass: decodeURIComponent(at.password) }),
});
const running = new Map();

function handler(tool) {
  return async (error, message) => {
    if (error) return;
    const deadline = Number(message.headers?.get("Toolfleet-Deadline-Ms") || Infinity);
    const attempt = message.headers?.get("Toolfleet-Attempt-Id");
    // A request may arrive late, after it was given up: then it must not be carried out.
    if (Date.now() > deadline) {
      message.respondError(503, "its time was over before it arrived");
      return;
    }
    const work = new AbortController();
    running.set(attempt, work);
    try {
      const answer = await tool(message.json(), message.headers, work.signal);
      message.respond(JSON.stringify(answer));
    } catch (failure) {
      if (work.signal.aborted) return; // Nobody waits for this answer any more.
      if (failure instanceof Refusal) message.respondError(failure.code, failure.message);
      // Whether anything was done is not known: 500 says exactly that.
      else message.respondError(500, failure.name);
    } finally {
      running.delete(attempt);
    }
  };
}

client.subscribe(`${told.prefix}.tool.cancel.*`, {
  callback: (_error, message) => {
    const work = running.get(message?.headers?.get("Toolfleet-Attempt-Id"));
    if (!work) return;
    work.abort();
    console.log(JSON.stringify({ stopped: message.subject.split(".").at(-1) }));
  },
});
const service = await new Svcm(client).add({ name: "translate", version: "1.0.0" });
const tools = service.addGroup("tools");
tools.addEndpoint("translate", { handler: handler(translate) });
tools.addEndpoint("add_term", { handler: handler(addTerm) });
await client.flush();
console.log(JSON.stringify({ ready: true }));
await client.closed();
