#!/usr/bin/env python3
"""A fleet under load for a while: does anything grow? As a Markdown table.

    python3 bench/soak.py [--toolfleet PATH] [--minutes 20] [--rate 2000]
    python3 bench/soak.py --hold snapshot [--before 1] [--minutes 10] [--after 5] [--every 30] [--in-flight 256]

It starts `toolfleet dev` in a folder of its own and `toolfleet bench` against it, and looks at the size of the hot tables,
dead rows, and the memory of each process. It needs the servers that `make setup` finds; start it with `. ./.tools/env`.

Without `--hold`: an open loop of `once` calls, one line a minute. With it: a closed loop of them beside a session that keeps
vacuum from its work, one line for every so many seconds, before, meanwhile and after; all of these may be fractions.
`snapshot` is an idle REPEATABLE READ transaction, `transaction` an idle one with an id, `readers` are four that overlap.
Exit code 1 when a call was lost or doubled.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from servers import HOLDS, Holders, psql, started, stopped

TABLES = ["open_calls", "open_calls_pkey", "open_counts", "worker_processes"]
SIZES = "SELECT " + ", ".join(f"pg_relation_size('toolfleet.{table}') / 1024" for table in TABLES)
DEAD = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'toolfleet.open_calls'::regclass"
# Not counted: a snapshot that lives long keeps dead rows from being pruned, and they are what is looked at here.
FINISHED = "SELECT sum(n_tup_ins)::bigint FROM pg_stat_user_tables WHERE relname LIKE 'finished_calls_%'"
# From acceptance to end, of the last two seconds, in microseconds.
P99 = (
    "SELECT coalesce((1e6 * percentile_disc(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM finished_at - accepted_at)))::bigint, 0) "
    "FROM toolfleet.finished_calls WHERE call_id > toolfleet.uuid_floor(now() - interval '2 seconds')"
)


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


def cpu_seconds(postmaster):
    """What Postgres has used, sessions that have ended included."""
    ticks = 0
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if postmaster in (int(folder.name), int(fields[1])):
            ticks += sum(map(int, fields[11:15] if int(folder.name) == postmaster else fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def line(cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def minutes(options, state, load):
    """An open loop: sizes, dead rows and memory by the minute."""
    url = state["database_url"]
    head = ["minute", *(f"{table} KiB" for table in TABLES), "dead rows"]
    head += [f"{process} MiB" for process in ("dispatcher", "worker", "nats", "bench")] + ["finished"]
    print(line(head))
    print(line(["--:"] * len(head)), flush=True)
    for minute in range(1, int(options.minutes) + 1):
        try:
            load.wait(60)
            break
        except subprocess.TimeoutExpired:
            pass
        workers = children(load.pid, "bench-worker")
        memory = [max(map(resident_mib, pids), default=0) for pids in (state["dispatcher_pids"], workers)]
        memory += [resident_mib(state["nats_pid"]), resident_mib(load.pid)]
        print(line([minute, *psql(url, SIZES), *psql(url, DEAD), *memory, *psql(url, FINISHED)]), flush=True)


def phases(options, state, load, folder):
    """A closed loop: calls a second, p99, dead rows and sizes before a snapshot, beside it and after it."""
    url = state["database_url"]
    postmaster = int(next(folder.rglob("postmaster.pid")).read_text().split()[0])
    head = ["", "s", "calls/s", "p99 ms", "Postgres µs/call", "dead rows", *(f"{table} KiB" for table in TABLES)]
    print(line(head))
    print(line(["---"] + ["--:"] * (len(head) - 1)), flush=True)
    began, rates = time.monotonic(), {}
    last, seen, used = began, psql(url, FINISHED)[0], cpu_seconds(postmaster)
    for phase, lasts in (("before", options.before), ("held", options.minutes), ("after", options.after)):
        holders, until = Holders(url, options.hold), last + lasts * 60
        while last < until - 1:
            end = min(last + options.every, until)
            while (left := end - time.monotonic()) > 0:
                if phase == "held":
                    left = min(left, holders.turn() - time.monotonic())
                if load.poll() is not None:
                    sys.exit("the bench ended too early")
                time.sleep(max(left, 0))
            # The look itself takes its time.
            now, finished, cpu = time.monotonic(), psql(url, FINISHED)[0], cpu_seconds(postmaster)
            rate, p99 = (finished - seen) / (now - last), psql(url, P99)[0] / 1000
            cost = 1e6 * (cpu - used) / max(finished - seen, 1)
            last, seen, used = now, finished, cpu
            rates.setdefault(phase, []).append(rate)
            figures = [f"{rate:,.0f}", f"{p99:.1f}", f"{cost:.0f}", *psql(url, DEAD), *psql(url, SIZES)]
            print(line([phase, round(now - began), *figures]), flush=True)
        holders.end()
    before = statistics.mean(rates["before"])
    print(f"\nheld / before: {statistics.mean(rates['held']) / before:.2f}; the last {options.every} s of it: "
          f"{rates['held'][-1] / before:.2f}; after it, by {options.every} s: "
          + ", ".join(f"{rate / before:.2f}" for rate in rates.get("after", [])))


def soak(options, folder):
    toolfleet = str(pathlib.Path(options.toolfleet).resolve())
    folder.chmod(0o755)
    dev = subprocess.Popen([toolfleet, "dev", "--data", str(folder), "--workers", "0"], stdout=subprocess.DEVNULL)
    load = None
    try:
        state = started(folder, dev)
        command = [toolfleet, "bench", "--nats-url", state["nats_url"], "--database-url", state["database_url"], "--json"]
        command += ["--effect", "once"]
        if options.hold:
            # Begins before the first look, and ends after the last.
            lasts = (options.before + options.minutes + options.after) * 60 + 30
            command += ["--in-flight", str(options.in_flight)]
        else:
            lasts = options.minutes * 60
            command += ["--rate", str(options.rate)]
        load = subprocess.Popen([*command, "--seconds", str(round(lasts))], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if options.hold:
            time.sleep(10)
            phases(options, state, load, folder)
        else:
            minutes(options, state, load)
        told = json.loads(load.communicate(timeout=180)[0])["workloads"][0]
        kept = ("calls", "calls_per_s", "p50_ms", "p99_ms", "max_ms", "refused", "lost", "doubled")
        print("\n" + json.dumps({name: told[name] for name in kept if name in told}))
        return 1 if told["lost"] or told["doubled"] else 0
    finally:
        stopped(load, dev)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--toolfleet", default="target/release/toolfleet")
    parser.add_argument("--minutes", type=float, help="20, and with --hold 10")
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--hold", choices=HOLDS)
    parser.add_argument("--before", type=float, default=1)
    parser.add_argument("--after", type=float, default=5)
    parser.add_argument("--every", type=int, default=30)
    parser.add_argument("--in-flight", type=int, default=256)
    options = parser.parse_args()
    if options.minutes is None:
        options.minutes = 10 if options.hold else 20
    with tempfile.TemporaryDirectory(prefix="toolfleet-soak-") as folder:
        return soak(options, pathlib.Path(folder))


if __name__ == "__main__":
    sys.exit(main())
