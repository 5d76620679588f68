#!/usr/bin/env python3
"""Asks a provider of web search in its own words, and answers in one shape: what stands between web_search and its providers.

    GET /acorn?query=tides&count=3
    200   {"results": [{"title": "How the tides work", "url": "https://…", "snippet": "The moon pulls …"}, …]}
    422   the query is empty, or count is none
    429   the provider says so; with its Retry-After
    502   the provider refuses the key, or answers with something else than it should
    503   the provider cannot be reached, or is in trouble
    504   the provider does not answer in time

A further provider is a further entry of PROVIDERS: a function that asks, and one that reads. The key comes with each request, in
the header that the provider wants, and is neither kept nor logged.

The first line on stdout is {"port": N}.
"""

import argparse
import json
import time
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

QUERY_MAX = 300
COUNT_MAX = 10
COUNT_USUAL = 5
# Shorter than the timeout of the tool, so that its caller is told what happened.
PROVIDER_SECONDS = 4
ANSWER_BYTES_MAX = 1024 * 1024


class Trouble(Exception):
    """Why there is no answer: the status that says so, a code and a sentence for whoever reads the call, and headers."""

    def __init__(self, status, code, message, headers=None):
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, headers or {}


def ask_acorn(base, query, count, key):
    words = urlencode({"q": query, "n": count})
    return Request(f"{base}/acorn/search?{words}", headers={"Authorization": key})


def read_acorn(answer):
    return [(hit["heading"], hit["link"], hit["extract"]) for hit in answer["hits"]]


def ask_beacon(base, query, count, key):
    body = json.dumps({"text": query, "limit": count}).encode()
    headers = {"X-Api-Key": key, "Content-Type": "application/json"}
    return Request(f"{base}/beacon/v2/query", data=body, headers=headers, method="POST")


def read_beacon(answer):
    return [(item["name"], item["href"], item["summary"]["text"]) for item in answer["data"]["items"]]


# For each: the header that its key comes in, how it is asked, and how its answer is read.
PROVIDERS = {
    "acorn": ("Authorization", ask_acorn, read_acorn),
    "beacon": ("X-Api-Key", ask_beacon, read_beacon),
}


class NoRedirect(HTTPRedirectHandler):
    """The key goes to nobody but the provider."""

    def redirect_request(self, *_):
        return None


# Without a proxy of the environment, for the same reason.
OPENER = build_opener(NoRedirect, ProxyHandler({}))


def search(base, provider, query, count, headers):
    """What the provider finds, in the one shape."""
    header, ask, read = PROVIDERS[provider]
    answer = fetch(ask(base, query, count, headers.get(header, "")))
    try:
        found = read(json.loads(answer))
        results = [one_shape(*one) for one in found if one[1].startswith(("http://", "https://"))]
    # Whatever a provider changes of its answers shows as one of these.
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Trouble(502, "not_understood", f"{provider} answered with something else than it should") from None
    return {"results": results[:count]}


def one_shape(title, url, snippet):
    """Within the bounds that output_schema has."""
    if len(url) > 2_048:
        raise ValueError("a URL that nobody can use")
    return {"title": short(title, 200), "url": url, "snippet": short(snippet, 500)}


def short(text, most):
    # Half of a surrogate pair, and NUL, are in no answer that the fleet takes.
    text = " ".join(text.encode(errors="replace").decode().replace("\0", " ").split())
    return text if len(text) <= most else text[: most - 1] + "…"


def fetch(request):
    """The body of a provider's success."""
    try:
        with OPENER.open(request, timeout=PROVIDER_SECONDS) as answer:
            return whole_body(answer)
    except HTTPError as error:
        with error:
            raise refusal(error.code, error.headers) from None
    except TimeoutError:
        raise Trouble(504, "too_slow", "the provider does not answer") from None
    except (URLError, HTTPException, OSError) as error:
        if isinstance(getattr(error, "reason", None), TimeoutError):
            raise Trouble(504, "too_slow", "the provider does not answer") from None
        raise Trouble(503, "unreachable", "the provider cannot be reached") from None


def whole_body(answer):
    """All of it. The timeout of a socket is for each piece, and a provider that sends one byte at a time has no end."""
    ends, body = time.monotonic() + PROVIDER_SECONDS, b""
    while piece := answer.read1(65_536):
        body += piece
        if len(body) > ANSWER_BYTES_MAX:
            raise Trouble(502, "not_understood", "the provider answered with more than 1 MiB")
        if time.monotonic() > ends:
            raise TimeoutError
    return body


def refusal(status, headers):
    """What a provider's status means for the call: no mistake of its caller, or it would not be tried again."""
    if status == 429:
        pause = headers.get("Retry-After")
        is_seconds = pause is not None and pause.isascii() and pause.isdigit()
        return Trouble(429, "busy", "the provider wants fewer requests", {"Retry-After": pause} if is_seconds else None)
    if status in (401, 403):
        return Trouble(502, "key_refused", "the provider refuses the key of this tool")
    return Trouble(503 if status >= 500 else 502, "provider_failed", f"the provider answered with status {status}")


def whole(text):
    """The integer that a text stands for, None when it is none: 2.0 is one for JSON Schema, and models send it."""
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self):
        try:
            self.answer(200, self.searched())
        except Trouble as trouble:
            error = {"error": {"code": trouble.code, "message": trouble.message}}
            self.answer(trouble.status, error, trouble.headers)

    def searched(self):
        url = urlsplit(self.path)
        provider = url.path.removeprefix("/")
        if provider not in PROVIDERS:
            raise Trouble(404, "no_such_provider", f"ask one of {', '.join(PROVIDERS)}")
        try:
            asked = parse_qs(url.query, max_num_fields=8)
        except ValueError:
            raise Trouble(422, "too_many_fields", "send query and count") from None
        query = asked.get("query", [""])[0].strip()
        count = whole(asked.get("count", [str(COUNT_USUAL)])[0])
        if not 1 <= len(query) <= QUERY_MAX:
            raise Trouble(422, "invalid_query", f"query has 1 to {QUERY_MAX} characters.")
        if count is None or not 1 <= count <= COUNT_MAX:
            raise Trouble(422, "invalid_count", f"count is a number from 1 to {COUNT_MAX}.")
        return search(self.server.base, provider, query, count, self.headers)

    def answer(self, status, body, headers=None):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def log_message(self, format, *args):
        """The line of a request has the words of its caller, which are nobody else's business."""


class Adapter(ThreadingHTTPServer):
    """What all connections share."""

    daemon_threads = True

    def __init__(self, port, base):
        super().__init__(("127.0.0.1", port), Handler)
        self.base = base


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--port", type=int, default=8711, help="0 takes a free one (default: 8711)")
    parser.add_argument("--providers", default="http://127.0.0.1:8712", help="where both are (default: those of providers.py)")
    options = parser.parse_args()
    service = Adapter(options.port, options.providers)
    print(json.dumps({"port": service.server_address[1]}), flush=True)
    try:
        service.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
