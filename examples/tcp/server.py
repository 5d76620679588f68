"""A label printer that serves the kind `tcp` (docs/executors/own.md): each connection asks in lines of JSON, one after the other.

A request is {"id", "method", "arguments", "call"}; its answer is [id, word, value], where the word says what is known of the effect:
`done` with the result, `refused` or `busy` with {"message", "code"}. The word is written when it is true, and not before.

The first line on stdout is {"port": N}.
"""

import itertools
import json
import os
import socketserver
import sys
import traceback

LINE_MAX = 1024 * 1024
NUMBERS = itertools.count(1)


class No(Exception):
    """The tool says no, for a reason that the caller can act on, and has done nothing."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


def print_label(arguments, call):
    """Prints a label, which never happens twice by itself: nothing here looks at call["idempotency_key"]."""
    text = arguments["text"]
    if not text.isascii():
        raise No("the printer has the characters of ASCII only; write it without others", code="no_such_character")
    return {"label": next(NUMBERS)}


METHODS = {"print_label": print_label}


class Connection(socketserver.StreamRequestHandler):
    def handle(self):
        while True:
            line = self.rfile.readline(LINE_MAX)
            # A line without its end is no request: the worker did not get to send the rest.
            if not line.endswith(b"\n"):
                return
            request = json.loads(line)
            try:
                method = METHODS.get(request["method"])
                if method is None:
                    raise No("there is no method " + request["method"], code="no_such_method")
                answer = ["done", method(request["arguments"], request["call"])]
            except No as no:
                answer = ["refused", {"message": str(no), "code": no.code}]
            except Exception as problem:
                # Without its message, which may quote arguments. The closed connection says that nothing is known.
                print(type(problem).__name__, file=sys.stderr)
                traceback.print_tb(problem.__traceback__)
                return
            self.wfile.write(json.dumps([request["id"], *answer]).encode() + b"\n")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    with Server(("127.0.0.1", int(os.environ.get("PORT", "7411"))), Connection) as server:
        print(json.dumps({"port": server.server_address[1]}), flush=True)
        server.serve_forever()
