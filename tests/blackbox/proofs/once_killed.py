"""kill -9 of a worker in the middle of a `once` call: one effect, in doubt, nothing left of the tool, never again."""

import asyncio

import processes
from client import Client
from fleet import PYTHON, TOOLS, lines, tool
from waiting import check, stays, until

GONE_SECONDS = 3


async def prove(proof):
    effects = proof.folder / "effects.jsonl"
    command = [*PYTHON, str(TOOLS / "effect.py"), "--effects", str(effects), "--seconds", "3", "--family"]
    async with proof.fleet([tool("effect", "once", command)], workers=2) as dev, Client(dev) as client:
        accepted = (await client.submit("effect", {}, "only-once")).body
        call_id = accepted["call_id"]
        waiting = asyncio.create_task(client.call("effect", {}, "only-once", prefer="wait=60", timeout=70))
        family = await until("the tool has started", lambda: lines(f"{effects}.family"), 30)
        worker = await until("a worker runs it", lambda: dev.worker_of(call_id), 10)
        dev.kill(worker)

        def gone():
            return not any(processes.alive(*process) for process in family[0]) and not processes.of_call(call_id)

        await until(f"the {len(family[0])} processes of the tool are gone", gone, GONE_SECONDS)
        await until("the call is in doubt", lambda: state_is(dev, call_id, "in_doubt"), 30)
        envelope = (await waiting).body
        proof.note(f"{envelope['state']}: {envelope['error']['message']}")
        check_envelope(envelope, call_id)
        again = (await client.call("effect", {}, "only-once")).body
        check(again["replayed"] and again["call_id"] == call_id, f"the same key again: {again}")
        check(again["state"] == "in_doubt", f"the same key again: {again}")
        await dev.replaced("worker", worker)

        async def untouched():
            call = await dev.call(call_id)
            return len(lines(effects)) == 1 and call["state"] == "in_doubt" and call["attempts"] == 1

        await stays("one effect, one attempt, in doubt", untouched, 4 if proof.short else 10)
        doubt = await dev.row("SELECT * FROM toolfleet.in_doubt WHERE call_id = :'id'", id=call_id)
        check(doubt, "toolfleet.in_doubt does not show the call")


def check_envelope(envelope, call_id):
    expected = {
        "call_id": call_id, "state": "in_doubt", "outcome": "unknown", "is_error": True, "source": "error",
        "effect": "unknown", "result": None, "attempts": 1,
    }  # fmt: skip
    wrong = {name: envelope[name] for name, value in expected.items() if envelope[name] != value}
    check(not wrong, f"the in-doubt envelope is not as expected: {wrong}")
    error = envelope["error"]
    check(error["code"] == "in_doubt", f"the error: {error}")
    check(not error["retryable"], "an in-doubt call is called retryable")
    check(error["suggestion"] in {"do_not_repeat", "check_state"}, f"the suggestion: {error['suggestion']}")


async def state_is(dev, call_id, state):
    return (await dev.call(call_id))["state"] == state
