"""A caller over HTTP, with nothing but sockets: any request to any gateway of a fleet, and streams that go on where they were."""

import asyncio
import json
from dataclasses import dataclass

import processes
from waiting import Away, check

HEAD_SECONDS = 10
ANSWER_SECONDS = 60
# Twice the pause between two signs of life of a stream.
SILENCE_SECONDS = 30
BROKEN = (OSError, EOFError, asyncio.IncompleteReadError, asyncio.TimeoutError, ValueError)


@dataclass
class Answered:
    """One answer: its status, its headers with small names, its bytes."""

    status: int
    headers: dict
    raw: bytes

    @property
    def body(self):
        return json.loads(self.raw)


@dataclass
class Event:
    """One server-sent event as it stood on the wire."""

    id: str
    event: str
    data: str


class Connection:
    """One connection to a gateway. Whatever breaks it is `Away`: send again, to whichever gateway."""

    def __init__(self, port, token):
        self.port, self.token = port, token
        self.reader = self.writer = None

    async def ask(self, method, path, body=None, headers=None):
        """One request and its whole answer."""
        try:
            status, told = await self.send(method, path, body, headers)
            raw = b"".join([piece async for piece in self.pieces(told)])
        except BROKEN as error:
            self.close()
            raise Away(f"{method} {path}: {error!r}") from None
        if told.get("connection") == "close":
            self.close()
        return Answered(status, told, raw)

    async def follow(self, path, last_id=None):
        """The events of a stream until it ends; `Away` when it breaks off or is refused."""
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_id} if last_id else {})}
        try:
            status, told = await self.send("GET", path, None, headers)
            if status == 204:
                return  # All of it was told.
            if status != 200:
                raise Away(f"{path}: {status}")
            kept, waiting = {}, b""
            async for piece in self.pieces(told, SILENCE_SECONDS):
                *lines, waiting = (waiting + piece).split(b"\n")
                for line in lines:
                    if line:
                        name, _, value = line.decode().partition(":")
                        kept[name] = value.removeprefix(" ")
                        continue
                    if "event" in kept or "data" in kept or "id" in kept:
                        yield Event(kept.get("id"), kept.get("event"), kept.get("data"))
                    kept = {}
        except BROKEN as error:
            raise Away(f"{path}: {error!r}") from None
        finally:
            self.close()

    async def send(self, method, path, body, headers):
        if self.writer is None:
            self.reader, self.writer = await asyncio.wait_for(
                asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20), HEAD_SECONDS
            )
        payload = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        head = {"Host": f"127.0.0.1:{self.port}", "Authorization": f"Bearer {self.token}", **(headers or {})}
        if method != "GET":
            head["Content-Length"] = len(payload)
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + payload)
        await self.writer.drain()
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), ANSWER_SECONDS)
        first, *lines = head.decode().split("\r\n")[:-2]
        told = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return int(first.split()[1]), told

    async def pieces(self, told, seconds=ANSWER_SECONDS):
        """The body, piece by piece."""
        if told.get("transfer-encoding") != "chunked":
            yield await asyncio.wait_for(self.reader.readexactly(int(told.get("content-length", 0))), seconds)
            return
        while True:
            size = int(await asyncio.wait_for(self.reader.readuntil(b"\r\n"), seconds), 16)
            piece = await asyncio.wait_for(self.reader.readexactly(size + 2), seconds)
            if size == 0:
                return
            yield piece[:-2]

    def close(self):
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


class Gateways:
    """The gateways of a `toolfleet dev`. A killed one is started again on its port."""

    def __init__(self, dev):
        self.dev, self.token = dev, dev.info()["gateway_token"]
        self.ports = sorted(map(listens, dev.pids("gateway")))
        check(self.ports, "dev.json names no gateway")

    def to(self, number):
        """A new connection to the n-th gateway, counted around."""
        return Connection(self.ports[number % len(self.ports)], self.token)

    async def ask(self, method, path, body=None, headers=None, number=0):
        """One request on a connection of its own."""
        connection = self.to(number)
        try:
            return await connection.ask(method, path, body, headers)
        finally:
            connection.close()


def listens(pid):
    """The port of the API of a gateway that `dev` has started."""
    words = processes.read(pid, "cmdline").decode().split("\0")
    return int(words[words.index("--listen") + 1].rpartition(":")[2])
