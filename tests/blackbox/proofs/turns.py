"""A turn of four tools is one stream that any gateway tells alike, also when one of them, or the worker that speaks, is killed."""

import asyncio
import base64
import json
import time

from client import Client
from fleet import tool
from gateways import Gateways, listens
from proofs.transcripts import OURS, published
from waiting import Away, check

WORDS = ["Once ", "upon ", "a ", "time ", "there ", "was ", "a ", "queue ", "that ", "forgot ", "nothing. "]
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(64)).decode()
RETRY = {"strategy": "fixed", "max_attempts": 4, "base": "200ms"}
CALLS = [
    {"tool": "flaky", "args": {"n": 1}},
    {"tool": "story", "args": {"n": 2}},
    {"tool": "paint", "args": {"n": 3}},
    {"tool": "story", "args": {"m": "nonsense"}},
]
WITH_OUR_OWN = "?extensions=1"


async def prove(proof):
    tools = [
        tool(name, "read", {"nats": {"subject": f"tools.{name}"}}, required=["n"], timeout="20s", retry=RETRY)
        for name in ("story", "paint", "flaky", "stuck")
    ]
    async with proof.fleet(tools, workers=2, gateways=3) as dev, Client(dev) as client:
        connection = await client.connected()
        service = Service(connection)
        for name in ("story", "paint", "flaky", "stuck"):
            await connection.subscribe(f"tools.{name}", queue="q", cb=service.take)
        gateways = Gateways(dev)
        for order in ("call_index", "first_ready"):
            await a_turn(proof, dev, gateways, order)
        await worker_killed(proof, dev, gateways, service)


async def a_turn(proof, dev, gateways, order):
    """The first gateway is killed in the middle; the second goes on; the third tells the whole story in the same bytes."""
    turn = await taken(gateways, order, CALLS)
    path = f"/v1/turns/{turn}/events{WITH_OUR_OWN}"
    first, told = gateways.to(0), []
    victim = next(pid for pid in dev.pids("gateway") if listens(pid) == gateways.ports[0])
    try:
        async for event in first.follow(path):
            told.append(event)
            if len(told) == 12:
                dev.kill(victim)
    except Away:
        pass
    before = len(told)
    check(not over(told), f"the story was over after {before} events, before its gateway was killed")
    async for event in gateways.to(1).follow(path, told[-1].id):
        told.append(event)
    whole = [event async for event in gateways.to(2).follow(path)]
    check(over(whole), f"the last event is {whole[-1].event}")
    check(told == whole, f"two gateways told another story: {different(told, whole)}")
    await dev.replaced("gateway", victim)
    again = [event async for event in gateways.to(0).follow(path)]
    check(again == whole, "the gateway that was started again tells another story")
    types = fit(whole)
    proof.note(f"{order}: {len(whole)} events, {before} of them before kill -9 of the gateway; the second and the third say the same bytes; "
               f"all of {types} kinds fit the vendor's types")
    for line in shown(whole):
        proof.note(f"  {line}")


async def worker_killed(proof, dev, gateways, service):
    """Whoever speaks dies with its worker: the word passes on."""
    turn = await taken(gateways, "call_index", [{"tool": "stuck", "args": {"n": 1}}, {"tool": "paint", "args": {"n": 2}}])
    killed, spoke, attempts = None, None, 0
    async for event in gateways.to(1).follow(f"/v1/turns/{turn}/events{WITH_OUR_OWN}"):
        said = json.loads(event.data)
        if said["type"] == OURS + "output.delta" and killed is None:
            state = (await gateways.ask("GET", f"/v1/turns/{turn}", number=1)).body
            worker = await dev.worker_of(state["items"][0]["call_id"])
            check(worker, f"no worker runs the call that speaks: {state}")
            service.go_on.set()
            dev.kill(worker)
            killed = time.monotonic()
        elif killed and said["type"] == "response.output_item.added" and spoke is None:
            spoke = time.monotonic() - killed
        attempts += said["type"] == "response.output_item.added"
    check(spoke is not None, "nobody spoke after the worker was killed")
    proof.note(f"kill -9 of the worker of the call that speaks: the next one spoke after {spoke:.2f} s; {attempts} items in all")


async def taken(gateways, order, calls):
    """A turn that is taken; its id."""
    headers = {"Idempotency-Key": f"{order}-{len(calls)}", "Content-Type": "application/json"}
    answer = await gateways.ask("POST", "/v1/turns", {"calls": calls, "order": order}, headers)
    check(answer.status == 202, f"the turn: {answer.status} {answer.body}")
    again = await gateways.ask("POST", "/v1/turns", {"calls": calls, "order": order}, headers, number=1)
    check(again.body["turn_id"] == answer.body["turn_id"], "the same request at another gateway is another turn")
    return answer.body["turn_id"]


class Service:
    """The tools, as services over NATS."""

    def __init__(self, connection):
        self.connection, self.flaked, self.go_on, self.running = connection, False, asyncio.Event(), set()

    async def take(self, request):
        answer = getattr(self, request.subject.rpartition(".")[2])
        self.running.add(task := asyncio.ensure_future(answer(request)))
        task.add_done_callback(self.running.discard)

    async def tell(self, request, part):
        headers = {"Toolfleet-Attempt-Id": request.headers["Toolfleet-Attempt-Id"]}
        await self.connection.publish(request.headers["Toolfleet-Events"], json.dumps(part).encode(), headers=headers)

    async def story(self, request):
        for word in WORDS:
            await self.tell(request, {"text": word})
            await asyncio.sleep(0.2)
        await request.respond(json.dumps("".join(WORDS)).encode())

    async def paint(self, request):
        for number in range(2):
            image = {"mime": "image/png", "b64": PIXEL, "index": 0, "partial": number == 0}
            await self.tell(request, {"image": image})
            await asyncio.sleep(0.3)
        await request.respond(json.dumps({"b64": PIXEL}).encode())

    async def flaky(self, request):
        await self.tell(request, {"text": "I try. "})
        if not self.flaked:
            self.flaked = True
            await asyncio.sleep(0.3)
            refusal = {"Nats-Service-Error-Code": "503", "Nats-Service-Error": "not now"}
            await self.connection.publish(request.reply, headers=refusal)
            return
        self.flaked = False
        await request.respond(b'"I did it."')

    async def stuck(self, request):
        await self.tell(request, {"text": "I begin. "})
        if not self.go_on.is_set():
            await asyncio.sleep(3600)
        await request.respond(b'"I am done."')


def over(events):
    return events[-1].event in ("response.completed", "response.incomplete")


def fit(events):
    """How many kinds of events there are, when all of them fit the vendor's types and its client."""
    complaint, client = published()
    put, kinds, numbers = client(), set(), []
    for event in events:
        said = json.loads(event.data)
        check(said["type"] == event.event, f"the event {event.event} says that it is {said['type']}")
        if said["type"].startswith(OURS):
            continue
        check(not complaint(said), f"the vendor's types refuse {said['type']}: {complaint(said)}")
        put(said)
        kinds.add(said["type"])
        numbers.append(said["sequence_number"])
    check(numbers == list(range(len(numbers))), f"sequence numbers: {numbers}")
    added = [json.loads(event.data)["output_index"] for event in events if event.event == "response.output_item.added"]
    done = [json.loads(event.data)["output_index"] for event in events if event.event == "response.output_item.done"]
    check(added == done == list(range(len(added))), f"items added {added}, done {done}")
    return len(kinds)


def shown(events):
    """A transcript for people: one line for each item."""
    for event in events:
        said = json.loads(event.data)
        if said["type"] == OURS + "output.delta":
            yield f"  {event.id.partition('-')[2]}  {json.dumps(said['delta'])[:60]}"
        elif said["type"].startswith("response.output_item."):
            item = said["item"]
            yield (f"{event.id.partition('-')[2]}  {said['type'].rpartition('.')[2]:<5} {said['output_index']} {item['type']} "
                   f"{item.get('name')} {item.get('status')} {str(item.get('output') or item.get('error'))[:70]}")


def different(one, other):
    place = next((at for at, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    return f"{len(one)} and {len(other)} events; at {place}: {one[place:place + 1]} and {other[place:place + 1]}"
