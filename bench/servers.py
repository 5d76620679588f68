"""What soak.py and growth.py share: a `toolfleet dev` of their own, and sessions that keep vacuum from its work."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

HOLDS = ("snapshot", "transaction", "readers")
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;"
TRANSACTION = "BEGIN; SELECT pg_current_xact_id();"
# Each of four readers looks for so long; the next one begins when a quarter of that is over.
READING = 20


def psql_program():
    found = os.environ.get("TOOLFLEET_POSTGRES_BIN")
    return str(pathlib.Path(found) / "psql") if found else "psql"


def psql(url, sql):
    command = [psql_program(), url, "-AtqF", ",", "-c", sql]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [int(figure) for figure in ran.stdout.strip().split(",")]


class Session:
    """A session that leaves a transaction open."""

    def __init__(self, url, begin):
        command = [psql_program(), url, "-Atq"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(begin + "\n")
        self.process.stdin.flush()
        # Its answer: from now on it is open.
        self.process.stdout.readline()

    def end(self):
        self.process.communicate(timeout=60)


class Holders:
    """The sessions that keep vacuum from its work."""

    def __init__(self, url, kind):
        self.url, self.kind, self.sessions = url, kind, []
        self.next = time.monotonic()

    def turn(self):
        """Ends and begins whose turn it is; says when the next turn comes."""
        now = time.monotonic()
        if now < self.next:
            return self.next
        if self.kind == "readers":
            if len(self.sessions) == 4:
                self.sessions.pop(0).end()
            self.sessions.append(Session(self.url, SNAPSHOT))
            self.next = now + READING / 4
        else:
            self.sessions.append(Session(self.url, SNAPSHOT if self.kind == "snapshot" else TRANSACTION))
            self.next = float("inf")
        return self.next

    def end(self):
        for session in self.sessions:
            session.end()
        self.sessions, self.next = [], float("inf")


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
