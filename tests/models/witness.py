#!/usr/bin/env python3
"""The vendors' own packages talk to the stand-in of examples/models, and agree with its script on every field. Prints a matrix.

    .tools/venv/bin/python tests/models/witness.py [--short]
"""

import argparse
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

import cases
from protocols import FRESH, PROTOCOLS, agree, exact, without_unkept
from standin import NotAsScripted, StandIn, check

import crowd
import cuts
import faults
import refusals
import retries
import scripts
import turns
import wire


def matrix(server, say):
    """Protocols × {plain, stream} × cases: the package's object has every field as it was scripted."""
    rows = {}
    for name, answer in cases.CASES.items():
        for protocol in PROTOCOLS:
            door = protocol(server.url, max_retries=0)
            body = door.body()
            server.play([{"answer": answer, "chunk": [3, 1, 4], "write_bytes": 7}])
            plain = door.answered(**body)
            exact(protocol.name, plain)
            wanted = protocol.expected(answer)
            agree(wanted, plain, f"{protocol.name}, {name}, plain")
            over = set(plain.to_dict()) - set(wanted) - FRESH
            check(protocol.name == "openai_responses" or not over, f"{protocol.name}: {over} was not scripted")
            events = door.streamed(**body)
            for event in events:
                exact(protocol.name, event)
            together = door.together(**body)
            agree(without_unkept(wanted), together, f"{protocol.name}, {name}, streamed")
            usage = agree_on_sums(server, door, [plain, plain, together])
            rows.setdefault(name, []).append(f"plain, {len(events)} events: {usage}")
    rows["error"] = [failed(server, protocol(server.url, max_retries=0)) for protocol in PROTOCOLS]
    say(f"{'':<22}" + "".join(f"{protocol.name:<42}" for protocol in PROTOCOLS))
    for name, cells in rows.items():
        say(f"{name:<22}" + "".join(f"{'✓ ' + cell:<42}" for cell in cells))


ERROR = {"status": 429, "message": "Slow down.", "type": "rate_limit_error", "code": "rate_limit_exceeded", "param": "messages"}


def failed(server, door):
    """An error has every field as it was scripted: plain, before a stream, in a stream, and, where there is one, as an object that failed."""
    server.play([{"fault": {"kind": "status", **ERROR, "headers": {"Retry-After": "7"}}}])
    for ask in (door.answered, door.streamed):
        error = caught(door, lambda: ask(**door.body()))
        check(isinstance(error, door.package.RateLimitError), f"{door.name}: {error!r}")
        check(error.response.headers["retry-after"] == "7" and error.request_id, f"{door.name}: {error.response.headers}")
        fields_of_error(door, error.body, "429")
    server.play([{"answer": {"text": cases.TEXT}, "chunk": 3, "fault": {"kind": "error", **ERROR, "after": 2}}])
    if door.name == "openai_responses":
        # This package hands the event on.
        event = door.streamed(**door.body())[-1]
        exact(door.name, event)
        said = (event.type, event.code, event.message, event.param)
        check(said == ("error", ERROR["code"], ERROR["message"], ERROR["param"]), f"{door.name}: {said}")
        server.play([{"answer": {"text": cases.TEXT}, "fault": {"kind": "error", **ERROR, "after": 2, "failed": True}}])
        for reply in (door.answered(**door.body()), door.streamed(**door.body())[-1].response):
            exact(door.name, reply)
            said = (reply.status, reply.error.code, reply.error.message)
            check(said == ("failed", ERROR["code"], ERROR["message"]), f"{door.name}: {said}")
        return "429, in the stream, failed object"
    error = caught(door, lambda: door.streamed(**door.body()))
    fields_of_error(door, error.body, "in the stream")
    return "429, in the stream"


def caught(door, ask):
    try:
        ask()
    except door.package.APIError as error:
        return error
    raise NotAsScripted(f"{door.name}: no error was raised")


def fields_of_error(door, body, what):
    """OpenAI's package takes the outer object away."""
    wanted = {name: ERROR[name] for name in ("message", "type", "code", "param")}
    if door.name == "anthropic":
        body, wanted = body["error"], {name: ERROR[name] for name in ("message", "type")}
    check(body == wanted, f"{door.name}, {what}: {wanted} was scripted and {body} read")


def agree_on_sums(server, door, replies):
    """What the package was told is what the stand-in says that it told."""
    server.settle()
    told = [sum(column) for column in zip(*map(door.told, replies))]
    one = server.sums()["models"][cases.MODEL]
    summed = [one["usage"]["input"], one["usage"]["output"]]
    check((one["told"], summed) == (len(replies), told), f"told {told} in {len(replies)} replies, summed {one}")
    return "{}+{} tokens".format(*door.told(replies[0]))


PARTS = {
    "matrix": matrix,
    "scripts": scripts.play,
    "turns": turns.take,
    "wire": wire.look,
    "cuts": cuts.make,
    "refusals": refusals.meet,
    "retries": retries.count,
    "faults": faults.meet,
    "crowd": crowd.come,
}


def attest(say, short=False, only=None):
    """All parts; `NotAsScripted` says what was not so."""
    for name, part in PARTS.items():
        if only and name not in only or short and name == "faults":
            continue
        began = time.monotonic()
        with StandIn() as server:
            say(f"--- {name}")
            part(server, say)
        check(server.process.returncode == 0, f"the stand-in ended with {server.process.returncode} after its parent closed the pipe")
        say(f"--- {name}: as scripted, {time.monotonic() - began:.1f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--short", action="store_true", help="without the table of faults")
    parser.add_argument("--only", action="append", choices=PARTS)
    options = parser.parse_args()
    try:
        attest(lambda text: print(text, flush=True), options.short, options.only)
    except NotAsScripted as wrong:
        print(f"NOT as scripted: {wrong}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
