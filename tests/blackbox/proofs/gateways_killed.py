"""Gateways are killed every two seconds under callers and followers: no call is lost or doubled, and no stream has a hole."""

import asyncio
import json
import random
import time
from collections import Counter, defaultdict

from client import Client
from fleet import tool
from gateways import Gateways, listens
from waiting import Away, check, until

TOOL_SECONDS = 1.0
PAUSE_SECONDS = 2.0
EVENTS = "toolfleet.v1.default.event.*.*"
CALLED = "SELECT state, count(*) FROM toolfleet.calls GROUP BY state ORDER BY state"
OPEN = "SELECT count(*) FROM toolfleet.calls WHERE finished_at IS NULL"
TURN = 3
# Of the followers so many follow turns, one after the other; the rest follow the sessions of the callers.
TURNS = 0.1


async def prove(proof):
    size, seconds, count = (60, 12, 2) if proof.short else (500, 60, 3)
    book = tool("book", "once", {"nats": {"subject": "tools.book"}}, required=["n"], timeout="30s")
    settings = {"WORKER_CONCURRENCY": "600", "GATEWAY_STRANGERS_MAX": "4096"}
    async with proof.fleet([book], workers=2, gateways=count, settings=settings) as dev, Client(dev) as client:
        desk = Desk(await client.connected())
        await desk.open()
        gateways, ended = Gateways(dev), asyncio.Event()
        turns = round(size * TURNS)
        callers = [Caller(number, gateways, ended) for number in range(size)]
        followers = [Follower(number, gateways) for number in range(size - turns)]
        turners = [Turner(number, gateways, ended) for number in range(turns)]
        following = [asyncio.ensure_future(follower.follow()) for follower in followers]
        await until("all follow", lambda: all(follower.began for follower in followers), 60)
        working = [asyncio.ensure_future(one.work()) for one in [*callers, *turners]]
        kills = await kill_in_turn(dev, gateways, seconds)
        ended.set()
        await asyncio.wait_for(asyncio.gather(*working), 120)

        async def all_over():
            return (await dev.row(OPEN))["count"] == 0

        await until("all calls are over", all_over, 60)
        told = desk.told
        holes = {}
        for follower in followers:
            wanted = told[follower.session]
            try:
                await until("the follower has it all", lambda: len(follower.seen) >= len(wanted), 45)
            except AssertionError:
                pass
            if set(follower.seen) != set(wanted) or len(follower.seen) != len(wanted) or not rising(follower.ids):
                holes[follower.session] = (len(follower.seen), len(wanted))
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        states = {row["state"]: row["count"] for row in await dev.rows(CALLED)}
    answered = [key for caller in callers for key in caller.answered]
    lost = [key for key in answered if desk.booked[key] == 0]
    doubled = {key: times for key, times in desk.booked.items() if times > 1}
    broke = sum(one.broke for one in [*callers, *followers, *turners])
    incomplete = [name for turner in turners for name in turner.incomplete]
    proof.note(f"{kills} gateways killed in {seconds} s, one every {PAUSE_SECONDS:g} s, of {count}; {size} callers, {size - turns} followers of "
               f"sessions, {turns} of turns; {broke} connections broke")
    proof.note(f"{len(answered)} calls answered, {sum(one.turns for one in turners)} turns told to their end: {states}")
    proof.note(f"{sum(len(follower.seen) for follower in followers)} events followed, {sum(follower.gaps for follower in followers)} gaps said")
    proof.note(f"lost {len(lost)}, doubled {len(doubled)}, incomplete streams {len(holes) + len(incomplete)}")
    check(not lost and not doubled, f"lost {lost[:5]}, doubled {list(doubled.items())[:5]}")
    check(not holes, f"streams with holes (seen, told): {dict(list(holes.items())[:5])}")
    check(not incomplete, f"turns whose story is wrong: {incomplete[:5]}")
    check(set(states) == {"succeeded"}, f"not all succeeded: {states}")
    check(answered and broke, "nothing was answered, or nothing broke")


async def kill_in_turn(dev, gateways, seconds):
    """One gateway after the other, until the time is over."""
    ends, kills = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        await asyncio.sleep(PAUSE_SECONDS)
        port = gateways.ports[kills % len(gateways.ports)]
        victim = next((pid for pid in dev.pids("gateway") if listens(pid) == port), None)
        if victim:
            dev.kill(victim)
            kills += 1
    return kills


def rising(ids):
    return all(one < other for one, other in zip(ids, ids[1:]))


class Desk:
    """The tool, as a service over NATS, and what the whole fleet tells its sessions."""

    def __init__(self, connection):
        self.connection, self.booked, self.running = connection, Counter(), set()
        self.told = defaultdict(list)

    async def open(self):
        await self.connection.subscribe("tools.book", cb=self.take, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await self.connection.subscribe(EVENTS, cb=self.hear, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await self.connection.flush()
        await self.connection.flush()

    async def hear(self, message):
        event = json.loads(message.data)
        if "call_id" in event:
            self.told[message.subject.split(".")[4]].append((event["call_id"], event["sequence"]))

    async def take(self, request):
        self.booked[json.loads(request.data)["n"]] += 1
        self.running.add(task := asyncio.ensure_future(self.answer(request)))
        task.add_done_callback(self.running.discard)

    async def answer(self, request):
        await asyncio.sleep(TOOL_SECONDS)
        await request.respond(request.data)


class Caller:
    """Calls again and again, each call with its key until it is answered, at whichever gateway is there."""

    def __init__(self, number, gateways, ended):
        self.number, self.gateways, self.ended = number, gateways, ended
        self.answered, self.broke, self.calls = [], 0, 0

    async def work(self):
        connection, place = self.gateways.to(self.number), self.number
        while not self.ended.is_set():
            n = self.number * 1_000_000 + self.calls
            self.calls += 1
            headers = {"Idempotency-Key": f"k-{n}", "Toolfleet-Session": f"s-{self.number}", "Prefer": "wait=20"}
            while True:
                try:
                    answer = await connection.ask("POST", "/v1/call/book", {"n": n}, headers)
                except Away:
                    self.broke += 1
                    place += 1
                    connection = self.gateways.to(place)
                    await asyncio.sleep(random.uniform(0.05, 0.3))
                    continue
                if answer.status == 200 and answer.body["state"] == "succeeded":
                    check(answer.body["result"] == {"n": n}, f"another call's answer: {answer.body}")
                    self.answered.append(n)
                    break
                check(answer.status in (202, 429, 503, 504), f"{answer.status}: {answer.body}")
                await asyncio.sleep(random.uniform(0.05, 0.3))
        connection.close()


class Follower:
    """Follows one session for all its time, and comes back where it was."""

    def __init__(self, number, gateways):
        self.session, self.place, self.gateways = f"s-{number}", number, gateways
        self.seen, self.ids, self.broke, self.gaps, self.began = [], [], 0, 0, False

    async def follow(self):
        last, path = None, f"/v1/sessions/{self.session}/events?from=start"
        while True:
            try:
                self.began = True
                async for event in self.gateways.to(self.place).follow(path, last):
                    last = event.id or last
                    if event.event == "gap":
                        self.gaps += 1
                    elif event.data and event.event != "snapshot":
                        told = json.loads(event.data)
                        self.seen.append((told["call_id"], told["sequence"]))
                        self.ids.append(int(event.id.partition("-")[2]))
            except Away:
                self.broke += 1
            self.place += 1
            await asyncio.sleep(random.uniform(0.05, 0.3))


class Turner:
    """Takes one turn after the other and follows it to its end."""

    def __init__(self, number, gateways, ended):
        self.number, self.gateways, self.ended = number, gateways, ended
        self.turns, self.broke, self.incomplete, self.place = 0, 0, [], number

    async def work(self):
        while not self.ended.is_set():
            key = f"t-{self.number}-{self.turns}"
            first = 1_000_000_000 + self.number * 1_000_000 + self.turns * TURN
            calls = [{"tool": "book", "args": {"n": first + at}} for at in range(TURN)]
            turn = await self.until_taken(key, {"calls": calls, "order": random.choice(["call_index", "first_ready"])})
            told, numbers = await self.story(f"/v1/turns/{turn}/events")
            whole = numbers == list(range(len(numbers)))
            kinds = Counter(told)
            items = kinds["response.output_item.added"], kinds["response.output_item.done"]
            if not (whole and told[-1] == "response.completed" and items == (TURN, TURN)):
                self.incomplete.append((turn, items, told[-1], whole))
            self.turns += 1

    async def until_taken(self, key, body):
        while True:
            try:
                answer = await self.gateways.ask("POST", "/v1/turns", body, {"Idempotency-Key": key}, self.place)
                if answer.status == 202:
                    return answer.body["turn_id"]
                check(answer.status in (429, 503, 504), f"{answer.status}: {answer.body}")
            except Away:
                self.broke += 1
            self.place += 1
            await asyncio.sleep(random.uniform(0.05, 0.3))

    async def story(self, path):
        told, numbers, last = [], [], None
        while True:
            try:
                async for event in self.gateways.to(self.place).follow(path, last):
                    last = event.id or last
                    told.append(event.event)
                    numbers.append(json.loads(event.data).get("sequence_number"))
                if told and told[-1] in ("response.completed", "response.incomplete"):
                    return told, numbers
            except Away:
                self.broke += 1
            self.place += 1
            await asyncio.sleep(random.uniform(0.05, 0.3))
