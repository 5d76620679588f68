#!/usr/bin/env python3
"""What does a call of a model cost beside another read, how late are its chunks, and what do many streams cost a worker?

    . ./.tools/env; "$TOOLFLEET_PYTHON" bench/models.py [--toolfleet PATH] [--streams-program PATH] [--calls 1000] [--streams 500] [--seconds 10]

It starts `toolfleet dev` with one worker in a folder of its own, and a server of bench/floor (`model_streams`) that answers at once, or with
50 chunks a second. It measures, in turn, plain calls of a model, of one with every model interceptor on and nothing for them to do, and
of a tool with `executor: http` that asks the same server; how long the first chunk of a stream takes from the server to a subscriber of its
session; and with so many streams at once the memory of the worker and its processor's time, beside that of a bare relay through which the
same bytes pass.
Exit code 1 when a bound is missed: 1.4 of an http read at the median, 1.05 of a plain call with the interceptors, 15 ms for the first chunk
at the median, 200 MiB, 3 times the relay.
"""

import argparse
import asyncio
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "tests" / "blackbox"))
sys.dont_write_bytecode = True

from client import Client
from fleet import Dev, tool
from followers import cpu_s, memory_mib

PLAIN_RATIO, EDITED_RATIO, FIRST_CHUNK_MS, MEMORY_MIB, RELAY_RATIO = 1.4, 1.05, 15, 200, 3
EVERY_MS, TURN = 20, 50
ASKED = {"messages": [{"role": "user", "content": "Hello."}]}
STREAMED = {**ASKED, "stream": True}
# What has nothing to do here: the conversation is short, offers no tool, asks for no other, and its session has no list.
EDITS = {
    "delegates": [{"tool": "read_http", "keywords": [{"word": "invoice", "weight": 5}]}],
    "tool_selection": {"max": 10},
    "todo": {"directives": True},
    "context": {"strategy": "hybrid"},
}


def started(program, *words):
    """A role of the server's program that listens, and its port."""
    process = subprocess.Popen([program, *map(str, words)], stdout=subprocess.PIPE)
    return process, int(process.stdout.readline())


def ended(process):
    process.kill()
    process.wait()


def tools(port):
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    chat = {"chat": {"protocol": "openai_chat", "routes": [{"name": "main", "url": url, "model": "m"}]}}
    model = {"name": "ask_model", "version": 1, "description": "Answers a conversation.", "effect": "read", "executor": chat}
    edited = {**model, "name": "ask_edited", **EDITS}
    fields = {"messages": {"type": "array", "items": {"type": "object"}, "description": "What was said"}}
    http = {"http": {"method": "POST", "url": url}}
    return [model, edited, tool("read_http", "read", http, fields)]


async def one_ms(client, name):
    began = time.perf_counter()
    headers = {"Toolfleet-Session": "plain", "Prefer": "wait=30"}
    answer = await client.request(f"call.{name}", ASKED, headers, 40)
    took = (time.perf_counter() - began) * 1_000
    assert answer.body["state"] == "succeeded", answer.body
    return took


async def plain_ms(client, calls):
    """The medians of the three, some calls of each in turn."""
    took = {"read_http": [], "ask_model": [], "ask_edited": []}
    for name in took:
        for _ in range(TURN):
            await one_ms(client, name)
    while len(took["ask_model"]) < calls:
        for name, times in took.items():
            times += [await one_ms(client, name) for _ in range(TURN)]
    return [statistics.median(times) for times in took.values()]


async def streamed(client, session, seconds):
    headers = {"Toolfleet-Session": session, "Prefer": f"wait={seconds}"}
    answer = await client.request("call.ask_model", STREAMED, headers, seconds + 10)
    assert answer.body["state"] == "succeeded", answer.body


async def first_chunk_ms(client, times, seconds):
    """How long after it left the server the first chunk of a stream was here."""
    connection, took = await client.connected(), []
    for number in range(times):
        session, first = f"first-{number}", asyncio.get_running_loop().create_future()

        async def told(message):
            now = time.time_ns() // 1_000
            chunks = json.loads(message.data).get("chunks")
            if chunks and not first.done():
                first.set_result(now - int(chunks[0]["choices"][0]["delta"]["content"]))

        subscription = await connection.subscribe(f"toolfleet.v1.default.event.{session}.*", cb=told)
        await connection.flush()
        await streamed(client, session, seconds)
        took.append(await first / 1_000)
        await subscription.unsubscribe()
    return statistics.median(took)


async def many(dev, client, streams, seconds):
    """The most memory of the worker while it reads so many streams, what it has without, and its processor's time."""
    [worker] = dev.pids("worker")
    idle, began = memory_mib(worker)[0], cpu_s(worker)
    calls = asyncio.gather(*(streamed(client, f"many-{number}", seconds) for number in range(streams)))
    most = 0
    while not calls.done():
        await asyncio.wait([calls], timeout=0.25)
        most = max(most, memory_mib(worker)[0])
    await calls
    return idle, most, cpu_s(worker) - began


def relayed(program, port, streams):
    """The relay's processor's time for the same bytes, and how many they were."""
    relay, at = started(program, "relay", f"127.0.0.1:{port}")
    try:
        began = cpu_s(relay.pid)
        read = subprocess.run([program, "read", f"127.0.0.1:{at}", "--streams", str(streams)], stdout=subprocess.PIPE, check=True)
        return cpu_s(relay.pid) - began, int(read.stdout)
    finally:
        ended(relay)


async def measured(given, folder):
    missed = []

    def say(what, figure, unit, bound=None):
        good = bound is None or figure <= bound
        print(f"{what:<62}{figure:>10.2f} {unit}{'' if bound is None else f'  ({bound:g} {unit})'}{'' if good else '  MISSED'}", flush=True)
        if not good:
            missed.append(what)

    program = os.path.abspath(given.streams_program)
    # Room for the chunks of the whole time, and for calls that wait for room.
    limit = given.seconds * 10 + 60
    long, port = started(program, "serve", "--every", EVERY_MS, "--chunks", given.seconds * 1_000 // EVERY_MS)
    short, short_port = started(program, "serve", "--every", EVERY_MS, "--chunks", 10)
    settings = {"WORKER_CONCURRENCY": str(given.streams + 50)}
    made = [dict(one, timeout=f"{limit}s", deadline=f"{limit}s") if one["name"] == "ask_model" else one for one in tools(port)]
    try:
        first = folder / "first"
        first.mkdir()
        async with Dev(os.path.abspath(given.toolfleet), first, tools(short_port), workers=1, settings=settings) as dev, Client(dev) as client:
            http, model, edited = await plain_ms(client, given.calls)
            say("http read, p50", http, "ms")
            say("model that answers at once, p50", model, "ms")
            say("that beside the http read", model / http, "", PLAIN_RATIO)
            say("model with every interceptor and nothing to do, p50", edited, "ms")
            say("that beside the plain call", edited / model, "", EDITED_RATIO)
            say("first chunk from the server to a subscriber, p50", await first_chunk_ms(client, 100, limit), "ms", FIRST_CHUNK_MS)
        second = folder / "second"
        second.mkdir()
        async with Dev(os.path.abspath(given.toolfleet), second, made, workers=1, settings=settings) as dev, Client(dev) as client:
            await one_ms(client, "ask_model")
            idle, most, worker = await many(dev, client, given.streams, limit)
            say("worker without streams", idle, "MiB")
            say(f"worker with {given.streams} streams of {1_000 // EVERY_MS} chunks a second", most, "MiB", MEMORY_MIB)
            say("its processor", worker, "s")
        relay, size = relayed(program, port, given.streams)
        say("bytes of the streams", size / 1_000_000, "MB")
        say("a bare relay's processor", relay, "s")
        say("the worker's beside the relay's", worker / relay, "", RELAY_RATIO)
    finally:
        ended(long)
        ended(short)
    return missed


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--toolfleet", default="target/release/toolfleet")
    options.add_argument("--streams-program", default="target/release/model_streams")
    options.add_argument("--calls", type=int, default=1_000)
    options.add_argument("--streams", type=int, default=500)
    options.add_argument("--seconds", type=int, default=10)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="toolfleet-models-") as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        missed = asyncio.run(measured(given, folder))
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
