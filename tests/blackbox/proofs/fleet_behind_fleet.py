"""One fleet's `/mcp` is the other's server; parts of both are killed while writes run: none happens twice, and each in doubt is named."""

import asyncio
import json
import random
import time
from collections import Counter

from client import Client
from fleet import Dev, command, tool
from waiting import Away, check, until

TOOL_SECONDS = 0.4
PAUSE_SECONDS = 1.0
# What is killed, and of which fleet: the front one has the callers, the other the tool.
VICTIMS = [("front", "worker"), ("back", "gateway"), ("back", "worker"), ("front", "dispatcher"), ("back", "dispatcher")]
# What a call says of its effect, as whether it has happened; nothing of one that is in doubt.
CLAIMS = {"applied": True, "none": False, "not_applied": False}
OPEN = "SELECT count(*) FROM toolfleet.calls WHERE finished_at IS NULL AND state NOT IN ('in_doubt')"
CALLS = "SELECT call_id, args->>'n' AS n, state, effect_known, error->>'code' AS code FROM toolfleet.calls WHERE tool = 'back_charge'"


async def prove(proof):
    calls, together, seconds = (120, 20, 8) if proof.short else (1_000, 30, 60)
    charge = tool("charge", "once", {"nats": {"subject": "tools.charge"}}, required=["n"], timeout="20s")
    settings = {"GATEWAY_STRANGERS_MAX": "4096"}
    folders = {name: proof.folder / name for name in ("back", "front")}
    for folder in folders.values():
        folder.mkdir()
        folder.chmod(0o755)
    back = Dev(proof.program, folders["back"], [charge], workers=2, dispatchers=2, gateways=1, settings=settings)
    front = Dev(proof.program, folders["front"], [], workers=2, dispatchers=2, gateways=0)
    async with back, front, Client(back) as upstream, Client(front) as client:
        desk = Desk(await upstream.connected())
        await desk.open()
        await behind(front, back, folders["front"])
        ended = asyncio.Event()
        killing = asyncio.ensure_future(kill(ended, seconds, {"back": back, "front": front}))
        room = asyncio.Semaphore(together)

        async def one(n):
            async with room:
                return await client.answered("back_charge", {"n": n}, f"charge-{n}", prefer="wait=30", timeout=40)

        await asyncio.gather(*(one(n) for n in range(calls)))
        ended.set()
        kills = await killing

        async def all_over():
            return (await front.row(OPEN))["count"] == 0 and (await back.row(OPEN))["count"] == 0

        await until("all calls are over", all_over, 120)
        told = await front.rows(CALLS)
        doubts = await back.rows("SELECT call_id FROM toolfleet.calls WHERE state = 'in_doubt'")
    done = desk.charged
    doubled = {n: times for n, times in done.items() if times > 1}
    states = Counter(f"{call['state']} {call['code'] or ''}".strip() for call in told)
    # What each call of the front fleet claims of its effect, beside what happened.
    wrong = []
    for call in told:
        happened = done[int(call["n"])] > 0
        claims = CLAIMS.get(call["effect_known"])
        if claims is not None and claims != happened:
            wrong.append(call)
    doubtful = [call["n"] for call in told if call["state"] == "in_doubt"]
    proof.note(f"{len(told)} calls, {together} at a time, {sum(kills.values())} processes killed: {dict(kills)}")
    proof.note(f"the front fleet says: {dict(states)}; the other has {len(doubts)} in doubt; {sum(done.values())} charges were made")
    proof.note(f"doubled {len(doubled)}, told wrongly {len(wrong)} of {len(told) - len(doubtful)} that say what happened, in doubt {len(doubtful)}")
    check(len(told) == calls, f"{len(told)} of {calls} calls are in the history")
    unsaid = [call for call in told if call["state"] != "in_doubt" and call["effect_known"] not in CLAIMS]
    check(not unsaid, f"neither in doubt nor certain: {unsaid[:5]}")
    check(not doubled, f"doubled: {list(doubled.items())[:5]}")
    check(not wrong, f"told wrongly: {wrong[:5]}")
    check(states["succeeded"] > 0 and sum(kills.values()) > 2, "nothing succeeded, or nothing was killed")


async def behind(front, back, folder):
    """Makes the tools of the fleet `back` tools of `front`, over its gateway."""
    info = back.info()
    server = {
        "kind": "mcp_server",
        "name": "back",
        "version": 1,
        "transport": {"http": {"url": f"{info['gateway_url']}/mcp", "headers": {"Authorization": f"Bearer {info['gateway_token']}"}}},
        "trust": "untrusted",
    }
    (folder / "back.json").write_text(json.dumps(server))
    await command(front, "tools", "apply", str(folder / "back.json"))
    await command(front, "mcp", "discover", "back", "--into", str(folder / "found"))
    await command(front, "tools", "apply", str(folder / "found" / "back_charge.json"))


async def kill(ended, seconds, fleets):
    """One process after the other, of the one fleet or the other, for so long at most; how many of which."""
    kills, draw = Counter(), random.Random(7)
    ends = time.monotonic() + seconds
    while not ended.is_set() and time.monotonic() < ends:
        try:
            await asyncio.wait_for(ended.wait(), PAUSE_SECONDS)
        except asyncio.TimeoutError:
            where, kind = draw.choice(VICTIMS)
            try:
                pids = fleets[where].pids(kind)
            except Away:
                continue
            if pids:
                fleets[where].kill(draw.choice(pids))
                kills[f"{where} {kind}"] += 1
    return kills


class Desk:
    """Where charges are made, and counted."""

    def __init__(self, connection):
        self.connection, self.charged, self.making = connection, Counter(), set()

    async def open(self):
        await self.connection.subscribe("tools.charge", cb=self.charge)

    async def charge(self, request):
        async def make():
            self.charged[json.loads(request.data)["n"]] += 1
            await asyncio.sleep(TOOL_SECONDS)
            await request.respond(request.data)

        self.making.add(task := asyncio.ensure_future(make()))
        task.add_done_callback(self.making.discard)
