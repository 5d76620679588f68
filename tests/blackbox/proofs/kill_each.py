"""kill -9 of each kind of process during a crowd of calls: every call ends, none is lost, none twice.

Each kind has a tenant of its own.
The callers hold on to their keys: whoever gets no answer sends the same call again.
"""

import asyncio

from client import Client
from fleet import KINDS, tool
from waiting import check, until

# Long enough that a kill always meets calls in every state, short enough for a thousand of them.
SLOW_ECHO = ["/bin/sh", "-c", "sleep 0.05; exec cat"]


async def prove(proof):
    size = 200 if proof.short else 1_000
    echo = tool("slow_echo", "read", SLOW_ECHO, required=["n"])
    async with proof.fleet([echo], workers=2) as dev:
        for kind in KINDS:
            async with Client(dev, f"kill-{kind}") as client:
                await survives(proof, dev, client, kind, size)


async def survives(proof, dev, client, kind, size):
    answered, underway = {}, asyncio.Event()

    async def submit(number):
        answered[number] = (await client.submit("slow_echo", {"n": number}, f"key-{number}")).body
        if len(answered) >= size // 10:
            underway.set()

    victim = dev.pids(kind)[0]
    crowd = asyncio.gather(*(submit(number) for number in range(size)))
    await asyncio.wait_for(underway.wait(), 60)
    if kind == "worker":
        await until("the workers have begun", lambda: some_ended(dev, client.tenant), 60)
    dev.kill(victim)
    states = await until("Postgres answers after the kill", lambda: dev.states(client.tenant), 60)
    open_then = states.get("queued", 0) + states.get("running", 0)
    await crowd
    await dev.replaced(kind, victim)
    states = await until("every call has ended", lambda: all_ended(dev, client.tenant, size), 240, 0.2)
    proof.note(f"{kind:<11} killed with {open_then:>4} calls open: {states}")

    check(states == {"succeeded": size}, f"a read with attempts left did not succeed: {states}")
    refused = [body for body in answered.values() if not body["call_id"]]
    check(not refused, f"{len(refused)} calls were refused, the first: {refused[:1]}")
    told = {body["call_id"]: number for number, body in answered.items()}
    check(len(told) == size, f"{size} keys were given {len(told)} call ids")
    rows = await dev.rows(
        "SELECT call_id, args, result, attempts FROM toolfleet.calls WHERE tenant = :'tenant'",
        tenant=client.tenant,
    )
    check({row["call_id"] for row in rows} == set(told), "the answered ids are not the stored ones")
    for row in rows:
        right = {"n": told[row["call_id"]]}
        check(row["args"] == right and row["result"] == right, f"asked {right}, stored {row}")
    attempts = max(row["attempts"] for row in rows)
    check(attempts <= 3, f"{attempts} attempts, and 3 is the most")


async def some_ended(dev, tenant):
    return (await dev.states(tenant)).get("succeeded", 0) > 0


async def all_ended(dev, tenant, size):
    states = await dev.states(tenant)
    check(sum(states.values()) <= size, f"more calls than were made: {states}")
    ended = sum(states.get(state, 0) for state in ["succeeded", "failed", "cancelled", "expired"])
    return states if ended == size else None
