"""The least MCP server of revision 2026-07-28: one tool, `echo`, over stdio (`mcp_echo.py stdio`) or HTTP (`mcp_echo.py http`; it prints its port)."""

import asyncio
import json
import sys

TOOL = {"name": "echo", "description": "Says what it was told.", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
SEVERAL = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "private"}


def answer(message):
    """The answer to a message, as bytes; nothing to a notification."""
    method = message["method"]
    if method == "tools/call":
        said = message["params"].get("arguments", {})
        result = {"resultType": "complete", "content": [], "structuredContent": said, "isError": False}
    elif method == "tools/list":
        result = {**SEVERAL, "tools": [TOOL]}
    elif method == "server/discover":
        result = {**SEVERAL, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    else:
        return json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": -32601, "message": "no such method"}}).encode()
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}, separators=(",", ":")).encode()


def over_stdio():
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            out.write(answer(message) + b"\n")
            out.flush()


async def serve(reader, writer):
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
            message = json.loads(await reader.readexactly(length))
            if "id" in message:
                body = answer(message)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            else:
                writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    writer.close()


async def over_http():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    over_stdio() if sys.argv[1] == "stdio" else asyncio.run(over_http())
