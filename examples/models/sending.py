"""Sends an answer as its rule wants it: in which pieces, with which pauses, until which byte."""

import os
import select
import socket
import struct
import time
import zlib


class Left(ConnectionError):
    """The client closed its connection before it had everything."""


class Cut(Exception):
    """The fault of the rule: the rest is not sent; `end` says how that looks."""

    def __init__(self, end):
        super().__init__(end)
        self.end = end


class Sending:
    """One answer on its way. Without a length it goes in chunks of HTTP."""

    def __init__(self, handler, entry, rule=None):
        self.handler, self.entry, self.rule = handler, entry, rule
        self._compress = zlib.compressobj(wbits=31) if rule and rule.gzip else None
        self._chunked = False
        fault = (rule and rule.fault) or {}
        # The byte at which the fault comes; the body is counted, from 0.
        self._until = fault.get("at", 0) if fault.get("kind") in ("cut", "hang") else None
        self._hangs = fault.get("kind") == "hang"
        self._fault = fault

    def whole(self, status, headers, body, texts=(), tells=False):
        """Sends one body of known length; `texts` is what the model says in it, `tells` is whether it has the usage."""
        if self._compress:
            body = self._compress.compress(body) + self._compress.flush()
            headers = headers | {"Content-Encoding": "gzip"}
        complete = len(body)
        if self._fault.get("end") == "clean" and self._until is not None:
            body = body[: self._until]
        self.head(status, headers | {"Content-Length": str(len(body))}, body if self._plain_way() else None)
        if not self._plain_way():
            self._pause("first_chunk_ms")
            self._write(body)
        if self.entry.fields["bytes"] == complete:
            self.entry.spoken += texts
            self.entry.told = tells
        self._stop_in_time()

    def _plain_way(self):
        """Whether head and body may leave in one write."""
        return self.rule is None or not (self._fault or self.rule.write_bytes or any(self.rule.pauses.values()))

    def stream(self, status, headers, frames):
        """Sends frames as they come, and the end behind them."""
        headers = headers | ({"Content-Encoding": "gzip"} if self._compress else {})
        self._chunked = True
        self.head(status, headers | {"Transfer-Encoding": "chunked"})
        spoke = False
        for frame in frames:
            if frame.text:
                self._pause("chunk_ms" if spoke else "first_chunk_ms")
                spoke = True
            data = frame.data
            if self._compress:
                data = self._compress.compress(data) + self._compress.flush(zlib.Z_SYNC_FLUSH)
            self._write(data)
            if frame.text:
                self.entry.spoken.append(frame.text)
                if self.entry.fields["first_chunk_at_ms"] is None:
                    self.entry.note(first_chunk_at_ms=time.time() * 1000)
            self.entry.told = self.entry.told or frame.tells
            self._stop_in_time()
        if self._compress:
            self._write(self._compress.flush())
        self._stop_in_time()
        self._last_chunk()

    def head(self, status, headers, body=None):
        """Sends the status and the headers, with the body where it is known."""
        if self._hangs and "at" not in self._fault:
            self._hang()
        self._pause("first_byte_ms")
        # In one write, which the handler's own way would not be.
        reason = self.handler.responses.get(status, ("",))[0]
        lines = [f"HTTP/1.1 {status} {reason}", f"Date: {self.handler.date_time_string()}"]
        # Of two spellings of a name, the later one counts: that is the script's.
        named = {name.lower(): f"{name}: {value}" for name, value in headers.items()}
        lines += named.values()
        self.entry.note(status=status, first_byte_at_ms=time.time() * 1000)
        self._out("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))
        self.entry.note(bytes=len(body or b""))

    def _write(self, data):
        size = (self.rule and self.rule.write_bytes) or len(data) or 1
        for start in range(0, len(data), size):
            if start and not self._chunked:
                self._pause("chunk_ms")
            piece = data[start : start + size]
            if self._until is not None and len(piece) > self._until - self.entry.fields["bytes"]:
                self._piece(piece[: self._until - self.entry.fields["bytes"]])
                self._stop_in_time()
            self._piece(piece)

    def _stop_in_time(self):
        """Ends the answer where the fault wants it."""
        if self._until is not None and self.entry.fields["bytes"] >= self._until:
            self._stop()

    def _piece(self, piece):
        if piece:
            self._out(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)
            self.entry.note(bytes=self.entry.fields["bytes"] + len(piece))

    def _out(self, data):
        try:
            self.handler.wfile.write(data)
        except OSError:
            raise Left from None

    def _last_chunk(self):
        if self._chunked:
            self._out(b"0\r\n\r\n")

    def _stop(self):
        if self._hangs:
            self._hang()
        end = self._fault.get("end", "close")
        if end == "clean":
            self._last_chunk()
        raise Cut(end)

    def _hang(self):
        """Says nothing more until the client leaves or the time of the fault is over."""
        self._wait(self._fault.get("ms", 3_600_000) / 1000)
        raise Cut("close")

    def _pause(self, name):
        seconds = self.rule.pauses[name] if self.rule else 0
        if self._fault.get("kind") == "endless":
            # An endless answer without pauses would take the whole machine.
            seconds = max(seconds, 0.001)
        if seconds:
            self._wait(seconds)

    def _wait(self, seconds):
        """Waits, and notices at once when the client leaves."""
        ends = time.monotonic() + seconds
        connection = self.handler.connection
        while (left := ends - time.monotonic()) > 0:
            readable, _, _ = select.select([connection], [], [], left)
            if not readable:
                return
            try:
                gone = not connection.recv(1, socket.MSG_PEEK)
            except OSError:
                gone = True
            if gone:
                raise Left
            # A further request stands behind this one: from here on only time counts.
            time.sleep(max(ends - time.monotonic(), 0))


def reset(connection):
    """Ends a connection with a reset; the server's own end would be an orderly one."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.close(connection.detach())
