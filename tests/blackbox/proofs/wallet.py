"""One tenant takes what it can, bytes, calls, slots and open calls; its neighbour is served as before."""

import asyncio
import collections
import contextlib
import json
import multiprocessing
import os
import time

import nats

from client import Client, hush
from fleet import tool
from waiting import Away, check, until

# As shipped in deploy/toolfleet.env.example, but for the open calls of a short run.
SETTINGS = {
    "DISPATCHER_TENANT_CALLS_PER_SECOND": "1000",
    "DISPATCHER_TENANT_BYTES_PER_SECOND": str(16 << 20),
    "DISPATCHER_TENANT_RUNNING": "128",
    "DISPATCHER_BYTES_MAX": str(256 << 20),
}
RATE = 50
RUNNING = int(SETTINGS["DISPATCHER_TENANT_RUNNING"])
SLOW_CALLS = 600
LARGE = 8_000_000
TARGET = 1.2
PATIENCE = 20
STANDS = """SELECT count(*) FILTER (WHERE state = 'running') AS running,
                   count(*) FILTER (WHERE held AND held_why = 'slots') AS held, count(*) AS open
            FROM toolfleet.calls WHERE tenant = 'attacker' AND finished_at IS NULL"""


async def prove(proof):
    quiet, attack, quota = (1, 1, 1_500) if proof.short else (10, 10, 10_000)
    tools = [tool(name, "read", {"nats": {"subject": f"tools.{name}"}}, timeout="60s") for name in ("echo", "slow")]
    settings = {**SETTINGS, "DISPATCHER_TENANT_QUOTA": str(quota)}
    fleet = proof.fleet(tools, settings=settings)
    async with fleet as dev, Client(dev, "neighbour") as client, echoing(dev.info()["nats_url"]):
        connection, slow = await client.connected(), Slow()
        await connection.subscribe("tools.slow", cb=slow.take)
        dispatcher = dev.pids("dispatcher")
        await neighbour(client, 0.5)
        before = Served(await neighbour(client, quiet))
        proof.note(f"before             {before}")
        check(before.all, f"before any attack: {before}")
        for name in ("bytes", "calls", "slots", "open"):
            slow.hold()
            attacking = asyncio.create_task(attacked(dev.info()["nats_url"], name, attack))
            during = Served(await neighbour(client, attack))
            seen, stands = await attacking, await dev.row(STANDS)
            await slow.release()
            proof.note(f"during {name:<12}{during}; p99 {during.p99 / before.p99:.2f} x before (target {TARGET})")
            proof.note(f"    the attacker got {dict(seen)}; of its calls then {stands}")
            check(during.all, f"the neighbour during {name}: {during}")
            judge(name, seen, stands, quota)
            await until("what the attacker opened has ended", lambda: nothing_open(dev), 60)
        after = Served(await neighbour(client, quiet))
        proof.note(f"after              {after}; p99 {after.p99 / before.p99:.2f} x before")
        check(after.all, f"after the attacks: {after}")
        check(dev.pids("dispatcher") == dispatcher, "the dispatcher was started anew")


def judge(name, seen, stands, quota):
    """What of the attack was refused or held."""
    check(has_met(name, seen), f"the attack on {name} did not meet its bound: {seen}")
    if name == "slots":
        check(stands["running"] <= RUNNING, f"more run than the tenant may have: {stands}")
        check(stands["held"] >= SLOW_CALLS - RUNNING, f"fewer are held than are too many: {stands}")
    elif name == "open":
        check(stands["open"] <= 2 * quota, f"far more are open than the quota says: {stands}")


def has_met(name, seen):
    """Whether the attacker has been told what it should be."""
    if name == "slots":
        return seen["queued"] == SLOW_CALLS
    return seen["quota_exceeded" if name == "open" else "rate_limited"] > 0


async def nothing_open(dev):
    return (await dev.row(STANDS))["open"] == 0


class Served:
    """How the neighbour was served."""

    def __init__(self, answers):
        self.count, self.succeeded = len(answers), sum(state == "succeeded" for _, state in answers)
        self.others = {state for _, state in answers} - {"succeeded"}
        took = sorted(seconds for seconds, _ in answers)
        self.p50, self.p99 = took[len(took) // 2], took[min(len(took) - 1, len(took) * 99 // 100)]

    @property
    def all(self):
        return self.succeeded == self.count

    def __str__(self):
        others = f" ({self.others})" if self.others else ""
        times = f"p50 {self.p50 * 1000:.1f} ms, p99 {self.p99 * 1000:.1f} ms"
        return f"{self.succeeded} of {self.count} succeeded{others}, {times}"


async def neighbour(client, seconds):
    """Calls at a steady rate, whatever the answers take; how long each took, and its state."""

    async def one(n):
        began = time.monotonic()
        try:
            state = (await client.call("echo", {"n": n})).body["state"]
        except Away as away:
            state = str(away)
        return time.monotonic() - began, state

    began, calls = time.monotonic(), []
    for n in range(int(seconds * RATE)):
        await asyncio.sleep(max(0, began + n / RATE - time.monotonic()))
        calls.append(asyncio.create_task(one(n)))
    return await asyncio.gather(*calls)


@contextlib.asynccontextmanager
async def echoing(url):
    """The service behind the tool `echo`, in a process of its own: the attacker's calls of it must not take the neighbour's time."""
    context = multiprocessing.get_context("spawn")
    listens = context.Event()
    process = context.Process(target=echo, args=(url, listens), daemon=True)
    process.start()
    try:
        await until("the service of `echo` listens", listens.is_set, PATIENCE)
        yield
    finally:
        process.kill()
        process.join()


def echo(url, listens):
    async def serve():
        connection = await nats.connect(url, error_cb=hush)

        async def answer(request):
            await request.respond(request.data)

        await connection.subscribe("tools.echo", cb=answer)
        await connection.flush()
        listens.set()
        await asyncio.Event().wait()

    asyncio.run(serve())


class Slow:
    """The service behind the tool `slow`: it answers nothing while it holds, and everything once it is released."""

    def __init__(self):
        self.holds, self.waiting = True, []

    def hold(self):
        self.holds = True

    async def take(self, request):
        if self.holds:
            self.waiting.append(request)
        else:
            await request.respond(request.data)

    async def release(self):
        self.holds, waiting, self.waiting = False, self.waiting, []
        for request in waiting:
            await request.respond(request.data)


async def attacked(url, name, seconds):
    """Attacks from another process, so that the neighbour's clock is its own; what the attacker was told, counted."""
    reads, writes = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=attack, args=(url, name, seconds, writes), daemon=True)
    process.start()
    try:
        await until("the attacker has reported", reads.poll, seconds + PATIENCE + 15)
        return reads.recv()
    finally:
        process.kill()
        process.join()


def attack(url, name, seconds, told):
    # An attacker's processor is its own. Here it has what the servers and the neighbour leave.
    os.nice(19)
    told.send(asyncio.run(attacking(url, name, seconds)))


async def attacking(url, name, seconds):
    seen = collections.Counter()
    connection = await nats.connect(url, pending_size=128 << 20, error_cb=hush)
    inbox = connection.new_inbox()

    async def told(message):
        body = json.loads(message.data)
        for item in body.get("items", [body]):
            seen[(item.get("error") or {}).get("code") or item["state"]] += 1

    await connection.subscribe(inbox, cb=told, pending_bytes_limit=1 << 30)
    subject, headers = "toolfleet.v1.attacker", {"Prefer": "respond-async"}
    ends, sent = time.monotonic() + seconds, 0

    async def send(verb, body):
        await connection.publish(f"{subject}.{verb}", body, reply=inbox, headers=headers)

    def batch(calls, arguments):
        return json.dumps({"calls": [{"tool": "slow", "args": arguments}] * calls}).encode()

    large, several = batch(1, {"n": "x" * LARGE}), batch(500, {"n": 1})
    # Longer on a machine that is busy: until the attack has met its bound.
    while time.monotonic() < ends or (not has_met(name, seen) and time.monotonic() < ends + PATIENCE):
        if name == "bytes":
            for _ in range(9):
                await send("batch", large)
            pause, sent = 0.5, sent + 9
        elif name == "calls":
            for _ in range(100):
                await send("call.echo", b'{"n": 1}')
            pause, sent = 0.02, sent + 100
        elif name == "slots":
            if sent == 0:
                await send("batch", batch(SLOW_CALLS, {"n": 1}))
            pause, sent = 0.1, 1
        else:
            await send("batch", several)
            pause, sent = 0.1, sent + 1
        await connection.flush()
        await asyncio.sleep(pause)
    seen["requests"] = sent
    await connection.close()
    return seen
