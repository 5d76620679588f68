// How fast it is, and what many readers cost: figures, which are printed and not asserted, for they are of this machine.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { figure, module, until } from "./claims.mjs";
import { follows, open, visitor } from "./browser.mjs";
import { pages, seeded } from "./seed.mjs";
import { dev, inState, let_go, make, story, told, tokens } from "./fleet.mjs";

const [REQUESTS, COLD, ROUNDS, READERS, WINDOW_MS] = [200, 100, 10, 20, 20_000];
const sleep = (ms) => new Promise((resume) => setTimeout(resume, ms));
const share = (times, part) => times.toSorted((a, b) => a - b)[Math.min(times.length - 1, Math.floor(times.length * part))];
const ms = (time) => `${time.toFixed(1)} ms`;

/** The cookie of who has signed in. */
async function cookie(token) {
  const answer = await fetch(`${told.url}/console/login`, { method: "POST", body: new URLSearchParams({ token }), redirect: "manual" });
  return answer.headers.get("set-cookie").split(";")[0];
}

/** A form that changes nothing, after which the console has forgotten the answers that it keeps for a second for who looks at this tenant. */
const forget = (headers, tenant) =>
  fetch(`${told.url}/console/tools/look${tenant ? `?tenant=${tenant}` : ""}`, { method: "POST", headers, body: new URLSearchParams({ do: "check", arguments: "{}" }) }).then((answer) => answer.arrayBuffer());

/** How long requests of a page take, one after the other, and how large it is; `before` is done before each. */
async function timed(path, headers, count, before = () => {}) {
  const times = [];
  let bytes = 0;
  for (let n = 0; n < count; n += 1) {
    await before();
    const start = performance.now();
    bytes = (await (await fetch(told.url + path, { headers })).arrayBuffer()).byteLength;
    times.push(performance.now() - start);
  }
  return { times, bytes };
}

/** What is looked for in a large history beside the pages: what is rare in it, and what is most of it. */
const filters = (ids) => ({
  live_of_a_tenant: "/console?tenant=default",
  live_rare_tool: "/console?tenant=default&tool=charge",
  live_rare_state: "/console?state=in_doubt",
  live_failed_of_a_tool: "/console?state=failed&tool=look",
  live_most: "/console?tool=bench_once",
  live_of_another: "/console?tenant=acme&state=failed",
  live_session: "/console?session=chat-17",
  live_since: "/console?since=2026-01-01T00:00:00Z",
  call_look: `/console/calls/${ids.look}`,
});

/** Each page by plain HTTP: as many look at it, and as the first one does, for whom the API is asked. */
async function served(ids, headers) {
  for (const [name, path] of Object.entries({ ...pages(ids), ...(told.load ? filters(ids) : {}) })) {
    const { times, bytes } = await timed(path, headers, REQUESTS);
    const cold = (await timed(path, headers, COLD, () => forget(headers, new URL(path, told.url).searchParams.get("tenant")))).times;
    const all = `p50 ${ms(share(times, 0.5))}, p95 ${ms(share(times, 0.95))} of ${REQUESTS}`;
    figure(`${name}: ${all}; with nothing kept p50 ${ms(share(cold, 0.5))}, p95 ${ms(share(cold, 0.95))} of ${COLD}; ${Math.ceil(bytes / 1024)} KiB`);
  }
}

/** From the moment when the API has it to the screen. */
async function onScreen(later) {
  const { page, close } = await visitor(await open(later), tokens.ann);
  const times = [];
  for (let n = 0; n < ROUNDS; n += 1) {
    const gate = crypto.randomUUID();
    const call = await make("gated", { gate }, { token: tokens.ann });
    await inState(call, "running");
    await page.goto(`/console/calls/${call}`);
    await follows(page);
    await sleep((n * 1000) / ROUNDS); // The gateway looks once a second: each round is another place in that second.
    await let_go(gate);
    await until("the API has the end", async () => (await story(call)).call.state === "succeeded");
    const start = performance.now();
    await until("the page has the end", async () => (await page.locator("#head .sentence").innerText()).includes("succeeded"));
    times.push(performance.now() - start);
  }
  await close();
  figure(`a change is on screen ${ms(share(times, 0.5))} (p50), ${ms(share(times, 1))} (most) after the API has it, of ${ROUNDS}`);
}

/** One reader of the first page, as the script reads it: a stream, and the page again whenever it has changed. */
async function reader(headers, stop, counted) {
  const stream = await fetch(`${told.url}/console/ticks?page=${encodeURIComponent("/console")}`, { headers, signal: stop });
  try {
    for await (const piece of stream.body.pipeThrough(new TextDecoderStream())) {
      for (const _ of piece.matchAll(/event: changed/g)) {
        counted.pages += 1;
        await (await fetch(`${told.url}/console`, { headers: { ...headers, "Toolfleet-Console": "fragments" }, signal: stop })).arrayBuffer();
      }
    }
  } catch (error) {
    if (!stop.aborted) throw error;
  }
}

/** The CPU that a process has used, in ms; Linux counts it in hundredths of a second. */
const cpu = (pid) => {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /, "").split(" ");
  return 10 * (Number(fields[11]) + Number(fields[12]));
};

/** The same of Postgres: of its processes that are there now, for the gateway keeps its connections. */
function cpuOfPostgres() {
  const parent = dev().postgres_pid;
  const children = readFileSync(`/proc/${parent}/task/${parent}/children`, "utf8").trim().split(" ");
  return children.reduce((sum, pid) => {
    try {
      return sum + cpu(pid);
    } catch {
      return sum; // It has ended meanwhile.
    }
  }, 0);
}

const psql = process.env.TOOLFLEET_POSTGRES_BIN ? `${process.env.TOOLFLEET_POSTGRES_BIN}/psql` : "psql";
const SQL = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
const transactions = () => Number(execFileSync(psql, ["-XqAt", "-c", SQL, dev().database_url], { encoding: "utf8" }));

async function costs(readers, headers, busy) {
  const stopping = new AbortController();
  const counted = { pages: 0 };
  const all = Array.from({ length: readers }, () => reader(headers, stopping.signal, counted));
  const failed = Promise.all(all).then(() => sleep(2 * WINDOW_MS));
  const [pid] = dev().gateway_pids;
  await sleep(2_000); // A measurement is of a time: the window begins when all of them follow.
  counted.pages = 0;
  const before = { cpu: cpu(pid), postgres: cpuOfPostgres(), transactions: transactions() };
  const end = performance.now() + WINDOW_MS;
  while (performance.now() < end) {
    if (busy) await make("look", { word: "busy" }, { token: tokens.ann });
    await Promise.race([sleep(500), failed]);
  }
  const [used, asked] = [cpu(pid) - before.cpu, transactions() - before.transactions];
  const postgres = cpuOfPostgres() - before.postgres;
  stopping.abort();
  const seconds = WINDOW_MS / 1000;
  const share_of_core = (time) => `${(time / seconds / 10).toFixed(1)} % of a core`;
  const each = (count) => `${(count / seconds).toFixed(1)} a second`;
  const happens = told.load ? "the load" : busy ? "two calls a second" : "nothing happens";
  const what = `${readers} readers, ${happens}`;
  figure(`${what}: gateway ${share_of_core(used)}; Postgres ${share_of_core(postgres)}, transactions ${each(asked)}; pages ${each(counted.pages)}`);
}

await module(async (later) => {
  const ids = await seeded();
  const headers = { Cookie: await cookie(tokens.all) };
  await served(ids, headers);
  await onScreen(later);
  for (const busy of told.load ? [false] : [false, true]) for (const readers of [0, 1, READERS]) await costs(readers, headers, busy);
});
