"""Many streams at once, and sums that are those of the packages."""

import asyncio
import time

import cases
from protocols import PROTOCOLS
from standin import check

EACH = 60
CHUNKS, CHUNK_MS = 20, 50
TEXT = "word " * CHUNKS
SECONDS_MAX = 20


def come(server, say):
    server.play([{"match": {"stream": True}, "answer": {"text": TEXT}, "chunk": 5, "chunk_ms": CHUNK_MS}])
    began = time.monotonic()
    asyncio.run(gathered(server))
    took = time.monotonic() - began
    alone = 3 * EACH * CHUNKS * CHUNK_MS / 1000
    check(took < SECONDS_MAX, f"{3 * EACH} streams took {took:.1f} s")
    log = server.log()
    check(len(log) == 3 * EACH and {entry["ended"] for entry in log} == {"whole"}, "every stream is whole in the log")
    at_once = most_at_once(log)
    check(at_once > EACH, f"at most {at_once} streams ran at once")
    check(server.sums()["models"][cases.MODEL]["requests"] == 3 * EACH, f"{server.sums()}")
    say(f"{3 * EACH} streams of {CHUNKS} chunks: {took:.1f} s, where one after the other had taken {alone:.0f} s; {at_once} at once")


async def gathered(server):
    doors = [protocol(server.url, max_retries=0) for protocol in PROTOCOLS]
    said = await asyncio.gather(*(door.said(**door.body()) for door in doors for _ in range(EACH)))
    check(set(said) == {TEXT}, f"texts: {set(said)}")
    for door in doors:
        await door.many.close()


def most_at_once(log):
    """The largest number of entries whose times overlap."""
    marks = [(entry["at_ms"], 1) for entry in log] + [(entry["at_ms"] + entry["took_ms"], -1) for entry in log]
    running = most = 0
    for _, step in sorted(marks):
        running += step
        most = max(most, running)
    return most
