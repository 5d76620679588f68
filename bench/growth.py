#!/usr/bin/env python3
"""What grows with what: one workload under one changed condition at a time, as a Markdown table.

    python3 bench/growth.py [--toolfleet PATH] [--seconds 10] [--effect once] [NAME ...]

Each row is a fleet of its own (`bench --dev`) with the floor beside it, so compare ratios. In the rows about snapshots another
session keeps vacuum from its work, from before the first floor until after the last. NAME picks rows by their beginning. It needs the servers that `make setup` finds; start it with `. ./.tools/env`. Exit code 1 when a call was lost
or doubled.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from servers import HOLDS, Holders, started, stopped

ROWS = [
    ("as it is", []),
    ("workers: 2", ["--workers", "2"]),
    ("workers: 4", ["--workers", "4"]),
    ("dispatchers: 2", ["--dispatchers", "2"]),
    ("tools: 100", ["--tools", "100"]),
    ("tools: 1,000", ["--tools", "1000"]),
    ("history: 100,000", ["--history", "100000"]),
    ("history: 1,000,000", ["--history", "1000000"]),
    ("held: 20,000", ["--held", "20000"]),
    ("held: 200,000", ["--held", "200000"]),
    ("tenants: 100", ["--tenants", "100"]),
    ("arguments: 1 KiB", ["--bytes", "1024"]),
    ("arguments: 64 KiB", ["--bytes", "65536", "--in-flight", "64"]),
    ("one caller", ["--in-flight", "1"]),
    ("snapshot held", "snapshot"),
    ("open transaction with an id", "transaction"),
    ("four readers in turn", "readers"),
]

HEAD = ["", "calls/s", "floor/s", "ratio", "p50 ms", "p99 ms", "dispatcher MiB", "worker MiB", "lost", "doubled"]


def measure(options, changed):
    return held(options, changed) if changed in HOLDS else bench(options, ["--dev", *changed], None)


def bench(options, changed, holders):
    command = [options.toolfleet, "bench", "--floor", "--json", "--effect", options.effect]
    command += ["--seconds", str(options.seconds), *changed]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        while True:
            try:
                told, wrong = running.communicate(timeout=1)
                break
            except subprocess.TimeoutExpired:
                if holders:
                    holders.turn()
    if not told.strip():
        sys.exit(f"{' '.join(command)} ended with {running.returncode}:\n{wrong[-2000:]}")
    return json.loads(told)["workloads"][0]


def held(options, kind):
    """Beside sessions that hold a snapshot."""
    with tempfile.TemporaryDirectory(prefix="toolfleet-growth-") as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        dev = subprocess.Popen([options.toolfleet, "dev", "--data", str(folder), "--workers", "0"], stdout=subprocess.DEVNULL)
        try:
            state = started(folder, dev)
            holders = Holders(state["database_url"], kind)
            holders.turn()
            servers = ["--nats-url", state["nats_url"], "--database-url", state["database_url"]]
            of = bench(options, servers, holders)
            holders.end()
            return of
        finally:
            stopped(dev)


def most(memory, process):
    """The largest of several processes of a kind."""
    sizes = [size for name, size in memory.items() if name.startswith(process)]
    return max(sizes, default=0)


def cells(name, of):
    memory = of["memory_mib"]
    figures = [of["calls_per_s"], of["floor_calls_per_s"] or 0]
    return [
        name,
        *(f"{figure:,.0f}" for figure in figures),
        f"{of['ratio'] or 0:.2f}",
        *(f"{of[name]:.1f}" for name in ("p50_ms", "p99_ms")),
        *(f"{most(memory, process):.0f}" for process in ("dispatcher", "worker")),
        str(of["lost"]),
        str(of["doubled"]),
    ]


def line(row):
    return "| " + " | ".join(row) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--toolfleet", default="target/release/toolfleet")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--effect", default="once")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    picked = [row for row in ROWS if not options.names or row[0].startswith(tuple(options.names))]
    print(line(HEAD))
    print(line(["---"] + ["--:"] * (len(HEAD) - 1)), flush=True)
    wrong = 0
    for name, changed in picked:
        of = measure(options, changed)
        wrong += of["lost"] + of["doubled"]
        print(line(cells(name, of)), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
