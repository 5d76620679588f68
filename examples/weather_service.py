#!/usr/bin/env python3
"""A weather service with a small world and three kinds of trouble.

    GET /weather?city=Oslo&days=2
    200   {"city": "Oslo", "days": [{"day": 1, "sky": "rain", "celsius": 7}, …]}
    404   a city it does not know
    503   "Flaky", the first two times that one call asks
    …     "Slowville" never answers

The first line on stdout is {"port": N}.
"""

import argparse
import json
import threading
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

DAYS_MAX = 7
HANG_SECONDS = 120
FLAKY_FAILURES = 2
CALLS_REMEMBERED = 1_000
SKIES = ["sun", "clouds", "rain", "wind", "fog", "snow", "thunder"]
CITIES = {"Oslo": 7, "Lisbon": 19, "Nairobi": 22, "北京": 12, "Flaky": 16}


class Patience:
    """How often each call was turned away; only the newest calls are remembered."""

    def __init__(self):
        self._failures = OrderedDict()
        self._one_at_a_time = threading.Lock()

    def turn_away(self, call):
        with self._one_at_a_time:
            failures = self._failures.get(call, 0)
            if failures == FLAKY_FAILURES:
                del self._failures[call]
                return False
            self._failures[call] = failures + 1
            if len(self._failures) > CALLS_REMEMBERED:
                self._failures.popitem(last=False)
            return True


def whole(text):
    """The integer that a text stands for, None when it is none: 2.0 is one for JSON Schema, and models send it."""
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


def forecast(city, days):
    """The same answer for the same question, so that a story can be told twice."""
    base = CITIES[city]
    numbers = range(1, days + 1)
    sky = {day: SKIES[(base + day) % len(SKIES)] for day in numbers}
    week = [{"day": day, "sky": sky[day], "celsius": base + day % 3} for day in numbers]
    return {"city": city, "days": week}


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path != "/weather":
            return self.refuse(404, "no_such_path", "Only GET /weather exists.")
        try:
            query = parse_qs(url.query, max_num_fields=8)
        except ValueError:
            return self.refuse(400, "too_many_fields", "Ask for a city and a number of days.")
        city = query.get("city", [""])[0]
        days = query.get("days", ["1"])[0]
        if city == "Slowville":
            self.server.stopping.wait(HANG_SECONDS)
            self.close_connection = True
            return None
        if city not in CITIES:
            return self.refuse(404, "unknown_city", "No weather is kept for this city.")
        days = whole(days)
        if days is None or not 1 <= days <= DAYS_MAX:
            return self.refuse(422, "invalid_days", f"days is a number from 1 to {DAYS_MAX}.")
        call = self.headers.get("Toolfleet-Call-Id", "")
        if city == "Flaky" and self.server.patience.turn_away(call):
            return self.refuse(503, "busy", "The instruments are warming up; ask again.")
        return self.answer(200, forecast(city, days))

    def refuse(self, status, code, message):
        self.answer(status, {"error": {"code": code, "message": message}})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except ConnectionError:
            # The caller lost patience, which is what Slowville is for.
            self.close_connection = True

    def log_message(self, format, *args):
        """A demonstration needs no access log."""


class Service(ThreadingHTTPServer):
    """What all connections share."""

    daemon_threads = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", port), Handler)
        self.patience = Patience()
        self.stopping = threading.Event()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--port", type=int, default=8701, help="0 takes a free one (default: 8701)")
    service = Service(parser.parse_args().port)
    print(json.dumps({"port": service.server_address[1]}), flush=True)
    try:
        service.serve_forever()
    except KeyboardInterrupt:
        service.stopping.set()


if __name__ == "__main__":
    main()
