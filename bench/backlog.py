#!/usr/bin/env python3
"""Calls that nobody runs, for a while: how many of their pointers are published again? One line a minute, as a Markdown table.

    python3 bench/backlog.py [--toolfleet PATH] [--calls 200000] [--minutes 10] [--rate 50]

It starts `toolfleet dev` without workers in a folder of its own, submits that many calls of an example tool, and lets
`toolfleet bench` run a few calls of another queue beside them. It needs the servers that `make setup` finds; start it with
`. ./.tools/env`. Exit code 1 when as many as one in a hundred were published again, when none was or most calls no longer
wait, for then something else was measured, and when a call beside them was lost or doubled.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.request

from soak import line, psql, started, stopped

TOOLS = str(pathlib.Path(__file__).parent.parent / "examples" / "tools")
DEADLINE_MS = 3_600_000
HELD = "SELECT count(*) FILTER (WHERE held), count(*) FILTER (WHERE NOT held) FROM toolfleet.open_calls"
REPUBLISHED = re.compile(r'^toolfleet_swept_calls_total\{[^}]*pass="lost_pointer"[^}]*\} (\d+)', re.MULTILINE)


def republished(state):
    with urllib.request.urlopen(state["http_url"] + "/metrics", timeout=10) as answer:
        return sum(int(count) for count in REPUBLISHED.findall(answer.read().decode()))


def backlog(options, folder):
    toolfleet = str(pathlib.Path(options.toolfleet).resolve())
    folder.chmod(0o755)
    dev = subprocess.Popen([toolfleet, "dev", "--data", str(folder), "--workers", "0", "--tools", TOOLS], stdout=subprocess.DEVNULL)
    load = None
    try:
        state = started(folder, dev)
        url = state["database_url"]
        calls = folder / "calls.jsonl"
        with calls.open("w") as file:
            for number in range(options.calls):
                file.write(json.dumps({"args": {"path": f"{number}.txt"}, "idempotency_key": None}) + "\n")
        command = [toolfleet, "call", "count_words", "--nats-url", state["nats_url"], "--bulk", str(calls)]
        command += ["--deadline-ms", str(DEADLINE_MS), "--json", "--out", os.devnull]
        subprocess.run(command, check=True)
        command = [toolfleet, "bench", "--nats-url", state["nats_url"], "--database-url", url, "--json"]
        command += ["--effect", "once", "--rate", str(options.rate)]
        command += ["--seconds", str(options.minutes * 60)]
        load = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        head = ["minute", "held", "published or running", "published again"]
        print(line(head))
        print(line(["--:"] * len(head)), flush=True)
        minute = 0
        while load.poll() is None:
            try:
                load.wait(60)
            except subprocess.TimeoutExpired:
                minute += 1
                print(line([minute, *psql(url, HELD), republished(state)]), flush=True)
        (waiting, _), again = psql(url, HELD), republished(state)
        told = json.loads(load.stdout.read())["workloads"][0]
        kept = ("calls", "p50_ms", "p99_ms", "refused", "lost", "doubled")
        print("\n" + json.dumps({name: told[name] for name in kept if name in told}))
        print(f"published again: {again} of {options.calls}")
        # What is published is published again once it is three seconds old.
        measured = again > 0 and waiting * 2 > options.calls
        return 0 if measured and again * 100 < options.calls and not (told["lost"] or told["doubled"]) else 1
    finally:
        stopped(load, dev)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--toolfleet", default="target/release/toolfleet")
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--rate", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="toolfleet-backlog-") as folder:
        return backlog(options, pathlib.Path(folder))


if __name__ == "__main__":
    sys.exit(main())
