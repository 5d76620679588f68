#!/usr/bin/env python3
"""Many calls taken back at once: what do the others notice? As a Markdown table.

    python3 bench/bulk.py [--toolfleet PATH] [--calls 100000] [--per-second 200] [--rate 1000] [--seconds 20] [--rounds 3]

It starts `toolfleet dev` in a folder of its own, submits that many calls to a queue without workers, and loads another queue
by `toolfleet bench`: alone, then while `toolfleet calls cancel` takes the waiting calls back, in turn. Each cancel is interrupted
when the load beside it is over; the last one takes back what is left. It needs the servers that `make setup` finds; start it with
`. ./.tools/env`. Exit code 1 when a call was lost or doubled, when not all of them were cancelled in the end, or when they were
before the load beside them was over, for then something else was measured.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from servers import psql, started, stopped

TOOLS = str(pathlib.Path(__file__).parent.parent / "examples" / "tools")
DEADLINE_MS = 3_600_000
# Of what is left when nothing is measured any more.
REST_PER_SECOND = 10_000
CANCELLED = "SELECT count(*) FROM toolfleet.finished_calls WHERE state = 'cancelled'"
HEAD = ["round", "", "calls/s", "p50 ms", "p95 ms", "p99 ms", "cancelled meanwhile", "a second", "p99 by p99 alone"]


def line(cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def load(options, state):
    command = [options.toolfleet, "bench", "--nats-url", state["nats_url"], "--database-url", state["database_url"], "--json"]
    command += ["--effect", "once", "--rate", str(options.rate), "--seconds", str(options.seconds)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True)
    if not ran.stdout.strip():
        sys.exit(f"{' '.join(command)} ended with {ran.returncode}")
    return json.loads(ran.stdout)["workloads"][0]


def submit(options, state, folder):
    calls = folder / "calls.jsonl"
    with calls.open("w") as file:
        for number in range(options.calls):
            file.write(json.dumps({"args": {"path": f"{number}.txt"}, "idempotency_key": None}) + "\n")
    command = [options.toolfleet, "call", "count_words", "--nats-url", state["nats_url"], "--bulk", str(calls)]
    command += ["--deadline-ms", str(DEADLINE_MS), "--json", "--out", os.devnull]
    subprocess.run(command, check=True)


def cancel(options, state, per_second):
    command = [options.toolfleet, "calls", "cancel", "--tool", "count_words", "--state", "queued", "--yes", "--json"]
    command += ["--per-second", str(per_second), "--reason", "bench"]
    command += ["--nats-url", state["nats_url"], "--database-url", state["database_url"]]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def row(number, name, of, cancelled, seconds, alone):
    figures = [f"{of['calls_per_s']:,.0f}", *(f"{of[one]:.1f}" for one in ("p50_ms", "p95_ms", "p99_ms"))]
    by = f"{of['p99_ms'] / alone['p99_ms']:.2f}" if alone else ""
    return line([number, name, *figures, cancelled, f"{cancelled / seconds:,.0f}", by])


def bulk(options, folder):
    folder.chmod(0o755)
    command = [options.toolfleet, "dev", "--data", str(folder), "--workers", "0", "--tools", TOOLS]
    dev = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    cancelling, is_good = None, True
    try:
        state = started(folder, dev)
        url = state["database_url"]
        print(line(HEAD))
        print(line(["--:", "---"] + ["--:"] * (len(HEAD) - 2)), flush=True)
        submit(options, state, folder)
        for number in range(1, options.rounds + 1):
            alone = load(options, state)
            print(row(number, "alone", alone, 0, 1, None), flush=True)
            (before,) = psql(url, CANCELLED)
            cancelling = cancel(options, state, options.per_second)
            # Counting comes first; what is measured is the cancelling.
            while cancelling.poll() is None and psql(url, CANCELLED)[0] == before:
                time.sleep(0.1)
            began, (first,) = time.monotonic(), psql(url, CANCELLED)
            beside = load(options, state)
            seconds, (last,) = time.monotonic() - began, psql(url, CANCELLED)
            outlasted = cancelling.poll() is None
            stopped(cancelling)
            print(row(number, "beside", beside, last - first, seconds, alone), flush=True)
            wrong = sum(of[what] for of in (alone, beside) for what in ("lost", "doubled"))
            if wrong or not outlasted:
                print(f"lost or doubled {wrong}, outlasted the load: {outlasted}")
                is_good = False
        cancelling = cancel(options, state, REST_PER_SECOND)
        cancelling.wait()
        (after,) = psql(url, CANCELLED)
        print(f"{after} of {options.calls} are cancelled")
        is_good &= after == options.calls
        return 0 if is_good else 1
    finally:
        stopped(cancelling, dev)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--toolfleet", type=lambda path: str(pathlib.Path(path).resolve()), default="target/release/toolfleet")
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--per-second", type=int, default=200)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="toolfleet-bulk-") as folder:
        return bulk(options, pathlib.Path(folder))


if __name__ == "__main__":
    sys.exit(main())
