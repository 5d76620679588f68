"""The canonical text of a JSON value and its SHA-256, as docs/canonical.md defines them.

Copy it freely: it needs Python 3.9 and nothing else. As a program it reads JSON from stdin and
prints the canonical text and the hash.
"""

import hashlib
import json
import sys


class Number(str):
    """A number as it was written: never computed with, so that no digit is lost."""


def canonical(text):
    """The canonical text of a JSON text, a str or UTF-8 bytes. ValueError when it has none."""
    return write(read(text))


def sha256(text):
    """The SHA-256 of the canonical text, in hexadecimal."""
    return hashlib.sha256(canonical(text).encode()).hexdigest()


def read(text):
    if isinstance(text, (bytes, bytearray)):
        text = text.decode()
    return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=no_number,
                      object_pairs_hook=entries)


def no_number(word):
    raise ValueError(f"{word} is not JSON")


def entries(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("the same key stands twice in one object")
    return found


def write(value):
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, str):
        # Of the short and the long escapes only those that JSON demands; and no half of a surrogate pair.
        return json.dumps(value, ensure_ascii=False).encode().decode()
    if isinstance(value, list):
        return "[" + ",".join(map(write, value)) + "]"
    if isinstance(value, dict):
        # Python compares texts by code point, which is the order of their UTF-8 bytes too.
        return "{" + ",".join(write(key) + ":" + write(value[key]) for key in sorted(value)) + "}"
    return {None: "null", True: "true", False: "false"}[value]


if __name__ == "__main__":
    body = sys.stdin.buffer.read()
    sys.stdout.buffer.write((canonical(body) + "\n" + sha256(body) + "\n").encode())
