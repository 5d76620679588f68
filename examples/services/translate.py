#!/usr/bin/env python3
"""A NATS service with two tools, to be copied: `translate` reads, `add_term` writes and recognises repetitions.

    tools.translate  {"text": "good morning", "to": "fr"}    -> {"text": "bonjour"}
    tools.add_term   {"term": "fox", "to": "fr", "is": "renard"} -> {"terms": 1}

It says no with a service error of 4xx, stops when its call is taken back, and works on nothing whose time is over.
Needs `nats-py`. The first line on stdout is {"ready": true}.
"""

import argparse
import asyncio
import json
import os
import time

import nats
import nats.micro
from nats.micro import ServiceConfig

TERMS_BYTES_MAX = 256


class Refusal(Exception):
    """What the caller can mend: a code of 4xx and a sentence for a language model."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code, self.message = code, message


class Glossary:
    """The terms, one JSON object a line. A line that returned from `add` survives a crash, and so does its key."""

    def __init__(self, path):
        self._file = open(path, "a+b", buffering=0)
        self._file.seek(0)
        lines = [json.loads(line) for line in self._file.read().splitlines()]
        self.terms = {(line["to"], line["term"]): line["is"] for line in lines}
        self.answers = {line["key"]: {"terms": n} for n, line in enumerate(lines, 1) if line["key"]}
        self.count = len(lines)

    def add(self, key, term, to, meaning):
        """The second time under a key changes nothing and answers as the first time."""
        if key and key in self.answers:
            return self.answers[key]
        line = {"key": key, "term": term, "to": to, "is": meaning}
        self._file.write(json.dumps(line).encode() + b"\n")
        os.fsync(self._file.fileno())
        self.count += 1
        self.terms[to, term] = meaning
        answer = {"terms": self.count}
        if key:
            self.answers[key] = answer
        return answer


def text(arguments, name):
    value = arguments.get(name)
    if not isinstance(value, str) or not 0 < len(value.encode()) <= TERMS_BYTES_MAX:
        raise Refusal(400, f"give {name} as a text of 1 to {TERMS_BYTES_MAX} bytes")
    return value


async def translate(glossary, arguments, _headers, slow):
    words, to = text(arguments, "text"), text(arguments, "to")
    await asyncio.sleep(slow)
    if (to, words) not in glossary.terms:
        raise Refusal(404, f"there is no translation of that into {to}; add it with add_term")
    return {"text": glossary.terms[to, words]}


async def add_term(glossary, arguments, headers, slow):
    term, to, meaning = (text(arguments, name) for name in ("term", "to", "is"))
    answer = glossary.add(headers.get("Idempotency-Key"), term, to, meaning)
    await asyncio.sleep(slow)
    return answer


def handler(tool, glossary, slow, running):
    async def answer(request):
        headers = request.headers or {}
        deadline = headers.get("Toolfleet-Deadline-Ms")
        attempt = headers.get("Toolfleet-Attempt-Id")
        # A request may arrive late, after it was given up: then it must not be carried out.
        if deadline and time.time() * 1000 > float(deadline):
            await request.respond_error("503", "its time was over before it arrived")
            return
        work = asyncio.create_task(tool(glossary, json.loads(request.data), headers, slow))
        if attempt:
            running[attempt] = work
        try:
            await request.respond(json.dumps(await work).encode())
        except Refusal as refusal:
            await request.respond_error(str(refusal.code), refusal.message)
        except asyncio.CancelledError:
            pass  # Nobody waits for this answer any more.
        except Exception as failure:
            # Whether anything was done is not known: 500 says exactly that.
            await request.respond_error("500", type(failure).__name__)
        finally:
            running.pop(attempt, None)

    # A task per request, or one that is slow would hold up the others.
    async def begin(request):
        task = asyncio.create_task(answer(request))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    tasks = set()
    return begin


async def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--nats", default=os.environ.get("NATS_URL", "nats://127.0.0.1:4222"))
    options.add_argument("--glossary", default="glossary.jsonl", help="the file of terms")
    options.add_argument("--slow-ms", type=int, default=0, help="how long each answer takes")
    options.add_argument("--prefix", default="toolfleet", help="the fleet's prefix")
    told = options.parse_args()

    client = await nats.connect(told.nats, max_reconnect_attempts=-1)
    glossary, running = Glossary(told.glossary), {}

    async def stop(message):
        work = running.get((message.headers or {}).get("Toolfleet-Attempt-Id"))
        if work:
            work.cancel()
            print(json.dumps({"stopped": message.subject.rsplit(".", 1)[-1]}), flush=True)

    await client.subscribe(f"{told.prefix}.tool.cancel.*", cb=stop)
    service = await nats.micro.add_service(client, ServiceConfig(name="translate", version="1.0.0"))
    tools = service.add_group(name="tools")
    for name, tool in (("translate", translate), ("add_term", add_term)):
        await tools.add_endpoint(name=name, handler=handler(tool, glossary, told.slow_ms / 1000, running))
    # nats-py sends the PING of a flush ahead of subscriptions that it still holds back, so the answer to the first one
    # does not mean that the server has them; the second is sent after them.
    await client.flush()
    await client.flush()
    print(json.dumps({"ready": True}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
