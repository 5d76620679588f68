"""A server of the kind `lines` (docs/executors/own.md): reads requests as lines of JSON, answers each as a line.

It loads once what is slow to load, and serves every call of its worker. It ends when its input does.
"""

import json
import sys
import threading
import traceback

WORDS = {"one": 1, "two": 2, "three": 3}  # imagine a model of two gigabytes here


class No(Exception):
    """The tool says no, for a reason that the caller can act on, and has done nothing."""

    def __init__(self, message, code=None):
        super().__init__(message)
        self.code = code


class Ended(Exception):
    """The request was called off, and the method has ended without an answer."""


def spell(arguments, call, stop):
    """The number that a word spells. What takes long looks at `stop` and raises `Ended`."""
    word = arguments["word"]
    if word not in WORDS:
        raise No("I know the words " + ", ".join(WORDS), code="unknown_word")
    return {"number": WORDS[word]}


METHODS = {"spell": spell}


class Server:
    read = staticmethod(json.loads)
    write = staticmethod(json.dumps)

    def __init__(self, methods):
        self.methods = methods
        self.stops = {}  # by the number of a request: set when it is called off
        self.writing = threading.Lock()

    def run(self):
        for line in sys.stdin:
            request = self.read(line)
            if "cancel" in request:
                stop = self.stops.get(request["cancel"])
                if stop:
                    stop.set()
                continue
            stop = self.stops[request["id"]] = threading.Event()
            threading.Thread(target=self.serve, args=(request, stop), daemon=True).start()

    def serve(self, request, stop):
        try:
            method = self.methods.get(request["method"])
            if method is None:
                raise No("there is no method " + request["method"])
            reply = {"result": method(request["arguments"], request["call"], stop)}
        except No as no:
            reply = {"error": {"message": str(no), "code": no.code}}
        except Ended:
            reply = {"ended": True}
        except Exception as problem:
            # Without its message, which may quote arguments.
            print(type(problem).__name__, file=sys.stderr)
            traceback.print_tb(problem.__traceback__)
            reply = {"crashed": True}
        del self.stops[request["id"]]
        line = self.write({"id": request["id"], **reply})
        with self.writing:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    Server(METHODS).run()
