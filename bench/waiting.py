#!/usr/bin/env python3
"""Calls that wait for somebody: what do they cost meanwhile, how fast do they end together, and how soon does one run after its yes?

    python3 bench/waiting.py [--toolfleet PATH] [--calls 10000] [--idle 20] [--approvals 200]

It starts `toolfleet dev` in a folder of its own and submits that many calls of one tool after the other: those that wait for a yes,
reads and writes that their callers run. Each lot is left alone for so many seconds and is over at one moment, which is the end of its
run; the seconds until the last of them has ended count from there, by Postgres's clock. Then it says yes to one call after the other,
and Postgres says how long it took from each yes to the claim. It needs the servers and the Python that `make setup` finds; start it
with `. ./.tools/env` and `"$TOOLFLEET_PYTHON"`. Exit code 1 when a bound is missed: 2 % of a core for a dispatcher, 5 s until all have
ended, 50 ms from a yes to its claim.
"""

import argparse
import asyncio
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import nats

from servers import psql, psql_program, started, stopped

BATCH = 500
IDLE_MAX, ENDED_MAX_S, CLAIMED_MAX_MS = 0.02, 5, 50
# From the last submission to the look at the processor.
SETTLE_S = 5
PREFIX = "toolfleet.v1.default"
OPEN = "SELECT count(*) FROM toolfleet.open_calls WHERE state <> 'in_doubt'"
WAITING = "SELECT count(*) FROM toolfleet.open_calls WHERE state = 'awaiting_client'"
# The last move of a run, how long after its end, in milliseconds; and how many calls of it have come to this.
LAST = """SELECT (extract(epoch FROM max(at) - '{moment}') * 1000)::bigint, count(*) FROM toolfleet.call_events e
          JOIN toolfleet.calls c USING (call_id) WHERE c.run = '{run}' AND e.reason = '{reason}'"""
CLAIMED = """SELECT percentile_disc({share}) WITHIN GROUP (ORDER BY extract(epoch FROM t.started_at - a.at) * 1000000)::bigint
             FROM toolfleet.approvals a JOIN toolfleet.attempts t USING (call_id)"""


def tool(name, effect, more):
    schema = '{type: object, properties: {n: {type: integer, description: "Which"}}, required: [n]}'
    return (f"name: {name}\nversion: 1\ndescription: Waits for somebody.\neffect: {effect}\ndeadline: 1h\n"
            f"input_schema: {schema}\n{more}\n")


SOON = "executor: {process: {command: ['true']}}\n"
TOOLS = {
    "agreed": ("once", "approval: {expires: 1h}\n" + SOON),
    "handed_read": ("read", "timeout: 1h\nexecutor: {client: {}}"),
    "handed_write": ("once", "timeout: 1h\nexecutor: {client: {}}"),
}
# What is counted of a lot at its end.
LOTS = [("agreed", "wait for a yes", "undecided"), ("handed_read", "a caller reads", "client_silent"),
        ("handed_write", "a caller writes", "client_silent")]


def cpu_seconds(pids):
    ticks = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def share(pids, seconds):
    """Of one core, for each process."""
    began, used = time.monotonic(), cpu_seconds(pids)
    time.sleep(seconds)
    return (cpu_seconds(pids) - used) / (time.monotonic() - began) / max(len(pids), 1)


def line(cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


async def ask(client, endpoint, body, headers=None):
    message = await client.request(f"{PREFIX}.{endpoint}", json.dumps(body).encode(), timeout=30, headers=headers)
    return json.loads(message.data)


async def submit(client, name, run, calls, until):
    for first in range(0, calls, BATCH):
        items = [{"tool": name, "args": {"n": n}, "idempotency_key": f"{run}-{n}", "run": run, "run_deadline": until}
                 for n in range(first, min(first + BATCH, calls))]
        for item in (await ask(client, "batch", {"calls": items}))["items"]:
            if item["state"] != "awaiting_client":
                sys.exit(f"a call does not wait: {item}")


def now(url):
    """By Postgres's clock."""
    ran = subprocess.run([psql_program(), url, "-Atqc", "SELECT now()"], stdout=subprocess.PIPE, text=True, check=True)
    return datetime.datetime.fromisoformat(ran.stdout.strip() + ":00")


async def lot(options, client, state, name, what, reason):
    """One lot of calls: the dispatcher's processor while they wait, and how long it took until the last one had ended."""
    url, pids = state["database_url"], state["dispatcher_pids"]
    run = f"run-{name}"
    # Time enough to submit them all, and to look.
    moment = now(url) + datetime.timedelta(seconds=options.calls / 500 + SETTLE_S + options.idle + 5)
    until = moment.isoformat(timespec="milliseconds")
    began = time.monotonic()
    await submit(client, name, run, options.calls, until)
    took = time.monotonic() - began
    time.sleep(SETTLE_S)
    used = share(pids, options.idle)
    if psql(url, WAITING)[0] != options.calls:
        sys.exit("they did not wait until the end: give them more time with fewer calls")
    while psql(url, OPEN)[0] > 0:
        time.sleep(0.2)
        if now(url) > moment + datetime.timedelta(minutes=2):
            sys.exit("two minutes after their time calls still wait")
    last_ms, ended = psql(url, LAST.format(moment=until, run=run, reason=reason))
    print(line([what, options.calls, f"{took:.1f}", f"{used:.2%}", f"{last_ms / 1000:.2f}", ended]), flush=True)
    return used <= IDLE_MAX and last_ms <= ENDED_MAX_S * 1000 and ended == options.calls


async def approve_all(options, client, url):
    for n in range(options.approvals):
        call = await ask(client, "call.agreed", {"n": n}, {"Idempotency-Key": f"yes-{n}"})
        hash_ = call["awaiting"]["args_hash"]
        yes = {"call_id": call["call_id"], "decision": "approve", "args_hash": hash_, "actor": "bench", "note": "bench"}
        await ask(client, "admin.approve", yes)
        ended = await ask(client, "get", {"call_id": call["call_id"], "wait_ms": 20_000})
        if ended["state"] != "succeeded":
            sys.exit(f"a call that was approved came to this: {ended}")
    p50, p99 = (psql(url, CLAIMED.format(share=of))[0] / 1000 for of in (0.5, 0.99))
    print(f"\nfrom a yes to the claim, {options.approvals} times: p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    return p99 <= CLAIMED_MAX_MS


async def waiting(options, folder):
    toolfleet = str(pathlib.Path(options.toolfleet).resolve())
    folder.chmod(0o755)
    tools = folder / "tools"
    tools.mkdir()
    for name, (effect, more) in TOOLS.items():
        (tools / f"{name}.yaml").write_text(tool(name, effect, more))
    command = [toolfleet, "dev", "--data", str(folder / "data"), "--workers", "1", "--tools", str(tools)]
    dev = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        state = started(folder / "data", dev)
        client = await nats.connect(state["nats_url"])
        time.sleep(SETTLE_S)
        print(f"a dispatcher without a call: {share(state['dispatcher_pids'], options.idle):.2%} of a core\n")
        head = ["who is waited for", "calls", "submitted in s", "dispatcher, of a core", "ended after s", "ended"]
        print(line(head))
        print(line(["---"] + ["--:"] * (len(head) - 1)), flush=True)
        is_good = True
        for name, what, reason in LOTS:
            is_good &= await lot(options, client, state, name, what, reason)
        is_good &= await approve_all(options, client, state["database_url"])
        await client.close()
        return 0 if is_good else 1
    finally:
        stopped(dev)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--toolfleet", default="target/release/toolfleet")
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--idle", type=int, default=20)
    parser.add_argument("--approvals", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="toolfleet-waiting-") as folder:
        return asyncio.run(waiting(options, pathlib.Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
