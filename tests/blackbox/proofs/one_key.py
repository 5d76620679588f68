"""Sixty-four callers send one key to two dispatchers, of which one dies: one call, one effect, one answer."""

import asyncio

from client import Client
from fleet import PYTHON, TOOLS, lines, tool
from waiting import check, until

KEY = "the-one-key"


async def prove(proof):
    size = 16 if proof.short else 64
    effects = proof.folder / "effects.jsonl"
    command = [*PYTHON, str(TOOLS / "effect.py"), "--effects", str(effects), "--seconds", "3"]
    slow = tool("effect", "once", command, required=["n"])
    async with proof.fleet([slow], workers=2, dispatchers=2) as dev, Client(dev) as client:
        # Answers that died with their dispatcher are asked for again after eight seconds.
        how = {"prefer": "wait=30", "timeout": 8}
        crowd = [asyncio.create_task(client.answered("effect", {"n": 1}, KEY, **how)) for _ in range(size)]
        await until("the tool has started", lambda: lines(effects), 30)
        victim = dev.pids("dispatcher")[0]
        dev.kill(victim)
        answered_before = sum(task.done() for task in crowd)
        answers = await asyncio.gather(*crowd)
        check(answered_before == 0, "callers were answered before the tool was")

        call_ids = {answer.body["call_id"] for answer in answers}
        check(len(call_ids) == 1, f"one key, several calls: {call_ids}")
        states = {answer.body["state"] for answer in answers}
        check(states == {"succeeded"}, f"the states: {states}")
        new = sum(not answer.body["replayed"] for answer in answers)
        check(new <= 1, f"{new} callers were told that they were the first")
        texts = {answer.raw.replace(b'"replayed":true', b'"replayed":false') for answer in answers}
        check(len(texts) == 1, f"{len(texts)} different answers: {sorted(texts)[:2]}")
        rows = await dev.rows("SELECT call_id, attempts FROM toolfleet.calls")
        check(len(rows) == 1 and rows[0]["attempts"] == 1, f"toolfleet.calls: {rows}")
        check(len(lines(effects)) == 1, f"{len(lines(effects))} effects")
        proof.note(f"{size} equal answers for one call, {new} of them not replayed, one effect")
        await dev.replaced("dispatcher", victim)
