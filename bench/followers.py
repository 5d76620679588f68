#!/usr/bin/env python3
"""What do followers of sessions cost a gateway, and how late is what they hear?

    python3 bench/followers.py [--toolfleet PATH] [--followers 500] [--rate 5000] [--idle 1000] [--seconds 20]

It starts `toolfleet dev` in a folder of its own and looks at its gateway: its memory when nobody asks; its memory with so many streams
on which nothing happens, each of a session of its own; and then, with so many followers, each of a session of its own, and so many
events a second over all of them: how long each event takes from its publication to the follower, and what the gateway's processor
does meanwhile. Events are published here, as workers do. It needs the servers that `make setup` finds; start it with `. ./.tools/env`.
Exit code 1 when a bound is missed: 30 MiB idle, 64 MiB more for the streams, 250 ms for the 99th of 100, one core, and any event that
is missing.
"""

import argparse
import json
import os
import pathlib
import select
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import uuid

from servers import started, stopped

IDLE_MIB, STREAMS_MIB, P99_MS = 30, 64, 250
SETTLE_S, TICK_S, WARM_UP_S = 5, 0.01, 3
MARK = b'"message":"'


def memory_mib(pid):
    """Resident memory: all, and what is of no file."""
    fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return [int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon")]


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Streams:
    """Open streams of sessions, one for each number."""

    def __init__(self, api, token, name, count):
        place = urllib.parse.urlsplit(api)
        self.poll, self.sockets, self.began = select.epoll(), {}, set()
        for number in range(count):
            stream = socket.create_connection((place.hostname, place.port))
            head = (f"GET /v1/sessions/{name}-{number}/events HTTP/1.1\r\nHost: {place.netloc}\r\n"
                    f"Authorization: Bearer {token}\r\nAccept: text/event-stream\r\n\r\n")
            stream.sendall(head.encode())
            answer = stream.recv(65_536)
            if b" 200 " not in answer[:20]:
                sys.exit(f"stream {number}: {answer[:300]!r}")
            self.sockets[stream.fileno()] = stream
            self.poll.register(stream, select.EPOLLIN)

    def hear(self, seconds, took):
        """Whatever comes within so many seconds; adds how long each event took, in nanoseconds."""
        ends, heard = time.monotonic() + seconds, 0
        while (left := ends - time.monotonic()) > 0:
            for file, _event in self.poll.poll(left):
                pieces = self.sockets[file].recv(1 << 18)
                now = time.monotonic_ns()
                if not pieces:
                    sys.exit("a stream has ended")
                for piece in pieces.split(MARK)[1:]:
                    heard += 1
                    if took is not None:
                        took.append(now - int(piece[: piece.index(b'"')]))
        return heard

    def close(self):
        for stream in self.sockets.values():
            stream.close()


class Publisher:
    """A connection to nats-server on which events are published."""

    def __init__(self, url):
        place = urllib.parse.urlsplit(url)
        self.socket = socket.create_connection((place.hostname, place.port))
        self.socket.recv(65_536)
        login = {"verbose": False, "pedantic": False, "user": place.username, "pass": place.password}
        self.socket.sendall(f"CONNECT {json.dumps(login)}\r\nPING\r\n".encode())
        said = self.socket.recv(65_536)
        if b"PONG" not in said:
            sys.exit(f"nats-server: {said!r}")
        self.sent, self.calls = 0, {}

    def tell(self, name, count, events):
        """So many events, each of the next session."""
        lines = []
        for _ in range(events):
            number = self.sent % count
            call = self.calls.setdefault(number, str(uuid.uuid4()))
            body = (f'{{"call_id":"{call}","sequence":{1_000_000 + self.sent},"at":"2026-11-29T00:00:00Z","kind":"progress","attempt":1,'
                    f'"message":"{time.monotonic_ns()}"}}')
            lines.append(f"PUB toolfleet.v1.default.event.{name}-{number}.{call} {len(body)}\r\n{body}\r\n")
            self.sent += 1
        self.socket.sendall("".join(lines).encode())


def load(streams, publisher, count, rate, seconds, took):
    """Publishes and hears at the same time; how many events were heard."""
    began, told, heard = time.monotonic(), 0, 0
    while (passed := time.monotonic() - began) < seconds:
        due = int(passed * rate) - told
        if due > 0:
            publisher.tell("busy", count, due)
            told += due
        heard += streams.hear(TICK_S, took)
    quiet = 0
    while heard < told and quiet < 20:
        more = streams.hear(0.25, took)
        heard, quiet = heard + more, 0 if more else quiet + 1
    return told, heard


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--toolfleet", default="target/release/toolfleet")
    options.add_argument("--followers", type=int, default=500)
    options.add_argument("--rate", type=int, default=5_000)
    options.add_argument("--idle", type=int, default=1_000)
    options.add_argument("--seconds", type=int, default=20)
    given = options.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="toolfleet-followers-"))
    folder.chmod(0o755)
    command = [given.toolfleet, "dev", "--data", str(folder / "data"), "--workers", "1", "--nats-port", "0", "--postgres-port", "0",
               "--http-port", "0", "--gateway-port", "0"]
    with (folder / "dev.log").open("wb") as log:
        env = {**os.environ, "GATEWAY_STRANGERS_MAX": "4096"}
        dev = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
    missed = []
    try:
        state = started(folder / "data", dev)
        gateway = state["gateway_pids"][0]
        time.sleep(SETTLE_S)
        idle, idle_own = memory_mib(gateway)
        print(f"idle: {idle:.1f} MiB resident, {idle_own:.1f} of them of no file", flush=True)
        if idle > IDLE_MIB:
            missed.append(f"idle {idle:.1f} MiB")
        streams = Streams(state["gateway_url"], state["gateway_token"], "idle", given.idle)
        streams.hear(SETTLE_S, None)
        more = memory_mib(gateway)[0] - idle
        print(f"{given.idle} idle streams: {more:.1f} MiB more, {more * 1024 / given.idle:.0f} KiB each", flush=True)
        if more > STREAMS_MIB:
            missed.append(f"streams {more:.1f} MiB")
        streams.close()
        streams = Streams(state["gateway_url"], state["gateway_token"], "busy", given.followers)
        publisher, took = Publisher(state["nats_url"]), []
        load(streams, publisher, given.followers, given.rate, WARM_UP_S, None)
        before, began = cpu_s(gateway), time.monotonic()
        told, heard = load(streams, publisher, given.followers, given.rate, given.seconds, took)
        passed = time.monotonic() - began
        cores = (cpu_s(gateway) - before) / passed
        took.sort()
        p50, p99, longest = (took[int(len(took) * share)] / 1e6 for share in (0.5, 0.99, 0.999999))
        print(f"{given.followers} followers, {heard / passed:.0f} events/s: {heard} of {told} heard, p50 {p50:.1f} ms, p99 {p99:.1f} ms, "
              f"longest {longest:.1f} ms; gateway {cores:.2f} cores, {memory_mib(gateway)[0]:.1f} MiB", flush=True)
        if p99 > P99_MS or cores > 1 or heard != told:
            missed.append(f"p99 {p99:.1f} ms, {cores:.2f} cores, {told - heard} missing")
    finally:
        stopped(dev)
    print("missed: " + "; ".join(missed) if missed else "within all bounds")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
