"""A thousand programs at once, on a machine that is busy with other things: each runs once, and nothing else waits for them."""

import asyncio
import multiprocessing
import os
import sys
import time

from client import Client
from fleet import TOOLS, tool
from waiting import check

BATCH_MAX = 1_000
PROGRAM_SECONDS = 0.2
ECHO_SECONDS_MAX = 5
ENDED = """SELECT c.state, c.attempts, c.error->>'code' AS code, count(*) FROM toolfleet.calls c
           WHERE c.tool = 'program' GROUP BY 1, 2, 3 ORDER BY 1, 2"""
OPEN = "SELECT count(*) FROM toolfleet.calls WHERE tool = 'program' AND finished_at IS NULL"
AT_ONCE = """SELECT max(at_once) AS most FROM (
               SELECT (SELECT count(*) FROM toolfleet.attempts o JOIN toolfleet.calls c USING (call_id)
                       WHERE c.tool = 'program' AND o.started_at <= a.started_at AND o.finished_at > a.started_at) AS at_once
               FROM toolfleet.attempts a JOIN toolfleet.calls c USING (call_id) WHERE c.tool = 'program') seen"""


async def prove(proof):
    programs = 200 if proof.short else BATCH_MAX
    # With its site-packages, as people run their scripts.
    command = [sys.executable, str(TOOLS / "interpreter.py"), "--seconds", str(PROGRAM_SECONDS)]
    # One attempt: any that the platform took from a tool would show.
    program = tool("program", "read", command, timeout="5s", deadline="10m", retry={"strategy": "none"})
    echo = tool("echo", "read", {"nats": {"subject": "tools.echo"}}, timeout="5s", deadline="1m")
    with Hogs(os.cpu_count() or 1):
        async with proof.fleet([program, echo]) as dev, Client(dev) as client:
            connection = await client.connected("service-echo")
            await connection.subscribe("tools.echo", cb=answer_with_the_same)
            began = time.monotonic()
            calls = [{"tool": "program", "args": {"n": n}} for n in range(programs)]
            accepted = (await client.request("batch", {"calls": calls}, timeout=60)).body["items"]
            check(all(item["state"] == "queued" for item in accepted), f"the batch: {accepted[:3]}")
            slowest, echoes = 0.0, 0
            while (await dev.row(OPEN))["count"] > 0:
                asked = time.monotonic()
                answer = (await client.call("echo", {"n": echoes}, timeout=35)).body
                # Not yet: how long it took in the end is told with the rest.
                check(answer["state"] in ("succeeded", "queued"), f"the echo: {answer}")
                slowest, echoes = max(slowest, time.monotonic() - asked), echoes + 1
                check(time.monotonic() - began < 540, "the programs do not end")
                await asyncio.sleep(0.2)
            took = time.monotonic() - began
            ended = await dev.rows(ENDED)
            most = (await dev.row(AT_ONCE))["most"]
    proof.note(f"{programs} programs in {took:.0f} s, at most {most} at once, beside {os.cpu_count()} busy cores: {ended}")
    proof.note(f"{echoes} calls of another executor meanwhile, the slowest answered after {slowest:.2f} s")
    expected = [{"state": "succeeded", "attempts": 1, "code": None, "count": programs}]
    check(ended == expected, f"not all succeeded with one attempt: {ended}")
    check(slowest < ECHO_SECONDS_MAX, f"a call of another executor waited {slowest:.1f} s")


async def answer_with_the_same(request):
    """The service behind the other executor's tool."""
    await request.respond(request.data)


class Hogs:
    """What else the machine does: processes that compute, for as long as the block."""

    def __init__(self, count):
        self.processes = [multiprocessing.Process(target=compute, daemon=True) for _ in range(count)]

    def __enter__(self):
        for process in self.processes:
            process.start()

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.join()


def compute():
    """Keeps a core busy."""
    while True:
        pass
