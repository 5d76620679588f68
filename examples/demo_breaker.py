"""A chapter of demo.py: a service dies, the breakers of its tools open, it comes back, and they close."""

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

from telling import NotAsTold, claim, show, tell

TOOLS = Path(__file__).resolve().parent / "tools"
# Few calls and a short time, so that the story goes on: the defaults are for a fleet with more to do.
BREAKER = "breaker: {calls: 5, open: 2s, open_max: 2s}"
# A read that fails says so at once; a payment that was not made is tried again.
RETRY = {
    "find_payment": "retry: {strategy: none}",
    "pay": "retry: {strategy: fixed, base: 200ms, max_attempts: 10}",
}
AGENTS = 6
ROUNDS = 40
PATIENCE_SECONDS = 20
BREAKERS = "SELECT tool, target, state, why, waiting FROM toolfleet.breakers ORDER BY tool"
# The last in line: a call at its front may be trying the service just now.
LAST_IN_LINE = """SELECT call_id FROM toolfleet.calls
                  WHERE tool = 'pay' AND held_why = 'breaker' ORDER BY accepted_at DESC LIMIT 1"""


async def a_target_fails(story):
    story.chapter("A service dies, and its calls are kept from it")
    ledger = story.folder / "payments.jsonl"
    service, port = story.serve("payment_service.py", "--ledger", str(ledger))
    offer(story, port)
    tell("find_payment and pay are find_charge and charge_account at a service of their own, and have")
    tell(f"  {BREAKER}")
    found = await found_again(story)
    claim(found["result"] == {"charges": []}, "The service answers: nothing was paid yet.")
    os.kill(service.pid, signal.SIGKILL)
    service.wait()
    tell(f"The service (pid {service.pid}) got a kill -9.")
    await reads_are_refused(story)
    accepted = await writes_wait(story)
    for breaker in story.rows(BREAKERS, ""):
        show(breaker)

    service, _ = story.serve("payment_service.py", "--ledger", str(ledger), port=port)
    tell(
        f"The service is started again on its port (pid {service.pid}). Nobody tells the fleet, and agents go on asking:"
    )
    paid = await asyncio.gather(*(story.get(call_id, wait_ms=PATIENCE_SECONDS * 1_000) for call_id in accepted))
    show({name: paid[0][name] for name in ["call_id", "state", "outcome", "result"]})
    claim({one["state"] for one in paid} == {"succeeded"}, f"All {AGENTS} payments that waited were made.")
    in_ledger = len(ledger.read_text().splitlines())
    claim(in_ledger == AGENTS, f"The service's ledger shows {in_ledger} payments, each once.")
    await found_again(story)
    await story.until("both breakers are closed", lambda: states(story) == {"closed"}, PATIENCE_SECONDS)
    for breaker in story.rows(BREAKERS, ""):
        show(breaker)
    claim(states(story) == {"closed"}, "A call of each tool has tried the service: both breakers are closed.")


async def reads_are_refused(story):
    """Agents look for payments until one of them is answered without an attempt."""
    tell(f"{AGENTS} agents at a time look for a payment, a read:")
    for number in range(ROUNDS):
        asked = (story.ask("find_payment", {"reference": f"order-{number}-{agent}"}) for agent in range(AGENTS))
        answers = await asyncio.gather(*asked)
        counted = Counter(code_of(answer) for answer in answers)
        tell("  " + ", ".join(f"{count} × {code}" for code, count in sorted(counted.items())))
        refused = [one for one in answers if code_of(one) == "circuit_open" and one["attempts"] == 0]
        if refused:
            break
    else:
        raise NotAsTold(f"{ROUNDS} rounds of {AGENTS} calls failed, and the breaker did not open.")
    show({name: refused[0][name] for name in ["state", "outcome", "effect", "attempts"]})
    show({name: refused[0]["error"][name] for name in ["code", "message", "suggestion", "retry_after_ms"]})
    claim(refused[0]["effect"] == "none", "The breaker is open: a read is answered circuit_open, and nothing was sent.")
    claim(refused[0]["error"]["retry_after_ms"] > 0, "The agent is told when to ask again.")


async def writes_wait(story):
    """Agents pay, and their calls wait for the service: the ids of these."""
    tell(f"{AGENTS} agents pay, a write:")
    asked = (
        story.ask("pay", {"account": f"umbrella-{agent}", "amount_cents": 500}, f"payment-{agent}", "respond-async")
        for agent in range(AGENTS)
    )
    accepted = await asyncio.gather(*asked)
    await story.until("payments wait for the service", lambda: story.rows(LAST_IN_LINE, ""), PATIENCE_SECONDS)
    call_id = story.rows(LAST_IN_LINE, "")[0]["call_id"]
    _, printed = story.toolfleet("calls", "explain", call_id)
    claim(
        "the breaker of its tool pay is open" in printed,
        "A write is not refused. It waits, and the history says for what.",
    )
    return [one["call_id"] for one in accepted]


def offer(story, port):
    """Puts two more manifests into the folder of the running fleet."""
    for name, origin in (("find_payment", "find_charge"), ("pay", "charge_account")):
        text = (TOOLS / f"{origin}.yaml").read_text().replace("http://127.0.0.1:8702", f"http://127.0.0.1:{port}")
        text = text.replace(f"name: {origin}", f"name: {name}").partition("# When nobody knows")[0]
        text += f"{BREAKER}\n{RETRY[name]}\n"
        # As a whole or not at all: the fleet looks while this is written.
        (story.folder / name).write_text(text)
        (story.folder / name).rename(story.folder / f"tools/{name}.yaml")


async def found_again(story):
    """Looks for a payment again and again: the first answer that says what there is."""
    answers = []

    async def has_come():
        answers.append(await story.ask("find_payment", {"reference": "order-0"}))
        return answers[-1]["state"] == "succeeded"

    await story.until("find_payment answers", has_come, PATIENCE_SECONDS)
    return answers[-1]


def code_of(envelope):
    return envelope["error"]["code"] if envelope["error"] else envelope["state"]


def states(story):
    return {breaker["state"] for breaker in story.rows(BREAKERS, "")}
