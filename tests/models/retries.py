"""How often the packages ask by themselves: twice again by default, as `x-should-retry` says where it is there; counted at the stand-in."""

import anthropic
import openai

from protocols import PROTOCOLS, Chat
from standin import check

# The packages wait half a second and more between their requests, unless they are told.
AT_ONCE = {"retry-after-ms": "1"}
# Status, headers, and how many requests that makes.
STATUSES = [
    (429, {}, 3), (500, {}, 3), (503, {}, 3), (529, {}, 3), (408, {}, 3), (409, {}, 3), (400, {}, 1), (413, {}, 1), (422, {}, 1),
    (429, {"x-should-retry": "false"}, 1), (503, {"X-Should-Retry": "false"}, 1), (400, {"x-should-retry": "true"}, 3),
]  # fmt: skip
NAMES = {
    400: "BadRequestError", 409: "ConflictError", 422: "UnprocessableEntityError", 429: "RateLimitError", 500: "InternalServerError",
    503: "InternalServerError", 529: "InternalServerError", 408: "APIStatusError", 413: "APIStatusError",
}  # fmt: skip
KINDS = {429: "rate_limit_error", 529: "overloaded_error", 413: "request_too_large", 503: "api_error", 500: "api_error"}


def count(server, say):
    rows, doors = {}, {protocol: protocol(server.url) for protocol in PROTOCOLS}
    for status, headers, wanted in STATUSES:
        for stream in (False, True):
            for protocol in PROTOCOLS:
                door = doors[protocol]
                fault = {"kind": "status", "status": status, "message": "Not now.", "headers": AT_ONCE | headers}
                server.play([{"fault": fault}])
                error = raised(door, stream)
                check(isinstance(error, getattr(door.package, NAMES[status])), f"{protocol.name}, {status}: {error!r}")
                check(error.status_code == status and "Not now." in str(error), f"{protocol.name}, {status}: {error}")
                if door.package is anthropic and status in KINDS:
                    check(error.body["error"]["type"] == KINDS[status], f"{protocol.name}, {status}: {error.body}")
                made = sent(server, wanted, f"{protocol.name}, {status} {headers}")
                rows.setdefault((status, str(headers or "")), []).append(made)
    for (status, headers), made in rows.items():
        say(f"{status} {headers:<30} requests, plain: {made[:3]}, stream: {made[3:]}")
    others(server, say)


def others(server, say):
    """A success behind two failures, a connection that ends, and an error inside a stream."""
    for protocol in PROTOCOLS:
        door = protocol(server.url)
        busy = {"fault": {"kind": "status", "status": 503, "headers": AT_ONCE}, "times": 2}
        for stream in (False, True):
            server.play([busy, {"name": "then", "answer": {"text": "Here."}}])
            reply = door.together(**door.body()) if stream else door.answered(**door.body())
            check("Here." in reply.to_json(), f"{protocol.name}: {reply}")
            sent(server, 3, f"{protocol.name}, 503 twice")
            check([entry["rule"] for entry in server.log()] == ["0", "0", "then"], "two failures, then the answer")
        server.play([{"fault": {"kind": "status", "status": 503, "headers": AT_ONCE}}])
        check(isinstance(raised(protocol(server.url, max_retries=0), False), door.package.InternalServerError), "503")
        sent(server, 1, f"{protocol.name}, max_retries=0")
        for end in ("close", "reset"):
            server.play([{"fault": {"kind": "drop", "end": end}}])
            error = raised(protocol(server.url, max_retries=0 if end == "reset" else 1), False)
            check(isinstance(error, door.package.APIConnectionError), f"{protocol.name}, drop: {error!r}")
            sent(server, 1 if end == "reset" else 2, f"{protocol.name}, drop, {end}")
        server.play([{"answer": {"text": "Once upon a time"}, "chunk": 4, "fault": {"kind": "error", "message": "Overloaded", "after": 2}}])
        error = raised(door, True)
        wanted = openai.APIError if protocol is Chat else door.package.APIError
        if protocol.name != "openai_responses":
            check(isinstance(error, wanted) and "Overloaded" in str(error), f"{protocol.name}, error in the stream: {error!r}")
        else:
            # This package hands the event on; whoever reads it must look.
            check(error is None, f"{error!r}")
        sent(server, 1, f"{protocol.name}, error in the stream")
    say("503 twice, then the answer: 3 requests; max_retries=0: 1; a connection that ends: asked again; an error inside a stream: 1")


def raised(door, stream):
    """The exception that one question ends with, or None."""
    try:
        door.streamed(**door.body()) if stream else door.answered(**door.body())
    except door.package.APIError as error:
        return error
    return None


def sent(server, wanted, what):
    """How many requests came; each says which it is, and none has a key of idempotency."""
    entries = server.log()
    check(len(entries) == wanted, f"{what}: {len(entries)} requests came, not {wanted}")
    counts = [entry["headers"]["x-stainless-retry-count"] for entry in entries]
    check(counts == [str(n) for n in range(wanted)], f"{what}: the packages count {counts}")
    check(not any("idempotency-key" in entry["headers"] for entry in entries), f"{what}: a key of idempotency")
    return len(entries)
