#!/usr/bin/env python3
"""What grows with what: one workload under one changed condition at a time, as a Markdown table.

    python3 bench/growth.py [--toolfleet PATH] [--seconds 10] [--effect once] [NAME ...]

Each row is a fleet of its own (`bench --dev`) with the floor beside it, so compare ratios. NAME picks rows by their
beginning. It needs the servers that `make setup` finds; start it with `. ./.tools/env`. Exit code 1 when a call was lost
or doubled.
"""

import argparse
import json
import subprocess
import sys

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
]

HEAD = ["", "calls/s", "floor/s", "ratio", "p50 ms", "p99 ms", "dispatcher MiB", "worker MiB", "lost", "doubled"]


def measure(options, changed):
    command = [options.toolfleet, "bench", "--dev", "--floor", "--json", "--effect", options.effect]
    command += ["--seconds", str(options.seconds), *changed]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if not ran.stdout.strip():
        sys.exit(f"{' '.join(command)} ended with {ran.returncode}:\n{ran.stderr[-2000:]}")
    return json.loads(ran.stdout)["workloads"][0]


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
