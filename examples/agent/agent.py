#!/usr/bin/env python3
"""An agent that loses nothing: it asks a model, runs its wishes, and hands it the envelopes, until it answers.

    agent.py run --run ID --task "…"     the same ID again goes on where it was, after any crash
    agent.py serve                       the same loop as a NATS tool: the sub-agents of other agents

Every call has a key made of run, path, turn and place, so what was done is found again: docs/agents.md. Needs `nats-py`.
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

import nats.micro

WAIT_SECONDS, JOBS_MAX = 30, 256  # of a request; of a `serve`, at a time
SENT_WITHIN_SECONDS = 23 * 3600  # of the answer that wished for it: the keys of tools live for 24 hours at least
PASSING = ("overloaded", "quota_exceeded", "rate_limited", "store_unavailable")
WISHES_MAX, RESULTS_CHARACTERS_MAX = 32, 300_000  # of a turn; a question has at most 1 MiB, and JSON within JSON grows
NAME, PATH, TIME = r"[A-Za-z0-9_-]{1,64}", r"[A-Za-z0-9_/-]{1,120}", r"([0-9-]{10}[Tt ][0-9:.]{8,18}([Zz]|[+-][0-9:]{5}))?"
BRIEF = "Work on the task with the tools. When it is done, answer without a tool."

# ==== The protocol openai_chat, down to the next line like this. Another one needs other functions here, and its tools in `Loop.run`. ====
# A model may write anything. The fleet promises only that a reply has a first choice with a message.


def opening(task, brief):
    return [{"role": "system", "content": brief}, {"role": "user", "content": task}]


def said(reply):
    """The text of a reply, its parts joined; blanks alone are none."""
    message = reply["choices"][0]["message"]
    for content in (message.get("content"), message.get("refusal")):
        parts = content if isinstance(content, list) else [content]
        texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
        text = "".join(text for text in texts if isinstance(text, str))
        if text.strip():
            return text
    return ""


def wished(reply):
    """The wishes of a reply: id, name (None: it is no wish), arguments as the model wrote them, and whether vendors would take it back."""
    wishes, calls = [], reply["choices"][0]["message"].get("tool_calls") or []
    for place, call in enumerate(calls if isinstance(calls, list) else [None]):
        call = call if isinstance(call, dict) else {}
        function = call.get("function") if isinstance(call.get("function"), dict) else {}
        written = id_, name, arguments = call.get("id"), function.get("name"), function.get("arguments")
        try:
            text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False, allow_nan=False)
        except (ValueError, TypeError):  # a number that `read` could not read
            name, text = None, ""
        mended = id_ if id_ and isinstance(id_, str) else f"call_{place}", name if isinstance(name, str) else None, text
        wishes.append((*mended, mended == written and call.get("type") == "function" and bool(re.fullmatch(NAME, name or ""))))
    distinct = len({id_ for id_, *_ in wishes}) == len(wishes)
    return wishes if distinct else [(f"call_{place}", name, text, False) for place, (_, name, text, _) in enumerate(wishes)]


def handed(messages, call, texts):
    """The next messages: a reply, by its call or, where vendors would not take a wish of it back, mended; then the results."""
    wishes = wished(call["result"]["reply"])
    named = [(id_, re.sub("[^A-Za-z0-9_-]", "_", name or "none")[:64], text) for id_, name, text, _ in wishes]
    calls = [{"id": id_, "type": "function", "function": {"name": name, "arguments": text}} for id_, name, text in named]
    mended = {"role": "assistant", "content": said(call["result"]["reply"]) or None, "tool_calls": calls}
    before = [{"$call": call["call_id"]}] if all(taken for *_, taken in wishes) else [*messages, mended]
    return before + [{"role": "tool", "tool_call_id": id_, "content": text} for (id_, *_), text in zip(wishes, texts)]


# ==== The end of the protocol. ====

class Ended(Exception):
    """There is no answer: the exit code, a stable code, and a sentence. The code `away` says that it is too early to tell."""


async def outcome(loop):  # its exit code, and its answer or why there is none
    try:
        return 0, await loop
    except Ended as ended:
        exit_code, code, message = ended.args
    except asyncio.CancelledError:
        exit_code, code, message = 130, "cancelled", "It was taken back, with the calls that were open. What it had begun may be done."
    except (nats.errors.Error, asyncio.TimeoutError, OSError) as error:
        exit_code, code, message = 69, "away", f"nats-server: {error!r}"
    except Exception as error:  # A bug, which the next start would only meet again. Its words may have what tools said.
        lines = ", ".join(str(frame.lineno) for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__)
        exit_code, code, message = 1, "fault", f"{type(error).__name__} in the lines {lines} of this program. What was begun may be done."
    return exit_code, {"answer": None, "error": {"code": code, "message": message}}


def read(text, long=lambda digits: object()):
    """JSON. An integer of more digits than every Python reads is `long`: unless told, nothing that JSON could have again."""
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 640 else long(digits))


def envelope(told, text=None):  # what the fleet, or this program, said; `text` is that in every digit, as a model is handed it
    return {**told, "text": text or json.dumps(told), "error": told.get("error") or {"code": None, "retryable": False}}


def refusal(code, message, suggestion):
    error = {"code": code, "message": message, "retryable": False, "suggestion": suggestion}
    return envelope({"call_id": None, "state": "refused", "outcome": "refused", "is_error": True, "effect": "none", "error": error})


def plain(name, text):  # a wish as it compares
    try:
        return f"{name} {json.dumps(read(text, str), sort_keys=True)}"
    except (ValueError, RecursionError):
        return f"{name} {text}"


class Loop:
    """One task, turn by turn. `job` has the task, its tenant, where in a run it stands (run, path, depth), and until when."""

    def __init__(self, client, told, job):
        self.client, self.told, self.job, self.root, self.leaving = client, told, job, f"{job['run']}/{job['path']}", False

    async def run(self):
        """The answer, or `Ended`. Taken back, it goes all the way once more, sends nothing, and takes back what is open."""
        try:
            return await self.walk()
        except asyncio.CancelledError:
            self.leaving = True
            await asyncio.sleep(1)  # A call may be on its way.
            return await self.walk()

    async def walk(self):
        self.doubtful, self.locks = {}, {}  # by wish: the key of one whose effect is or was unknown; what lets equal ones in one by one
        listed = await self.request("tools", {"format": "openai"})
        tools = listed["tools"] if self.told.tools is None else self.told.tools
        tools = [tool for tool in tools if not self.told.only or tool["function"]["name"] in self.told.only]
        self.offered = {tool["function"]["name"] for tool in tools}
        messages, before, times = opening(self.job["task"], f"{BRIEF}\n\n{listed['instructions']['en']}"), None, 1
        for turn in range(self.told.turns):
            call = await self.ask(turn, {"messages": messages, **({"tools": tools} if tools else {})})
            wishes = wished(call["result"]["reply"])
            if not wishes:
                return {"answer": said(call["result"]["reply"]), "finish": call["result"]["finish"], "turns": turn + 1}
            same = [plain(name, text) for _, name, text, _ in wishes]
            before, times = same, times + 1 if same == before else 1
            print(f"{self.job['path']}/{turn}: {', '.join(str(name) for _, name, _, _ in wishes)}", file=sys.stderr, flush=True)
            if turn + 1 == self.told.turns:
                raise Ended(1, "out_of_turns", f"No answer in {turn + 1} turns; the last {times} wished for this, not run: {same[0][:200]}")
            over = asyncio.create_task(self.get(self.told.tool, f"{self.root}/{turn + 1}/m0"))  # then nothing of this turn is sent any more
            late = time.time() - int(call["call_id"].replace("-", "")[:12], 16) / 1000 > SENT_WITHIN_SECONDS  # an id begins with its time
            doing = [asyncio.create_task(self.wish(turn, place, name, text, over, late)) for place, (_, name, text, _) in enumerate(wishes)]
            await asyncio.gather(*doing, over, return_exceptions=True)  # all of them end, whichever fails
            texts, most = [one.result()["text"] for one in doing], RESULTS_CHARACTERS_MAX // len(wishes)
            texts = [text if len(text) <= most else text[:most] + " … (too long; the rest is left out)" for text in texts]
            messages = handed(messages, call, texts)

    async def ask(self, turn, body):
        """The model's call of a turn. A question that has failed is asked again, under the next key."""
        for number in range(self.told.tries):
            if number and not self.leaving:
                await asyncio.sleep(min(60, max(2**number / 4, (last["error"].get("retry_after_ms") or 0) / 1000)))
            # The first question is sent in any case: the fleet says whether it is the same task. Others are looked for first.
            last = await self.call(self.told.tool, f"{self.root}/{turn}/m{number}", body, look=turn or self.told.go_on)
            if last["state"] == "succeeded" and (wished(last["result"]["reply"]) or said(last["result"]["reply"])):
                return last
            empty = last["state"] == "succeeded" or last["error"]["code"] == "output_invalid"
            if not (empty or last["error"]["retryable"] or last["error"]["code"] == "cancelled"):
                break
        if empty:
            raise Ended(1, "no_answer", f"{self.told.tool} answered nothing, {number + 1} times.")
        hint = " --go-on takes a run as it was begun." if last["error"]["code"] == "idempotency_key_reused" else ""
        raise Ended(1, last["error"]["code"], last["error"]["message"] + hint)

    async def wish(self, turn, place, name, text, over, late):
        """The envelope of a wish: of its call as it is found, or else sent, unless the turn is over or it is too late."""
        if place >= WISHES_MAX:
            return refusal("too_many_wishes", f"Only the first {WISHES_MAX} are run at a time; wish for the rest now.", "simplify")
        if name is None:
            return refusal("broken_wish", "No call of a tool: it needs a function with a name, and arguments in JSON.", "fix_arguments")
        same, key, below = plain(name, text), f"{self.root}/{turn}/w{place}", f"{self.job['path']}/{turn}/w{place}"
        async with self.locks.setdefault(same, asyncio.Lock()):
            if self.doubtful.get(same, key) != key:
                call = await self.call(name, self.doubtful[same])
                if call is None or call["effect"] not in ("none", "not_applied"):
                    return call or refusal("in_doubt", "It may have been done before; nobody knows.", "do_not_repeat")
            call = await self.call(name, key)
            if call is None and name in self.offered and await over is None:
                if late:
                    raise Ended(1, "too_old", "This rested for a day: what was wished for may be done and forgotten. Begin a new run.")
                call = await self.call(name, key, (text or "{}").encode(errors="surrogatepass"), below)
            if call and (call["state"] == "in_doubt" or call.get("source") == "settled"):
                self.doubtful[same] = key
        return call or refusal("unknown_tool", f"There is no {name[:64]!r}. There are: {', '.join(sorted(self.offered))}.", "check_state")

    async def call(self, tool, key, body=None, below=None, look=True):
        """The decided call of a key: found, or else sent if there is a body. `below` is the path of a sub-agent, if the tool is one."""
        run, until = self.job["run"], self.job["until"]
        meta = below and json.dumps({"agent": {"path": below, "depth": self.job["depth"] + 1, "until": until}})
        headers = {"Idempotency-Key": key, "Prefer": f"wait={WAIT_SECONDS}", "Toolfleet-Run": run, "Toolfleet-Session": run}
        headers |= {name: value for name, value in (("Toolfleet-Run-Deadline", until), ("Toolfleet-Meta", meta)) if value}
        call = await self.get(tool, key) if look or self.leaving else None
        if self.leaving and (body is not None if call is None else "outcome" not in call):
            if call:
                await self.request("cancel", {"call_id": call["call_id"]})
            raise asyncio.CancelledError
        if call is None and body is not None:
            call = await self.request(f"call.{tool}", body, headers, WAIT_SECONDS)
            if look and call["error"]["code"] == "idempotency_key_reused":  # by another process; a doubt was settled in between
                call = await self.get(tool, key) or call
        return call and await self.decided(call)

    async def get(self, tool, key):  # the call of a key as it stands; None where there is none
        call = await self.request("get", {"tool": tool, "idempotency_key": key})
        return None if call.get("state") == "refused" else call

    async def decided(self, call):  # waits until it is, or in doubt; a refusal is, too
        while "outcome" not in call:
            call = await self.request("get", {"call_id": call["call_id"], "wait_ms": WAIT_SECONDS * 1000}, wait=WAIT_SECONDS)
        return call

    async def request(self, endpoint, body, headers=None, wait=0):
        """One answer of the fleet. This asks again until there is one: its key, or that it only asks, makes that safe."""
        data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode(errors="replace")
        subject, ends, pause = f"{self.told.prefix}.v1.{self.job['tenant']}.{endpoint}", time.monotonic() + self.told.patience, 0.1
        while True:
            try:
                text = (await self.client.request(subject, data, wait + 10, headers=headers)).data.decode()
                told = envelope(read(text), text)
                problem = told["error"]["code"] if told.get("state") == "refused" else None
                if not (problem in PASSING or problem and told["error"]["retryable"] and endpoint in ("output", f"call.{self.told.tool}")):
                    return told
            except nats.errors.MaxPayloadError:
                return refusal("payload_too_large", f"This has {len(data)} bytes, and nats-server takes fewer.", "simplify")
            except (nats.errors.Error, asyncio.TimeoutError, OSError) as error:
                problem = repr(error)
            if time.monotonic() + pause > ends:
                raise Ended(69, "away", f"{endpoint}: {problem}; start it again later")
            await asyncio.sleep(pause := min(2 * pause, 5))


class Service:
    """Sub-agents: one loop for each call, however many attempts of it arrive."""

    def __init__(self, told):
        self.told, self.open = told, {}  # by job: its task, and the attempts that wait for its answer

    async def serve(self):
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends it as a crash would: nothing is taken back, and goes on at the next start
        self.client = await nats.connect(self.told.nats, max_reconnect_attempts=-1, inbox_prefix=self.told.inbox)
        self.told.jobs.mkdir(mode=0o700, parents=True, exist_ok=True)  # for nobody else: a token is a secret
        for kept in self.told.jobs.glob("*.json"):
            try:
                job = json.loads(kept.read_text())
                self.open[job["id"]] = asyncio.create_task(self.work(job)), []
            except Exception as wrong:
                print(f"{kept} is left out: {wrong!r}", file=sys.stderr, flush=True)
        service = await nats.micro.add_service(self.client, name="agent", version="1.0.0")
        await service.add_endpoint(name="agent", subject=self.told.subject, handler=self.take)
        await self.client.flush()
        await self.client.flush()  # nats-py sends the PING of the first one ahead of subscriptions that it still holds back
        print(json.dumps({"ready": True}), flush=True)
        await asyncio.Event().wait()

    async def take(self, request):
        """An attempt of a call: reads its job and begins it. A job with a token is answered later, so it is kept first."""
        try:
            task, headers = str(read(request.data)["task"]), request.headers or {}
            id_, meta = headers["Toolfleet-Call-Id"], json.loads(headers.get("Toolfleet-Meta") or "{}").get("agent") or {}
            path, depth, until = meta.get("path") or id_, int(meta.get("depth", 1)), meta.get("until") or ""
            if not 0 < depth <= self.told.depth:
                raise ValueError(f"agents may stand {self.told.depth} deep, and this would be {depth}: do it with other tools")
            forms = (r"[0-9a-f-]{36}", id_), (NAME, headers["Toolfleet-Tenant"]), (PATH, path), (TIME, until)
            if not all(re.fullmatch(*form) for form in forms):
                raise ValueError("in Toolfleet-Meta, path is 1 to 120 letters, digits, '_', '-' and '/', and until an RFC 3339 time")
            job = {"id": id_, "tenant": headers["Toolfleet-Tenant"], "token": headers.get("Toolfleet-Completion-Token"), "task": task}
            job |= {"run": headers.get("Toolfleet-Run") or id_, "path": path, "depth": depth, "until": until}
        except Exception as wrong:  # whatever a stranger sent
            return await request.respond_error("400", str(wrong))
        if len(self.open) >= JOBS_MAX and id_ not in self.open:
            return await request.respond_error("503", f"{JOBS_MAX} tasks are open")
        if job["token"]:
            with (new := self.told.jobs / f"{id_}.new").open("w") as file:
                print(json.dumps(job), file=file, flush=True)
                os.fsync(file.fileno())
            new.replace(new.with_suffix(".json"))
            await request.respond(headers={"Toolfleet-Deferred": "true"})
        self.open[id_] = self.open.get(id_) or (asyncio.create_task(self.work(job)), [])
        self.open[id_][1].extend([] if job["token"] else [request])

    async def work(self, job):
        """Runs the loop until it ends, or until its call is decided otherwise: taken back, or out of time."""
        loop = Loop(self.client, self.told, job)
        running, watch = asyncio.create_task(loop.run()), asyncio.create_task(loop.decided({"call_id": job["id"]}))
        await asyncio.wait([running, watch], return_when=asyncio.FIRST_COMPLETED)
        (watch if running.done() else running).cancel()
        _, result = await outcome(running)  # Without an answer it is a result too, and not a no: what its tools did is done.
        output = {"call_id": job["id"], "token": job["token"], "result": result}
        if job["token"] and (no := await loop.request("output", output)).get("state") == "refused":  # too large, or the call is over
            await loop.request("output", {**output, "result": {"answer": None, "error": {**no["error"], "code": "too_large"}}})
        (self.told.jobs / f"{job['id']}.json").unlink(missing_ok=True)
        for attempt in self.open.pop(job["id"])[1]:
            await attempt.respond(json.dumps(result).encode())


async def run(told):
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, asyncio.current_task().cancel)
    connecting = nats.connect(told.nats, max_reconnect_attempts=-1, inbox_prefix=told.inbox)
    job = {"run": told.run, "path": "main", "depth": 0, "until": told.until, "task": told.task, "tenant": told.tenant}
    return await Loop(await asyncio.wait_for(connecting, 5), told, job).run()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ways = parser.add_subparsers(required=True)
    one, many = ways.add_parser("run", help="one task"), ways.add_parser("serve", help="sub-agents, as a NATS tool")
    for both in (one, many):
        both.add_argument("--nats", default=os.environ.get("NATS_URL", "nats://127.0.0.1:4222"))
        both.add_argument("--inbox", default=os.environ.get("NATS_INBOX", "_INBOX"), help="the prefix of inboxes")
        both.add_argument("--prefix", default="toolfleet", help="the fleet's prefix")
        both.add_argument("--tool", default="ask_model", help="the model: a chat tool of the protocol openai_chat")
        both.add_argument("--turns", type=int, default=20, metavar="N", help="answers of the model at most, 1 to 200")
        both.add_argument("--tries", type=int, default=3, choices=range(1, 10), metavar="N", help="of a question that fails, 1 to 9")
        both.add_argument("--only", type=lambda names: set(names.split(",")), metavar="NAME,…", help="the tools that are offered")
        both.add_argument("--tools", type=lambda file: json.load(argparse.FileType()(file)), metavar="FILE", help="their definitions")
    one.add_argument("--run", required=True, help="the name of the run: 1 to 64 letters, digits, '_' and '-'")
    one.add_argument("--task", required=True)
    one.add_argument("--tenant", default="default")
    one.add_argument("--until", metavar="TIME", help="RFC 3339: no call of the run is taken later")
    one.add_argument("--go-on", action="store_true", help="as it was begun, whatever task and tools are said now")
    one.set_defaults(way=lambda told: outcome(run(told)), patience=60)
    many.add_argument("--subject", default="tools.research")
    many.add_argument("--depth", type=int, default=3, help="how deep agents may stand below a run")
    many.add_argument("--jobs", type=Path, default=Path("jobs"), help="the folder of what is answered later")
    many.set_defaults(way=lambda told: Service(told).serve(), patience=float("inf"), go_on=True, run="-", tenant="-", task="-")
    told = parser.parse_args()
    if not (re.fullmatch(NAME, told.run) and re.fullmatch(NAME, told.tenant) and told.task.strip() and 1 <= told.turns <= 200):
        parser.error("--run and --tenant are 1 to 64 letters, digits, '_' and '-'; --task is not empty; --turns is 1 to 200")
    logging.getLogger("nats").setLevel(logging.CRITICAL)  # what is wrong with a connection shows as a missing answer
    exit_code, answer = asyncio.run(told.way(told))
    print(json.dumps({"run": told.run, **answer}, ensure_ascii=False), flush=True)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
