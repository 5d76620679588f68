#!/usr/bin/env python3
"""Says what a tool received of a call over MCP, byte for byte, and how often: over HTTP and over `toolfleet mcp serve`, with a client of a few lines.

Prints a line for each request: what was sent, what stood on the tool's standard input, or with which code it was refused; then what became of
requests that share an id, were sent again after a lost answer, on purpose, or after their client had hung up. The exit code is 1 when one of
them is not as docs/mcp.md says.
"""

import argparse
import asyncio
import http.client
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "blackbox"))
sys.dont_write_bytecode = True

from fleet import Dev, tool
from waiting import check, until

META = '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'
PROGRAM = "import sys; got = sys.stdin.buffer.read(); open({path!r}, 'ab').write(got + b'\\n'); print('\"done\"')"
NUMBERS = {"properties": {"a": {}, "b": {}, "what": {"type": "string"}}}
# What is sent, and with which code it is refused.
SENT = [
    ('{"b": 9007199254740993, "a": 1.10}', None),
    ('{"what":"a\\u0062c","a":1E2,"b":-0.0}', None),
    ('{"b":-9223372036854775808,"a":[0.1, 1e-7]}', None),
    ('{"b":12345678901234567890123}', "number_out_of_range"),
    ('{"a":1,"a":2}', "duplicate_key"),
    ('{"a":{"x":1,"x":1}}', "duplicate_key"),
]


def request(number, name, arguments):
    return f'{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"{name}","arguments":{arguments},{META}}}}}'


class OverHttp:
    def __init__(self, dev):
        self.address, self.token = dev.info()["gateway_url"].removeprefix("http://"), dev.info()["gateway_token"]

    def send(self, number, name, arguments):
        """Sends a call on a connection of its own, which is returned."""
        connection = http.client.HTTPConnection(self.address, timeout=60)
        head = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": f"Bearer {self.token}"}
        head |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": name}
        connection.request("POST", "/mcp", request(number, name, arguments).encode(), head)
        return connection

    def call(self, number, name, arguments):
        return json.loads(self.send(number, name, arguments).getresponse().read())["result"]


class OverPipe:
    def __init__(self, dev, principal="ann"):
        env = {**os.environ, "NATS_URL": dev.info()["nats_url"]}
        words = [dev.program, "mcp", "serve", "--principal", principal]
        self.process = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def call(self, number, name, arguments):
        self.process.stdin.write(request(number, name, arguments).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["result"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(20)


def numbers_as_text(document):
    return json.loads(document, parse_int=str, parse_float=str)


def about(result):
    return result["_meta"]["io.toolfleet/call"]


def text(result):
    return result["content"][-1]["text"]


async def exact(dev, received):
    pipe = OverPipe(dev)
    for client in (OverHttp(dev), pipe):
        for number, (sent, code) in enumerate(SENT):
            before = received("look")
            result = await asyncio.to_thread(client.call, number, "look", sent)
            new = received("look")[len(before) :]
            if code is None:
                print(f"{type(client).__name__:8} sent {sent:44} received {' and '.join(new)}")
                check(len(new) == 1 and numbers_as_text(new[0]) == numbers_as_text(sent), f"{sent}: {new} {result}")
            else:
                told = about(result)["error"]["code"]
                print(f"{type(client).__name__:8} sent {sent:44} refused: {told}")
                check((new, told) == ([], code), f"{sent}: {new} {result}")
    pipe.close()


async def often(dev, received):
    web = OverHttp(dev)

    async def call(number, name, arguments):
        return await asyncio.to_thread(web.call, number, name, arguments)

    one, two = await asyncio.gather(call(1, "charge", '{"what":"one"}'), call(1, "charge", '{"what":"two"}'))
    print(f"two requests with the id 1: {about(one)['id']} and {about(two)['id']}, effects {len(received('charge'))}")
    check(about(one)["id"] != about(two)["id"] and len(received("charge")) == 2, "two calls")

    lost = web.send(2, "charge", '{"what":"lost"}')
    await until("the effect", lambda: len(received("charge")) == 3, 30)
    lost.close()
    again = await call(77, "charge", '{ "what" : "lost" }')
    print(f"its answer was lost, and it is sent again: effects {len(received('charge')) - 2}; its client reads: {text(again)}")
    check(len(received("charge")) == 3, "one effect")
    meant = await call(78, "charge", '{"what":"lost","idempotency_key":"once-more"}')
    print(f"the same on purpose, with idempotency_key: effects {len(received('charge')) - 2}")
    check(len(received("charge")) == 4, f"two effects: {meant}")

    # One process of this tool at a time: the second call waits.
    first = asyncio.create_task(call(3, "slow", '{"what":"first"}'))
    await until("the first to run", lambda: len(received("slow")) == 1, 30)
    second = web.send(4, "slow", '{"what":"second"}')

    async def stands(state):
        row = await dev.row("SELECT state FROM toolfleet.calls WHERE tool = 'slow' AND args->>'what' = 'second'")
        return row and row["state"] == state

    await until("the second to wait", lambda: stands("queued"), 30)
    second.close()
    await until("the second to be taken back", lambda: stands("cancelled"), 30)
    Path(dev.folder, "go").touch()
    await first
    asked = await call(5, "slow", '{"what":"second"}')
    print(f"its client hung up before it ran: cancelled; asked for again: {about(asked)['state']}, effects {len(received('slow')) - 1}")
    check(about(asked)["state"] == "succeeded" and len(received("slow")) == 2, "it runs")


async def tried(options, folder):
    def program(name, more=""):
        return [sys.executable, "-I", "-S", "-c", PROGRAM.format(path=f"{folder}/{name}.received") + more]

    waits = f"\nimport os, time\nwhile not os.path.exists({folder + '/go'!r}): time.sleep(0.02)"
    tools = [
        tool("look", "read", program("look"), NUMBERS["properties"], coercion="off"),
        tool("charge", "once", program("charge"), NUMBERS["properties"]),
        tool("slow", "once", program("slow", waits), NUMBERS["properties"], timeout="60s", concurrency=1),
    ]

    def received(name):
        path = Path(folder, f"{name}.received")
        return path.read_bytes().decode().splitlines() if path.exists() else []

    async with Dev(os.path.abspath(options.toolfleet), folder, tools, workers=1) as dev:
        await exact(dev, received)
        await often(dev, received)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--toolfleet", default=str(HERE.parents[1] / "target" / "debug" / "toolfleet"))
    options = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="toolfleet-mcp-") as folder:
        # As root, Postgres and tools run as another user, who must be able to pass through and to write there.
        os.chmod(folder, 0o777)
        asyncio.run(tried(options, folder))


if __name__ == "__main__":
    main()
