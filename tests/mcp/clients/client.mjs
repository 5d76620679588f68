// npm `@modelcontextprotocol/client`: URL, revision, mark, journey.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

import { journey, killed } from "./journey.mjs";

const [url, revision, mark, asked] = process.argv.slice(2);
let decision = "accept";

async function connect() {
  const client = new Client(
    { name: "tests", version: "1" },
    {
      capabilities: { elicitation: { form: {} } },
      versionNegotiation: { mode: revision === "2026-07-28" ? { pin: revision } : "legacy" },
    },
  );
  client.setRequestHandler("elicitation/create", async () => (decision === "accept" ? { action: "accept", content: { decision: "approve" } } : { action: decision }));
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return {
    list: async () => (await client.listTools()).tools,
    call: (name, args, { progress, signal } = {}) => client.callTool({ name, arguments: args }, { onprogress: progress, signal }),
    close: () => client.close(),
  };
}

await (asked === "killed" ? killed(connect, mark) : journey(await connect(), (action) => (decision = action), mark));
