"""A fleet with everything that a dashboard shows: calls of every kind, all the time, a target that fails, a limit, a pause and doubts."""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from fleet import control, tool
from waiting import Away, check, until

# A program of the tests, with an interceptor that refuses or panics as a call says.
INTERCEPTOR = "fleet_tests_interceptor"
DOUBTS, PARKED = 3, 20
ECHO = Path(__file__).with_name("mcp_echo.py")
NOWHERE = {"name": "main", "url": "http://127.0.0.1:9/v1/chat/completions", "model": "none"}
# Calls of `shut` may be among all that are paused: a dispatcher that did not know of its pause yet has accepted them.
PAUSED = "SELECT count(*) AS count FROM toolfleet.calls WHERE held_why = 'pause'"
PAUSED_PARKED = f"{PAUSED} AND tool = 'parked'"


def tools(service):
    """One for each thing that the dashboard shows."""

    def at(path):
        return {"http": {"method": "POST", "url": f"http://127.0.0.1:{service.port}/{path}", "body": {"n": "{n}"}}}

    once = {"retry": {"strategy": "none"}, "deadline": "10m"}
    what = {"what": {"type": "string"}}
    return [
        tool("look", "read", at("fine"), required=["n"]),
        tool("transfer", "read", at("fine"), queue="bank"),
        tool("program", "read", ["/bin/sh", "-c", "sleep 0.3; exec cat"]),
        tool("charge", "once", at("fine"), **once),
        tool("lose", "once", at("lost"), **once),
        tool(
            "down", "read", at("down"), retry={"strategy": "none"}, breaker={"calls": 5, "open": "1s", "open_max": "2s"}
        ),
        tool("busy", "read", at("down"), retry={"strategy": "fixed", "base": "100ms", "max_attempts": 2, "budget": 0}),
        tool("limited", "read", at("fine"), rate_limit={"calls": 5, "per": "1s"}, deadline="10m"),
        tool("full", "read", at("fine"), rate_limit={"calls": 1, "per": "1s"}, on_limit="refuse"),
        tool("parked", "read", at("fine"), rate_limit={"calls": 1, "per": "1s"}, deadline="10m"),
        tool("shut", "read", at("fine")),
        tool("known", "read", at("fine"), cache={"ttl": "2s"}),
        tool("stood_in", "read", at("down"), fallback={"stub": {"n": "0"}}, retry={"strategy": "none"}),
        tool(
            "learned",
            "read",
            at("fine"),
            timeout={"learned": "p95x2", "floor": "100ms", "ceiling": "5s", "initial": "2s"},
        ),
        tool("guarded", "read", ["/bin/cat"], what, ["what"], interceptors=["obeys"]),
        tool("agreed", "read", at("fine"), approval={"expires": "1h"}),
        {"kind": "mcp_server", "name": "echoes", "version": 1, "transport": {"stdio": {"command": [sys.executable, str(ECHO), "stdio"]}}},
        # Its pin is of no tool: for the worker it has changed.
        tool("changed", "once", {"mcp": {"server": "echoes", "tool": "echo", "pin": f"sha256:{'0' * 64}"}}, output="content", **once),
        # Of whose route an alert would tell; nobody asks it.
        tool("model", "read", {"chat": {"protocol": "openai_chat", "routes": [NOWHERE]}}, {"messages": {"type": "array"}}),
    ]


class Load:
    """Calls of every tool, all the time, at the rates of one person's fleet."""

    def __init__(self, dev, client):
        self.dev, self.client, self.since = dev, client, time.time()
        self.calls, self.tasks = {}, []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for task in self.tasks:
            task.cancel()
        # A task that failed says why; the others were cancelled.
        for result in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def begin(self):
        """What happens once, in this order: doubts, then a pause over calls that wait, ended, and set again."""
        for n in range(DOUBTS):
            answer = await self.client.call("lose", {"n": n}, key=f"lost-{n}")
            check(answer.body["state"] == "in_doubt", f"{answer.body}")
        answer = await self.client.call("agreed", {"n": 0}, prefer="respond-async")
        check(answer.body["state"] == "awaiting_client", f"nobody has said yes, and it is {answer.body}")
        await self.control("pause", "--tool=shut", "--refuse")
        self.steadily("look", 20, lambda n: {"n": n} if n % 5 else {"n": str(n)})
        self.steadily("look", 2, lambda n: {"n": "many"})
        self.steadily("transfer", 2)
        self.steadily("program", 2)
        # Each key twice.
        self.steadily("charge", 4, key=lambda n: f"charge-{n // 2}", arguments=lambda n: {"n": n // 2})
        self.steadily("down", 10)
        self.steadily("busy", 8)
        self.steadily("limited", 8, prefer="respond-async")
        self.steadily("full", 4)
        self.steadily("shut", 2)
        self.steadily("known", 8, lambda n: {"n": f"{n // 8}"})
        self.steadily("stood_in", 4)
        self.steadily("learned", 2)
        self.steadily("changed", 2, key=lambda n: f"changed-{n}")
        self.steadily("guarded", 4, lambda n: {"what": ["go", "refuse", "panic"][n % 3]}, prefer="respond-async")
        for n in range(PARKED):
            await self.client.call("parked", {"n": n}, prefer="respond-async")
        for is_last in (False, True):
            await self.control("pause", "--tool=parked")
            await until("calls wait for the end of the pause", self.some_are_paused, 30)
            if not is_last:
                await self.control("resume", "--tool=parked")
                await until("they went back to their line", self.none_is_paused, 30)

    async def control(self, *words):
        await control(self.dev, *words, "--actor=proof", "--note=as a proof")

    async def some_are_paused(self):
        return (await self.dev.row(PAUSED_PARKED))["count"] > 0

    async def none_is_paused(self):
        return not await self.some_are_paused()

    def steadily(self, name, rate, arguments=lambda n: {"n": n}, key=None, prefer="wait=5"):
        self.tasks.append(asyncio.create_task(self.call_all_the_time(name, rate, arguments, key, prefer)))

    async def call_all_the_time(self, name, rate, arguments, key, prefer):
        async def one(n):
            # A dispatcher may be too busy to answer in time; the load goes on.
            with contextlib.suppress(Away):
                answer = await self.client.call(name, arguments(n), key and key(n), prefer)
                words = self.calls.setdefault(name, {})
                word = answer.code or answer.body["state"]
                words[word] = words.get(word, 0) + 1

        began, n, under_way = time.monotonic(), 0, set()
        try:
            while True:
                for call in [call for call in under_way if call.done()]:
                    under_way.remove(call)
                    call.result()
                under_way.add(asyncio.create_task(one(n)))
                n += 1
                await asyncio.sleep(max(0, began + n / rate - time.monotonic()))
        finally:
            for call in under_way:
                call.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    def note(self, proof):
        for name, words in sorted(self.calls.items()):
            proof.note(f"    {name}: {', '.join(f'{count} {word}' for word, count in sorted(words.items()))}")


class OwnWorker:
    """A worker of a program of its own, beside `toolfleet`: usually the one with an interceptor, which pulls one queue more than the others."""

    def __init__(self, proof, dev, program=INTERCEPTOR, package=f"fleet-tests --bin {INTERCEPTOR}", queues="default,bank"):
        self.proof, self.dev, self.process = proof, dev, None
        self.program, self.package, self.queues = program, package, queues

    async def __aenter__(self):
        beside = Path(self.proof.program).with_name(self.program)
        check(beside.exists(), f"there is no {beside}: build it with `cargo build -p {self.package}`")
        info = self.dev.info()
        env = {
            **os.environ,
            "DATABASE_URL": info["database_url"],
            "NATS_URL": info["nats_url"],
            **({"WORKER_QUEUES": self.queues} if self.queues else {}),
        }
        state = self.proof.folder / "own"
        state.mkdir(mode=0o700)
        command = [str(beside), "--http", "127.0.0.1:0", "--name", "own-worker", "--state-dir", str(state)]
        with (self.proof.folder / "own-worker.log").open("wb") as log:
            self.process = subprocess.Popen(
                command, env=env, cwd=self.proof.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self

    async def __aexit__(self, *_):
        self.process.terminate()
        try:
            await until(f"{self.program} has ended", lambda: self.process.poll() is not None, 45)
        finally:
            self.process.kill()
            self.process.wait()


class Service:
    """What the HTTP tools ask: /fine answers, /down says 503, and /lost hears and does not answer."""

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()
        await self.server.wait_closed()

    async def serve(self, reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
            path = head.split()[1]
            if path != b"/lost":
                await asyncio.sleep(0.1)
                status = "200 OK" if path == b"/fine" else "503 Service Unavailable"
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}".encode()
                )
                await writer.drain()
        writer.close()
