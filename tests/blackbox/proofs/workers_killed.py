"""All workers are killed five times while hundreds of reads run: every read is answered all the same."""

import asyncio
import time

from client import Client
from fleet import tool
from waiting import check, until

READS = 400
KILLS = 5
SERVICE_SECONDS = 1.0
STATES = """SELECT state, count(*), max(attempts) AS attempts, min(error->>'message') AS message
            FROM toolfleet.calls WHERE tool = 'look' GROUP BY state ORDER BY state"""
OPEN = "SELECT count(*) FROM toolfleet.calls WHERE tool = 'look' AND finished_at IS NULL"
# Of the workers that live: what the dead ones ran is not theirs.
RUNNING = """SELECT count(*) FROM toolfleet.calls c JOIN toolfleet.workers w ON w.name = c.worker AND w.state = 'live'
             WHERE c.tool = 'look' AND c.state = 'running' AND c.started_at IS NOT NULL"""
LOSSES = "SELECT count(*) FROM toolfleet.call_events WHERE reason IN ('worker_lost', 'poison')"


async def prove(proof):
    look = tool("look", "read", {"nats": {"subject": "tools.look"}}, timeout="20s", deadline="5m")
    async with proof.fleet([look]) as dev, Client(dev) as client:
        connection = await client.connected("service-look")
        await connection.subscribe("tools.look", cb=answer_slowly)
        calls = [{"tool": "look", "args": {"n": n}} for n in range(READS)]
        accepted = (await client.request("batch", {"calls": calls}, timeout=60)).body["items"]
        check(all(item["state"] == "queued" for item in accepted), f"the batch: {accepted[:3]}")
        began = time.monotonic()
        for _ in range(KILLS):

            async def running():
                return (await dev.row(RUNNING))["count"] >= 50

            await until("reads run", running, 60, 0.02)
            workers = dev.pids("worker")
            for worker in workers:
                dev.kill(worker)
            for worker in workers:
                await dev.replaced("worker", worker)
        killed = time.monotonic() - began

        async def over():
            return (await dev.row(OPEN))["count"] == 0

        await until("all reads are over", over, 120)
        states = await dev.rows(STATES)
        losses = (await dev.row(LOSSES))["count"]
    proof.note(f"all workers killed {KILLS} times in {killed:.0f} s, {losses} attempts lost with them: {states}")
    check([(row["state"], row["count"]) for row in states] == [("succeeded", READS)], f"not all succeeded: {states}")


async def answer_slowly(request):
    """The service: each request takes a while, and all run beside each other."""

    async def answer():
        await asyncio.sleep(SERVICE_SECONDS)
        await request.respond(request.data)

    SERVING.add(task := asyncio.ensure_future(answer()))
    task.add_done_callback(SERVING.discard)


SERVING = set()
