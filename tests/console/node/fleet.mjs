// The fleet as `curl` and the shell see it: what a page shows is held against this, and what a page has to notice is done here.
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import { until } from "./claims.mjs";

/** What run.py tells: addresses, tokens, folders. */
export const told = JSON.parse(readFileSync(process.argv[2], "utf8"));
export const tokens = told.tokens;
/** dev.json as it stands now: pids change when something was killed. */
export const dev = () => JSON.parse(readFileSync(`${told.data}/dev.json`, "utf8"));

/** A request to the API. The answer's body is in `body`, read as JSON where it is some. */
export async function api(method, path, { token = tokens.all, body, headers = {}, tenant } = {}) {
  const answer = await fetch(told.url + path, {
    method,
    headers: {
      Authorization: `Bearer ${token}`,
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      ...(tenant ? { "Toolfleet-Tenant": tenant } : {}),
      ...headers,
    },
    body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
    signal: AbortSignal.timeout(40_000),
  });
  const text = await answer.text();
  let read = text;
  try {
    read = JSON.parse(text);
  } catch {
    // An answer that is no JSON is shown as it is.
  }
  return { status: answer.status, body: read };
}

async function good(method, path, how) {
  const { status, body } = await api(method, path, how);
  if (status >= 300) throw new Error(`${method} ${path}: ${status} ${JSON.stringify(body)}`);
  return body;
}

export const get = (path, how) => good("GET", path, how);
export const post = (path, body, how) => good("POST", path, { body, ...how });

/** Makes a call and gives its id; it goes on by itself. */
export async function make(tool, args, { key = crypto.randomUUID(), headers = {}, ...how } = {}) {
  const all = { Prefer: "respond-async", "Idempotency-Key": key, ...headers };
  return (await good("POST", `/v1/call/${tool}`, { body: args, headers: all, ...how })).call_id;
}

export const story = (call, how) => get(`/v1/history/${call}`, how);

/** The story of a call once it is in this state. */
export const inState = (call, state, ms = 20_000, how = {}) =>
  until(`call ${call} is ${state}`, async () => {
    const found = await story(call, how);
    if (found.call.state !== state) throw new Error(`it is ${found.call.state}`);
    return found;
  }, ms);

/** What a person types after `toolfleet`; what is printed. */
export async function toolfleet(...words) {
  const { nats_url, database_url } = dev();
  const env = { ...process.env, NATS_URL: nats_url, DATABASE_URL: database_url };
  const { stdout } = await promisify(execFile)(told.program, words, { env, cwd: told.folder });
  return stdout;
}

/** Lets requests go that wait at this gate of the service. */
export const let_go = (gate) => fetch(`${told.service}/let/${gate}`, { method: "POST" });

/** How often the service has carried something out for this account. */
export const carriedOut = async (account) => (await (await fetch(told.service)).json())[account] ?? 0;
