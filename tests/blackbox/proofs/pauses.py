"""A pause holds on every process and beyond a restart; thousands of paused calls are in nobody's way, and none is lost."""

import asyncio
import collections
import contextlib
import json
import os
import subprocess
import sys
import time

from client import Client
from fleet import TOOLS, control, lines, tool
from waiting import Away, check, until

# What the product promises, in seconds. Times are judged in the long form alone: a machine of CI has other things to do.
KNOWN_SECONDS = 2
NEIGHBOUR_SECONDS = 1
WORKERS = 3
STEADY_CALLS = 20
NEIGHBOUR_RATE = 20
BATCH = 500
PAUSED = "SELECT count(*) AS count FROM toolfleet.calls WHERE held_why = 'pause'"
HELD_ELSEWHERE = """SELECT count(*) AS count FROM toolfleet.calls
                    WHERE held AND held_why <> 'pause' AND args->>'what' = 'stop beside'"""
OPEN = "SELECT count(*) AS count FROM toolfleet.open_calls"
# For each worker, when it claimed a call last, after a control was set.
LAST_CLAIMS = """SELECT w.name, max(extract(epoch FROM a.started_at - c.set_at))::float8 AS after
                 FROM toolfleet.controls c, toolfleet.attempts a
                 JOIN toolfleet.calls t USING (call_id) JOIN toolfleet.workers w USING (worker_id)
                 WHERE c.control_id = :'id' AND t.tool = 'charge' AND w.state = 'live' GROUP BY 1 ORDER BY 1"""
LAST_ACCEPTED = """SELECT greatest(0, extract(epoch FROM max(t.accepted_at) - max(c.set_at)))::float8 AS after
                   FROM toolfleet.controls c, toolfleet.calls t WHERE c.control_id = :'id' AND t.tool = 'charge'"""
LOG = "SELECT rev, change, control_id, kind, tool, pointer, value, setting, actor, note FROM toolfleet.control_log ORDER BY rev"


async def prove(proof):
    waiting, many = (400, 2_000) if proof.short else (10_000, 100_000)
    what = {"what": {"type": "string"}}
    tools = [
        tool(name, effect, {"nats": {"subject": f"tools.{name}"}}, what, ["what"], timeout="5m", deadline="1h")
        for name, effect in (("charge", "once"), ("look", "read"))
    ]
    # Few slots, so that calls wait.
    slots = {"WORKER_CONCURRENCY": "32"}
    async with proof.fleet(tools, workers=WORKERS, dispatchers=2, settings=slots) as dev, Client(dev) as client:
        async with Service(proof, dev, "charge") as charge:
            charge.answer()
            for rings in (True, False):
                await takes_effect(proof, dev, client, rings)
            await holds_after_a_restart(proof, dev, client, charge)
        async with Service(proof, dev, "charge") as charge:
            await covers_a_value(proof, dev, client, charge, waiting)
        async with Service(proof, dev, "charge") as charge, Service(proof, dev, "look") as look:
            charge.answer()
            look.answer()
            await is_in_nobodys_way(proof, dev, client, charge, many)
        for row in await dev.rows(LOG):
            proof.note(f"    {json.dumps(row)}")


async def takes_effect(proof, dev, client, rings):
    """How long after a pause was set each process still let calls pass that came all the time."""
    stop = asyncio.Event()
    steady = [asyncio.create_task(calls_all_the_time(client, stop)) for _ in range(STEADY_CALLS)]
    claims = {}

    async def all_work():
        rows = await dev.rows("SELECT DISTINCT worker FROM toolfleet.calls WHERE tool = 'charge' AND attempts > 0")
        return len(rows) == WORKERS

    await until("every worker has run a call", all_work, 60)
    pause = await set_pause(dev, rings, "refuse", tool="charge")
    # Until nothing has passed for as long as the promise is.
    settled = time.monotonic()
    while time.monotonic() - settled < KNOWN_SECONDS:
        row = await dev.row(LAST_ACCEPTED, id=pause)
        now = {row["name"]: row["after"] for row in await dev.rows(LAST_CLAIMS, id=pause)} | {"accepted": row["after"]}
        if now != claims:
            claims, settled = now, time.monotonic()
        await asyncio.sleep(0.1)
    stop.set()
    await asyncio.gather(*steady)
    last = {name: max(0, after) for name, after in claims.items()}
    bell = "with the bell" if rings else "without it"
    listed = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in last.items())
    proof.note(f"{bell}, a call passed last so long after the pause was set: {listed}")
    check(proof.short or max(last.values()) < KNOWN_SECONDS, f"it took more than {KNOWN_SECONDS} s: {last}")
    await resume(dev, pause)
    await until("nothing is open", lambda: is_zero(dev, OPEN), 60)


async def calls_all_the_time(client, stop):
    while not stop.is_set():
        with contextlib.suppress(Away):
            answer = await client.call("charge", {"what": "steady"}, prefer="wait=5", key=os.urandom(8).hex())
            if answer.code == "tool_paused":
                await asyncio.sleep(0.01)


async def holds_after_a_restart(proof, dev, client, charge):
    pause = await set_pause(dev, True, "wait", tool="charge")
    before = charge.asked()["restart"]
    charge.stop()
    await dev.stop()
    await dev.start()
    await charge.start()
    charge.answer()
    for n in range(20):
        answer = await client.submit("charge", {"what": "restart"}, f"restart-{n}")
        check(answer.body["state"] == "queued", f"{answer.body}")
    await until("the calls wait for the pause", lambda: counts(dev, PAUSED, 20), 30)
    check(charge.asked()["restart"] == before, "a paused call has started")
    proof.note("after a restart of every process and both servers: 20 of 20 new calls wait, 0 have started")
    await resume(dev, pause)
    await until("nothing is open", lambda: is_zero(dev, OPEN), 60)
    check(charge.asked()["restart"] == before + 20, f"{charge.asked()}")


async def covers_a_value(proof, dev, client, charge, size):
    """Of calls that wait for a worker half are paused; how long the others take, alone and beside them."""
    took = {}
    for name, others in (("alone", []), ("beside", ["stop"])):
        await charge.start()
        # Both kinds in turn, so that neither is in front.
        whats = [what for _ in range(size // 2) for what in [f"go {name}", *(f"{other} {name}" for other in others)]]
        await submit(client, "charge", whats)
        pause = await set_pause(dev, True, "wait", tool="charge", pointer="/what", value=f"stop {name}")
        started = charge.asked()[f"stop {name}"]
        if others:
            await until("those that were held wait for the pause", lambda: is_zero(dev, HELD_ELSEWHERE), 60)
        began = time.monotonic()
        charge.answer()
        await until("all others are done", lambda: charge.asked()[f"go {name}"] == size // 2, 300)
        took[name] = time.monotonic() - began
        if others:
            await until("all that had not begun wait", lambda: all_wait_or_began(dev, charge, size // 2), 60)
            asked = charge.asked()["stop beside"]
            proof.note(f"{size} calls waited, {size // 2} of them matched: {started} of these had begun when the pause was set,")
            proof.note(f"    {asked - started} before every process knew of it")
            await asyncio.sleep(KNOWN_SECONDS)
            check(charge.asked()["stop beside"] == asked, "a paused call has started")
            proof.note("    and none later")
        resumed = time.monotonic()
        await resume(dev, pause)
        await until("nothing is open", lambda: is_zero(dev, OPEN), 300)
        if others:
            proof.note(f"resumed: all of them had run after {time.monotonic() - resumed:.1f} s")
            check(charge.asked()["stop beside"] == size // 2, f"{charge.asked()}")
    alone, beside = took["alone"], took["beside"]
    proof.note(f"{size // 2} calls that did not match: {alone:.2f} s alone, {beside:.2f} s beside the paused ones")


async def all_wait_or_began(dev, charge, size):
    paused, began = (await dev.row(PAUSED))["count"], charge.asked()["stop beside"]
    check(paused + began <= size, f"{paused} wait for the pause and {began} have begun, of {size}")
    return paused + began == size


async def is_in_nobodys_way(proof, dev, client, charge, size):
    """Many calls are paused, moved to another pause, and resumed, while another tenant calls another tool."""
    first = await set_pause(dev, True, "wait", tool="charge")
    async with Client(dev, "neighbour") as neighbour:
        quiet = await served(neighbour, asyncio.create_task(asyncio.sleep(3)))
        proof.note(f"another tenant's calls, beside nothing:                      {quiet}")
        await submit(client, "charge", ["many"] * size)
        await until("all are paused", lambda: counts(dev, PAUSED, size), 60)
        second = await set_pause(dev, True, "wait", tenant="default")

        async def moves():
            await resume(dev, first)
            line = f"SELECT count(*) AS count FROM toolfleet.open_calls WHERE line = 'pause/{second}'"
            await until("all wait for the other pause", lambda: counts(dev, line, size), 300)

        moving = await served(neighbour, asyncio.create_task(moves()))
        proof.note(f"while {size} calls go from one pause to another:    {moving}")
        check(charge.asked()["many"] == 0, "a paused call has started")

        async def run():
            await resume(dev, second)
            await until("nothing is open", lambda: is_zero(dev, OPEN + " WHERE tenant = 'default'"), 550)

        running = await served(neighbour, asyncio.create_task(run()))
        proof.note(f"while {size} calls are resumed and run:              {running}")
    check(charge.asked()["many"] == size, f"{charge.asked()['many']} starts of {size} calls")
    proof.note(f"{size} of {size} calls ran once")
    longest = max(moving.longest, running.longest)
    check(proof.short or longest < NEIGHBOUR_SECONDS, f"another tenant's call took {longest:.2f} s")


class Served:
    """How a tenant was served."""

    def __init__(self, took):
        self.took = sorted(took)
        self.longest = self.took[-1]

    def __str__(self):
        p50, p99 = self.took[len(self.took) // 2], self.took[len(self.took) * 99 // 100]
        return f"{len(self.took)} calls, p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, longest {self.longest * 1000:.0f} ms"


async def served(client, task):
    """Calls at a steady rate until a task has ended."""

    async def one(n):
        began = time.monotonic()
        answer = await client.call("look", {"what": "neighbour"})
        check(answer.body["state"] == "succeeded", f"the neighbour: {answer.body}")
        return time.monotonic() - began

    began, calls = time.monotonic(), []
    while not task.done():
        calls.append(asyncio.create_task(one(len(calls))))
        await asyncio.sleep(max(0, began + len(calls) / NEIGHBOUR_RATE - time.monotonic()))
    await task
    return Served(await asyncio.gather(*calls))


async def submit(client, name, whats):
    """Many calls, in batches."""
    for at in range(0, len(whats), BATCH):
        calls = [
            {"tool": name, "args": {"what": what}, "idempotency_key": os.urandom(12).hex()}
            for what in whats[at : at + BATCH]
        ]
        answer = await client.request("batch", {"calls": calls}, timeout=60)
        states = collections.Counter(item["state"] for item in answer.body["items"])
        check(states == {"queued": len(calls)}, f"{states}")


async def set_pause(dev, rings, setting, **scope):
    """Sets a pause: by the command, which rings the bell, or in the ledger alone. Its id."""
    if rings:
        flags = [f"--{name}={value}" for name, value in scope.items() if name in ("tool", "queue", "tenant")]
        flags += [f"--where={scope['pointer']}={scope['value']}"] if "pointer" in scope else []
        flags += ["--refuse"] if setting == "refuse" else []
        said = await control(dev, "pause", *flags, "--actor=proof", "--note=as a proof", "--json")
        return json.loads(said)["control"]["control_id"]
    named = ", ".join(f"{name} => '{value}'" for name, value in scope.items())
    setting_it = f"toolfleet.set_control('pause', '\"{setting}\"', 'proof', 'as a proof', {named})"
    return int((await dev.row(f"SELECT control->>'control_id' AS id FROM {setting_it}"))["id"])


async def resume(dev, pause):
    await control(dev, "resume", str(pause), "--actor=proof", "--note=done")


async def counts(dev, sql, expected):
    return (await dev.row(sql))["count"] == expected


async def is_zero(dev, sql):
    return await counts(dev, sql, 0)


class Service:
    """The service of a tool, in a process of its own."""

    def __init__(self, proof, dev, name):
        self.dev, self.name, self.file = dev, name, proof.folder / f"{name}.asked.jsonl"
        self.process = None

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *_):
        self.stop()

    async def start(self):
        """Starts it anew; it answers nothing yet."""
        self.stop()
        command = [sys.executable, "-I", str(TOOLS / "counted.py"), "--url", self.dev.info()["nats_url"]]
        command += ["--subject", f"tools.{self.name}", "--asked", str(self.file)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        ready = await asyncio.to_thread(self.process.stdout.readline)
        check(ready == b"ready\n", f"the service of {self.name} did not start")

    def answer(self):
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def asked(self):
        """How often it was asked for what."""
        return collections.Counter(line["what"] for line in lines(self.file))

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.process = None
