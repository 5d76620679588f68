"""Calls that wait for somebody: a no and two yeses, a caller's own shell, callers that die, a remote that answers later or never."""

import asyncio
import contextlib
import json
import re
import sys

from client import Client
from fleet import PYTHON, TOOLS, command, lines, tool
from waiting import check, until

# What a remote that says later gets, as the header is named on the wire.
TOKEN = rb"(?i)toolfleet-completion-token: *(\S+)"
MOVES = "SELECT from_state, to_state, reason FROM toolfleet.call_events WHERE call_id = :'id' ORDER BY revision"
DECISIONS = "SELECT decision, actor, note FROM toolfleet.approvals WHERE call_id = :'id' ORDER BY at"
# A client of its own, in a process that ends with the call in its hands.
CALLER = """import asyncio, json, sys, nats
async def main():
    client = await nats.connect(sys.argv[1])
    subject, key = "toolfleet.v1.default.call." + sys.argv[2], {"Idempotency-Key": sys.argv[2]}
    answer = await client.request(subject, b"{}", timeout=30, headers=key)
    print(answer.data.decode(), flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


async def prove(proof):
    effects = proof.folder / "effects.jsonl"
    later, silence = ("3s", "1s") if proof.short else ("30s", "5s")
    async with Remote() as remote:
        limit = {"count": 2, "when": [{"pointer": "/amount", "op": "gt", "value": 100}], "reason": "More than 100."}
        charge = [*PYTHON, str(TOOLS / "effect.py"), "--effects", str(effects)]
        shell = {"command": {"type": "string"}}
        printed = {"type": "object", "properties": {"output": {"type": "string"}}, "required": ["output"]}
        mine = {"client": {"presents": "shell_call"}}
        tools = [
            tool("charge", "once", charge, {"amount": {"type": "number"}}, ["amount"], approval=limit),
            tool("shell", "once", mine, shell, ["command"], output_schema=printed, timeout="2m"),
            tool("mine_once", "once", mine, {}, timeout=silence),
            tool("mine_read", "read", mine, {}, timeout=silence),
            tool("transfer", "once", remote.at("transfer"), {}, completion={"statuses": [202], "wait": "2m"}),
            *(silent(remote, effect, silence) for effect in ("read", "idempotent", "once")),
        ]
        async with proof.fleet(tools, workers=2) as dev, Client(dev) as client:
            await needs_two_yeses(proof, dev, client, effects)
            await runs_a_shell_of_its_own(proof, dev, client)
            for effect in ("once", "read"):
                await dies_with_a_call_in_hand(proof, dev, client, effect)
            await is_answered_later(proof, dev, client, remote, float(later[:-1]))
            await is_never_answered(proof, dev, client, remote)


def silent(remote, effect, wait):
    """A tool whose remote says later and means never."""
    again = {"strategy": "none"} if effect == "once" else {"max_attempts": 2, "base": "100ms"}
    later = {"statuses": [202], "wait": wait}
    fields = {"completion": later, "deadline": "1m", "retry": again}
    if effect == "idempotent":
        fields["idempotency"] = {"header": "Idempotency-Key"}
    return tool(f"never_{effect}", effect, remote.at(f"never_{effect}"), {}, **fields)


async def needs_two_yeses(proof, dev, client, effects):
    small = (await client.call("charge", {"amount": 10}, "small")).body
    check(small["state"] == "succeeded", f"a charge under the limit: {small}")
    proof.note("A charge of 10 runs at once. A charge of 250 waits:")
    denied, agreed = [(await client.call("charge", {"amount": 250}, key)).body for key in ("denied", "agreed")]
    for answer in (denied, agreed):
        check(answer["awaiting"]["for"] == "approval", f"{answer}")
    call_id = agreed["call_id"]
    await prints(proof, dev, "calls", "explain", call_id)
    sees = await command(dev, "calls", "approve", call_id)
    hash_ = re.search(r"^hash +(\S+)$", sees.decode(), re.MULTILINE)[1]
    proof.note("One is denied:")
    await prints(proof, dev, "calls", "deny", denied["call_id"], "--hash", hash_, "--as", "ann", "--note", "not this customer")
    told = (await client.get(call_id=denied["call_id"])).body
    check((told["state"], told["error"]["code"], told["effect"]) == ("failed", "denied", "not_applied"), f"{told}")
    proof.note("The other is approved by two:")
    for name, why in (("bob", "ordered by phone"), ("eve", "checked with bob")):
        check(len(lines(effects)) == 1, "a charge ran without its yes")
        await prints(proof, dev, "calls", "approve", call_id, "--hash", hash_, "--as", name, "--note", why)
    ended = (await client.get(call_id=call_id, wait_ms=10_000)).body
    check(ended["state"] == "succeeded", f"{ended}")
    ran = [line for line in lines(effects) if line["call_id"] == call_id]
    check(len(ran) == 1 and len(lines(effects)) == 2, f"the tool ran {len(lines(effects))} times")
    proof.note("It ran once. Every decision:")
    for row in [row for id_ in (denied["call_id"], call_id) for row in await dev.rows(DECISIONS, id=id_)]:
        proof.note(f"    {json.dumps(row)}")
    await moves(proof, dev, call_id)


async def runs_a_shell_of_its_own(proof, dev, client):
    accepted = (await client.call("shell", {"command": "ls"}, "shell")).body
    call_id, token = accepted["call_id"], accepted["awaiting"]["token"]
    first, second, other = [
        await client.request("output", {"call_id": call_id, "token": token, "result": {"output": said}})
        for said in ("a.txt", "a.txt", "b.txt")
    ]
    proof.note("A shell tool that its caller runs; its output comes twice, and another one:")
    for answer in (first, second, other):
        proof.note(f"    {answer.raw.decode()[:160]}…")
    check((first.body["state"], first.body["source"]) == ("succeeded", "client"), f"{first.body}")
    check(second.body["result"] == {"output": "a.txt"}, f"the same again: {second.body}")
    check(other.code == "conflict", f"another body: {other.body}")
    await prints(proof, dev, "calls", "show", call_id)


async def dies_with_a_call_in_hand(proof, dev, client, effect):
    asking = [sys.executable, "-I", "-c", CALLER, dev.info()["nats_url"], f"mine_{effect}"]
    caller = await asyncio.create_subprocess_exec(*asking, stdout=asyncio.subprocess.PIPE)
    try:
        accepted = json.loads(await asyncio.wait_for(caller.stdout.readline(), 30))
    finally:
        caller.kill()
        await caller.wait()
    call_id = accepted["call_id"]
    check(call_id, f"{accepted}")
    ends = "in_doubt" if effect == "once" else "expired"
    await until(f"the call is {ends}", lambda: has_state(dev, call_id, ends), 60)
    told = (await client.get(call_id=call_id)).body
    proof.note(f"A caller is killed with a {effect} call in its hands: {told['state']}, {told['error']['message']}")
    if effect == "once":
        late = {"call_id": call_id, "token": accepted["awaiting"]["token"], "result": {"done": True}}
        settled = (await client.request("output", late)).body
        check((settled["state"], settled["effect"]) == ("succeeded", "applied"), f"{settled}")
        proof.note("    its late output settles it:")
        await moves(proof, dev, call_id)


async def is_answered_later(proof, dev, client, remote, seconds):
    accepted = (await client.submit("transfer", {}, "transfer")).body
    call_id = accepted["call_id"]
    token = (await until("the remote was asked", lambda: remote.asked.get("transfer"), 30))[0]
    await until("the call waits", lambda: has_state(dev, call_id, "awaiting_client"), 30)
    pause = asyncio.create_task(asyncio.sleep(seconds))
    proof.note(f"A remote says 202 and works for {seconds:g} s. Meanwhile:")
    await prints(proof, dev, "calls", "explain", call_id)
    for kind in ("worker", "dispatcher"):
        for pid in dev.pids(kind):
            dev.kill(pid)
            await dev.replaced(kind, pid)
    proof.note("    kill -9 of every worker and dispatcher")
    await pause
    done = {"call_id": call_id, "token": token, "result": {"transfer": "t-17"}}
    ended = await until("somebody takes the answer", lambda: client.request("output", done), 60)
    check(ended.body["state"] == "succeeded" and ended.body["attempts"] == 1, f"{ended.body}")
    check(len(remote.asked["transfer"]) == 1, f"the remote was asked {len(remote.asked['transfer'])} times")
    proof.note(f"    its answer: {ended.body['state']}, {json.dumps(ended.body['result'])}; the remote was asked once")
    await moves(proof, dev, call_id)


async def is_never_answered(proof, dev, client, remote):
    expected = {"read": ("expired", 2), "idempotent": ("in_doubt", 2), "once": ("in_doubt", 1)}
    calls = {effect: (await client.submit(f"never_{effect}", {}, effect)).body["call_id"] for effect in expected}
    for effect, (ends, asked) in expected.items():
        call_id = calls[effect]
        await until(f"the {effect} call is {ends}", lambda id_=call_id, ends=ends: has_state(dev, id_, ends), 90)
        times = len(remote.asked[f"never_{effect}"])
        doubt = await dev.row("SELECT why FROM toolfleet.in_doubt WHERE call_id = :'id'", id=call_id)
        ended = f"{ends}, {doubt['why']}" if doubt else ends
        proof.note(f"A remote that never answers, effect {effect}: asked {times} times, then {ended}")
        check(times == asked, f"{effect}: asked {times} times")


async def prints(proof, dev, *words):
    """What a person types, and what is printed."""
    proof.note(f"$ toolfleet {' '.join(words)}")
    for line in (await command(dev, *words)).decode().splitlines():
        proof.note(f"    {line}")


async def moves(proof, dev, call_id):
    for row in await dev.rows(MOVES, id=call_id):
        proof.note(f"    {row['from_state'] or '(new)'} -> {row['to_state']}: {row['reason']}")


async def has_state(dev, call_id, state):
    return (await dev.call(call_id))["state"] == state


class Remote:
    """An HTTP service that always says later, and remembers the tokens that it was given."""

    def __init__(self):
        self.asked = {}

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()
        await self.server.wait_closed()

    def at(self, path):
        return {"http": {"method": "GET", "url": f"http://127.0.0.1:{self.port}/{path}"}}

    async def serve(self, reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                token = re.search(TOKEN, head)[1].decode()
                self.asked.setdefault(head.split()[1].decode().strip("/"), []).append(token)
                writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
        writer.close()
