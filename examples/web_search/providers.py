#!/usr/bin/env python3
"""Two providers of web search that do not exist, so that adapter.py has somebody to ask: they find the texts of a folder.

    GET /acorn/search?q=tides&n=5            with  Authorization: Bearer acorn-demo
    200   {"hits": [{"heading": …, "link": …, "extract": …, "rank": 1}, …], "total": 4}

    POST /beacon/v2/query  {"text": "tides", "limit": 5}      with  X-Api-Key: beacon-demo
    200   {"status": "ok", "data": {"items": [{"name": …, "href": …, "summary": {"text": …}, "relevance": 0.5}, …]}}

    401   another key, or none
    429   Acorn, for the query "busy": it counts as too many requests
    …     "slow" is never answered, "nonsense" with a page of HTML

The first line on stdout is {"port": N}.
"""

import argparse
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

HERE = Path(__file__).resolve().parent
TEXTS = HERE.parent / "search_documents" / "texts"
PLACES = {"acorn": "https://acorn-pages.example", "beacon": "https://pages.beacon.example"}
HANG_SECONDS = 120
BODY_MAX = 64 * 1024


def words_of(text):
    """Words in small letters, and Chinese characters by twos."""
    han = re.findall(r"[\u3400-\u9fff]+", text)
    pairs = {run[at : at + 2] for run in han for at in range(max(len(run) - 1, 1))}
    return pairs | set(re.findall(r"[a-z0-9]+", text.lower()))


class Pages:
    """The texts of a folder as pages of the web."""

    def __init__(self, folder):
        self.pages = []
        for path in sorted(folder.glob("*.txt")):
            title, _, text = path.read_text(encoding="utf-8").partition("\n")
            self.pages.append((path.stem, title, " ".join(text.split()), words_of(f"{title} {text}")))

    def find(self, query, most):
        """Pages with words of the query, and how many of those they have; the best first."""
        asked = words_of(query)
        found = [(len(asked & words) / len(asked), page) for *page, words in self.pages if asked & words]
        return sorted(found, key=lambda one: -one[0])[:most]


def acorn(pages, query, most):
    """In Acorn's words."""
    found = pages.find(query, most)
    hits = [
        {"heading": title, "link": f"{PLACES['acorn']}/{quote(name)}", "extract": text[:300], "rank": rank}
        for rank, (_, (name, title, text)) in enumerate(found, 1)
    ]
    return {"hits": hits, "total": len(hits)}


def beacon(pages, query, most):
    """In Beacon's words."""
    items = [
        {"name": title, "href": f"{PLACES['beacon']}/{quote(name)}.html", "summary": {"text": text[:900]}, "relevance": share}
        for share, (name, title, text) in pages.find(query, most)
    ]
    return {"status": "ok", "data": {"items": items}}


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path != "/acorn/search":
            return self.answer(404, {"fault": "no such path"})
        if self.headers.get("Authorization") != "Bearer acorn-demo":
            return self.answer(401, {"fault": "unknown key"})
        asked = parse_qs(url.query, max_num_fields=8)
        return self.find(acorn, asked["q"][0], int(asked["n"][0]))

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        if length > BODY_MAX:
            self.close_connection = True
            return self.answer(413, {"status": "too large"})
        asked = json.loads(self.rfile.read(length))
        if self.path != "/beacon/v2/query":
            return self.answer(404, {"status": "no such path"})
        if self.headers.get("X-Api-Key") != "beacon-demo":
            return self.answer(401, {"status": "unknown key"})
        return self.find(beacon, asked["text"], asked["limit"])

    def find(self, speak, query, most):
        if query == "slow":
            self.server.stopping.wait(HANG_SECONDS)
            self.close_connection = True
            return None
        if query == "busy" and speak is acorn:
            return self.answer(429, {"fault": "too many requests"}, {"Retry-After": "1"})
        if query == "nonsense":
            return self.send(200, "text/html", b"<html>Sorry</html>")
        return self.answer(200, speak(self.server.pages, query, most))

    def answer(self, status, body, headers=None):
        self.send(status, "application/json", json.dumps(body).encode(), headers)

    def send(self, status, kind, data, headers=None):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except ConnectionError:
            # The caller lost patience.
            self.close_connection = True

    def log_message(self, format, *args):
        """A stand-in needs no access log."""


class Providers(ThreadingHTTPServer):
    """What all connections share."""

    daemon_threads = True

    def __init__(self, port, folder):
        super().__init__(("127.0.0.1", port), Handler)
        self.pages = Pages(folder)
        self.stopping = threading.Event()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--port", type=int, default=8712, help="0 takes a free one (default: 8712)")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="the folder of texts")
    options = parser.parse_args()
    service = Providers(options.port, options.texts)
    print(json.dumps({"port": service.server_address[1]}), flush=True)
    try:
        service.serve_forever()
    except KeyboardInterrupt:
        service.stopping.set()


if __name__ == "__main__":
    main()
