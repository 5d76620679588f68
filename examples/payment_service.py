#!/usr/bin/env python3
"""A payment service that does not recognise repetitions: every charge it is sent, it makes.

    POST /charges               {"account": "acme", "amount_cents": 4200}
    201                         {"charge_id": "ch_…", "account": "acme", "amount_cents": 4200}
    GET /charges?reference=…    {"charges": [{"charge_id": "ch_…", …}]}

It notes the header `Idempotency-Key` as the charge's reference, and charges again all the same when it sees it twice.
Many real services do no better, and what protects the account then is whoever decides whether to send again.
A charge counts from the moment it stands in the ledger file; the answer comes `--slow-ms` later.

The first line on stdout is {"port": N}.
"""

import argparse
import json
import os
import re
import threading
import time
import urllib.parse
import uuid
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BODY_BYTES_MAX = 16 * 1024
AMOUNT_CENTS_MAX = 1_000_000
ACCOUNT = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Refusal(Exception):
    """A request this service does not carry out: an HTTP status, a code, a sentence."""

    def __init__(self, status, code, message):
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class Ledger:
    """The charges, one JSON object a line; a line that returned from `append` survives a crash."""

    def __init__(self, path):
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._one_at_a_time = threading.Lock()

    def append(self, charge):
        line = json.dumps(charge).encode() + b"\n"
        with self._one_at_a_time:
            os.write(self._file, line)
            os.fsync(self._file)

    def find(self, reference):
        with open(self._path, encoding="utf-8") as file:
            charges = [json.loads(line) for line in file]
        return [charge for charge in charges if charge["reference"] == reference]


def read_charge(body):
    """The account and the amount of one request, or a `Refusal`."""
    try:
        wanted = json.loads(body)
    except (ValueError, RecursionError):
        raise Refusal(400, "malformed_json", "The body is not JSON.") from None
    if not isinstance(wanted, dict):
        raise Refusal(400, "malformed_json", "The body is not a JSON object.")
    account, amount = wanted.get("account"), wanted.get("amount_cents")
    if not isinstance(account, str) or not ACCOUNT.fullmatch(account):
        raise Refusal(422, "invalid_account", "The account is 1 to 64 letters, digits, '_' or '-'.")
    if type(amount) is not int or amount < 1:
        raise Refusal(422, "invalid_amount", "The amount is a whole number of cents above zero.")
    if amount > AMOUNT_CENTS_MAX:
        limit = f"One charge is at most {AMOUNT_CENTS_MAX} cents; ask the account's owner first."
        raise Refusal(422, "over_the_limit", limit)
    return account, amount


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_POST(self):
        try:
            self.answer(201, self.charge())
        except Refusal as refusal:
            self.close_connection = True
            body = {"error": {"code": refusal.code, "message": refusal.message}}
            self.answer(refusal.status, body)

    def do_GET(self):
        path, _, query = self.path.partition("?")
        references = urllib.parse.parse_qs(query).get("reference", [])
        if path != "/charges" or len(references) != 1:
            body = {"error": {"code": "no_such_path", "message": "Ask GET /charges?reference=…"}}
            return self.answer(404, body)
        return self.answer(200, {"charges": self.server.ledger.find(references[0])})

    def charge(self):
        if self.path != "/charges":
            raise Refusal(404, "no_such_path", "Only POST /charges exists.")
        account, amount = read_charge(self.read_body())
        charge = {"charge_id": f"ch_{uuid.uuid4().hex}", "account": account, "amount_cents": amount}
        at = datetime.now(timezone.utc).isoformat()
        reference = self.headers.get("Idempotency-Key", "")[:255]
        self.server.ledger.append({**charge, "reference": reference, "at": at})
        time.sleep(self.server.slow_ms / 1000)
        return charge

    def read_body(self):
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"[0-9]{1,9}", length):
            raise Refusal(411, "length_required", "Content-Length is missing.")
        if int(length) > BODY_BYTES_MAX:
            raise Refusal(413, "too_large", f"A body has at most {BODY_BYTES_MAX} bytes.")
        return self.rfile.read(int(length))

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
            # The caller left before the answer; what stands in the ledger stands.
            self.close_connection = True

    def log_message(self, format, *args):
        """The ledger is the log."""


class Service(ThreadingHTTPServer):
    """The ledger and the pace, shared by all connections."""

    daemon_threads = True

    def __init__(self, port, ledger, slow_ms):
        super().__init__(("127.0.0.1", port), Handler)
        self.ledger, self.slow_ms = ledger, slow_ms


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--port", type=int, default=8702, help="0 takes a free one (default: 8702)")
    parser.add_argument("--ledger", default="ledger.jsonl", help="the file of all charges")
    parser.add_argument("--slow-ms", type=int, default=0, help="from the charge to its answer")
    options = parser.parse_args()
    service = Service(options.port, Ledger(options.ledger), options.slow_ms)
    print(json.dumps({"port": service.server_address[1]}), flush=True)
    try:
        service.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
