#!/usr/bin/env python3
"""A fleet under even load for a while: does anything grow? One line a minute, as a Markdown table.

    python3 bench/soak.py [--toolfleet PATH] [--minutes 20] [--rate 2000]

It starts `toolfleet dev` in a folder of its own and `toolfleet bench` against it, an open loop of `once` calls, and looks at
the size of the hot tables, dead rows, and the memory of each process. It needs the servers that `make setup` finds; start it
with `. ./.tools/env`. Exit code 1 when a call was lost or doubled.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

TABLES = ["open_calls", "open_calls_pkey", "open_counts", "worker_processes"]
SIZES = "SELECT " + ", ".join(f"pg_relation_size('toolfleet.{table}') / 1024" for table in TABLES)
DEAD = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'toolfleet.open_calls'::regclass"
# Not counted: a snapshot that lives long keeps dead rows from being pruned, and they are what is looked at here.
FINISHED = "SELECT sum(n_tup_ins)::bigint FROM pg_stat_user_tables WHERE relname LIKE 'finished_calls_%'"


def psql(url, sql):
    found = os.environ.get("TOOLFLEET_POSTGRES_BIN")
    program = str(pathlib.Path(found) / "psql") if found else "psql"
    ran = subprocess.run([program, url, "-AtqF", ",", "-c", sql], stdout=subprocess.PIPE, text=True, check=True)
    return [int(figure) for figure in ran.stdout.strip().split(",")]


def resident_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    return 0


def children(pid, containing):
    """The processes that this one has started."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if parent == pid and containing in command:
            found.append(int(folder.name))
    return found


def started(folder, dev):
    state = folder / "dev.json"
    began = time.monotonic()
    while not state.exists():
        if dev.poll() is not None or time.monotonic() - began > 60:
            sys.exit("toolfleet dev did not start; its log folder: " + str(folder / "logs"))
        time.sleep(0.1)
    return json.loads(state.read_text())


def stopped(*processes):
    """Ends those that still run, in this order."""
    for process in processes:
        if process and process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def line(cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def soak(options, folder):
    toolfleet = str(pathlib.Path(options.toolfleet).resolve())
    folder.chmod(0o755)
    dev = subprocess.Popen([toolfleet, "dev", "--data", str(folder), "--workers", "0"], stdout=subprocess.DEVNULL)
    load = None
    try:
        state = started(folder, dev)
        url = state["database_url"]
        command = [toolfleet, "bench", "--nats-url", state["nats_url"], "--database-url", url, "--json"]
        command += ["--effect", "once", "--rate", str(options.rate), "--seconds", str(options.minutes * 60)]
        load = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        head = ["minute", *(f"{table} KiB" for table in TABLES), "dead rows"]
        head += [f"{process} MiB" for process in ("dispatcher", "worker", "nats", "bench")] + ["finished"]
        print(line(head))
        print(line(["--:"] * len(head)), flush=True)
        for minute in range(1, options.minutes + 1):
            try:
                load.wait(60)
                break
            except subprocess.TimeoutExpired:
                pass
            workers = children(load.pid, "bench-worker")
            memory = [max(map(resident_mib, pids), default=0) for pids in (state["dispatcher_pids"], workers)]
            memory += [resident_mib(state["nats_pid"]), resident_mib(load.pid)]
            print(line([minute, *psql(url, SIZES), *psql(url, DEAD), *memory, *psql(url, FINISHED)]), flush=True)
        told = json.loads(load.communicate(timeout=180)[0])["workloads"][0]
        kept = ("calls", "calls_per_s", "p50_ms", "p99_ms", "max_ms", "refused", "lost", "doubled")
        print("\n" + json.dumps({name: told[name] for name in kept if name in told}))
        return 1 if told["lost"] or told["doubled"] else 0
    finally:
        stopped(load, dev)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--toolfleet", default="target/release/toolfleet")
    parser.add_argument("--minutes", type=int, default=20)
    parser.add_argument("--rate", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="toolfleet-soak-") as folder:
        return soak(options, pathlib.Path(folder))


if __name__ == "__main__":
    sys.exit(main())
