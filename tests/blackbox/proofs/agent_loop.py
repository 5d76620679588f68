"""The loop of examples/agent loses nothing when it is killed, and ends well with models that do not: endless, empty, broken, in doubt."""

import asyncio
import contextlib
import json
import signal
import sys
from collections import namedtuple
from pathlib import Path

from client import Client
from fleet import PYTHON, command, tool
from waiting import check, until

ROOT = Path(__file__).resolve().parents[3]
AGENT, DEMO = ROOT / "examples/agent/agent.py", ROOT / "examples/demo_agent.py"
RUN_SECONDS = 60
Ended = namedtuple("Ended", "code said told")
# Fails with every argument, and counts how often it was run.
FAILS = "import pathlib, sys; open(sys.argv[1], 'a').write('x'); sys.exit(3)"
# Has its effect, and dies before it can say so.
DIES = "import os, sys; open(sys.argv[1], 'a').write('x'); os.kill(os.getpid(), 9)"
SLOW = "import time; time.sleep(60)"
# More digits than Python reads as one integer unless it is told to.
DIGITS = "9" * 5000
LONG = "print('{\"n\": ' + '9' * 5000 + '}')"


async def prove(proof):
    await as_told(proof)
    sys.path.insert(0, str(ROOT / "tests/models"))
    import standin

    with standin.StandIn() as server:
        async with proof.fleet(tools(proof, server.url), workers=2) as dev, Client(dev) as client:
            scene = Scene(proof, dev, client, server)
            for part in (
                never_stops, the_same_for_ever, fails_for_ever, tools_that_are_not, answers_nothing, breaks_off, is_in_doubt,
                has_another_task, is_taken_back, rests_too_long, two_at_once, goes_too_deep, is_too_late, is_called_wrongly,
                counts_too_far, wishes_brokenly, says_it_in_parts, has_a_fault, is_paused, is_stopped_while_it_is_down,
            ):  # fmt: skip
                await part(scene)


async def as_told(proof):
    """The story of `make demo-agent`, in its short form unless this is the full one."""
    command = [sys.executable, "-u", str(DEMO), "--toolfleet", proof.program, *(["--short"] if proof.short else [])]
    told = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    try:
        said = [line.decode().rstrip() async for line in told.stdout]
        code = await told.wait()
    finally:
        # It stops what it has started.
        with contextlib.suppress(ProcessLookupError):
            told.terminate()
        await told.wait()
    check(code == 0, "the story of the agent broke off:\n" + "\n".join(said))
    for line in said:
        if line.startswith("  "):
            proof.note(line.strip())


# agent.py on another day: what was asked a moment ago is too old for it.
MUCH_LATER = f"import sys; sys.path.insert(0, {str(AGENT.parent)!r}); import agent; agent.SENT_WITHIN_SECONDS = 0; sys.exit(agent.main())"

# agent.py with a bug where it reads an answer.
FAULTY = f"import sys; sys.path.insert(0, {str(AGENT.parent)!r}); import agent; agent.said = lambda reply: reply['none']; sys.exit(agent.main())"


def tools(proof, url):
    route = {"name": "main", "url": url + "/v1/chat/completions", "model": "m", "headers": {"authorization": "Bearer sk-right"}}
    chat = {"protocol": "openai_chat", "routes": [route]}
    echo = [*PYTHON, "-c", "import sys; print(sys.stdin.read())"]
    model = {
        "name": "ask_model", "version": 1, "description": "Answers a conversation.", "effect": "read", "visibility": "unlisted",
        "executor": {"chat": chat}, "retry": {"max_attempts": 1},
    }  # fmt: skip
    none = {"strategy": "none"}
    failing = tool("fails", "read", [*PYTHON, "-c", FAILS, str(proof.folder / "failed")], retry=none)
    dying = tool("dies", "once", [*PYTHON, "-c", DIES, str(proof.folder / "died")], key="required", retry=none)
    task = {"task": {"type": "string"}}
    deeper = tool("research", "idempotent", {"nats": {"subject": "tools.research"}}, task, ["task"], timeout="30s", idempotency={"valid_for": "24h"})
    later = {**deeper, "name": "research_later", "completion": {"wait": "1m"}, "deadline": "2m"}
    small = {**later, "name": "research_small", "output_limit": 1000}
    slow = tool("slow", "read", [*PYTHON, "-c", SLOW], timeout="90s", deadline="2m")
    long = tool("long", "read", [*PYTHON, "-c", LONG])
    return [model, {**model, "name": "ask_helper"}, tool("look", "read", echo), long, failing, dying, slow, deeper, later, small]


def wish(name, arguments=None):
    return {"name": name, "arguments": {} if arguments is None else arguments}


def raw(calls):
    """A reply with `tool_calls` as they are."""
    return replied({"content": None, "tool_calls": calls}, "tool_calls")


def spoken(content, more=""):
    """A reply that says this, and more of it as text."""
    return replied({"content": content}, "stop", more)


def replied(message, finish, more=""):
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}
    reply = {"id": "r", "object": "chat.completion", "model": "m", "choices": [choice]}
    return {"kind": "raw", "body": json.dumps(reply)[:-1] + more + "}"}


class Scene:
    """One fleet, one stand-in, and agents as they are started at a shell."""

    def __init__(self, proof, dev, client, server):
        self.proof, self.dev, self.client, self.server, self.note = proof, dev, client, server, proof.note

    async def play(self, *rules):
        await asyncio.to_thread(self.server.play, list(rules))

    async def start(self, *words, program=(str(AGENT),)):
        command = [sys.executable, "-B", *program, *words, "--nats", self.dev.info()["nats_url"]]
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, cwd=self.proof.folder)

    async def run(self, run, *words, task="Do it.", **how):
        agent = await self.start("run", "--run", run, "--task", task, *words, **how)
        said, told = await asyncio.wait_for(agent.communicate(), RUN_SECONDS)
        return Ended(agent.returncode, json.loads(said) if said else None, told.decode())

    async def asked(self):
        """What the model's server was asked since the script was played."""
        return [entry["body"] for entry in await asyncio.to_thread(self.server.log)]

    async def calls(self, run):
        """The calls of a run, as `tool: state` by the order in which they were taken."""
        sql = "SELECT tool, state FROM toolfleet.calls WHERE run = :'run' ORDER BY accepted_at, call_id"
        return [f"{row['tool']}: {row['state']}" for row in await self.dev.rows(sql, run=run)]

    async def handed(self):
        """The results that the last question of the model ends with."""
        results = []
        for message in reversed((await self.asked())[-1]["messages"]):
            if message["role"] != "tool":
                break
            results.insert(0, json.loads(message["content"]))
        return results


def failed(ended, code, exit_code=1):
    check(ended.code == exit_code and ended.said and ended.said["error"]["code"] == code, f"wanted {code}: {ended}")
    return ended.said["error"]["message"]


def answered(ended, text):
    check(ended.code == 0 and ended.said["answer"] == text, f"wanted the answer {text!r}: {ended}")


async def never_stops(scene):
    rules = [{"match": {"turn": n}, "answer": {"tool_calls": [wish("look", {"n": n})] * 40}} for n in range(1, 20)]
    await scene.play(*rules)
    message = failed(await scene.run("endless", "--turns", "3"), "out_of_turns")
    calls = await scene.calls("endless")
    check(len(await scene.asked()) == 3 and calls.count("look: succeeded") == 2 * 32 == len(calls) - 3, f"{calls}")
    results = await scene.handed()
    check(results[31]["state"] == "succeeded" and results[32]["error"]["code"] == "too_many_wishes", f"{results[31:33]}")
    scene.note(f"never stops, 40 wishes a turn: 3 questions, 64 calls. {message}")


async def the_same_for_ever(scene):
    await scene.play({"answer": {"tool_calls": [wish("look", {"n": 7})]}})
    message = failed(await scene.run("same", "--turns", "6"), "out_of_turns")
    check("the last 6 wished for this" in message and 'look {"n": 7}' in message, message)
    scene.note(f"the same wish for ever: {message}")


async def fails_for_ever(scene):
    await scene.play({"answer": {"tool_calls": [wish("fails", {"n": 1})]}})
    failed(await scene.run("failing", "--turns", "14"), "out_of_turns")
    ran = (scene.proof.folder / "failed").stat().st_size
    [last] = await scene.handed()
    check(ran == 10 and last["error"]["code"] == "repeated_failure", f"it ran {ran} times, at last {last}")
    scene.note(f"the same failing wish for ever: run {ran} times, then {last['error']['code']}")


async def tools_that_are_not(scene):
    names = ["no_such", "ask_model", "../etc/passwd", "look.*", ">", "Look", "", "n" * 300, "工具"]
    await scene.play({"match": {"turn": 1}, "answer": {"tool_calls": [wish(name) for name in names]}}, {"answer": {"text": "I see."}})
    answered(await scene.run("unknown"), "I see.")
    codes = {result["error"]["code"] for result in await scene.handed()}
    calls = await scene.calls("unknown")
    check(codes == {"unknown_tool"} and len(calls) == 2, f"{codes}, {calls}")
    scene.note(f"{len(names)} tools that are not there or not offered: each is told so, and nothing was called")
    await scene.play({"match": {"turn": 1}, "answer": {"tool_calls": [wish("look", {"n": 1})]}}, {"answer": {"text": "I see."}})
    answered(await scene.run("offered", "--only", "fails"), "I see.")
    answered(await scene.run("offered", "--go-on"), "I see.")
    calls = await scene.calls("offered")
    check(calls == ["ask_model: succeeded"] * 2, f"a wish was sent after the question behind it was asked: {calls}")


async def answers_nothing(scene):
    await scene.play({"answer": {"text": ""}})
    message = failed(await scene.run("empty", "--tries", "2"), "no_answer")
    check(len(await scene.asked()) == 2, f"{await scene.asked()}")
    await scene.play({"answer": {"text": ""}, "times": 1}, {"answer": {"text": "", "finish": "length"}, "times": 1}, {"answer": {"text": "At last."}})
    answered(await scene.run("late"), "At last.")
    answered(await scene.run("late"), "At last.")
    check(len(await scene.asked()) == 3, "the run that was over was asked for again")
    calls = await scene.calls("late")
    check(calls == ["ask_model: failed", "ask_model: succeeded", "ask_model: succeeded"], f"{calls}")
    scene.note(f"an empty answer: {message} One that comes at the third time is found again with the same three questions.")


async def breaks_off(scene):
    broken = ['{"n": ', "nonsense", '{"n": 1, "n": 2}', '{"n": "\\ud800"}', "[1]", '{"n": 1e400}', "[" * 5000]
    wishes = [wish("look", text) for text in broken]
    await scene.play({"match": {"turn": 1}, "answer": {"tool_calls": wishes}}, {"answer": {"text": "Sorry."}})
    answered(await scene.run("broken"), "Sorry.")
    results = await scene.handed()
    codes = [result["error"]["code"] for result in results]
    check(all(result["state"] == "refused" for result in results), f"{codes}")
    scene.note(f"broken arguments go to the door as they are: {', '.join(codes)}")


async def is_in_doubt(scene):
    """A wish that may have had its effect is not sent again, however often the model wishes for it; other arguments are."""
    again = [{"match": {"turn": n}, "answer": {"tool_calls": [wish("dies", text)]}} for n, text in [(1, '{"n": 1}'), (2, '{ "n":1 }'), (3, '{"n": 2}')]]
    await scene.play(*again, {"answer": {"text": "Not sure."}})
    answered(await scene.run("doubt"), "Not sure.")
    died, calls = (scene.proof.folder / "died").stat().st_size, await scene.calls("doubt")
    check(died == 2 and calls.count("dies: in_doubt") == 2, f"it ran {died} times: {calls}")
    told = [json.loads(m["content"]) for m in (await scene.asked())[-1]["messages"] if m["role"] == "tool"]
    check([one["state"] for one in told] == ["in_doubt"] * 3 and told[0]["call_id"] == told[1]["call_id"], f"{told}")
    before = len(await scene.asked())
    # What was in doubt is settled between two starts: the run still finds its own answers.
    row = await scene.dev.row("SELECT call_id FROM toolfleet.calls WHERE run = 'doubt' AND tool = 'dies' AND args ->> 'n' = '1'")
    note = {"call_id": row["call_id"], "outcome": "applied", "result": {}, "actor": "ann", "note": "seen"}
    await until("the call is settled", lambda: settled(scene, note), 30)
    answered(await scene.run("doubt"), "Not sure.")
    check(len(await scene.asked()) == before, "the model was asked again because a doubt was settled")
    scene.note("in doubt: told to the model, not sent again; settled in between, the same run finds the same answer")
    twice = [wish("dies", '{"n": 3}'), wish("dies", '{"n":3}'), wish("look", {"n": 4})]
    await scene.play({"match": {"turn": 1}, "answer": {"tool_calls": twice}}, {"answer": {"text": "Not sure."}})
    answered(await scene.run("doubt-at-once"), "Not sure.")
    died, calls = (scene.proof.folder / "died").stat().st_size, await scene.calls("doubt-at-once")
    check(died == 3 and calls.count("dies: in_doubt") == 1, f"it ran {died - 2} times: {calls}")
    scene.note(f"the same wish twice in one answer: {', '.join(calls)}")


async def settled(scene, note):
    return (await scene.client.request("admin.settle", note)).body.get("source") == "settled"


async def has_another_task(scene):
    await scene.play({"answer": {"text": "One."}})
    answered(await scene.run("task", task="One?"), "One.")
    message = failed(await scene.run("task", task="Two?"), "idempotency_key_reused")
    answered(await scene.run("task", "--go-on", task="Two?"), "One.")
    check(len(await scene.asked()) == 1, "the model was asked again")
    scene.note(f"another task under the same run: {message.rpartition('. ')[2]}")


async def is_taken_back(scene):
    await scene.play({"match": {"turn": 1}, "answer": {"tool_calls": [wish("slow"), wish("slow", {"n": 2})]}}, {"answer": {"text": "Stopped."}})
    agent = await scene.start("run", "--run", "taken", "--task", "Do it.")
    await until("both wishes run", lambda: counted(scene, "taken", "slow: running", 2), 30)
    # Killed, and started again: what it finds under way is its own to take back.
    agent.kill()
    await agent.communicate()
    agent = await scene.start("run", "--run", "taken", "--task", "Do it.")
    await asyncio.wait_for(agent.stderr.readline(), 30)
    agent.send_signal(signal.SIGTERM)
    said, told = await asyncio.wait_for(agent.communicate(), RUN_SECONDS)
    failed(Ended(agent.returncode, json.loads(said), told), "cancelled", 130)
    await until("both are taken back", lambda: counted(scene, "taken", "slow: cancelled", 2), 30)
    answered(await scene.run("taken"), "Stopped.")
    check(len(await scene.asked()) == 2, "a question was asked twice")
    scene.note(f"SIGTERM: {', '.join(await scene.calls('taken'))}; started again, the model is told")


async def rests_too_long(scene):
    """A wish that was not sent within a day is not sent any more: it may have been, and be forgotten."""
    await scene.play({"match": {"turn": 1}, "answer": {"tool_calls": [wish("look", {"n": 1})]}}, {"answer": {"text": "Seen."}})
    failed(await scene.run("rested", "--turns", "1"), "out_of_turns")
    message = failed(await scene.run("rested", program=("-c", MUCH_LATER)), "too_old")
    calls = await scene.calls("rested")
    check(calls == ["ask_model: succeeded"], f"{calls}")
    answered(await scene.run("rested"), "Seen.")
    answered(await scene.run("rested", program=("-c", MUCH_LATER)), "Seen.")
    scene.note(f"started a day later in the middle of a turn: {message}")


async def two_at_once(scene):
    """Three processes of one run are one run."""
    rules = [{"match": {"turn": n}, "answer": {"tool_calls": [wish("look", {"n": n})]}} for n in (1, 2)]
    await scene.play(*rules, {"answer": {"text": "Together."}})
    for ended in await asyncio.gather(*(scene.run("shared") for _ in range(3))):
        answered(ended, "Together.")
    calls = await scene.calls("shared")
    check(len(await scene.asked()) == 3 and calls.count("look: succeeded") == 2 == len(calls) - 3, f"{calls}")
    scene.note(f"three processes of one run: {', '.join(calls)}")


async def counted(scene, run, state, count):
    return (await scene.calls(run)).count(state) == count


async def goes_too_deep(scene):
    """Agents that hand everything on end at the depth that their service allows; one that is killed is asked again."""
    deeper = {"tool_calls": [wish("research", {"task": "You do it."})]}
    await scene.play({"match": {"role": "user"}, "answer": deeper}, {"answer": {"text": "Done."}})
    service = await scene.start("serve", "--depth", "2", "--jobs", str(scene.proof.folder / "jobs"))
    try:
        check(await asyncio.wait_for(service.stdout.readline(), 30), "the service did not start")
        answered(await scene.run("deep"), "Done.")
        calls = await scene.calls("deep")
        check(calls.count("research: succeeded") == 2 and calls.count("research: failed") == 1, f"{calls}")
        check(len(await scene.asked()) == 6, f"{len(await scene.asked())} questions for three loops of two turns")
        sql = "SELECT error ->> 'message' AS message FROM toolfleet.calls WHERE run = 'deep' AND state = 'failed'"
        scene.note(f"agents without end: {(await scene.dev.row(sql))['message']}")
        await refuses_strangers(scene)
        await parent_is_taken_back(scene, "research", "in_doubt")
        await parent_is_taken_back(scene, "research_later", "succeeded")
    finally:
        with contextlib.suppress(ProcessLookupError):
            service.kill()
        await service.wait()


async def refuses_strangers(scene):
    """Who may publish to the service's subject can neither choose its files nor its depth."""
    connection, good = await scene.client.connected(), {"Toolfleet-Call-Id": "0" * 36, "Toolfleet-Tenant": "default", "Toolfleet-Completion-Token": "t"}
    metas = [json.dumps({"agent": agent}) for agent in ({"depth": -9}, {"path": "a b"}, {"until": "2030-01-01\r\nX: y"}, {"until": 5})]
    wrongs = [{"Toolfleet-Meta": meta} for meta in [*metas, "[1]"]]
    for wrong in [*wrongs, {"Toolfleet-Call-Id": "../../" + "0" * 30}, {"Toolfleet-Tenant": "a.b"}]:
        answer = await connection.request("tools.research", b'{"task": "t"}', timeout=10, headers={**good, **wrong})
        check(answer.headers["Nats-Service-Error-Code"] == "400", f"{wrong}: {answer.headers} {answer.data}")
    check(not list((scene.proof.folder / "jobs").iterdir()), "a stranger's job is kept")


async def parent_is_taken_back(scene, name, ends):
    """What an agent's own caller takes back reaches the calls of its sub-agents."""
    handing = {"match": {"role": "user", "text": "hand"}, "answer": {"tool_calls": [wish(name, {"task": "Be slow."})]}}
    await scene.play(handing, {"answer": {"tool_calls": [wish("slow")]}})
    agent = await scene.start("run", "--run", name, "--task", "hand it on")
    await until("the wish of the sub-agent runs", lambda: counted(scene, name, "slow: running", 1), 30)
    agent.send_signal(signal.SIGINT)
    await asyncio.wait_for(agent.communicate(), RUN_SECONDS)
    await until("the wish of the sub-agent is taken back", lambda: counted(scene, name, "slow: cancelled", 1), 30)
    await until("its call says so", lambda: counted(scene, name, f"{name}: {ends}", 1), 30)
    scene.note(f"SIGINT for its parent: {', '.join(await scene.calls(name))}")


async def is_too_late(scene):
    await scene.play({"answer": {"text": "Late."}})
    message = failed(await scene.run("past", "--until", "2020-01-01T00:00:00Z"), "deadline_invalid")
    check(not await scene.asked() and not await scene.calls("past"), "a run whose deadline has passed was asked")
    scene.note(f"a deadline that has passed: {message}")


async def is_called_wrongly(scene):
    for words in (["--run", "a/b"], ["--run", ""], ["--run", "a", "--task", " "], ["--run", "a", "--turns", "0"], ["--run", "a", "--tools", "/nothing"]):
        agent = await scene.start("run", *words, *([] if "--task" in words else ["--task", "t"]))
        said, told = await agent.communicate()
        check(agent.returncode == 2 and not said and b"error" in told, f"{words}: {agent.returncode} {told}")
    gone = await asyncio.create_subprocess_exec(
        sys.executable, str(AGENT), "run", "--run", "a", "--task", "t", "--nats", "nats://127.0.0.1:1", stdout=asyncio.subprocess.PIPE
    )
    said, _ = await asyncio.wait_for(gone.communicate(), RUN_SECONDS)
    check(gone.returncode == 69 and json.loads(said)["error"]["code"] == "away", f"{gone.returncode} {said}")
    scene.note("usage is 2, and no server is 69")


async def counts_too_far(scene):
    """Integers of any length, in a result and in a reply, are handed on digit by digit."""
    await scene.play({"match": {"turn": 1}, "answer": {"tool_calls": [wish("long")]}}, {"fault": spoken("Many.", f', "seen": {DIGITS}')})
    answered(await scene.run("digits"), "Many.")
    [told] = [message["content"] for message in (await scene.asked())[-1]["messages"] if message["role"] == "tool"]
    check(DIGITS in told, f"not all digits were handed on: {told[:200]}")
    scene.note(f"an integer of {len(DIGITS)} digits, in a reply and in a result: the model is handed all of them")


async def wishes_brokenly(scene):
    """What is no wish is told to the model, in a conversation that its vendor takes; what is one is done."""
    look, named = {"name": "look", "arguments": {"n": 7}}, {"name": "look", "arguments": '{"n": 8}'}
    wishes = [None, "look", {"id": "b", "function": "look"}, {"id": "c", "function": {"name": 5}}, {"id": "d", "function": look}, {"function": named}]
    for run, calls, codes in (
        ("broken-list", wishes, ["broken_wish"] * 4),
        ("broken-object", {"id": "a", "function": look}, ["broken_wish"]),
        ("broken-null", [None], ["broken_wish"]),
    ):
        await scene.play({"match": {"turn": 1}, "fault": raw(calls)}, {"answer": {"text": "Sorry."}})
        answered(await scene.run(run), "Sorry.")
        results = await scene.handed()
        check([result["error"]["code"] for result in results if result["is_error"]] == codes, f"{run}: {results}")
        check([result["result"]["n"] for result in results if not result["is_error"]] == ([7, 8] if calls is wishes else []), f"{results}")
    await scene.play({"match": {"turn": 1}, "fault": raw(wishes)}, {"match": {"turn": 2}, "answer": {"tool_calls": [wish("look")]}}, {"answer": {"text": "Well."}})
    answered(await scene.run("broken-then-well"), "Well.")
    ids = [message["tool_call_id"] for message in (await scene.asked())[-1]["messages"] if message["role"] == "tool"]
    check(len(set(ids)) == len(ids) == len(wishes) + 1, f"{ids}")
    call = {"id": "x", "type": "function", "function": {"name": "look", "arguments": '{"n": 9}'}}
    for run, calls in (
        ("broken-ids", [call, call]),
        ("broken-one-id", [{**call, "id": "call_1"}, {**call, "id": None}]),
        ("broken-type", [{**call, "type": None}]),
        ("broken-arguments", [{**call, "function": {"name": "look"}}]),
        ("broken-name", [{**call, "function": {"name": "lo ok/" + "k" * 99, "arguments": "{}"}}]),
        ("broken-no-name", [{**call, "function": {"arguments": "{}"}}]),
    ):
        await scene.play({"match": {"turn": 1}, "fault": raw(calls)}, {"answer": {"text": "Sorry."}})
        answered(await scene.run(run), "Sorry.")
    scene.note("wishes that are none: each is told so; arguments as an object are sent as JSON, and a call without an id has one")


async def says_it_in_parts(scene):
    parts = [{"type": "text", "text": "In "}, None, {"type": "thinking"}, {"type": "text", "text": "parts."}]
    await scene.play({"fault": spoken(parts)})
    answered(await scene.run("parts"), "In parts.")
    await scene.play({"fault": spoken(" \n")})
    failed(await scene.run("blank", "--tries", "2"), "no_answer")
    await scene.play({"fault": spoken([{"type": "text", "text": "\t"}])})
    failed(await scene.run("blank-parts", "--tries", "2"), "no_answer")
    scene.note("an answer in parts is joined, and blanks are none")


async def has_a_fault(scene):
    """A bug of the loop is the end of one task, and not again of each start."""
    await scene.play({"match": {"role": "user", "text": "hand"}, "answer": {"tool_calls": [wish("research_later", {"task": "Try."})]}}, {"answer": {"text": "Done."}})
    message = failed(await scene.run("faulty", program=("-c", FAULTY)), "fault")
    jobs = scene.proof.folder / "faulty-jobs"
    service = await scene.start("serve", "--jobs", str(jobs), program=("-c", FAULTY))
    try:
        check(await asyncio.wait_for(service.stdout.readline(), 30), "the service did not start")
        answered(await scene.run("handing", task="hand it on"), "Done.")
        [result] = await scene.handed()
        check(result["result"]["error"]["code"] == "fault", f"{result}")
        await until("the job is forgotten", lambda: forgotten(jobs), 30)
    finally:
        with contextlib.suppress(ProcessLookupError):
            service.kill()
        await service.wait()
    scene.note(f"a bug of the loop, alone and as a sub-agent: {message}")


async def forgotten(jobs):
    return not list(jobs.iterdir())


@contextlib.asynccontextmanager
async def serving(scene, *words):
    """The service of sub-agents; what it leaves is a crash."""
    service = await scene.start("serve", *words)
    try:
        check(await asyncio.wait_for(service.stdout.readline(), 30), "the service did not start")
        yield service
    finally:
        with contextlib.suppress(ProcessLookupError):
            service.kill()
        await service.wait()


def handing(name):
    return {"match": {"role": "user", "text": "hand"}, "answer": {"tool_calls": [wish(name, {"task": "Try."})]}}


async def is_paused(scene):
    """A sub-agent whose model is paused waits, and one whose answer its tool does not take says so."""
    jobs = scene.proof.folder / "paused-jobs"
    async with serving(scene, "--tool", "ask_helper", "--jobs", str(jobs)):
        await scene.play(handing("research_later"), {"answer": {"text": "Done."}})
        await command(scene.dev, "control", "pause", "--tool=ask_helper", "--refuse", "--actor=proof", "--note=as a proof")
        run = asyncio.create_task(scene.run("paused", task="hand it on"))
        await until("the sub-agent waits", lambda: counted(scene, "paused", "research_later: awaiting_client", 1), 30)
        await asyncio.sleep(2)
        check(await counted(scene, "paused", "research_later: awaiting_client", 1), f"{await scene.calls('paused')}")
        await command(scene.dev, "control", "resume", "--tool=ask_helper", "--actor=proof", "--note=done")
        answered(await run, "Done.")
        [result] = await scene.handed()
        check(result["result"]["answer"] == "Done.", f"{result}")
        scene.note(f"a sub-agent whose model was paused: {', '.join(await scene.calls('paused'))}")
        large = {"match": {"role": "user", "text": "Try"}, "answer": {"text": "x" * 2000}}
        await scene.play(handing("research_small"), large, {"answer": {"text": "Done."}})
        answered(await scene.run("large", task="hand it on"), "Done.")
        [result] = await scene.handed()
        check(result["result"]["error"]["code"] == "too_large", f"{result}")
        await until("the job is forgotten", lambda: forgotten(jobs), 30)
        scene.note(f"an answer larger than its tool allows: {result['result']['error']['message']}")


async def is_stopped_while_it_is_down(scene):
    """A sub-agent is killed, its call is taken back, and it is started again: it takes back what it had begun, and sends nothing."""
    jobs = scene.proof.folder / "down-jobs"
    rules = [handing("research_later"), {"match": {"turn": 1}, "answer": {"tool_calls": [wish("look", {"n": 1})]}}]
    await scene.play(*rules, {"answer": {"tool_calls": [wish("slow")]}})
    async with serving(scene, "--jobs", str(jobs)):
        agent = await scene.start("run", "--run", "down", "--task", "hand it on")
        await until("the wish of the sub-agent runs", lambda: counted(scene, "down", "slow: running", 1), 30)
    agent.send_signal(signal.SIGINT)
    await asyncio.wait_for(agent.communicate(), RUN_SECONDS)
    await until("its call is in doubt", lambda: counted(scene, "down", "research_later: in_doubt", 1), 30)
    check(await counted(scene, "down", "slow: running", 1), f"{await scene.calls('down')}")
    before = len(await scene.asked())
    (jobs / "broken.json").write_text("{")
    async with serving(scene, "--jobs", str(jobs)):
        await until("the wish is taken back", lambda: counted(scene, "down", "slow: cancelled", 1), 30)
        await until("its call says so", lambda: counted(scene, "down", "research_later: succeeded", 1), 30)
        (jobs / "broken.json").unlink()
        await until("the job is forgotten", lambda: forgotten(jobs), 30)
    check(len(await scene.asked()) == before, "the model was asked though nobody waits")
    scene.note(f"taken back while its sub-agent was down: {', '.join(await scene.calls('down'))}")
