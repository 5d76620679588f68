"""Starts the stand-in of examples/models and asks it what it saw."""

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

SERVER = Path(__file__).resolve().parents[2] / "examples" / "models" / "model_server.py"
KEY = "sk-right"
SETTLED_SECONDS = 10


class NotAsScripted(AssertionError):
    """A claim of the witness that did not hold."""


def check(holds, sentence):
    if not holds:
        raise NotAsScripted(sentence)


class StandIn:
    """A running stand-in. It ends with the pipe to its stdin."""

    def __init__(self, *options):
        command = [sys.executable, str(SERVER), "--port", "0", "--key", KEY, *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.url = json.loads(self.process.stdout.readline())["url"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(5)
        finally:
            self.process.kill()
            self.process.stdout.close()

    def ask(self, method, path, body=None):
        """One request of the stand-in's own; the answer as JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def play(self, rules, **more):
        """Takes a script and forgets what was."""
        self.settle()
        self.ask("PUT", "/script", {"rules": rules, **more})
        self.ask("DELETE", "/log")

    def settle(self):
        """Waits until nothing is being answered."""
        ends = time.monotonic() + SETTLED_SECONDS
        while self.sums()["in_flight"]:
            check(time.monotonic() < ends, "requests are still being answered")
            time.sleep(0.005)

    def log(self):
        """All entries, once their ends are on record."""
        self.settle()
        return self.ask("GET", "/log")["entries"]

    def sums(self):
        return self.ask("GET", "/sums")
