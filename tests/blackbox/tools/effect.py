"""A process tool with a visible effect, for the proofs: it writes a line, then takes its time.

With --family it leaves descendants in three ways: a child, a daemon, and a daemon that forgot its environment.
With --stubborn none of them listens to SIGTERM.
"""

import argparse
import json
import os
import signal
import sys
import time

LINGER_SECONDS = 60


def identity(pid):
    """A pid and when it started, which together name one process for good."""
    with open(f"/proc/{pid}/stat") as file:
        return [pid, int(file.read().rpartition(")")[2].split()[19])]


def append(path, value):
    """One line, on disk when this returns."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(file, json.dumps(value).encode() + b"\n")
    os.fsync(file)
    os.close(file)


def child(linger):
    """A process that sleeps; its pid."""
    pid = os.fork()
    if pid == 0:
        linger()
        os._exit(0)
    return pid


def daemon(linger):
    """A process that left its session and its parent; its pid."""
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.setsid()
        os.write(writing, str(child(linger)).encode())
        os._exit(0)
    os.waitpid(middle, 0)
    os.close(writing)
    pid = int(os.read(reading, 20))
    os.close(reading)
    return pid


def sleep():
    time.sleep(LINGER_SECONDS)


def forget():
    os.chdir("/")
    os.execve("/bin/sleep", ["sleep", str(LINGER_SECONDS)], {})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--effects", required=True)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--family", action="store_true")
    parser.add_argument("--stubborn", action="store_true")
    options = parser.parse_args()
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    arguments = json.load(sys.stdin)
    call, attempt = os.environ["TOOLFLEET_CALL_ID"], os.environ["TOOLFLEET_ATTEMPT"]
    append(options.effects, {"call_id": call, "attempt": attempt, "at": time.time()})
    if options.family:
        pids = [os.getpid(), child(sleep), daemon(sleep), daemon(forget)]
        append(options.effects + ".family", [identity(pid) for pid in pids])
    time.sleep(options.seconds)
    print(json.dumps(arguments))


if __name__ == "__main__":
    main()
