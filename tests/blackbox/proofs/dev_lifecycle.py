"""`toolfleet dev` starts quickly, is alone on its folder, replaces what dies, and leaves nothing."""

import asyncio
import subprocess

import processes
from client import Client
from fleet import KINDS, pids_in, tool
from waiting import check, until


async def prove(proof):
    dev = proof.fleet([tool("echo", "read", ["/bin/cat"])], workers=2)
    cold = await dev.start()
    await answers(dev)
    await leaves_nothing(dev)
    warm = await dev.start()
    proof.note(f"ready after {cold:.2f} s on a new folder, {warm:.2f} s on a used one")
    try:
        await answers(dev)
        await refuses_a_second(proof, dev)
        for kind in ["worker"] if proof.short else KINDS:
            victim = dev.pids(kind)[0]
            dev.kill(victim)
            await dev.replaced(kind, victim)
            await answers(dev)
            proof.note(f"a killed {kind} was replaced")
        await leaves_nothing(dev)
    finally:
        await dev.stop()


async def answers(dev):
    async with Client(dev) as client:
        answer = await client.answered("echo", {"n": 1}, None)
        check(answer.body["state"] == "succeeded", f"a call: {answer.body}")


async def refuses_a_second(proof, dev):
    before = dev.info()
    second = await asyncio.to_thread(
        subprocess.run, dev.command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, cwd=dev.folder
    )
    said = (second.stdout + second.stderr).decode()
    check(second.returncode not in (0, None), "a second `toolfleet dev` on the same folder was let in")
    check(str(dev.process.pid) in said, f"the refusal does not name the first one's pid: {said}")
    check(dev.info() == before, "the refused one changed dev.json")
    check(all(map(processes.alive, pids_in(before))), "the refused one ended something of the first")
    proof.note(f"a second one ends with code {second.returncode}: {said.strip().splitlines()[-1]}")


async def leaves_nothing(dev):
    family = {pid: processes.look(pid) for pid in processes.descendants(dev.process.pid)}
    process = dev.process
    await dev.stop()
    check(process.returncode == 0, f"after SIGTERM it ended with code {process.returncode}")
    left = [pid for pid, seen in family.items() if seen and processes.alive(pid, seen.started)]
    check(not left, f"left by `toolfleet dev`: {processes.describe(left)}")
    await until("nothing works in its folder", lambda: not processes.in_folder(dev.folder), 1)
