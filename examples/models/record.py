"""What was asked and what was sent: a log of every request, and sums by model."""

import json
import re
import threading
import time
from collections import deque

from usage import Usage, tokens

SECRET = re.compile(r"auth|cookie|secret|token|key", re.IGNORECASE)
SHOWN = ("idempotency-key",)
ENTRIES_MAX = 20_000
ENTRIES_BYTES_MAX = 256 * 1024 * 1024
MODELS_MAX = 1_000


class Entry:
    """One request. Everything about its end is None while it is answered."""

    def __init__(self, number, method, path, headers, body):
        self.began, self.body, self.spoken = time.monotonic(), body, []
        # What the request counts, and the answer, if there is one at all; whether the usage got out whole.
        self.read, self.counted, self.answers, self.told = 0, None, False, False
        self.fields = {
            "number": number,
            "at_ms": time.time() * 1000,
            "method": method,
            "path": path,
            "headers": {name.lower(): shown(name.lower(), value) for name, value in headers.items()},
            "protocol": None,
            "model": None,
            "stream": None,
            "turn": None,
            "rule": None,
            "answer": None,
            "fault": None,
            "status": None,
            "ended": None,
            "bytes": 0,
            "error": None,
            "usage": None,
            "untold": None,
            "first_byte_at_ms": None,
            "first_chunk_at_ms": None,
            "took_ms": None,
        }

    def note(self, **fields):
        self.fields.update(fields)

    def as_json(self, raw):
        """The entry; with `raw`, the body also as it was received, character for character."""
        text = self.body.decode("utf-8", "replace")
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = None
        return {**self.fields, "body": body, **({"raw": text} if raw or body is None else {})}


def shown(name, value):
    """A header's value, unless it may be a secret."""
    return "***" if SECRET.search(name) and name not in SHOWN else value


class Sum:
    """What one model was asked, and what it said that it had counted. `untold` is what answers had whose usage did not get out whole."""

    def __init__(self):
        self.requests, self.bytes, self.told = 0, 0, 0
        self.statuses, self.usage = {}, Usage()
        self.untold = {"answers": 0, "input": 0, "output": 0}

    def add(self, entry):
        self.requests += 1
        self.bytes += entry.fields["bytes"]
        status = str(entry.fields["status"])
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if entry.fields["usage"]:
            self.told += 1
            self.usage.add(entry.counted)
        elif entry.fields["untold"]:
            self.untold["answers"] += 1
            self.untold["input"] += entry.fields["untold"]["input"]
            self.untold["output"] += entry.fields["untold"]["output"]

    def as_json(self):
        return {
            "requests": self.requests,
            "statuses": self.statuses,
            "bytes": self.bytes,
            "told": self.told,
            "usage": self.usage.as_json(),
            "untold": self.untold,
        }


class Record:
    """The log and the sums; the log forgets its oldest entries, the sums nothing."""

    def __init__(self):
        self._one_at_a_time = threading.Lock()
        self._number = self._in_flight = 0
        self.clear()

    def clear(self):
        with self._one_at_a_time:
            self._entries, self._bytes, self._sums = deque(), 0, {}

    def open(self, method, path, headers, body):
        with self._one_at_a_time:
            self._number += 1
            self._in_flight += 1
            entry = Entry(self._number, method, path, headers, body)
            self._entries.append(entry)
            self._bytes += len(body)
            while len(self._entries) > ENTRIES_MAX or (self._bytes > ENTRIES_BYTES_MAX and len(self._entries) > 1):
                self._bytes -= len(self._entries.popleft().body)
            return entry

    def close(self, entry, ended):
        """Fills an entry: how it ended, and what was told of its usage."""
        if entry.counted and entry.told:
            entry.note(usage=entry.counted.as_json())
        elif entry.answers and entry.fields["status"] == 200:
            entry.note(untold={"input": entry.read, "output": tokens(entry.spoken)})
        with self._one_at_a_time:
            name = entry.fields["model"] or "(none)"
            if name not in self._sums and len(self._sums) >= MODELS_MAX:
                name = "(others)"
            self._sums.setdefault(name, Sum()).add(entry)
            self._in_flight -= 1
            entry.note(took_ms=(time.monotonic() - entry.began) * 1000, ended=ended)

    def log(self, since, raw):
        """The entries after a number."""
        with self._one_at_a_time:
            entries = [entry for entry in self._entries if entry.fields["number"] > since]
        return {"entries": [entry.as_json(raw) for entry in entries]}

    def sums(self):
        with self._one_at_a_time:
            return {"in_flight": self._in_flight, "models": {name: one.as_json() for name, one in self._sums.items()}}
