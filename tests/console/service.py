"""What the test tools ask: a small HTTP service that succeeds, says no, is down, hangs, waits for a word, or answers later.

What it does is said by the path, so each manifest of tools.py shows it. A request that hangs or waits is let go by `close`, by the end of its
connection's call, or by `POST /let/NAME`: nothing here sleeps for a time that a test has to guess.
"""

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Longer than any timeout of a tool: whoever hangs is given up before.
HANGS_SECONDS = 60


class Service:
    """The service on a free port; `close` lets everything go that still waits."""

    def __init__(self):
        self.lock, self.done, self.tries = threading.Lock(), Counter(), Counter()
        self.gates, self.closing = {}, threading.Event()
        handler = type("Handler", (Handler,), {"service": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def gate(self, name):
        """What requests of this name wait at."""
        with self.lock:
            return self.gates.setdefault(name, threading.Event())

    def close(self):
        self.closing.set()
        with self.lock:
            gates = list(self.gates.values())
        for gate in gates:
            gate.set()
        self.server.shutdown()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        # How often something was carried out, by its account: what a test of "once" asks.
        with self.service.lock:
            self.answer(200, dict(self.service.done))

    def do_POST(self):
        text = self.rfile.read(int(self.headers.get("content-length") or 0))
        asked = json.loads(text) if text else {}
        _, verb, *rest = self.path.split("/")
        key = self.headers.get("idempotency-key") or ""
        getattr(self, f"do_{verb}")(asked, key, *rest)

    def do_let(self, _asked, _key, name):
        """Opens a gate, for all who wait there and who come."""
        self.service.gate(name).set()
        self.answer(200, {})

    def do_fine(self, asked, _key):
        """Carries it out."""
        with self.service.lock:
            self.service.done[str(asked.get("account"))] += 1
        self.answer(200, {"done": True, "asked": asked})

    def do_echo(self, asked, _key):
        """Answers with what was asked: an answer that a stranger has written."""
        self.answer(200, asked)

    def do_long(self, asked, _key):
        """Answers with one line of so many characters behind what was asked."""
        self.answer(200, {"line": asked["text"] + "A" * asked["length"]})

    def do_refuse(self, asked, _key):
        """Says no, in the caller's own words."""
        self.answer(422, {"error": {"message": asked.get("text", "the card was declined"), "code": "card_declined"}})

    def do_charge(self, asked, key):
        """An account says what becomes of it."""
        account = str(asked.get("account", ""))
        if account.startswith("declined"):
            return self.answer(422, {"error": {"message": f"the bank declines {account}: no funds", "code": "no_funds"}})
        if account.startswith("hangs"):
            return self.do_hang(asked, key)
        return self.do_fine(asked, key)

    def do_down(self, _asked, _key):
        self.answer(500, {"error": {"message": "the disk is full"}})

    def do_hang(self, _asked, _key):
        """Says nothing. The connection is closed by who asked."""
        self.service.closing.wait(HANGS_SECONDS)
        self.close_connection = True

    def do_gate(self, asked, key):
        """Answers once its gate is opened."""
        self.service.gate(str(asked["gate"])).wait(HANGS_SECONDS)
        self.do_fine(asked, key)

    def do_flaky(self, asked, key):
        """Fails the first time and works the second; each waits for its gate, `NAME-1` and `NAME-2`, where one is named."""
        with self.service.lock:
            self.service.tries[key] += 1
            tried = self.service.tries[key]
        if asked.get("gate"):
            self.service.gate(f"{asked['gate']}-{tried}").wait(HANGS_SECONDS)
        if tried == 1:
            return self.answer(503, {"error": {"message": "come again"}})
        return self.do_fine(asked, key)

    def do_later(self, _asked, _key):
        """Answers later, which here is never: the call waits."""
        self.answer(202, {})

    def answer(self, status, body):
        text = json.dumps(body).encode()
        try:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
        except OSError:
            pass  # Who asked is gone: given up, cancelled or killed.
