// npm `@modelcontextprotocol/sdk`, the line of older clients: URL, revision, mark, journey.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";

import { journey, killed } from "./journey.mjs";

const [url, , mark, asked] = process.argv.slice(2);
let decision = "accept";

async function connect() {
  const client = new Client({ name: "tests", version: "1" }, { capabilities: { elicitation: {} } });
  client.setRequestHandler(ElicitRequestSchema, async () => (decision === "accept" ? { action: "accept", content: { decision: "approve" } } : { action: decision }));
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return {
    list: async () => {
      const tools = [];
      let cursor;
      do {
        const page = await client.listTools({ cursor });
        tools.push(...page.tools);
        cursor = page.nextCursor;
      } while (cursor);
      return tools;
    },
    call: (name, args, { progress, signal } = {}) => client.callTool({ name, arguments: args }, undefined, { onprogress: progress, signal }),
    close: () => client.close(),
  };
}

await (asked === "killed" ? killed(connect, mark) : journey(await connect(), (action) => (decision = action), mark));
