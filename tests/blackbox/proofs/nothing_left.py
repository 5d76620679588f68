"""A tool that forks and listens to no signal is gone three seconds after its timeout, with all it started."""

import time

import processes
from client import Client
from fleet import PYTHON, TOOLS, lines, tool
from waiting import check, until

TIMEOUT_SECONDS = 1
LINGER_SECONDS = 3
STARTED = "SELECT extract(epoch FROM started_at)::float8 AS at FROM toolfleet.attempts WHERE call_id = :'id'"


async def prove(proof):
    effects = proof.folder / "effects.jsonl"
    command = [*PYTHON, str(TOOLS / "effect.py"), "--effects", str(effects), "--seconds", "60"]
    stubborn = tool(
        "stubborn", "read", [*command, "--family", "--stubborn"],
        timeout=f"{TIMEOUT_SECONDS}s", retry={"strategy": "none"},
    )  # fmt: skip
    async with proof.fleet([stubborn], workers=1) as dev, Client(dev) as client:
        accepted = (await client.submit("stubborn", {}, "stubborn")).body
        family = (await until("the tool has started", lambda: lines(f"{effects}.family"), 30))[0]
        started = await until("the attempt is on record", lambda: dev.row(STARTED, id=accepted["call_id"]), 10)
        ends = started["at"] + TIMEOUT_SECONDS + LINGER_SECONDS

        def left():
            known = {pid for pid, since in family if processes.alive(pid, since)}
            return known | set(processes.of_call(accepted["call_id"]))

        what = f"the {len(family)} processes of the tool are gone"
        await until(what, lambda: not left(), max(ends - time.time(), 0.0))
        proof.note(f"{what}, {time.time() - started['at']:.2f} s after the start and with a timeout of 1 s")
        envelope = (await client.get(call_id=accepted["call_id"], wait_ms=20_000)).body
        check(envelope["state"] == "failed", f"the call: {envelope}")
        check(envelope["error"]["code"] == "timeout", f"the error: {envelope['error']}")
        check(envelope["attempts"] == 1, f"{envelope['attempts']} attempts without a retry")
        check(processes.alive(dev.pids("worker")[0]), "the worker did not survive")
