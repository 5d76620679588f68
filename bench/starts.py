#!/usr/bin/env python3
"""What a sandbox costs a program's start: the median time of one run of a program under the guard, with and without, in turn.

    python3 bench/starts.py [--toolfleet PATH] [--rounds 300] [--sandbox strict|JSON] [--versus PATH] [PROGRAM ARGUMENT ...]

It speaks to the guard as a worker does, so it needs no servers. Each round starts one guard without a sandbox and one with, and
the difference is that of the two medians of one run; the program is `/bin/true`. `--versus` names a second build, which starts
in the same rounds. Exit code 1 when a program did not end with 0.
"""

import argparse
import fcntl
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid


def run(toolfleet, command, sandbox, lock):
    """Seconds from the guard's start to its word that the program ended."""
    ours, theirs = socket.socketpair()
    start = {"program": command[0], "args": command[1:], "cwd": None, "attempt": str(uuid.uuid4()), "input_bytes": 2}
    if sandbox is not None:
        start["sandbox"] = sandbox
    head = json.dumps(start).encode()
    began = time.perf_counter()
    guard = subprocess.Popen(
        [toolfleet, "guard", str(lock)],
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        pass_fds=[lock],
        env={"PATH": os.environ["PATH"]},
    )
    theirs.close()
    ours.sendall(len(head).to_bytes(4, "big") + head + b"{}")
    report = ours.makefile().readline()
    took = time.perf_counter() - began
    ours.close()
    guard.wait()
    if json.loads(report or "null") != {"exited": {"code": 0}}:
        sys.exit(f"{command} ended with: {report.strip() or 'nothing'}")
    return took


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--toolfleet", default="target/release/toolfleet")
    words.add_argument("--versus")
    words.add_argument("--rounds", type=int, default=300)
    words.add_argument("--sandbox", default="strict")
    words.add_argument("command", nargs="*", default=["/bin/true"])
    options = words.parse_args()
    sandbox = json.loads(options.sandbox) if options.sandbox.startswith("{") else options.sandbox
    builds = [build for build in (options.versus, options.toolfleet) if build]
    kinds = [(build, kind) for build in builds for kind in (None, sandbox)]
    times = {kind: [] for kind in map(str, kinds)}
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/worker-{uuid.uuid4()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        for build, kind in kinds * 3:
            run(build, options.command, kind, lock.fileno())
        for _ in range(options.rounds):
            # In another order each time: the one after a busy one starts later.
            for kind in random.sample(kinds, len(kinds)):
                times[str(kind)].append(run(kind[0], options.command, kind[1], lock.fileno()) * 1000)
    load = os.getloadavg()[0]
    for build in builds:
        without, within = (times[str((build, kind))] for kind in (None, sandbox))
        medians = [statistics.median(kind) for kind in (without, within)]
        tenths = [statistics.quantiles(kind, n=10)[0] for kind in (without, within)]
        print(
            f"{build}: {' '.join(options.command)} at the median: {medians[0]:.2f} ms without a sandbox, {medians[1]:.2f} ms with,"
            f" {medians[1] - medians[0]:+.2f} ms (fastest tenth {tenths[1] - tenths[0]:+.2f} ms); {options.rounds} rounds, load {load:.1f}"
        )


if __name__ == "__main__":
    main()
