#!/usr/bin/env python3
"""A story in fourteen chapters: a fleet on this machine, the calls of an agent, workers that die, and a service that does.

Everything it says is checked: the first claim that does not hold ends it with a sentence and exit code 1.
It needs no more than a stock NATS client (`nats-py`) and `psql`.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nats

# The folder of this file is full of examples, and stays as it is.
sys.dont_write_bytecode = True

from demo_breaker import a_target_fails
from demo_copies import tools_to_copy
from telling import NotAsTold, claim, paint, show, tell

HERE = Path(__file__).resolve().parent
SHARED = HERE / "texts"
# How long a charge takes to be answered: long enough to kill a worker in between.
CHARGE_SLOW_MS = 3_000
READY_SECONDS = 60
STOP_SECONDS = 30


class Story:
    """The services, the fleet and the caller; leaving it stops everything it started."""

    def __init__(self, program):
        self.program = program
        self.folder = Path(tempfile.mkdtemp(prefix="toolfleet-demo-"))
        # As root, Postgres runs as another user, who must be able to pass through.
        self.folder.chmod(0o755)
        self.ledger = self.folder / "ledger.jsonl"
        self.started = []
        self.fleet = None
        self.client = None
        self.chapters = 0

    def chapter(self, title):
        self.chapters += 1
        print("\n" + paint("1", f"{self.chapters}. {title}"))

    async def begin(self):
        """Starts the two services and the fleet with the tools of examples/tools."""
        slow = ["--ledger", str(self.ledger), "--slow-ms", str(CHARGE_SLOW_MS)]
        _, weather = self.serve("weather_service.py")
        _, payments = self.serve("payment_service.py", *slow)
        real = {
            "http://127.0.0.1:8701": f"http://127.0.0.1:{weather}",
            "http://127.0.0.1:8702": f"http://127.0.0.1:{payments}",
            "[python3, examples/word_count.py, --root, examples/texts]": json.dumps(
                [sys.executable, "-I", "-S", str(HERE / "word_count.py"), "--root", str(SHARED)]
            ),
        }
        (self.folder / "tools").mkdir()
        for manifest in sorted((HERE / "tools").glob("*.yaml")):
            text = manifest.read_text()
            for default, actual in real.items():
                text = text.replace(default, actual)
            (self.folder / "tools" / manifest.name).write_text(text)
            if manifest.stem == "charge_account":
                # The same tool without its probe: nobody but a person can find out.
                text = text.replace("name: charge_account", "name: charge_unasked")
                text = text[: text.index("# When nobody knows")].replace("timeout: 5s", "timeout: 6s")
                (self.folder / "tools" / "charge_unasked.yaml").write_text(text)

        command = [self.program, "dev", "--data", str(self.folder / "data"), "--workers", "2"]
        command += ["--tools", str(self.folder / "tools")]
        # Free ports: the usual ones are for a fleet that stays.
        command += ["--nats-port", "0", "--postgres-port", "0", "--http-port", "0", "--gateway-port", "0"]
        began = time.monotonic()
        with (self.folder / "dev.log").open("wb") as log:
            self.fleet = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )
        await self.until("toolfleet dev is ready", self.is_ready, READY_SECONDS)
        self.client = await nats.connect(self.dev()["nats_url"])
        return time.monotonic() - began

    def serve(self, name, *options, port=0):
        """Starts one of the example services; its process, and its port, which it is asked for."""
        command = [sys.executable, "-I", str(HERE / name), "--port", str(port), *options]
        service = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.started.append(service)
        return service, json.loads(service.stdout.readline())["port"]

    def is_ready(self):
        code = self.fleet.poll()
        if code is not None:
            raise NotAsTold(f"toolfleet dev ended with code {code} before it was ready")
        return (self.folder / "data/dev.json").exists()

    def dev(self):
        """dev.json: where everything is, and which processes there are."""
        return json.loads((self.folder / "data/dev.json").read_bytes())

    async def until(self, what, fact, seconds):
        """Waits for a fact, not for time."""
        ends = time.monotonic() + seconds
        while True:
            seen = fact()
            seen = await seen if asyncio.iscoroutine(seen) else seen
            if seen:
                return seen
            if time.monotonic() > ends:
                raise NotAsTold(f"Not within {seconds} s: {what}.")
            await asyncio.sleep(0.05)

    async def call(self, tool, arguments, key=None, prefer="wait=60"):
        """What an agent does: one request, one answer."""
        said = f"{tool} {json.dumps(arguments, ensure_ascii=False)}"
        print(paint("36", f"  → {said}") + (f"   Idempotency-Key: {key}" if key else ""))
        return await self.ask(tool, arguments, key, prefer)

    async def ask(self, tool, arguments, key=None, prefer="wait=60"):
        """The same without a word."""
        headers = {"Prefer": prefer, **({"Idempotency-Key": key} if key else {})}
        subject = f"toolfleet.v1.default.call.{tool}"
        reply = await self.client.request(subject, json.dumps(arguments).encode(), 70, headers=headers)
        return json.loads(reply.data)

    async def get(self, call_id, wait_ms):
        body = json.dumps({"call_id": call_id, "wait_ms": wait_ms}).encode()
        reply = await self.client.request("toolfleet.v1.default.get", body, 10 + wait_ms / 1000)
        return json.loads(reply.data)

    async def offered(self):
        """The definitions of all tools, as a caller is told them."""
        reply = await self.client.request("toolfleet.v1.default.tools", b'{"format": "full"}', 10)
        return json.loads(reply.data)["tools"]

    def rows(self, sql, call_id):
        """What any SQL client sees; :'id' stands for the call's id."""
        psql = shutil.which("psql", path=os.environ.get("TOOLFLEET_POSTGRES_BIN") or os.environ["PATH"])
        if psql is None:
            raise NotAsTold("psql is not found; set TOOLFLEET_POSTGRES_BIN to the folder it is in.")
        command = [psql, "-XqAt", "-v", "ON_ERROR_STOP=1", "-v", f"id={call_id}", self.dev()["database_url"]]
        asked = f"SELECT coalesce(json_agg(rows), '[]') FROM ({sql}) rows;\n"
        done = subprocess.run(command, input=asked.encode(), capture_output=True, timeout=20)
        if done.returncode:
            raise NotAsTold(f"psql: {done.stderr.decode().strip()}")
        return json.loads(done.stdout)

    def toolfleet(self, *arguments):
        """What an operator types; the exit code and what was printed."""
        dev = self.dev()
        print(paint("36", f"  $ toolfleet {' '.join(arguments)}"))
        done = subprocess.run(
            [self.program, *arguments],
            capture_output=True,
            timeout=60,
            env={**os.environ, "NATS_URL": dev["nats_url"], "DATABASE_URL": dev["database_url"]},
        )
        printed = (done.stdout + done.stderr).decode()
        for line in printed.splitlines():
            print(f"    {line}")
        return done.returncode, printed

    def charges(self):
        """The charges that really happened, as the payment service wrote them down."""
        return [json.loads(line) for line in self.ledger.read_text().splitlines()]

    async def end(self):
        """Stops everything; what had to be ended by force."""
        if self.client:
            await self.client.close()
        dev = self.dev() if (self.folder / "data/dev.json").exists() else {}
        named = [*dev.get("worker_pids", []), *dev.get("dispatcher_pids", []), *dev.get("gateway_pids", [])]
        named += [dev[name] for name in ("nats_pid", "postgres_pid") if name in dev]
        started = [process for process in [self.fleet, *self.started] if process]
        forced = []
        for process in started:
            process.terminate()
        for process in started:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                forced.append(process.pid)
        for pid in filter(is_running, named):
            os.kill(pid, signal.SIGKILL)
            forced.append(pid)
        return forced


def is_running(pid):
    """Whether a process runs; one that is only waiting to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def tell_everything(story):
    await first_call(story)
    await arguments_that_do_not_fit(story)
    await patience(story)
    await the_tool_says_no(story)
    await a_program_as_a_tool(story)
    await tools_to_copy(story)
    await one_key_one_charge(story)
    await another_charge_with_that_key(story)
    await come_back_later(story)
    await a_worker_dies(story)
    await a_worker_freezes(story)
    await a_target_fails(story)
    await life_goes_on(story)


async def first_call(story):
    story.chapter("A fleet, and a first call")
    seconds = await story.begin()
    dev = story.dev()
    tell(f"toolfleet dev was ready after {seconds:.1f} s: Postgres, nats-server, a dispatcher,")
    tell(f"{len(dev['worker_pids'])} workers, and the tools of examples/tools. An agent asks at {dev['nats_url'].rpartition('@')[2]}:")
    envelope = await story.call("get_weather", {"city": "Oslo", "days": 2})
    show(envelope)
    claim(envelope["state"] == "succeeded" and not envelope["is_error"], "The call was answered.")
    claim(envelope["result"]["city"] == "Oslo", "The result is the service's own answer, inside one envelope.")

    story.chapter("Its history is a row that any SQL client can read")
    sql = """SELECT call_id, tool, args, result, state, attempts, accepted_at, started_at, finished_at, worker
             FROM toolfleet.calls WHERE call_id = :'id'"""
    [row] = story.rows(sql, envelope["call_id"])
    show(row)
    claim(row["args"] == {"city": "Oslo", "days": 2}, "The row holds what was asked.")
    claim(row["result"] == envelope["result"], "The row holds what was answered.")


async def arguments_that_do_not_fit(story):
    story.chapter("A model gets its arguments wrong")
    envelope = await story.call("get_weather", {"town": "Oslo", "days": 30})
    error = envelope["error"]
    tell(error["message"])
    places = [violation["path"] for violation in error["details"]["violations"]]
    for violation in error["details"]["violations"]:
        show(violation)
    claim(error["code"] == "invalid_arguments", "It is refused at the door: invalid_arguments.")
    claim(places == ["/city", "/days", "/town"], "All three mistakes are named at once, so one correction is enough.")
    claim(envelope["call_id"] is None, "Nothing was stored and nothing ran.")


async def patience(story):
    story.chapter("Patience, and its end")
    tell("get_weather is a read with a timeout of 1 s and three attempts. Flaky is busy twice:")
    envelope = await story.call("get_weather", {"city": "Flaky", "days": 1})
    show_attempts(story, envelope)
    claim(envelope["state"] == "succeeded", "The third attempt succeeded.")
    claim(envelope["attempts"] == 3, "The agent asked once and saw one answer.")
    tell("Slowville never answers:")
    envelope = await story.call("get_weather", {"city": "Slowville", "days": 1})
    attempts = show_attempts(story, envelope)
    tell(envelope["error"]["message"])
    claim(envelope["state"] == "failed" and envelope["outcome"] == "system_error", "The call failed.")
    timeouts = [attempt["code"] for attempt in attempts[:-1]]
    claim(timeouts == ["timeout"] * 2 and len(attempts) == 3, "Three attempts ran out of time, and no more were made.")
    claim(envelope["effect"] == "none", "A read has no effect, and the envelope says so.")


def show_attempts(story, envelope):
    sql = """SELECT number, outcome, error ->> 'code' AS code,
                    round(extract(epoch FROM finished_at - started_at) * 1000) AS run_ms
             FROM toolfleet.attempts WHERE call_id = :'id' ORDER BY number"""
    attempts = story.rows(sql, envelope["call_id"])
    for attempt in attempts:
        show(attempt)
    return attempts


async def the_tool_says_no(story):
    story.chapter("The tool itself says no")
    envelope = await story.call("get_weather", {"city": "Atlantis", "days": 1})
    tell(envelope["error"]["message"])
    claim(envelope["outcome"] == "business_error", "That is a business error: the tool worked, and the answer is no.")
    claim(envelope["attempts"] == 1, "Asking again would not help, so nobody did.")


async def a_program_as_a_tool(story):
    story.chapter("A program is a tool too")
    name = "fable.txt"
    envelope = await story.call("count_words", {"path": name, "top": 2})
    show(envelope["result"])
    words = len((SHARED / name).read_text().split())
    claim(envelope["result"]["words"] == words, f"A process counted the {words} words of a real file.")
    envelope = await story.call("count_words", {"path": "../demo.py"})
    tell(envelope["error"]["message"])
    claim(envelope["outcome"] == "business_error", "A path that leads out of its folder is refused by the program.")


async def one_key_one_charge(story):
    story.chapter("One key, one charge")
    tell("charge_account moves money, on a service that does not recognise repetitions: effect `once`.")
    arguments = {"account": "acme", "amount_cents": 4200}
    first = await story.call("charge_account", arguments, key="order-1001")
    again = await story.call("charge_account", arguments, key="order-1001")
    show(again)
    claim(first["state"] == "succeeded" and not first["replayed"], "The first request charged the account.")
    claim(again["replayed"], 'The second one was answered from the ledger: "replayed": true.')
    claim(again["call_id"] == first["call_id"], "It names the same call.")
    claim({**again, "replayed": False} == first, "Every other field is the same.")
    claim(len(story.charges()) == 1, "The payment service knows one charge.")


async def another_charge_with_that_key(story):
    story.chapter("The same key cannot mean something else")
    envelope = await story.call("charge_account", {"account": "acme", "amount_cents": 9900}, key="order-1001")
    tell(envelope["error"]["message"])
    claim(envelope["error"]["code"] == "idempotency_key_reused", "It is refused: idempotency_key_reused.")
    claim(len(story.charges()) == 1, "There is still one charge.")


async def come_back_later(story):
    story.chapter("Submit now, come back later")
    arguments = {"account": "globex", "amount_cents": 100}
    accepted = await story.call("charge_account", arguments, key="order-1002", prefer="respond-async")
    show(accepted)
    claim(accepted["state"] in ("queued", "running"), "The answer came at once: accepted.")
    tell("get, with wait_ms 30000:")
    envelope = await story.get(accepted["call_id"], wait_ms=30_000)
    show({name: envelope[name] for name in ["call_id", "state", "result"]})
    claim(envelope["state"] == "succeeded", "get waited until it was decided.")


async def a_worker_dies(story):
    story.chapter("A worker dies in the middle of a charge")
    arguments = {"account": "initech", "amount_cents": 770_000}
    waiting = asyncio.create_task(story.call("charge_account", arguments, key="order-1003"))
    running = await caught_in_a_charge(story, "initech")
    os.kill(running["pid"], signal.SIGKILL)
    tell(f"{running['worker']} (pid {running['pid']}) got a kill -9 after the charge and before its answer.")
    envelope = await waiting
    show({name: envelope[name] for name in ["state", "outcome", "is_error", "effect", "attempts", "error"]})
    claim(envelope["call_id"] == running["call_id"], "The waiting agent was answered all the same.")
    claim(envelope["state"] == "in_doubt" and envelope["effect"] == "unknown", "The call is in doubt, and says so.")
    claim(not envelope["error"]["retryable"], "The agent is told not to repeat it.")
    tell("charge_account names a probe: find_charge, a read, which asks the payment service for the charge of this key.")
    settled = await decided(story, envelope["call_id"])
    claim(settled["state"] == "succeeded", "The probe found the charge: the call has succeeded.")
    again = await story.call("charge_account", arguments, key="order-1003")
    claim(again["source"] == "settled" and again["replayed"], "The same key again: the same answer, no second run.")
    charged = [charge for charge in story.charges() if charge["account"] == "initech"]
    claim(len(charged) == 1, "The ledger shows one charge, not two.")
    story.toolfleet("calls", "show", envelope["call_id"])
    sql = """SELECT to_state FROM toolfleet.call_events
             WHERE call_id = :'id' AND from_state IS DISTINCT FROM to_state ORDER BY revision"""
    moves = [move["to_state"] for move in story.rows(sql, envelope["call_id"])]
    claim(moves == ["queued", "running", "in_doubt", "succeeded"], "It ran once, was in doubt, and was settled.")

    await story.until("a new worker has taken the dead one's place", lambda: replaced(story, running["pid"]), 30)
    claim(replaced(story, running["pid"]), "A new worker has taken the dead one's place.")


async def a_worker_freezes(story):
    story.chapter("A worker freezes, and a person decides")
    arguments = {"account": "hooli", "amount_cents": 12_300}
    accepted = await story.call("charge_unasked", arguments, key="order-1004", prefer="respond-async")
    running = await caught_in_a_charge(story, "hooli")
    os.kill(running["pid"], signal.SIGSTOP)
    tell(f"{running['worker']} (pid {running['pid']}) is stopped: alive, but not a heartbeat any more.")
    tell("charge_unasked is the same tool without a probe. It takes a whole lease until the worker counts as dead:")
    call_id = accepted["call_id"]
    await story.until("the call is in doubt", lambda: state_of(story, call_id) == "in_doubt", 60)
    story.toolfleet("calls", "explain", call_id)
    code, printed = story.toolfleet(
        "calls", "settle", call_id, "--outcome", "not_applied", "--note", "I do not see it", "--actor", "ada"
    )
    claim(code == 1 and "worker_not_fenced" in printed, "Refused: a frozen worker may wake up and charge all the same.")
    os.kill(running["pid"], signal.SIGKILL)
    tell("It is killed. Nothing of it can act any more, and that is proven:")
    await story.until("the worker is fenced", lambda: is_fenced(story, call_id), 30)
    sql = "SELECT name, state, fenced_by, fence_note FROM toolfleet.workers WHERE state = 'fenced' ORDER BY fenced_at"
    show(story.rows(sql, "")[-1])
    charged = [charge for charge in story.charges() if charge["account"] == "hooli"]
    tell(f"The person looks into the payment service's ledger, and finds {len(charged)} charge.")
    result = json.dumps({"charge_id": charged[0]["charge_id"]})
    note = "found in the ledger"
    code, _ = story.toolfleet(
        "calls", "settle", call_id, "--outcome", "applied", "--result", result, "--note", note, "--actor", "ada"
    )
    claim(code == 0 and state_of(story, call_id) == "succeeded", "Settled by hand, with who and how they know.")
    claim(len(charged) == 1, "The ledger shows one charge, not two.")
    await story.until("a new worker has taken its place", lambda: replaced(story, running["pid"]), 30)


async def caught_in_a_charge(story, account):
    """The worker that has just charged this account and waits for the answer."""

    def has_charged():
        return any(charge["account"] == account for charge in story.charges())

    # The money moves first, the answer follows seconds later.
    await story.until(f"the charge of {account} is in the ledger", has_charged, 20)
    sql = f"""SELECT c.call_id, c.worker, w.pid FROM toolfleet.calls c JOIN toolfleet.workers w ON w.name = c.worker
             WHERE c.args ->> 'account' = '{account}' AND c.state = 'running' AND w.state = 'live'"""
    [running] = story.rows(sql, "")
    if running["pid"] not in story.dev()["worker_pids"]:
        raise NotAsTold(f"dev.json does not name the worker's pid {running['pid']}")
    return running


def state_of(story, call_id):
    return story.rows("SELECT state FROM toolfleet.calls WHERE call_id = :'id'", call_id)[0]["state"]


def is_fenced(story, call_id):
    return story.rows("SELECT worker_fenced FROM toolfleet.in_doubt WHERE call_id = :'id'", call_id)[0]["worker_fenced"]


def replaced(story, pid):
    pids = story.dev()["worker_pids"]
    return pid not in pids and len(pids) == 2


async def decided(story, call_id):
    """The call once it is settled."""
    await story.until("the call is settled", lambda: state_of(story, call_id) != "in_doubt", 60)
    return await story.get(call_id, wait_ms=0)


async def life_goes_on(story):
    story.chapter("Life goes on, and everything stops")
    envelope = await story.call("get_weather", {"city": "Lisbon", "days": 1})
    claim(envelope["state"] == "succeeded", "The next call was answered.")


def told(program):
    """Tells the story from beginning to end; the exit code."""
    story = Story(program)
    began = time.monotonic()

    async def whole():
        try:
            await tell_everything(story)
        except BaseException:
            await story.end()
            raise
        forced = await story.end()
        claim(not forced, "One SIGTERM stopped all of it; no process is left.")

    try:
        asyncio.run(whole())
    except BaseException as error:
        reason = (str(error) or repr(error)) if isinstance(error, Exception) else "it was interrupted"
        print(paint("31", f"\nThe story broke off: {reason}"), file=sys.stderr)
        print(f"What there is to see is kept in {story.folder}; its log is dev.log.", file=sys.stderr)
        return 1
    shutil.rmtree(story.folder)
    print(f"\nEvery ✓ above was checked, in {time.monotonic() - began:.0f} s. Next: README.md, ARCHITECTURE.md.")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--toolfleet", metavar="PATH", default="toolfleet", help="the program")
    program = shutil.which(parser.parse_args().toolfleet)
    if program is None:
        parser.error("the program `toolfleet` is not found: `make demo` builds it, or name it with --toolfleet")
    sys.stdout.reconfigure(line_buffering=True, errors="replace")
    # Leaving through SystemExit lets the story stop what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return told(os.path.abspath(program))


if __name__ == "__main__":
    sys.exit(main())
