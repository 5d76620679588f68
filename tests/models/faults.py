"""What the packages make of each fault, plain and streamed, and what stands in the log of it."""

import time

import cases
from protocols import PROTOCOLS
from standin import check

ANSWER = {"text": "Once upon a time there was a fault. " * 3}
# The name, the rule, and how the entry ends. A complete answer never comes of it.
TABLE = [
    ("cut at 0", {"fault": {"kind": "cut", "at": 0}}, "cut"),
    ("cut at 100", {"fault": {"kind": "cut", "at": 100}}, "cut"),
    ("cut at 100, reset", {"fault": {"kind": "cut", "at": 100, "end": "reset"}}, "cut"),
    ("cut at 300, clean", {"fault": {"kind": "cut", "at": 300, "end": "clean"}}, "cut"),
    ("cut at 3000, clean", {"answer": {"text": ANSWER["text"] * 30}, "fault": {"kind": "cut", "at": 3000, "end": "clean"}}, "cut"),
    ("drop", {"fault": {"kind": "drop"}}, "cut"),
    ("garbage", {"fault": {"kind": "garbage", "bytes": 300}}, "whole"),
    ("html", {"fault": {"kind": "html"}}, "whole"),
    ("empty", {"fault": {"kind": "empty"}}, "whole"),
    ("raw NUL", {"fault": {"kind": "raw", "body": "data: \x00\n\n"}}, "whole"),
    ("error in a 200", {"fault": {"kind": "error", "message": "Overloaded"}}, "whole"),
    ("error after 3", {"fault": {"kind": "error", "message": "Overloaded", "after": 3}}, "whole"),
    ("failed after 3", {"fault": {"kind": "error", "message": "Overloaded", "after": 3, "failed": True}}, "whole"),
    ("hang", {"fault": {"kind": "hang"}}, "client_left"),
    ("hang at 200", {"fault": {"kind": "hang", "at": 200}}, "client_left"),
    ("hang for 50 ms", {"fault": {"kind": "hang", "at": 200, "ms": 50}}, "cut"),
]
# Of a client that waits for nothing more, and of one that a slow machine must not hurry.
SHORT, LONG = 0.4, 30


def meet(server, say):
    doors = {(protocol, patience): protocol(server.url, max_retries=0, timeout=patience) for protocol in PROTOCOLS for patience in (SHORT, LONG)}
    for name, rule, ended in TABLE:
        cells, patience = [], SHORT if ended == "client_left" else LONG
        for stream in (False, True):
            for protocol in PROTOCOLS:
                server.play([{"answer": ANSWER, "chunk": 6, **rule}])
                cells.append(seen(doors[protocol, patience], stream))
                [entry] = server.log()
                what = f"{protocol.name}, {name}, {'stream' if stream else 'plain'}"
                check(entry["ended"] == ended, f"{what}: {entry['ended']}")
                check(cells[-1] != "complete", f"{what}: the package has a complete answer")
                at = rule["fault"].get("at")
                check(at is None or entry["bytes"] == at, f"{what}: {entry['bytes']} bytes")
                check(not entry["usage"], f"{what}: usage {entry['usage']}")
        say(f"{name:<20}" + "".join(f"{cell:<26}" for cell in cells))
    endless(server, say)
    paced(server, say)


def seen(door, stream):
    """What comes of one request, in a word."""
    body = door.body()
    try:
        reply = door.together(**body) if stream else door.answered(**body)
    except Exception as error:
        return type(error).__name__
    if not hasattr(reply, "to_json"):
        return f"a {type(reply).__name__}"
    return "complete" if complete(reply) else "an object of less"


def complete(reply):
    """Whether a reply has the whole text and says that it ended well."""
    text = reply.to_json()
    return ANSWER["text"].strip() in text and any(word in text for word in ('"stop"', '"completed"', '"end_turn"'))


def endless(server, say):
    """Streams that do not end, until the client leaves."""
    for protocol in PROTOCOLS:
        server.play([{"answer": {"text": "more "}, "fault": {"kind": "endless"}}])
        door = protocol(server.url, max_retries=0)
        with door.opened(**door.body()) as stream:
            for n, _event in enumerate(stream):
                if n == 50:
                    break
        [entry] = server.log()
        check(entry["ended"] == "client_left" and entry["untold"]["output"] > 30, f"{protocol.name}, endless: {entry}")
    say("endless: left after 50 events, and the stand-in noticed")


def paced(server, say):
    """The pauses are kept, and what left when is on record."""
    for protocol in PROTOCOLS:
        server.play([{"answer": {"text": cases.TEXT}, "chunk": 10, "first_byte_ms": 60, "first_chunk_ms": 80, "chunk_ms": 20}])
        door = protocol(server.url, max_retries=0)
        began = time.monotonic()
        door.together(**door.body())
        took = (time.monotonic() - began) * 1000
        pieces = -(-len(cases.TEXT) // 10)
        check(took >= 60 + 80 + 20 * (pieces - 1), f"{protocol.name}: {took:.0f} ms for {pieces} pieces")
        [entry] = server.log()
        waits = entry["first_byte_at_ms"] - entry["at_ms"], entry["first_chunk_at_ms"] - entry["first_byte_at_ms"]
        check(waits[0] >= 60 and waits[1] >= 80, f"{protocol.name}: {waits}")
    say("pauses: as scripted")
