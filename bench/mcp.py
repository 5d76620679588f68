#!/usr/bin/env python3
"""What does MCP cost, beside `toolfleet bench --via nats,mcp`?

    . ./.tools/env; "$TOOLFLEET_PYTHON" bench/mcp.py [--toolfleet PATH] [--tools 1000] [--calls 4000] [--in-flight 64]

It starts `toolfleet dev` in a folder of its own and measures: the memory of its gateway when nobody asks; how long a client takes to list so
many tools, page by page; what a call of a tool on a local MCP server takes beside the same request by a bare client, over HTTP and stdio, one
after the other; and how many calls a second one shared server on stdio does. The servers are tests/blackbox/mcp_echo.py.
Exit code 1 when a bound is missed: 32 MiB idle, 50 ms for 1,000 tools, 1 ms over the bare client (what the executor took, by the worker's metrics),
2,000 calls a second over stdio.
"""

import argparse
import asyncio
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
BLACKBOX = HERE.parent / "tests" / "blackbox"
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(BLACKBOX))
sys.dont_write_bytecode = True

from client import Client
from fleet import Dev, command, tool
from followers import memory_mib
from processes import listens_on

IDLE_MIB, LISTING_MS, OVERHEAD_MS, STDIO_A_SECOND = 32, 50, 1.0, 2_000
VERSION = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}}
ECHO = str(BLACKBOX / "mcp_echo.py")


class Bare:
    """A client that keeps one connection, and does as little as possible."""

    def __init__(self, url, token=None):
        place = urllib.parse.urlsplit(url)
        self.connection, self.path = http.client.HTTPConnection(place.hostname, place.port), place.path
        self.headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": VERSION}
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    def ask(self, method, **params):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}})
        named = {"Mcp-Name": params["name"]} if "name" in params else {}
        self.connection.request("POST", self.path, body, {**self.headers, "Mcp-Method": method, **named})
        answer = json.loads(self.connection.getresponse().read())
        return answer["result"]


def listed(gateway):
    """How many tools there are, and how long listing them took."""
    began, count, cursor = time.perf_counter(), 0, {}
    while True:
        page = gateway.ask("tools/list", **cursor)
        count += len(page["tools"])
        if "nextCursor" not in page:
            return count, (time.perf_counter() - began) * 1_000
        cursor = {"cursor": page["nextCursor"]}


def bare_http_ms(url, times):
    bare, took = Bare(url), []
    for n in range(times):
        began = time.perf_counter()
        bare.ask("tools/call", name="echo", arguments={"n": n})
        took.append((time.perf_counter() - began) * 1_000)
    return statistics.median(took)


def bare_stdio_ms(times):
    server = subprocess.Popen([sys.executable, ECHO, "stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    took = []
    for n in range(times):
        began = time.perf_counter()
        message = {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": "echo", "arguments": {"n": n}, "_meta": META}}
        server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdin.flush()
        json.loads(server.stdout.readline())
        took.append((time.perf_counter() - began) * 1_000)
    server.stdin.close()
    server.wait()
    return statistics.median(took)


async def through_ms(client, name, times):
    """The median of calls through the fleet, one after the other."""
    took = []
    for n in range(times):
        began = time.perf_counter()
        answer = await client.call(name, {"n": n})
        took.append((time.perf_counter() - began) * 1_000)
        assert answer.body["state"] == "succeeded", answer.body
    return statistics.median(took)


async def a_second(client, name, calls, in_flight):
    numbers = iter(range(calls))

    async def caller():
        for n in numbers:
            answer = await client.call(name, {"n": n})
            assert answer.body["state"] == "succeeded", answer.body

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(in_flight)))
    return calls / (time.perf_counter() - began)


def executed(dev, name):
    """How often the worker has run this tool, and how long in all, by its metrics."""
    [port] = listens_on(dev.pids("worker")[0])
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
    figures = {}
    for kind in ("sum", "count"):
        lines = [line for line in text.splitlines() if line.startswith(f"toolfleet_execute_duration_seconds_{kind}") and f'tool="{name}"' in line]
        figures[kind] = sum(float(line.rpartition(" ")[2]) for line in lines)
    return figures["count"], figures["sum"]


async def executed_ms(dev, client, name, times):
    """The median of calls through the fleet, one after the other, and what the executor took on the average."""
    count, total = executed(dev, name)
    through = await through_ms(client, name, times)
    count_now, total_now = executed(dev, name)
    return through, (total_now - total) / (count_now - count) * 1_000


async def serve(dev, folder, name, transport):
    server = {"kind": "mcp_server", "name": name, "version": 1, "transport": transport, "trust": "trusted"}
    (folder / f"{name}.json").write_text(json.dumps(server))
    await command(dev, "tools", "apply", str(folder / f"{name}.json"))
    await command(dev, "mcp", "discover", name, "--into", str(folder / name))
    path = folder / name / f"{name}_echo.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "effect": "read"}))
    await command(dev, "tools", "apply", str(path))


async def measured(given, folder):
    missed = []

    def say(what, figure, unit, bound, most=True):
        good = bound is None or (figure <= bound if most else figure >= bound)
        print(f"{what:<58}{figure:>10.2f} {unit}{'' if bound is None else f'  ({bound:g} {unit})'}{'' if good else '  MISSED'}", flush=True)
        if not good:
            missed.append(what)

    none = [tool("native_echo", "read", {"nats": {"subject": "tools.echo"}})]
    async with Dev(os.path.abspath(given.toolfleet), folder, none, workers=1, gateways=1) as dev, Client(dev) as client:
        info = dev.info()
        await asyncio.sleep(5)
        say("gateway, idle", memory_mib(dev.pids("gateway")[0])[0], "MiB", IDLE_MIB)
        connection = await client.connected()

        async def echoed(request):
            await request.respond(request.data)

        await connection.subscribe("tools.echo", cb=echoed)
        web = subprocess.Popen([sys.executable, ECHO, "http"], stdout=subprocess.PIPE)
        try:
            url = f"http://127.0.0.1:{int(web.stdout.readline())}/mcp"
            await serve(dev, folder, "web", {"http": {"url": url}})
            await serve(dev, folder, "pipe", {"stdio": {"command": [sys.executable, ECHO, "stdio"]}})
            for name in ("web_echo", "pipe_echo", "native_echo"):
                await through_ms(client, name, 50)
            bare = {"web_echo": bare_http_ms(url, 1_000), "pipe_echo": bare_stdio_ms(1_000)}
            for name, alone in bare.items():
                through, executor = await executed_ms(dev, client, name, 500)
                say(f"{name}: bare client, p50", alone, "ms", None)
                say(f"{name}: call through the fleet, p50", through, "ms", None)
                say(f"{name}: its executor, mean", executor, "ms", None)
                say(f"{name}: of that over the bare client", executor - alone, "ms", OVERHEAD_MS)
            say("a tool on NATS: call through the fleet, p50", await through_ms(client, "native_echo", 500), "ms", None)
            rate = await a_second(client, "pipe_echo", given.calls, given.in_flight)
            say(f"shared stdio, {given.in_flight} in flight", rate, "calls/s", STDIO_A_SECOND, most=False)
        finally:
            web.kill()
            web.wait()
        many = folder / "many"
        many.mkdir()
        for n in range(given.tools):
            made = tool(f"many_{n:04}", "read", ["/bin/cat"], {"n": {"type": "integer", "description": "A number, for example 7"}})
            (many / f"{n:04}.json").write_text(json.dumps(made))
        await command(dev, "tools", "apply", str(many))
        gateway = Bare(f"{info['gateway_url']}/mcp", info["gateway_token"])
        while listed(gateway)[0] < given.tools:
            await asyncio.sleep(0.5)
        took = [listed(gateway) for _ in range(20)]
        say(f"listing {took[0][0]} tools, p50 of 20", statistics.median(ms for _, ms in took), "ms", LISTING_MS)
    return missed


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--toolfleet", default="target/release/toolfleet")
    options.add_argument("--tools", type=int, default=1_000)
    options.add_argument("--calls", type=int, default=4_000)
    options.add_argument("--in-flight", type=int, default=64)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="toolfleet-mcp-") as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        missed = asyncio.run(measured(given, folder))
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
