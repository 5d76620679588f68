"""A caller with a stock NATS client: nothing here is ours but the subjects and the headers."""

import asyncio
import json
import time
from dataclasses import dataclass

import nats
import nats.errors

from waiting import Away, NotSo

ANSWER_SECONDS = 10
SUBMIT_SECONDS = 120
WORTH_REPEATING = {"overloaded", "quota_exceeded", "rate_limited", "store_unavailable"}


class Unanswered(Away):
    """No answer in time: the call may or may not have been accepted."""


class NobodyListens(Away):
    """The server knows nobody who listens on this subject."""


@dataclass
class Answer:
    """One reply: its JSON, its bytes, its headers."""

    body: dict
    raw: bytes
    headers: dict

    @property
    def code(self):
        """The error's code, None when there is no error."""
        error = self.body.get("error")
        return error and error["code"]


class Client:
    """One connection for one tenant; it follows dev.json when the server moves."""

    def __init__(self, dev, tenant="default"):
        self.dev, self.tenant = dev, tenant
        self.connections = {}
        self.connecting = asyncio.Lock()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for connection, _ in self.connections.values():
            await connection.close()

    async def connected(self, who=None):
        """The connection to the server that dev.json names now, as this user where the fleet has users: without a name, as the
        agent of the tenant."""
        async with self.connecting:
            who = who or f"agent-{self.tenant}"
            url, inbox = self.dev.login(who)
            connection, place = self.connections.get(who, (None, None))
            if connection and (connection.is_closed or url != place):
                await connection.close()
                connection = None
            if connection is None:
                opening = nats.connect(
                    url, max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=hush, inbox_prefix=inbox
                )
                try:
                    connection = await asyncio.wait_for(opening, 5)
                except (asyncio.TimeoutError, OSError, nats.errors.Error) as error:
                    raise Unanswered(f"nats-server: {error!r}") from None
                self.connections[who] = connection, url
            return connection

    async def request(self, verb, body, headers=None, timeout=ANSWER_SECONDS, tenant=None):
        """One request and its one answer."""
        # Another tenant's subjects are open to operators alone.
        connection = await self.connected(None if tenant in (None, self.tenant) else "operator")
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        subject = f"toolfleet.v1.{tenant or self.tenant}.{verb}"
        try:
            reply = await connection.request(subject, payload, timeout=timeout, headers=headers)
        except nats.errors.NoRespondersError:
            raise NobodyListens(subject) from None
        except nats.errors.Error as error:
            raise Unanswered(f"{subject}: {error!r}") from None
        return Answer(json.loads(reply.data), reply.data, reply.headers or {})

    async def call(self, tool, arguments, key=None, prefer="wait=30", timeout=40, **more):
        """A call, and its envelope."""
        headers = {"Prefer": prefer, **({"Idempotency-Key": key} if key else {})}
        return await self.request(f"call.{tool}", arguments, headers, timeout, **more)

    async def submit(self, tool, arguments, key):
        """A call that is accepted for later, with the same key again until that is certain."""
        return await self.answered(tool, arguments, key, prefer="respond-async", timeout=5)

    async def answered(self, tool, arguments, key, seconds=SUBMIT_SECONDS, **how):
        """The answer to a call, sent with the same key again as often as it stays out."""
        ends = time.monotonic() + seconds
        while True:
            try:
                answer = await self.call(tool, arguments, key, **how)
                if answer.code not in WORTH_REPEATING:
                    return answer
                last = answer.code
            except Away as away:
                last = away
            if time.monotonic() > ends:
                raise NotSo(f"no answer within {seconds} s, the last try: {last}")
            await asyncio.sleep(0.2)

    async def get(self, **what):
        """The call as it stands."""
        wait_ms = what.get("wait_ms", 0)
        return await self.request("get", what, timeout=ANSWER_SECONDS + wait_ms / 1000)


async def hush(_error):
    """Connections break in these proofs; what matters of it shows as a missing answer."""
