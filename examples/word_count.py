#!/usr/bin/env python3
"""A process tool: counts the lines and words of a text file, and its most frequent words.

The arguments arrive on stdin as one JSON object: {"path": "notes/today.txt", "top": 3}.
Success is exit 0 with JSON on stdout.
"The caller can do something about it" is exit 10 with {"error": {"code", "message"}}.
Everything else is a crash, and says so by its exit code.

`path` comes from a language model: whatever leads out of --root is refused, symbolic links included.
"""

import argparse
import json
import os
import re
import stat
import sys
from collections import Counter

BUSINESS_ERROR = 10
FILE_BYTES_MAX = 16 * 1024 * 1024
TOP_MAX = 20
WORD = re.compile(r"\w+(?:['’]\w+)*")


class Refusal(Exception):
    """Something the caller can act on."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code, self.message = code, message


def read_arguments(text):
    """The path and the number of frequent words to name."""
    arguments = json.loads(text)
    path, top = arguments.get("path"), arguments.get("top", 3)
    if not isinstance(path, str) or not path.isprintable() or not path:
        raise Refusal("invalid_path", "path is the name of a file, relative to the shared folder.")
    if type(top) is not int or not 0 <= top <= TOP_MAX:
        raise Refusal("invalid_top", f"top is a number from 0 to {TOP_MAX}.")
    return path, top


def open_inside(root, path):
    """The text of a regular file inside `root`."""
    root = os.path.realpath(root)
    real = os.path.realpath(os.path.join(root, path))
    if os.path.commonpath([root, real]) != root:
        raise Refusal("outside_root", "That path leads out of the shared folder.")
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its other end.
        file = os.fdopen(os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb")
    except FileNotFoundError:
        raise Refusal("no_such_file", "There is no such file in the shared folder.") from None
    except OSError as error:
        raise Refusal("unreadable", f"That file cannot be read: {error.strerror}.") from None
    with file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise Refusal("not_a_file", "That is not a regular file.")
        if found.st_size > FILE_BYTES_MAX:
            raise Refusal("too_large", f"A file may have at most {FILE_BYTES_MAX} bytes.")
        return file.read(FILE_BYTES_MAX).decode("utf-8", errors="replace")


def count(text, top):
    """What there is to say about a text."""
    words = Counter(word.lower() for word in WORD.findall(text))
    frequent = sorted(words.items(), key=lambda item: (-item[1], item[0]))[:top]
    return {
        "lines": len(text.splitlines()),
        "words": words.total(),
        "distinct_words": len(words),
        "frequent": [{"word": word, "times": times} for word, times in frequent],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--root", required=True, help="the only folder whose files are read")
    root = parser.parse_args().root
    try:
        path, top = read_arguments(sys.stdin.read())
        answer = {"path": path, **count(open_inside(root, path), top)}
    except Refusal as refusal:
        print(json.dumps({"error": {"code": refusal.code, "message": refusal.message}}))
        return BUSINESS_ERROR
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
