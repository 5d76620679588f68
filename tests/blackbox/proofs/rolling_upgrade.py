"""A fleet of the release before is replaced process by process under load: nothing is refused, lost or done twice.

It needs a program of that release: `run.py --before PATH`.
"""

import asyncio
import os
import signal
import subprocess
import uuid
from collections import Counter

from client import Client
from fleet import tool
from waiting import Away, check, until

CALLERS = 16
BETWEEN = 200
"""Answered calls before each step and after the last one."""

EFFECTS = {"look": "read", "put": "idempotent", "charge": "once"}
OPEN = "SELECT count(*) FROM toolfleet.calls WHERE finished_at IS NULL"


class Load:
    """Callers who submit one call after the other, each with a key of its own, until they are told to stop."""

    def __init__(self, client):
        self.client, self.stopped = client, False
        self.answers, self.unanswered, self.done = Counter(), 0, Counter()
        self.tasks = [asyncio.ensure_future(self.caller()) for _ in range(CALLERS)]

    async def caller(self):
        while not self.stopped:
            for name in EFFECTS:
                state = await self.one(name, uuid.uuid4().hex)
                self.answers[name, state] += 1

    async def one(self, name, key):
        """The state or the code that a call is answered with; asked again while no answer comes."""
        while True:
            try:
                answer = await self.client.call(name, {"key": key}, key, prefer="wait=20", timeout=25)
                return answer.code or answer.body["state"]
            except Away:
                # A dispatcher that stops leaves its waiters without an answer: the same key asks again.
                self.unanswered += 1

    async def further(self, count=BETWEEN):
        """Waits until so many more calls have been answered."""
        goal = self.answers.total() + count
        await until(f"{count} more answers", lambda: self.answers.total() >= goal, 120)

    async def stop(self):
        self.stopped = True
        await asyncio.gather(*self.tasks)


async def prove(proof):
    check(proof.before, "the release before is named with --before")
    program = proof.folder / "toolfleet"
    install(proof.before, program)
    tools = [manifest(name, effect) for name, effect in EFFECTS.items()]
    fleet = proof.fleet(tools, workers=2, dispatchers=2)
    fleet.command[0] = str(program)
    async with fleet as dev, Client(dev) as client:
        connection = await client.connected()
        done = Counter()

        async def serve(request):
            done[request.headers["Toolfleet-Call-Id"]] += 1
            await request.respond(request.data)

        for name in EFFECTS:
            await connection.subscribe(f"tools.{name}", cb=serve)
        load = Load(client)
        await load.further()
        migrate(proof, dev)
        await load.further()
        install(proof.program, program)
        for kind in ["worker", "dispatcher", "worker", "dispatcher"]:
            await replace_one(dev, kind, proof.program)
            await load.further()
        await load.stop()

        async def over():
            return (await dev.row(OPEN))["count"] == 0

        await until("all calls have ended", over, 60)
        rows = await dev.rows("SELECT call_id, tool, state FROM toolfleet.calls")
    proof.note(f"{sum(load.answers.values())} answers: {dict(load.answers)}; {load.unanswered} asked again")
    refused = {answer: count for answer, count in load.answers.items() if answer[1] != "succeeded"}
    check(not refused, f"answered with something else than success: {refused}")
    check(len(rows) == load.answers.total(), f"{len(rows)} calls are in the history")
    twice = [row for row in rows if row["tool"] == "charge" and done[row["call_id"]] != 1]
    check(not twice, f"`once` calls that were not carried out exactly once: {twice[:5]}")
    again = sum(count - 1 for count in done.values())
    proof.note(f"{len(rows)} calls, {again} of them asked of their service again, no `once` call among them")


def manifest(name, effect):
    repeated = {"idempotency": {"header": "Idempotency-Key"}} if effect == "idempotent" else {}
    executor = {"nats": {"subject": f"tools.{name}"}}
    return tool(name, effect, executor, {"key": {"type": "string"}}, ["key"], timeout="10s", **repeated)


def install(source, place):
    """Puts a program in its place as a package does: a new file under the same name."""
    new = place.with_suffix(".new")
    new.write_bytes(open(source, "rb").read())
    new.chmod(0o755)
    os.replace(new, place)


def migrate(proof, dev):
    command = [proof.program, "migrate", "--database-url", dev.info()["database_url"]]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    check(said.returncode == 0, f"migrate: {said.stderr}")


async def replace_one(dev, kind, program):
    """Ends one process of the old release as an operator would; `dev` starts the program that now stands there."""
    inode = os.stat(dev.command[0]).st_ino
    old = [pid for pid in dev.pids(kind) if os.stat(f"/proc/{pid}/exe").st_ino != inode]
    check(old, f"no {kind} of the release before is left")
    os.kill(old[0], signal.SIGTERM)
    await dev.replaced(kind, old[0])
    new = [pid for pid in dev.pids(kind) if os.stat(f"/proc/{pid}/exe").st_ino == inode]
    check(new, f"the new {kind} does not run {program}")
