"""A stock client's call is answered, and its history says what was asked, what came of it and when."""

import json

from client import Client
from fleet import tool
from waiting import check

TRACE = "0af7651916cd43dd8448eb211c80319c"
ENVELOPE = {
    "call_id", "tool", "tool_version", "state", "outcome", "is_error", "source", "effect", "result",
    "error", "degraded", "coercions", "attempts", "replayed", "timing",
}  # fmt: skip
ACCEPTED = {"call_id", "tool", "state", "replayed", "accepted_at"}


async def prove(proof):
    echo = tool("echo", "read", ["/bin/cat"], {"text": {"type": "string"}, "n": {"type": "integer"}}, ["text"])
    arguments = {"text": "línea 一\n\"quoted\"", "n": 9007199254740993}
    async with proof.fleet([echo], workers=1) as dev, Client(dev) as client:
        answer = await client.request(
            "call.echo", arguments, {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}, timeout=40
        )
        envelope = answer.body
        proof.note(json.dumps(envelope, ensure_ascii=False))
        check(set(envelope) == ENVELOPE, f"the envelope's fields: {sorted(set(envelope) ^ ENVELOPE)}")
        expected = {
            "tool": "echo", "tool_version": 1, "state": "succeeded", "outcome": "success", "is_error": False,
            "source": "live", "effect": "none", "result": arguments, "error": None, "degraded": None,
            "coercions": [], "attempts": 1, "replayed": False,
        }  # fmt: skip
        wrong = {name: envelope[name] for name, value in expected.items() if envelope[name] != value}
        check(not wrong, f"not as expected: {wrong}")
        await history_agrees(dev, envelope, arguments)
        await can_be_asked_for_again(client, envelope)
        await is_offered_to_models(dev, client)
        await is_a_nats_service(client)


async def history_agrees(dev, envelope, arguments):
    call = await dev.call(envelope["call_id"])
    check(call, "the call is not in toolfleet.calls")
    for name in ["tool", "tool_version", "state", "outcome", "source", "result", "attempts"]:
        check(call[name] == envelope[name], f"toolfleet.calls.{name} is {call[name]!r}")
    check(call["args"] == arguments, f"toolfleet.calls.args is {call['args']!r}")
    check(call["tenant"] == "default", f"toolfleet.calls.tenant is {call['tenant']!r}")
    check(call["trace_id"] == TRACE, f"toolfleet.calls.trace_id is {call['trace_id']!r}")
    check(call["worker"], "toolfleet.calls.worker is empty")
    times = [call[name] for name in ["accepted_at", "started_at", "finished_at"]]
    check(all(times) and times == sorted(times), f"accepted, started, finished: {times}")
    text = await dev.row(
        "SELECT args ->> 'text' AS text FROM toolfleet.calls WHERE call_id = :'id'", id=envelope["call_id"]
    )
    check(text["text"] == arguments["text"], "args ->> 'text' is not what was sent")

    attempts = await dev.rows("SELECT * FROM toolfleet.attempts WHERE call_id = :'id'", id=envelope["call_id"])
    check(len(attempts) == 1, f"{len(attempts)} attempts")
    check(attempts[0]["number"] == 1, f"the first attempt has number {attempts[0]['number']}")
    check(attempts[0]["outcome"] == "applied", f"the attempt's outcome is {attempts[0]['outcome']!r}")

    events = await dev.rows(
        "SELECT * FROM toolfleet.call_events WHERE call_id = :'id' ORDER BY revision", id=envelope["call_id"]
    )
    moves = [event["to_state"] for event in events]
    check(moves == ["queued", "running", "succeeded"], f"the moves: {moves}")


async def can_be_asked_for_again(client, envelope):
    again = (await client.get(call_id=envelope["call_id"])).body
    same = ["call_id", "state", "outcome", "result", "attempts", "effect"]
    check(all(again[name] == envelope[name] for name in same), f"get answers {again}")
    accepted = (await client.submit("echo", {"text": "later"}, "later")).body
    check(set(accepted) == ACCEPTED, f"the accepted envelope's fields: {sorted(accepted)}")
    later = (await client.get(call_id=accepted["call_id"], wait_ms=30_000)).body
    check(later["result"] == {"text": "later"}, f"get with wait_ms answers {later}")
    by_key = (await client.get(tool="echo", idempotency_key="later")).body
    check(by_key["call_id"] == accepted["call_id"], f"get by key answers {by_key}")


async def is_offered_to_models(dev, client):
    for form in ["openai", "anthropic", "mcp", "full"]:
        offered = await client.request("tools", {"format": form})
        check(b'"echo"' in offered.raw, f"tools in the format {form}: {offered.body}")
        check(offered.body.get("instructions"), f"no instructions in the format {form}")
    stored = await dev.rows("SELECT * FROM toolfleet.tools")
    check(len(stored) == 1, f"{len(stored)} rows in toolfleet.tools")


async def is_a_nats_service(client):
    reply = await (await client.connected("operator")).request("$SRV.INFO", timeout=5)
    info = json.loads(reply.data)
    subjects = " ".join(endpoint["subject"] for endpoint in info["endpoints"])
    check(info["type"] == "io.nats.micro.v1.info_response", f"$SRV.INFO answers {info}")
    check("toolfleet.v1." in subjects, f"the endpoints listen on {subjects}")
