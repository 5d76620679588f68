#!/usr/bin/env python3
"""A stand-in for the vendors of models: three protocols, answered from a script.

    python3 examples/models/model_server.py --port 0 --script examples/models/script.json

The script, its faults, the log and the sums for tests: examples/models/README.md.
The first line on stdout is {"url": "http://127.0.0.1:N", "port": N}.
"""

import argparse
import json
import os
import re
import signal
import stat
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anthropic_messages
import fault as faults
import openai_chat
import openai_responses
import script as scripts
from asked import Refusal, compact
from frame import Frame
from record import Record
from sending import Cut, Left, Sending, reset
from usage import count

DIALECTS = {dialect.PATH: dialect for dialect in (openai_chat, openai_responses, anthropic_messages)}
BODY_BYTES_MAX = 64 * 1024 * 1024
JSON = {"Content-Type": "application/json"}
EVENTS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_version, sys_version = "model_server", ""

    def do_POST(self):
        body = self.read_body()
        if body is None:
            return
        record = self.server.record
        entry = record.open("POST", self.path, self.headers, body)
        ended = "crashed"
        try:
            ended = self.serve(body, entry)
        except Cut as cut:
            ended = "cut"
            self.close_connection = self.close_connection or cut.end != "clean"
            if cut.end == "reset":
                reset(self.connection)
        except Left:
            ended = "client_left"
            self.close_connection = True
        finally:
            record.close(entry, ended)

    def serve(self, body, entry):
        """Answers or refuses; how it ended."""
        path, sending = self.path.partition("?")[0], Sending(self, entry)
        dialect = DIALECTS.get(path, openai_chat)
        try:
            if path not in DIALECTS:
                raise Refusal(404, f"Unknown request URL: POST {path}.", kind="invalid_request_error", code="unknown_url")
            asked = self.asked(dialect, body, entry)
            rule = self.rule_of(asked, entry)
            sending = Sending(self, entry, rule)
            self.answer(dialect, asked, rule, entry, sending)
            return "whole"
        except Refusal as refusal:
            entry.note(error=refusal.message)
            headers = JSON | dialect.headers(refusal.status) | refusal.headers
            sending.whole(refusal.status, headers, compact(dialect.error(refusal)).encode("utf-8", "surrogatepass"))
            return "refused"

    def asked(self, dialect, body, entry):
        """What is asked, once the vendor would take it."""
        entry.note(protocol=dialect.NAME)
        if self.server.keys:
            dialect.check_key(self.headers, self.server.keys)
        dialect.check_headers(self.headers)
        try:
            said = json.loads(body)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise dialect.no_json()
        if isinstance(said.get("model"), str):
            entry.note(model=said["model"], stream=bool(said.get("stream")))
        try:
            asked = dialect.read(said, join_roles=self.server.join_roles)
        except (TypeError, KeyError, AttributeError) as wrong:
            raise Refusal(400, f"Invalid request body: {wrong!r}") from None
        entry.note(turn=asked.turn)
        models = {**self.server.models, **self.server.script.models}
        if models and asked.model not in models:
            raise dialect.no_model(asked.model)
        limit, entry.read = models.get(asked.model), asked.tokens
        reserved = said.get(dialect.RESERVES) or 0 if dialect.RESERVES else 0
        if limit is not None and asked.tokens + reserved > limit:
            raise dialect.too_long(limit, asked.tokens, asked)
        return asked

    def rule_of(self, asked, entry):
        rule = self.server.script.take(asked)
        if rule is None:
            # Not a word of the vendor: the script is at fault, and no client should ask again.
            raise Refusal(501, "No rule of the script matches this request.", headers={"x-should-retry": "false"})
        entry.note(rule=rule.name, answer=rule.said, fault=rule.fault and rule.fault["kind"])
        return rule

    def answer(self, dialect, asked, rule, entry, sending):
        """Sends what the rule says."""
        fault = rule.fault or {"kind": None}
        if fault["kind"] == "drop":
            raise Cut(fault.get("end", "close"))
        if fault["kind"] == "status":
            raise faults.refusal(fault)
        instead = faults.body(fault, asked.stream)
        if instead:
            status, content_type, data = instead
            return sending.whole(status, dialect.headers() | {"Content-Type": content_type} | rule.headers, data)
        usage = entry.counted = count(asked, rule.answer)
        entry.answers = asked.stream or fault["kind"] != "error"
        if asked.stream:
            frames = dialect.stream(asked, rule.answer, usage, rule.style)
        else:
            whole = compact(dialect.reply(asked, rule.answer, usage)).encode("utf-8", "surrogatepass")
            frames = [Frame(whole)]
        if fault["kind"] == "error":
            failed = faults.failed(fault, dialect, asked, rule.answer)
            if asked.stream:
                frames = faults.stream_with_error(frames, fault, dialect, rule.style, failed)
            else:
                frames = [faults.plain_error(fault, dialect, failed)]
        if fault["kind"] == "endless":
            frames = faults.endless(frames, asked.stream)
        if asked.stream or fault["kind"] == "endless":
            return sending.stream(200, (EVENTS if asked.stream else JSON) | dialect.headers() | rule.headers, frames)
        texts = [part.written for part in rule.answer.parts] if entry.answers else []
        data = b"".join(frame.data for frame in frames)
        sending.whole(200, JSON | dialect.headers() | rule.headers, data, texts, tells=entry.answers and usage is not None)

    def do_GET(self):
        path, _, query = self.path.partition("?")
        wanted = dict(urllib.parse.parse_qsl(query))
        if path == "/log":
            since = wanted.get("since", "0")
            return self.tell(200, self.server.record.log(int(since) if since.isdecimal() else 0, "raw" in wanted))
        if path == "/sums":
            return self.tell(200, self.server.record.sums())
        self.tell(404, {"error": {"message": "There are GET /log, GET /sums, DELETE /log, PUT /script and the protocols."}})

    def do_PUT(self):
        body = self.read_body()
        if body is None:
            return
        if self.path != "/script":
            return self.tell(404, {"error": {"message": "Only PUT /script exists."}})
        try:
            self.server.script = scripts.Script.read(body)
        except ValueError as wrong:
            return self.tell(400, {"error": {"message": str(wrong)}})
        self.tell(200, {"rules": len(self.server.script.rules)})

    def do_DELETE(self):
        if self.path != "/log":
            return self.tell(404, {"error": {"message": "Only DELETE /log exists."}})
        self.server.record.clear()
        self.tell(200, {})

    def tell(self, status, body):
        """An answer of the stand-in itself, which no vendor has."""
        data = compact(body).encode("utf-8", "surrogatepass")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def read_body(self):
        """The body, or None when there cannot be one, which was said then."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return self.read_chunks()
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"[0-9]{1,9}", length) or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            self.tell(411 if not length else 413, {"error": {"message": "A body has a Content-Length of at most 64 MiB."}})
            return None
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise ConnectionError("the client left before its request was whole")
        return body

    def read_chunks(self):
        """A body that came in chunks of HTTP."""
        body = bytearray()
        while size := int(self.rfile.readline(64).partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline(64)
        while self.rfile.readline(8192).strip():
            """Trailers say nothing here."""
        return bytes(body)

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except (ConnectionError, ValueError):
            self.close_connection = True

    def log_message(self, format, *args):
        """GET /log is the log."""


class Server(ThreadingHTTPServer):
    """The script, the models and the record, shared by all connections."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, port, script, models, keys, join_roles):
        super().__init__(("127.0.0.1", port), Handler)
        self.script, self.models, self.keys, self.join_roles = script, models, keys, join_roles
        self.record = Record()


def end_with_parent():
    """Ends the process when stdin is a pipe and the other end closes it; a terminal or /dev/null says nothing."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        while os.read(0, 4096):
            """What comes is for nobody."""
        os.kill(os.getpid(), signal.SIGTERM)


def limit(text):
    """`MODEL=TOKENS` of the command line."""
    model, _, count = text.rpartition("=")
    if not model or not count.isdecimal():
        raise argparse.ArgumentTypeError("write MODEL=TOKENS")
    return model, int(count)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--port", type=int, default=8703, help="0 takes a free one (default: 8703)")
    parser.add_argument("--script", metavar="FILE", help="the script; without it every request gets one sentence")
    parser.add_argument("--key", action="append", default=[], help="a key that is right; without one nobody asks for it")
    parser.add_argument(
        "--context-tokens", metavar="MODEL=TOKENS", type=limit, action="append", default=[],
        help="a model that exists and what it can read; without any, all exist",
    )  # fmt: skip
    parser.add_argument("--join-roles", action="store_true", help="Anthropic messages of one role in a row are one message")
    options = parser.parse_args()
    try:
        text = open(options.script, encoding="utf-8").read() if options.script else json.dumps(scripts.DEFAULT)
        script = scripts.Script.read(text)
    except (OSError, ValueError) as wrong:
        parser.error(str(wrong))
    server = Server(options.port, script, dict(options.context_tokens), options.key, options.join_roles)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    threading.Thread(target=end_with_parent, daemon=True).start()
    port = server.server_address[1]
    print(json.dumps({"url": f"http://127.0.0.1:{port}", "port": port}), flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
