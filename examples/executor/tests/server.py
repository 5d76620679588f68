"""The server with the methods of the conformance suite. Its argument is the file in which each run is noted."""

import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from server import Ended, No, Server  # noqa: E402


class Number(str):
    """A number as it was written: Python would round it."""


def write(value):
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(json.dumps(key) + ":" + write(item) for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(write, value)) + "]"
    return json.dumps(value)


class Exact(Server):
    read = staticmethod(lambda line: json.loads(line, parse_float=Number))
    write = staticmethod(write)


def note(what):
    with open(sys.argv[1], "a", encoding="utf-8") as notes:
        notes.write(what + "\n")


def refuse(arguments, call, stop):
    raise No("it is sold out", code="E_SOLD_OUT")


def repeat_secret(arguments, call, stop):
    raise No("the token " + call["token"] + " is wrong: it is sold out")


def hang(arguments, call, stop):
    stop.wait()
    raise Ended


def crash(arguments, call, stop):
    note("ended")
    os._exit(1)


def environment():
    """What the executor gave it: without the path, which it may have, and what a launcher of Python adds by itself."""
    own = ("PATH", "PWD", "PYENV_")
    return {name: value for name, value in os.environ.items() if not name.startswith(own)}


def slow(arguments, call, stop):
    time.sleep(1)


METHODS = {
    "echo": lambda arguments, call, stop: arguments,
    "facts": lambda arguments, call, stop: call,
    "refuse": refuse,
    "repeat_secret": repeat_secret,
    "hang": hang,
    "crash": crash,
    "slow": slow,
    "flood": lambda arguments, call, stop: "x" * 200_000,
    "silent": lambda arguments, call, stop: None,
    "broken_text": lambda arguments, call, stop: "a\0b\ud83dc",
    "environment": lambda arguments, call, stop: environment(),
}


def noted(method):
    def run(arguments, call, stop):
        note("begun")
        try:
            return method(arguments, call, stop)
        finally:
            note("ended")

    return run


if __name__ == "__main__":
    Exact({name: noted(method) for name, method in METHODS.items()}).run()
