// npm `@modelcontextprotocol/client`: URL, revision, mark.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

import { journey } from "./journey.mjs";

const [url, revision, mark] = process.argv.slice(2);
let decision = "accept";
const client = new Client(
  { name: "tests", version: "1" },
  {
    capabilities: { elicitation: { form: {} } },
    versionNegotiation: { mode: revision === "2026-07-28" ? { pin: revision } : "legacy" },
  },
);
client.setRequestHandler("elicitation/create", async () => (decision === "accept" ? { action: "accept", content: { decision: "approve" } } : { action: decision }));
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
await journey(
  {
    list: async () => (await client.listTools()).tools,
    call: (name, args, { progress, signal } = {}) => client.callTool({ name, arguments: args }, { onprogress: progress, signal }),
    close: () => client.close(),
  },
  (action) => (decision = action),
  mark,
);
