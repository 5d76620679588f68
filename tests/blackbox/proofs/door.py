"""The vendors' own packages ask models through a gateway, and read what they read from the model's server itself; nothing is asked twice."""

import asyncio
import sys
from pathlib import Path

from gateways import Gateways
from waiting import NotSo, check

MODELS = Path(__file__).resolve().parents[2] / "models"
ERRORS = [
    # What the model's server does, the status behind the door, and the class of it in both packages.
    ({"kind": "status", "status": 400, "message": "No."}, 400, "BadRequestError"),
    ({"kind": "status", "status": 422, "message": "No."}, 422, "UnprocessableEntityError"),
    ({"kind": "status", "status": 429, "message": "Slow down."}, 429, "RateLimitError"),
    ({"kind": "status", "status": 401, "message": "Whose key?"}, 502, "InternalServerError"),
    ({"kind": "status", "status": 500, "message": "Oh."}, 500, "InternalServerError"),
    ({"kind": "garbage"}, None, "InternalServerError"),
    ({"kind": "cut", "at": 10, "end": "reset"}, None, "InternalServerError"),
    ({"kind": "drop", "end": "close"}, None, "InternalServerError"),
]


async def prove(proof):
    sys.path.insert(0, str(MODELS))
    try:
        import cases
        import protocols
        import standin
        import turns
    except ImportError as missing:
        raise NotSo(f"{missing}: run `make setup` with Python 3.11 or newer, which installs the vendors' packages") from None
    with standin.StandIn() as server:
        tools = [model(kind, server.url, standin.KEY, cases.MODEL) for kind in protocols.PROTOCOLS]
        async with proof.fleet(tools, workers=1) as dev:
            gateways = Gateways(dev)
            async with Counted(gateways.ports[0]) as counted:
                scene = Scene(proof, server, protocols, cases, turns, counted, gateways.token)
                try:
                    await asyncio.to_thread(scene.play)
                except standin.NotAsScripted as wrong:
                    raise NotSo(str(wrong)) from wrong
            calls = (await gateways.ask("GET", "/v1/history?limit=1000")).body["calls"]
            check(len(calls) == scene.calls, f"{scene.calls} calls were made through the door, and the history has {len(calls)}")
            proof.note(f"{counted.posts} requests at the door, {len(calls)} calls in the history: one for each that was taken")


def model(kind, url, key, name):
    """A chat tool of this protocol, called as it is."""
    header = {"x-api-key": key} if kind.name == "anthropic" else {"authorization": f"Bearer {key}"}
    route = {"name": "main", "url": url + kind.path, "model": name, "headers": header,
             "price": {"currency": "USD", "input": "2.50", "output": "10"}}  # fmt: skip
    return {
        "name": kind.name, "version": 1, "description": "Answers a conversation.", "effect": "read", "visibility": "unlisted",
        "executor": {"chat": {"protocol": kind.name, "routes": [route]}}, "retry": {"max_attempts": 1},
    }  # fmt: skip


class Counted:
    """A port that passes everything on to a gateway, and counts the requests."""

    def __init__(self, port):
        self.to, self.posts = port, 0

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.relay, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()

    async def relay(self, reader, writer):
        there, back = await asyncio.open_connection("127.0.0.1", self.to)

        async def copy(source, sink, counts):
            kept = b""
            try:
                while piece := await source.read(65536):
                    if counts:
                        # A request may be cut where it is counted.
                        kept = (kept + piece)[-len(piece) - 8 :]
                        self.posts += kept.count(b"POST /v1/")
                        kept = kept[-8:]
                    sink.write(piece)
                    await sink.drain()
            except OSError:
                pass
            finally:
                sink.close()

        await asyncio.gather(copy(reader, back, True), copy(there, writer, False))


class Scene:
    """One fleet, one stand-in, and both packages with their own settings: they try again by themselves if they may."""

    def __init__(self, proof, server, protocols, cases, turns, counted, token):
        self.proof, self.server, self.protocols, self.cases, self.turns = proof, server, protocols, cases, turns
        self.counted, self.url, self.token = counted, f"http://127.0.0.1:{counted.port}", token
        self.calls = 0

    def play(self):
        for kind in self.protocols.PROTOCOLS:
            direct, door = kind(self.server.url, max_retries=0), kind(self.url, key=self.token)
            for name, answer in self.cases.CASES.items():
                self.agree(kind, direct, door, name, answer)
            for fault, status, named in ERRORS:
                self.fail(door, fault, status, named)
            self.converse(direct, door)
            self.repeat(door)
            self.refused(kind, door)
            self.proof.note(f"{kind.name}: {len(self.cases.CASES)} answers, {len(ERRORS)} failures and a conversation, plain and streamed")

    def body(self, door, **more):
        return {**door.body(), "model": door.name, **more}

    def agree(self, kind, direct, door, name, answer):
        """The reply through the door is the reply of the model's server."""
        self.server.play([{"answer": answer, "chunk": [3, 1, 4]}])
        wanted = kind.expected(answer)
        for way, kept in [("answered", wanted), ("together", self.protocols.without_unkept(wanted))]:
            said = {"extra_headers": {"Idempotency-Key": f"{door.name}-{way}-{name.replace(' ', '-')}"}}
            there, here = getattr(direct, way)(**direct.body()), getattr(door, way)(**self.body(door), **said)
            self.calls += 1
            # From the ledger, where a stream is made of the whole reply.
            again = getattr(door, way)(**self.body(door), **said)
            apart = self.protocols.difference(here.to_dict(), again.to_dict())
            check(apart is None, f"{door.name}, {name}, {way} again: {apart}")
            self.protocols.agree(kept, here, f"{door.name}, {name}, {way} through the door")
            apart = self.protocols.difference(scrubbed(there.to_dict()), scrubbed(here.to_dict()))
            apart = apart or self.protocols.difference(scrubbed(here.to_dict()), scrubbed(there.to_dict()))
            check(apart is None, f"{door.name}, {name}, {way}: {apart}")
            if way == "answered":
                self.protocols.exact(door.name, here)
        # Slowly enough that the chunks are heard before the call is over.
        self.server.play([{"answer": answer, "chunk": [3, 1, 4], "chunk_ms": 20}])
        told = door.streamed(**self.body(door))
        self.calls += 1
        for event in told:
            self.protocols.exact(door.name, event)
        types = [kind_of(event) for event in told]
        there = [kind_of(event) for event in direct.streamed(**direct.body())]
        check(types == there, f"{door.name}, {name}: the stream has {types}, and that of the server {there}")

    def converse(self, direct, door):
        """A conversation with tools: the model's server gets requests of the vendor's type, and those that the package itself sends."""
        for stream in (False, True):
            logs = []
            for asked, body in [(direct, direct.body()), (door, self.body(door))]:
                self.turns.talk(self.server, asked, stream, body)
                logs.append(self.server.log())
            self.calls += len(logs[1])
            rules = [[entry["rule"] for entry in log] for log in logs]
            check(rules == [self.turns.SAID] * 2, f"{door.name}, a conversation: the rules were {rules}")
            self.turns.fit(door.name, logs[1])
            for there, here in zip(*([scrubbed(entry["body"]) for entry in log] for log in logs)):
                check(there == here, f"{door.name}: the package sends {there}, and the fleet {here}")

    def fail(self, door, fault, status, named):
        """A failed call is one request at the door, one at the model's server, and one call."""
        for way in ("answered", "streamed"):
            self.server.play([{"fault": fault}])
            before = self.counted.posts
            error = caught(door, lambda: getattr(door, way)(**self.body(door)))
            self.calls += 1
            check(type(error).__name__ == named or named in bases(error), f"{door.name}, {fault}, {way}: {error!r}")
            check(status in (None, error.status_code), f"{door.name}, {fault}, {way}: {error.status_code} {error.body}")
            headers = error.response.headers
            check(headers["x-should-retry"] == "false", f"{door.name}: {headers}")
            call = headers["toolfleet-call-id"]
            check(error.request_id == call and call in str(error.body), f"{door.name}: {error.request_id}, {error.body}")
            asked = len(self.server.log()), self.counted.posts - before
            check(asked == (1, 1), f"{door.name}, {fault}, {way}: {asked[0]} requests at the model's server, {asked[1]} at the door")

    def repeat(self, door):
        """A key that was used is answered from the ledger, plain and streamed."""
        self.server.play([{"answer": {"text": self.cases.TEXT, "tool_calls": self.cases.CALLS}, "chunk": 5}])
        for way in ("answered", "together"):
            said = {"extra_headers": {"Idempotency-Key": f"{door.name}-{way}"}}
            first, again = (getattr(door, way)(**self.body(door), **said) for _ in range(2))
            self.calls += 1
            # The identity of the reply, too.
            apart = self.protocols.difference(first.to_dict(), again.to_dict())
            check(apart is None, f"{door.name}, {way} again: {apart}")
        asked = len(self.server.log())
        check(asked == 2, f"{door.name}: two keys, each sent twice, were {asked} requests at the model's server")

    def refused(self, kind, door):
        """What makes no call is one request, too."""
        self.server.play([{"answer": {"text": "Never."}}])
        stranger = kind(self.url, key="sk-wrong")
        for asked, body, named in [
            (stranger, self.body(door), "AuthenticationError"),
            (door, {**door.body(), "model": "nothing"}, "NotFoundError"),
            (door, {**door.body(), "model": "gpt-4.1"}, "NotFoundError"),
            (door, self.body(door, extra_headers={"Toolfleet-Tenant": "a b"}), "BadRequestError"),
        ]:
            before = self.counted.posts
            error = caught(door, lambda: asked.answered(**body))
            check(type(error).__name__ == named, f"{door.name}: {error!r}")
            check(self.counted.posts - before == 1, f"{door.name}: {error!r} was asked {self.counted.posts - before} times")
        check(self.server.log() == [], "the model's server was asked for what was refused")


def caught(door, ask):
    try:
        ask()
    except door.package.APIStatusError as error:
        return error
    raise NotSo(f"{door.name}: no error was raised")


def bases(error):
    return [base.__name__ for base in type(error).__mro__]


def kind_of(event):
    """What an event is; of a chunk of a completion what it has."""
    if hasattr(event, "choices"):
        return ["usage"] if not event.choices else sorted(event.choices[0].delta.to_dict())
    return event.type


def scrubbed(value):
    """Without what the server makes anew for each answer."""
    if isinstance(value, dict):
        fresh = ("created", "created_at", "completed_at")
        return {name: scrubbed(one) for name, one in value.items() if name not in fresh and not made(name, one)}
    return [scrubbed(one) for one in value] if isinstance(value, list) else value


def made(name, value):
    return name == "id" and not str(value).startswith("call_")
