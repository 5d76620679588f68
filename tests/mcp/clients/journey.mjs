// What every client in JavaScript does, one line of JSON for each step; what is right is looked at by clients.py.

export function tell(step, said) {
  process.stdout.write(JSON.stringify({ step, ...said }) + "\n");
}

export async function tried(step, doing) {
  try {
    tell(step, { said: await doing() });
  } catch (error) {
    tell(step, { failed: String(error?.message ?? error), code: error?.code });
  }
}

// `client`: list(), call(name, args, {progress, signal}), close(). `decide(action)` sets what its user says when he is asked.
export async function journey(client, decide, mark) {
  await tried("list", async () => (await client.list()).map((tool) => tool.name));
  await tried("call", () => client.call("echo", { text: "hello" }));
  await tried("big", () => client.call("echo", { text: "x".repeat(300) }));
  await tried("tool_error", () => client.call("test_error_handling", {}));
  await tried("wrong_arguments", () => client.call("echo", { txt: 1 }));
  await tried("unknown_tool", () => client.call("no_such_tool", {}));
  await tried("progress", async () => {
    const seen = [];
    const result = await client.call("test_tool_with_progress", {}, { progress: (one) => seen.push(one.progress) });
    return { seen, result };
  });
  const stop = new AbortController();
  setTimeout(() => stop.abort(), 1_500);
  await tried("cancel", () => client.call("slow_compute", { seconds: 25, label: mark }, { signal: stop.signal }));
  await tried("charge", () => client.call("charge", { what: mark }));
  await tried("charge_again", () => client.call("charge", { what: mark }));
  await tried("charge_on_purpose", () => client.call("charge", { what: mark, idempotency_key: `${mark}-2` }));
  decide("accept");
  await tried("approved", () => client.call("approved", { what: `${mark}-yes` }));
  decide("decline");
  await tried("declined", () => client.call("approved", { what: `${mark}-no` }));
  await client.close();
}

// Asks for a charge that takes its time, with a new connection whenever one breaks; the gateway is killed meanwhile.
// `connect()`: a client as that of a journey.
export async function killed(connect, mark) {
  for (let asked = 1; ; asked++) {
    try {
      const client = await connect();
      tell("killed", { said: await client.call("charge_slowly", { what: `${mark}-killed` }), asked });
      return await client.close();
    } catch (error) {
      if (asked === 100) return tell("killed", { failed: String(error?.message ?? error), asked });
      await new Promise((next) => setTimeout(next, 200));
    }
  }
}
