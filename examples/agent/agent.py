#!/usr/bin/env python3
"""An agent that loses nothing: it asks a model, runs its wishes, and hands it the envelopes, until it answers.

    agent.py run --run ID --task "…"     the same ID again goes on where it was, after any crash
    agent.py serve                       the same loop as a NATS tool: the sub-agents of other agents

Every call has a key made of run, path, turn and place, so what was done is found again: docs/agents.md. Needs `nats-py`,
and openai_chat.py beside it, or the same functions for another protocol.
Exit codes: 0 answered; 1 ended without an answer; 2 usage; 69 nobody answers, so start it again; 130 taken back.
"""

import argparse
import asyncio
import json
import logging
import os
import re
import signal
import sys
import time
import traceback
from pathlib import Path

import nats
import nats.micro
from openai_chat import handed, mended, opening, said, wished

WAIT_SECONDS = 30
SENT_WITHIN_SECONDS = 23 * 3600  # of the answer that wished for it: the keys of tools live for 24 hours at least
PASSING = ("overloaded", "quota_exceeded", "rate_limited", "store_unavailable")
WISHES_MAX, RESULTS_CHARACTERS_MAX = 32, 300_000  # of a turn; a question has at most 1 MiB, and JSON within JSON grows
BRIEF = "Work on the task with the tools. When it is done, answer without a tool."


class Ended(Exception):
    """There is no answer: a stable code, and a sentence. With the code `away` it is too early to tell."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code, self.told = code, {"answer": None, "error": {"code": code, "message": message}}


def read(text, long=lambda digits: object()):
    """JSON. An integer of more digits than every Python reads is `long`: unless told, nothing that JSON could have again."""
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 640 else long(digits))


def ended_by(error):
    """Whatever ended a loop as `Ended`: what nobody foresaw would only happen again at the next start."""
    if isinstance(error, Ended):
        return error
    if isinstance(error, (nats.errors.Error, asyncio.TimeoutError, OSError)):
        return Ended("away", f"nats-server: {error!r}")
    # Without its words, which may have what tools said.
    lines = [str(frame.lineno) for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__]
    return Ended("fault", f"{type(error).__name__} in the lines {', '.join(lines)} of this program. What was begun may be done.")


class Envelope(dict):
    """What the fleet said; `text` is that in every digit, as a model is handed it."""

    def __init__(self, text):
        super().__init__(read(text))
        self.text, self.error = text, self.get("error") or {}
        self.code = self.error.get("code")


def refusal(code, message, suggestion):
    """What this program says of a call that it does not send."""
    error = {"code": code, "message": message, "retryable": False, "suggestion": suggestion}
    return Envelope(json.dumps({"call_id": None, "state": "refused", "is_error": True, "effect": "none", "error": error}))


class Fleet:
    def __init__(self, client, told, tenant):
        self.client, self.base, self.patience = client, f"{told.prefix}.v1.{tenant}", told.patience

    async def ask(self, endpoint, body, headers=None, wait=0):
        """One answer. The request is sent again until there is one: its key, or that it only asks, makes that safe."""
        data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode(errors="replace")
        ends, pause = time.monotonic() + self.patience, 0.1
        while True:
            try:
                message = await self.client.request(f"{self.base}.{endpoint}", data, wait + 10, headers=headers)
                answer = Envelope(message.data.decode())
                problem = answer.code if answer.get("state") == "refused" else None
                if problem not in PASSING:
                    return answer
            except (nats.errors.Error, asyncio.TimeoutError, OSError) as error:
                problem = repr(error)
            if time.monotonic() + pause > ends:
                raise Ended("away", f"{endpoint}: {problem}; start it again later")
            await asyncio.sleep(pause := min(2 * pause, 5))

    async def get(self, **what):
        """A call as it stands; None where there is none."""
        call = await self.ask("get", what)
        return None if call.get("state") == "refused" else call

    async def decided(self, call):
        """Waits until a call is decided or in doubt; a refusal is, too."""
        while "outcome" not in call:
            call = await self.ask("get", {"call_id": call["call_id"], "wait_ms": WAIT_SECONDS * 1000}, wait=WAIT_SECONDS)
        return call

    async def take_back(self, **what):
        """Cancels a call that is not decided. It may be on its way still, so this looks for it for a second."""
        for _ in range(5):
            call = await self.get(**what)
            if call is not None:
                return None if "outcome" in call else await self.ask("cancel", {"call_id": call["call_id"]})
            await asyncio.sleep(0.2)


class Loop:
    """One task, turn by turn. `job` has the task, where in a run it stands (run, path, depth), and until when."""

    def __init__(self, fleet, told, job):
        self.fleet, self.told, self.job, self.root = fleet, told, job, f"{job['run']}/{job['path']}"
        self.doubtful = {}  # wishes whose effect is unknown, or was for a while, and their keys: the same is not sent again

    def headers(self, key, below):
        """What a call is told; `below` is the path of a sub-agent, if its tool is one."""
        run, until = self.job["run"], self.job["until"]
        meta = below and json.dumps({"agent": {"path": below, "depth": self.job["depth"] + 1, "until": until}})
        told = {"Run": run, "Session": run, "Run-Deadline": until, "Meta": meta}
        return {"Idempotency-Key": key, "Prefer": f"wait={WAIT_SECONDS}"} | {f"Toolfleet-{k}": v for k, v in told.items() if v}

    async def run(self):
        """The answer, or `Ended`."""
        listed = await self.fleet.ask("tools", {"format": "openai"})
        tools = listed["tools"] if self.told.tools is None else self.told.tools
        tools = [tool for tool in tools if not self.told.only or tool["function"]["name"] in self.told.only]
        self.offered = {tool["function"]["name"] for tool in tools}
        messages, before, repeats = opening(self.job["task"], f"{BRIEF}\n\n{listed['instructions']['en']}"), None, 1
        for turn in range(self.told.turns):
            call = await self.ask(turn, {"messages": messages, **({"tools": tools} if tools else {})})
            wishes = wished(call["result"]["reply"])
            if not wishes:
                return {"answer": said(call["result"]["reply"]), "finish": call["result"]["finish"], "turns": turn + 1}
            same = [(name, plain(text)) for _, name, text in wishes]
            before, repeats = same, repeats + 1 if same == before else 1
            print(f"{self.job['path']}/{turn}: {', '.join(str(name) for name, _ in same)}", file=sys.stderr, flush=True)
            if turn + 1 < self.told.turns:
                texts = await self.grant(turn, wishes, int(call["call_id"].replace("-", "")[:12], 16) / 1000)
                broken = mended(call["result"]["reply"])
                messages = [*(messages + [broken] if broken else [{"$call": call["call_id"]}]), *handed(wishes, texts)]
        raise Ended("out_of_turns", f"No answer in {turn + 1} turns; the last {repeats} wished for this, not run: {' '.join(map(str, same[0]))[:200]}")

    async def ask(self, turn, body):
        """The model's call of a turn. A question that has failed is asked again, under the next key."""
        for number in range(self.told.tries):
            if number:
                await asyncio.sleep(min(60, max(2**number / 4, (last.error.get("retry_after_ms") or 0) / 1000)))
            # The first question is sent in any case, which says whether this is the same task. Of others, what is there counts.
            last = await self.call(self.told.tool, body, f"{self.root}/{turn}/m{number}", look=turn or self.told.go_on)
            if last["state"] == "succeeded" and (wished(last["result"]["reply"]) or said(last["result"]["reply"])):
                return last
            if last["state"] == "refused" and last.error["retryable"]:
                raise Ended("away", last.error["message"])  # its key is free, and the next one has to wait for it
            if last["state"] != "succeeded" and not last.error["retryable"] and last.code not in ("output_invalid", "cancelled"):
                break
        if last["state"] == "succeeded" or last.code == "output_invalid":
            raise Ended("no_answer", f"{self.told.tool} answered nothing, {number + 1} times.")
        hint = " --go-on takes a run as it was begun." if last.code == "idempotency_key_reused" else ""
        raise Ended(last.code, last.error["message"] + hint)

    async def grant(self, turn, wishes, asked_at):
        """Runs the wishes of a turn at the same time; the texts for the model, in order."""
        over = asyncio.create_task(self.over(turn, asked_at))
        doing = [self.wish(turn, place, name, text, over) for place, (_, name, text) in enumerate(wishes)]
        envelopes = (await asyncio.gather(*doing, over, return_exceptions=True))[:-1]  # all of them end, whichever fails
        for failure in filter(lambda envelope: isinstance(envelope, BaseException), envelopes):
            raise failure
        most = RESULTS_CHARACTERS_MAX // len(wishes)
        return [one.text if len(one.text) <= most else one.text[:most] + " … (too long; the rest is left out)" for one in envelopes]

    async def over(self, turn, asked_at):
        """Whether the next question is there already: then nothing of this turn is sent any more."""
        if await self.fleet.get(tool=self.told.tool, idempotency_key=f"{self.root}/{turn + 1}/m0") is not None:
            return True
        if time.time() - asked_at > SENT_WITHIN_SECONDS:
            raise Ended("too_old", "This rested for a day, so what was wished for last may be done and forgotten. Begin a new run.")

    async def wish(self, turn, place, name, text, over):
        if place >= WISHES_MAX:
            return refusal("too_many_wishes", f"Only the first {WISHES_MAX} are run at a time; wish for the rest now.", "simplify")
        if name is None:
            return refusal("broken_wish", "This is no call of a tool: it needs a function with a name, and arguments in JSON.", "fix_arguments")
        same, key, below = (name, plain(text)), f"{self.root}/{turn}/w{place}", f"{self.job['path']}/{turn}/w{place}"
        if self.doubtful.get(same, key) != key:
            call = await self.call(name, b"", self.doubtful[same], over=True)
            if call is None or call["effect"] not in ("none", "not_applied"):
                return call or refusal("in_doubt", "It may have been done before; nobody knows.", "do_not_repeat")
        call = await self.call(name, (text or "{}").encode(errors="surrogatepass"), key, below, name not in self.offered or over)
        if call is None:
            return refusal("unknown_tool", f"There is no {name[:64]!r}. There are: {', '.join(sorted(self.offered))}.", "check_state")
        if call["state"] == "in_doubt" or call.get("source") == "settled":
            self.doubtful[same] = key
        return call

    async def call(self, tool, body, key, below=None, over=False, look=True):
        """The decided call of a key: found, or else sent, unless it is over. It is taken back when this task is cancelled."""
        try:
            call = await self.fleet.get(tool=tool, idempotency_key=key) if look else None
            if call is None and not (await over if asyncio.isfuture(over) else over):
                call = await self.fleet.ask(f"call.{tool}", body, self.headers(key, below), WAIT_SECONDS)
                if look and call.code == "idempotency_key_reused":
                    # Another process of this run was faster, and had other results: a doubt was settled in between.
                    call = await self.fleet.get(tool=tool, idempotency_key=key) or call
            return call and await self.fleet.decided(call)
        except asyncio.CancelledError:
            await self.fleet.take_back(tool=tool, idempotency_key=key)
            raise


def plain(text):  # arguments as they compare
    try:
        return json.dumps(read(text, str), sort_keys=True)
    except (ValueError, RecursionError):
        return text


class Service:
    """Sub-agents: one loop for each call, however many attempts of it arrive."""

    def __init__(self, client, told):
        self.client, self.told, self.tasks = client, told, {}

    def task(self, name, begin):
        if name not in self.tasks:
            self.tasks[name] = task = asyncio.create_task(begin())
            task.add_done_callback(lambda _: self.tasks.pop(name))
        return self.tasks[name]

    async def take(self, request):
        self.task(request, lambda: self.answer(request))

    async def answer(self, request):
        try:
            job = self.read(read(request.data), request.headers or {})
        except Exception as wrong:  # whatever a stranger sent
            return await request.respond_error("400", str(wrong))
        if job["token"]:
            # Kept before it says later: when this service is started again, it goes on with it. The token is a secret.
            (new := self.told.jobs / f"{job['id']}.new").write_text(json.dumps(job))
            new.replace(new.with_suffix(".json"))
            await request.respond(headers={"Toolfleet-Deferred": "true"})
        work = self.task(job["id"], lambda: self.work(job))
        if not job["token"]:
            await request.respond(json.dumps(await asyncio.shield(work)).encode())

    def read(self, arguments, headers):
        """A call as a job; `ValueError` says what the model should do else."""
        id_, meta = headers["Toolfleet-Call-Id"], json.loads(headers.get("Toolfleet-Meta") or "{}").get("agent") or {}
        path, depth = meta.get("path") or id_, int(meta.get("depth", 1))
        if not 0 < depth <= self.told.depth:
            raise ValueError(f"agents may stand {self.told.depth} deep, and this would be {depth}: do it with other tools")
        if not (re.fullmatch(r"[0-9a-f-]{36}", id_) and re.fullmatch(r"[A-Za-z0-9_/-]{1,120}", path)):
            raise ValueError("the path in Toolfleet-Meta is 1 to 120 letters, digits, '_', '-' and '/', and the call has an id")
        place = {"run": headers.get("Toolfleet-Run") or id_, "path": path, "depth": depth, "until": meta.get("until")}
        job = {"id": id_, "tenant": headers["Toolfleet-Tenant"], "token": headers.get("Toolfleet-Completion-Token")}
        return {**job, **place, "task": str(arguments["task"])}

    async def work(self, job):
        """Runs the loop until it ends, or until its call is decided otherwise: taken back, or out of time."""
        fleet = Fleet(self.client, self.told, job["tenant"])
        loop = asyncio.create_task(Loop(fleet, self.told, job).run())
        watch = asyncio.create_task(fleet.decided({"call_id": job["id"], "state": "running"}))
        await asyncio.wait([loop, watch], return_when=asyncio.FIRST_COMPLETED)
        (watch if loop.done() else loop).cancel()
        try:
            result = await loop
        except Exception as error:
            result = ended_by(error).told  # Not a no: what its tools did is done.
        except asyncio.CancelledError:
            result = Ended("cancelled", "It was taken back in the middle. What it had begun may be done.").told
        output = {"call_id": job["id"], "token": job["token"], "result": result}
        while job["token"] and (await fleet.ask("output", output)).error.get("retryable"):
            await asyncio.sleep(1)
        (self.told.jobs / f"{job['id']}.json").unlink(missing_ok=True)
        return result


async def run(told):
    job = {"run": told.run, "path": "main", "depth": 0, "until": told.until, "task": told.task}
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, asyncio.current_task().cancel)
    try:
        connecting = nats.connect(told.nats, max_reconnect_attempts=-1, inbox_prefix=told.inbox)
        fleet = Fleet(await asyncio.wait_for(connecting, 5), told, told.tenant)
        code, answer = 0, await Loop(fleet, told, job).run()
    except Exception as error:
        ended = ended_by(error)
        code, answer = 69 if ended.code == "away" else 1, ended.told
    except asyncio.CancelledError:
        code, answer = 130, Ended("cancelled", "Taken back, with the calls that were open.").told
    print(json.dumps({"run": told.run, **answer}, ensure_ascii=False), flush=True)
    return code


async def serve(told):
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends it as a crash would: nothing is taken back, and goes on at the next start
    service = Service(await nats.connect(told.nats, max_reconnect_attempts=-1, inbox_prefix=told.inbox), told)
    told.jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
    for job in [json.loads(kept.read_text()) for kept in told.jobs.glob("*.json")]:
        service.task(job["id"], lambda job=job: service.work(job))
    listening = await nats.micro.add_service(service.client, nats.micro.ServiceConfig(name="agent", version="1.0.0"))
    await listening.add_endpoint(name="agent", subject=told.subject, handler=service.take)
    # nats-py sends the PING of a flush ahead of subscriptions that it still holds back; the second one is behind them.
    await service.client.flush()
    await service.client.flush()
    print(json.dumps({"ready": True}), flush=True)
    await asyncio.Event().wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--nats", default=os.environ.get("NATS_URL", "nats://127.0.0.1:4222"))
    common.add_argument("--inbox", default=os.environ.get("NATS_INBOX", "_INBOX"), help="the prefix of inboxes")
    common.add_argument("--prefix", default="toolfleet", help="the fleet's prefix")
    common.add_argument("--tool", default="ask_model", help="the model: a chat tool of the protocol openai_chat")
    common.add_argument("--turns", type=int, default=20, metavar="N", help="answers of the model at most, 1 to 200")
    common.add_argument("--tries", type=int, default=3, metavar="N", help="how often a question is asked that fails, 1 to 9")
    common.add_argument("--only", type=lambda names: set(names.split(",")), metavar="NAME,…", help="the tools that are offered")
    common.add_argument("--tools", type=lambda file: json.load(argparse.FileType()(file)), metavar="FILE", help="their definitions")
    ways = parser.add_subparsers(required=True)
    one = ways.add_parser("run", parents=[common], help="one task")
    one.add_argument("--run", required=True, help="the name of the run: 1 to 64 letters, digits, '_' and '-'")
    one.add_argument("--task", required=True)
    one.add_argument("--tenant", default="default")
    one.add_argument("--until", metavar="TIME", help="RFC 3339: no call of the run is taken later")
    one.add_argument("--go-on", action="store_true", help="as it was begun, whatever task and tools are said now")
    one.set_defaults(way=run, patience=60)
    many = ways.add_parser("serve", parents=[common], help="sub-agents, as a NATS tool")
    many.add_argument("--subject", default="tools.research")
    many.add_argument("--depth", type=int, default=3, help="how deep agents may stand below a run")
    many.add_argument("--jobs", type=Path, default=Path("jobs"), help="the folder of what is answered later")
    many.set_defaults(way=serve, patience=float("inf"), go_on=True, run="sub", tenant="default", task="its caller's")
    told = parser.parse_args()
    named = all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in (told.run, told.tenant))
    if not (named and told.task.strip() and 1 <= told.turns <= 200 and 1 <= told.tries <= 9):
        parser.error("--run and --tenant are 1 to 64 letters, digits, '_' and '-'; --task is not empty; --turns and --tries as in --help")
    logging.getLogger("nats").setLevel(logging.CRITICAL)  # what is wrong with a connection shows as a missing answer
    return asyncio.run(told.way(told))


if __name__ == "__main__":
    sys.exit(main())
