#!/usr/bin/env python3
"""What the egress guard costs an HTTP call: the same calls by workers with `any` and with `public`, in turn, as a Markdown table.

    python3 bench/egress.py [--toolfleet PATH] [--calls 10000] [--turns 4] [--host localhost]

One fleet, one HTTP service, and a worker of its own for each turn; with `public` the service's host is the exception that
`WORKER_EGRESS_ALLOW` names, so each connection is judged and let through. The ratio is that of the medians. The service closes
no connection. It needs the servers that `make setup` finds; start it with `. ./.tools/env`. Exit code 1 when a call did not succeed.
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
import threading
import time

from servers import psql, started, stopped

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"ok":true}'
MANIFEST = {
    "name": "bench_http",
    "version": 1,
    "description": "Asks a service that answers at once.",
    "effect": "read",
    "timeout": "10s",
    "input_schema": {"type": "object", "properties": {"n": {"type": "integer", "description": "The number of the call"}}, "required": ["n"], "additionalProperties": False},
}
FINISHED = "SELECT count(*) FROM toolfleet.finished_calls WHERE state = 'succeeded'"
LIVE = "SELECT count(*) FROM toolfleet.workers WHERE state = 'live'"


async def answer(reader, writer):
    """Answers every request of a connection; a GET has no body."""
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(ANSWER)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def service():
    """A service in a thread of its own, and its port."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(answer, "127.0.0.1", 0))
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return server.sockets[0].getsockname()[1]


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def turn(options, env, calls, reach):
    """Calls a second, and the worker's processor time of a call in microseconds."""
    guarded = {**env, "WORKER_EGRESS": reach, "WORKER_EGRESS_ALLOW": options.host}
    worker = subprocess.Popen(
        [options.toolfleet, "worker", "--http", "127.0.0.1:0"], env=guarded, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while psql(env["DATABASE_URL"], LIVE)[0] != 1:
            time.sleep(0.05)
        before, used, began = psql(env["DATABASE_URL"], FINISHED)[0], cpu_seconds(worker.pid), time.monotonic()
        command = [options.toolfleet, "call", "--bulk", str(calls), "--key-prefix", f"{reach}-{began}", "--wait-all", "300", "--out", os.devnull]
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        took, used = time.monotonic() - began, cpu_seconds(worker.pid) - used
        if psql(env["DATABASE_URL"], FINISHED)[0] - before != options.calls:
            sys.exit("not every call succeeded")
        return options.calls / took, 1e6 * used / options.calls
    finally:
        stopped(worker)


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--toolfleet", default="target/release/toolfleet")
    words.add_argument("--calls", type=int, default=10_000)
    words.add_argument("--turns", type=int, default=4)
    words.add_argument("--host", default="localhost")
    options = words.parse_args()
    options.toolfleet = str(pathlib.Path(options.toolfleet).resolve())
    with tempfile.TemporaryDirectory(prefix="toolfleet-egress-") as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        url = f"http://{options.host}:{service()}/"
        manifest, calls = folder / "bench_http.json", folder / "calls.jsonl"
        manifest.write_text(json.dumps({**MANIFEST, "executor": {"http": {"method": "GET", "url": url, "query": {"n": "{n}"}}}}))
        calls.write_text("".join(json.dumps({"tool": "bench_http", "args": {"n": n}}) + "\n" for n in range(options.calls)))
        dev = subprocess.Popen(
            [options.toolfleet, "dev", "--data", str(folder / "dev"), "--workers", "0", "--gateways", "0", "--nats-port", "0", "--postgres-port", "0", "--http-port", "0"],
            stdout=subprocess.DEVNULL,
        )
        try:
            state = started(folder / "dev", dev)
            env = {**os.environ, "DATABASE_URL": state["database_url"], "NATS_URL": state["nats_url"]}
            subprocess.run([options.toolfleet, "tools", "apply", str(manifest)], env=env, check=True, stdout=subprocess.DEVNULL)
            turns = [(turn(options, env, calls, "any"), turn(options, env, calls, "public")) for _ in range(options.turns)]
        finally:
            stopped(dev)
    print("| of an HTTP call | any | public | ratio | turns |\n|---|---|---|---|---|")
    for index, what in enumerate(("calls/s", "worker's processor, µs")):
        free, guarded = ([arms[kind][index] for arms in turns] for kind in (0, 1))
        medians = statistics.median(free), statistics.median(guarded)
        ratios = ", ".join(f"{g / f:.3f}" for f, g in zip(free, guarded))
        print(f"| {what} | {medians[0]:.0f} | {medians[1]:.0f} | {medians[1] / medians[0]:.3f} | {ratios} |")


if __name__ == "__main__":
    main()
