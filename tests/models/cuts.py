"""Where an answer is cut, and how: counted in the bytes of a socket, at every kind of place."""

import json
import re
import socket
import urllib.parse

import cases
from protocols import PROTOCOLS
from standin import KEY, check

RULE = {"answer": {"text": cases.TEXT}, "chunk": 3}
PLACES = (0, 1, 7, 100, 311)
ENDS = ("close", "reset", "clean")


def make(server, say):
    for protocol in PROTOCOLS:
        door = protocol(server.url)
        for stream in (False, True):
            body = door.body() | {"stream": stream}
            what = f"{protocol.name}, {'stream' if stream else 'plain'}"
            server.play([RULE])
            whole, _ = received(server, protocol.path, body, stream)
            for at in PLACES:
                for end in ENDS:
                    server.play([RULE | {"fault": {"kind": "cut", "at": at, "end": end}}])
                    data, ended = received(server, protocol.path, body, stream)
                    check(len(data) == at, f"{what}: {len(data)} bytes came, {at} were scripted")
                    check(ended == {"close": "closed", "reset": "reset", "clean": "whole"}[end], f"{what}, at {at}, {end}: {ended}")
                    [entry] = server.log()
                    check(entry["bytes"] == at and entry["ended"] == "cut", f"{what}: {entry}")
            check(len(whole) > max(PLACES), f"{what}: {len(whole)} bytes")
            server.play([RULE | {"write_bytes": 5}])
            pieces = chunks(server, protocol.path, body) if stream else []
            check(max(map(len, pieces), default=5) == 5, f"{what}: pieces of {max(map(len, pieces), default=0)} bytes")
            check(not stream or any(not is_text(piece) for piece in pieces), f"{what}: no character was cut apart")
            edge(server, protocol, body, len(whole), what)
    say(f"cut at {', '.join(map(str, PLACES))} bytes, closed, reset and as if whole: {len(PROTOCOLS) * 2 * len(PLACES) * len(ENDS)} cuts")


# What stands behind the usage of a stream.
BEHIND = {
    "openai_chat": len("data: [DONE]\n\n"),
    "openai_responses": 0,
    "anthropic": len('event: message_stop\ndata: {"type":"message_stop"}\n\n'),
}


def edge(server, protocol, body, length, what):
    """Usage is told when its last byte got out, and not one byte before."""
    if body["stream"] and protocol.name == "openai_chat":
        body = body | {"stream_options": {"include_usage": True}}
        server.play([RULE])
        length = len(received(server, protocol.path, body, True)[0])
    whole = length - (BEHIND[protocol.name] if body["stream"] else 0)
    for at in (whole - 1, whole):
        server.play([RULE | {"fault": {"kind": "cut", "at": at}}])
        data, _ = received(server, protocol.path, body, body["stream"])
        [entry] = server.log()
        check(len(data) == at == entry["bytes"] and entry["ended"] == "cut", f"{what}, at {at}: {len(data)} bytes, {entry}")
        check(bool(entry["usage"]) == (at == whole), f"{what}, at {at} of {whole}: usage {entry['usage']}")
        check(bool(entry["untold"]) == (at < whole), f"{what}, at {at} of {whole}: untold {entry['untold']}")


def is_text(piece):
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


def received(server, path, body, stream):
    """The bytes of the body, and how the connection ended: whole, closed, reset."""
    raw, ended = read(server, path, body)
    head, _, rest = raw.partition(b"\r\n\r\n")
    if not stream:
        length = int(re.search(rb"Content-Length: (\d+)", head)[1])
        return rest, "whole" if len(rest) == length and ended == "closed" else ended
    pieces, is_whole = split(rest)
    return b"".join(pieces), "whole" if is_whole else ended


def chunks(server, path, body):
    return split(read(server, path, body)[0].partition(b"\r\n\r\n")[2])[0]


def split(rest):
    """The chunks of HTTP, and whether the last one is there."""
    pieces = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        if int(size, 16) == 0:
            return pieces, True
        pieces.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]
    return pieces, False


def read(server, path, body):
    """All bytes that one request brings, until the other side ends the connection."""
    place = urllib.parse.urlsplit(server.url)
    data = json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1", "Host: x", "Connection: close", f"Authorization: Bearer {KEY}", "anthropic-version: 2023-06-01",
        f"Content-Length: {len(data)}", "", "",
    ]  # fmt: skip
    raw = b""
    with socket.create_connection((place.hostname, place.port), timeout=20) as connection:
        connection.sendall("\r\n".join(lines).encode() + data)
        try:
            while piece := connection.recv(65536):
                raw += piece
        except ConnectionResetError:
            return raw, "reset"
    return raw, "closed"
