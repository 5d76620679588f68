"""Everything stops while calls wait for their second attempt: each goes on after the start, none early."""

import asyncio
import json
import subprocess
import sys

from client import Client
from fleet import TOOLS, lines, tool
from waiting import check, until

PAUSE = "8s"
# The service and Postgres read the same clock; only the rounding to microseconds differs.
ROUNDING_SECONDS = 0.001
WAITING = """SELECT call_id, args, extract(epoch FROM not_before)::float8 AS not_before
             FROM toolfleet.calls WHERE state = 'queued' AND attempts = 1 AND not_before > accepted_at"""


async def prove(proof):
    size = 40 if proof.short else 200
    log = proof.folder / "attempts.jsonl"
    command = [sys.executable, "-I", str(TOOLS / "second_time.py"), "--log", str(log)]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=proof.folder)
    try:
        port = json.loads(await asyncio.to_thread(service.stdout.readline))["port"]
        await survives(proof, port, log, size)
    finally:
        service.terminate()
        service.wait()


async def survives(proof, port, log, size):
    request = {"method": "GET", "url": f"http://127.0.0.1:{port}/", "query": {"id": "{n}"}}
    retry = {"strategy": "fixed", "max_attempts": 3, "base": PAUSE}
    ask = tool("second_time", "read", {"http": request}, required=["n"], retry=retry)
    dev = proof.fleet([ask])
    await dev.start()
    try:
        async with Client(dev) as client:
            submissions = (client.submit("second_time", {"n": n}, f"key-{n}") for n in range(size))
            await asyncio.gather(*submissions)
        waiting = await until("every call waits for its second attempt", lambda: all_wait(dev, size), 60)
        await dev.stop()
        before = len(lines(log))
        seconds = await dev.start()
        proof.note(f"{size} calls waited, {before - size} went on before all had stopped; {seconds:.1f} s to start")
        await until("every call has succeeded", lambda: all_succeeded(dev, size), 90)
        await check_attempts(proof, dev, log, waiting)
    finally:
        await dev.stop()
    check(before < size * 2, "no call was left to go on after the restart")


async def all_wait(dev, size):
    rows = await dev.rows(WAITING)
    return rows if len(rows) == size else None


async def all_succeeded(dev, size):
    states = await dev.states("default")
    check(not states.get("failed"), f"calls failed: {states}")
    return states == {"succeeded": size}


async def check_attempts(proof, dev, log, waiting):
    seen = {}
    for line in lines(log):
        seen.setdefault(line["id"], []).append(line["at"])
    late = []
    for call in waiting:
        times = seen[call["args"]["n"]]
        check(2 <= len(times) <= 3, f"the service saw {len(times)} attempts of one call")
        late.append(times[1] - call["not_before"])
    check(min(late) >= -ROUNDING_SECONDS, f"an attempt came {-min(late):.3f} s early")
    proof.note(f"second attempts came {min(late):.3f} to {max(late):.3f} s after not_before")
    rows = await dev.rows(
        """SELECT call_id, count(*) AS attempts, max(number) AS highest,
                  count(*) FILTER (WHERE outcome = 'applied') AS applied
           FROM toolfleet.attempts GROUP BY call_id"""
    )
    check(len(rows) == len(waiting), f"{len(rows)} calls have attempts")
    for row in rows:
        regular = row["attempts"] == row["highest"] <= 3 and row["applied"] == 1
        check(regular, f"toolfleet.attempts: {row}")
