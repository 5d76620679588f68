"""Faults: what is sent in the place of an answer, or becomes of it on its way."""

import base64
from itertools import chain, cycle, islice

from asked import Refusal, compact
from frame import Frame

# Each kind with the fields that it may have.
KINDS = {
    "status": {"status", "message", "type", "code", "param", "headers"},
    "error": {"status", "message", "type", "code", "param", "after", "failed"},
    "cut": {"at", "end"},
    "hang": {"at", "ms"},
    "drop": {"end"},
    "endless": set(),
    "empty": set(),
    "html": {"status"},
    "garbage": {"bytes"},
    "raw": {"status", "body", "base64", "content_type"},
}
ENDS = ("close", "reset", "clean")
HTML = b"<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>\n"


def parse(place, said):
    """A fault of the script, or None; `ValueError` says what is wrong with it."""
    if said is None:
        return None
    kind = said.get("kind")
    if kind not in KINDS:
        raise ValueError(f"rule {place}: the kind of a fault is one of {sorted(KINDS)}, not {kind!r}")
    if set(said) - KINDS[kind] - {"kind"}:
        raise ValueError(f"rule {place}: a fault {kind} has {sorted(KINDS[kind])}, not {sorted(set(said) - KINDS[kind] - {'kind'})}")
    if said.get("end", "close") not in ENDS:
        raise ValueError(f"rule {place}: end is one of {ENDS}")
    return said


def refusal(said):
    """The refusal of a fault that is one."""
    status = said.get("status", 500)
    words = said.get("message", "The server had an error while processing your request.")
    return Refusal(status, words, said.get("type"), said.get("param"), said.get("code"), said.get("headers"))


def body(said, stream):
    """What a fault sends in the place of an answer as (status, content type, bytes), or None when it sends the answer."""
    kind = said["kind"]
    usual = "text/event-stream; charset=utf-8" if stream else "application/json"
    if kind == "empty":
        return 200, usual, b""
    if kind == "html":
        return said.get("status", 200), "text/html; charset=utf-8", HTML
    if kind == "garbage":
        # Neither JSON nor UTF-8, and the same each time; no line end in it.
        return 200, usual, bytes(islice((128 + 7 * n % 120 for n in cycle(range(120))), said.get("bytes", 256)))
    if kind == "raw":
        data = base64.b64decode(said["base64"]) if "base64" in said else said.get("body", "").encode("utf-8", "surrogatepass")
        return said.get("status", 200), said.get("content_type", usual), data
    return None


def stream_with_error(frames, said, dialect, style, failed):
    """The frames until `after` of them had text, then an error of the vendor, then the end; with 0, the error alone.

    `failed` is the object that failed, for the protocol that has one: it is in an event of its own.
    """
    sent, spoken, after = 0, 0, said.get("after", 0)
    for frame in frames:
        if spoken >= after:
            break
        spoken += bool(frame.text)
        sent += 1
        yield frame
    if failed:
        event = {"type": "response.failed", "sequence_number": sent, "response": failed}
        yield style.event(event, "response.failed")
        return
    numbered = {"number": sent} if dialect.NAME == "openai_responses" else {}
    yield dialect.error_frame(refusal({"status": 500, **said}), style, **numbered)


def endless(frames, stream):
    """An answer that does not end: its texts again and again, or, where it is one object, blanks."""
    if not stream:
        whole = b"".join(frame.data for frame in frames)
        return chain([Frame(whole[:1])], cycle([Frame(b" " * 1024)]))
    frames = list(frames)
    spoken = [frame for frame in frames if frame.text] or frames[:1]
    return chain(frames[: frames.index(spoken[0])], cycle(spoken))


def plain_error(said, dialect, failed):
    """An error as the body of a 200."""
    return Frame(compact(failed or dialect.error(refusal({"status": 500, **said}))).encode())


def failed(said, dialect, asked, answer):
    """The object that failed, where the rule wants one and the protocol has it."""
    if said.get("failed") and dialect.NAME == "openai_responses":
        return dialect.failed(asked, answer, refusal(said))
    return None
