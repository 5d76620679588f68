"""A NATS service for the proofs: it writes down when it was asked for what, and answers once it may.

It says `ready` when it listens, and begins to answer when a line comes in; until then it keeps what it is asked.
"""

import argparse
import asyncio
import json
import sys
import time

import nats


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--subject", required=True)
    parser.add_argument("--asked", required=True, help="the file of what it was asked, a line each")
    options = parser.parse_args()
    may_answer, waiting = asyncio.Event(), []
    with open(options.asked, "a", buffering=1) as file:

        async def take(request):
            what = json.loads(request.data)["what"]
            file.write(json.dumps({"what": what, "at": time.time()}) + "\n")
            if may_answer.is_set():
                await request.respond(request.data)
            else:
                waiting.append(request)

        connection = await nats.connect(options.url, max_reconnect_attempts=-1, pending_size=64 << 20)
        await connection.subscribe(options.subject, cb=take, pending_msgs_limit=-1, pending_bytes_limit=-1)
        # nats-py sends the PING of a flush ahead of subscriptions that it still holds back; the second goes after them.
        await connection.flush()
        await connection.flush()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        may_answer.set()
        for request in waiting:
            await request.respond(request.data)
        await asyncio.Event().wait()


asyncio.run(main())
