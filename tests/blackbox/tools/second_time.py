"""An HTTP service for the proofs: GET /?id=N answers 503 the first time and 200 from then on.

Every attempt is a line of --log: {"id", "at"}, `at` in seconds since 1970 when the request arrived.
The first line on stdout is {"port": N}.
"""

import argparse
import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        at = time.time()
        number = int(parse_qs(urlsplit(self.path).query)["id"][0])
        seen = self.server.note(number, at)
        body = json.dumps({"id": number, "seen": seen}).encode()
        self.send_response(503 if seen == 1 else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        pass


class Service(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, log):
        super().__init__(("127.0.0.1", 0), Handler)
        self.log, self.times, self.lock = open(log, "a"), Counter(), threading.Lock()

    def note(self, number, at):
        with self.lock:
            self.times[number] += 1
            print(json.dumps({"id": number, "at": at}), file=self.log, flush=True)
            return self.times[number]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    service = Service(parser.parse_args().log)
    print(json.dumps({"port": service.server_address[1]}), flush=True)
    service.serve_forever()


if __name__ == "__main__":
    main()
