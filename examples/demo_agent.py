#!/usr/bin/env python3
"""An agent that is killed at random moments, and started again: its answer, its effects and its questions are the same.

The model is a stand-in that answers from a script. Everything it says is checked: the first claim that does not hold
ends it with a sentence and exit code 1. It needs `nats-py`, and the program `toolfleet`.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

# The folder of this file is full of examples, and stays as it is.
sys.dont_write_bytecode = True

from telling import NotAsTold, claim, paint, show, tell

HERE = Path(__file__).resolve().parent
AGENT = HERE / "agent" / "agent.py"
TASK = "Plan the trip: look at the weather, pay the hotel, and have the fable read."
ONLY = "get_weather,charge_account,research,todo_write"
ONLY_HELPER = "count_words,charge_account"
# How long a charge takes to be answered: long enough to be killed in between.
CHARGE_SLOW_MS = 300
RUNS, RUNS_SHORT = 20, 3
READY_SECONDS, RUN_SECONDS, STOP_SECONDS = 90, 60, 45


@dataclass
class Outcome:
    """What a run came to, and what it cost the world."""

    answer: dict
    seconds: float
    asked: int
    charged: Counter


class Stage:
    """The services, the stand-in for models, the fleet and the service of sub-agents; leaving it stops everything."""

    def __init__(self, program):
        self.program = program
        self.folder = Path(tempfile.mkdtemp(prefix="toolfleet-agent-"))
        # As root, Postgres runs as another user, who must be able to pass through.
        self.folder.chmod(0o755)
        self.ledger, self.log = self.folder / "ledger.jsonl", self.folder / "agents.log"
        self.started, self.fleet, self.helper = [], None, None

    def begin(self):
        """Starts the services, the stand-in with its script, and the fleet with the tools of the examples."""
        _, weather = self.start("weather_service.py", "--port", "0")
        slow = ["--ledger", str(self.ledger), "--slow-ms", str(CHARGE_SLOW_MS)]
        _, payments = self.start("payment_service.py", "--port", "0", *slow)
        _, self.models = self.start("models/model_server.py", "--port", "0", "--script", str(HERE / "agent" / "script.json"))
        (self.folder / "tools").mkdir()
        words = [sys.executable, "-I", "-S", str(HERE / "word_count.py"), "--root", str(HERE / "texts")]
        real = {
            "http://127.0.0.1:8701": f"http://127.0.0.1:{weather}",
            "http://127.0.0.1:8702": f"http://127.0.0.1:{payments}",
            "http://127.0.0.1:8703": f"http://127.0.0.1:{self.models}",
            "[python3, examples/word_count.py, --root, examples/texts]": json.dumps(words),
        }
        manifests = [HERE / "tools" / f"{name}.yaml" for name in ("get_weather", "charge_account", "find_charge", "count_words")]
        for manifest in [*manifests, *(HERE / "agent" / "tools").glob("*.yaml")]:
            text = manifest.read_text()
            for default, actual in real.items():
                text = text.replace(default, actual)
            (self.folder / "tools" / manifest.name).write_text(text)
        command = [self.program, "dev", "--data", str(self.folder / "data"), "--tools", str(self.folder / "tools"), "--workers", "2"]
        # Free ports: the usual ones are for a fleet that stays.
        command += ["--nats-port", "0", "--postgres-port", "0", "--http-port", "0", "--gateway-port", "0"]
        with (self.folder / "dev.log").open("wb") as log:
            self.fleet = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        named = self.folder / "data/dev.json"
        ends = time.monotonic() + READY_SECONDS
        while not named.exists():
            if self.fleet.poll() is not None or time.monotonic() > ends:
                raise NotAsTold(f"toolfleet dev is not ready (exit code {self.fleet.poll()})")
            time.sleep(0.05)
        self.nats = json.loads(named.read_bytes())["nats_url"]
        self.help()

    def start(self, name, *options):
        """Starts one of the example services; its process, and its port."""
        command = [sys.executable, "-B", str(HERE / name), *options]
        service = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.started.append(service)
        return service, json.loads(service.stdout.readline())["port"]

    def agent(self, *options):
        """Starts the agent, in one of its two ways."""
        command = [sys.executable, "-B", str(AGENT), *options, "--nats", self.nats]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, cwd=self.folder)

    def help(self):
        """Starts the service of sub-agents, and waits until it listens."""
        self.helper = self.agent("serve", "--tool", "ask_helper", "--only", ONLY_HELPER, "--jobs", str(self.folder / "jobs"))
        if not self.helper.stdout.readline():
            raise NotAsTold("the service of sub-agents did not start")

    def work(self, run):
        return self.agent("run", "--run", run, "--tool", "ask_model", "--task", TASK, "--only", ONLY)

    def play(self, run, after=None, helper_after=None):
        """A whole run. Its loop gets a kill -9 after some seconds, and its sub-agent too, and both are started again."""
        asked, charged, began = self.asked(), self.charged(), time.monotonic()
        loop = self.work(run)
        killed = []
        for at, who in sorted((at, who) for at, who in [(after, "loop"), (helper_after, "helper")] if at is not None):
            wait_for(loop, began + at - time.monotonic())
            victim = loop if who == "loop" else self.helper
            if victim.poll() is not None:
                continue
            victim.kill()
            victim.communicate()
            killed.append(who)
            if who == "loop":
                loop = self.work(run)
            else:
                self.help()
        said, _ = loop.communicate(timeout=RUN_SECONDS)
        if loop.returncode:
            raise NotAsTold(f"{run} ended with code {loop.returncode}: {said.decode()}")
        answer = {name: value for name, value in json.loads(said).items() if name != "run"}
        return Outcome(answer, time.monotonic() - began, self.asked() - asked, self.charged() - charged), killed

    def asked(self):
        """How many requests the model's server has got."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.models}/sums", timeout=30) as answer:
            return sum(model["requests"] for model in json.load(answer)["models"].values())

    def charged(self):
        """The charges that really happened, by account and amount, as the payment service wrote them down."""
        charges = [json.loads(line) for line in self.ledger.read_text().splitlines()] if self.ledger.exists() else []
        return Counter((charge["account"], charge["amount_cents"]) for charge in charges)

    def end(self):
        """Stops everything."""
        for process in filter(None, [self.helper, self.fleet, *self.started]):
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_for(process, seconds):
    """Until a moment, or until a process is over before it."""
    try:
        process.wait(max(seconds, 0))
    except subprocess.TimeoutExpired:
        pass


def story(stage, runs, seed):
    print(paint("1", "1. An agent does a task"))
    stage.begin()
    tell("A model (a stand-in), tools for the weather and for payments, and a sub-agent that counts words and pays.")
    undisturbed, _ = stage.play("undisturbed")
    show(undisturbed.answer)
    claim(undisturbed.answer["answer"].startswith("The trip is planned"), "The model answered.")
    once = Counter({("acme", 4200): 1, ("globex", 300): 1})
    claim(undisturbed.charged == once, "Two accounts were charged, each once: by the agent, and by its sub-agent.")
    tell(f"It took {undisturbed.seconds:.1f} s and {undisturbed.asked} requests to the model.")

    print("\n" + paint("1", "2. The same run again, and another one"))
    again, _ = stage.play("undisturbed")
    claim(again.answer == undisturbed.answer, "The answer is the same.")
    claim(not again.asked and not again.charged, f"Nothing was asked and nothing was charged: all of it was found in {again.seconds:.1f} s.")
    # The first one has warmed up the machine; this one says how long a run takes.
    other, _ = stage.play("other")
    claim((other.answer, other.charged, other.asked) == (undisturbed.answer, once, undisturbed.asked), f"Another run pays anew, in {other.seconds:.1f} s.")

    print("\n" + paint("1", f"3. {runs} runs that are killed at random moments"))
    tell(f"Seed {seed}. A kill -9 for the loop, in every other run one for its sub-agent as well; both are started again at once.")
    chance, kills = random.Random(seed), 0
    for number in range(runs):
        after = chance.uniform(0.1, other.seconds)
        helper_after = chance.uniform(0.1, other.seconds) if number % 2 else None
        run, killed = stage.play(f"run-{seed}-{number}", after, helper_after)
        kills += len(killed)
        same = run.answer == undisturbed.answer and run.charged == once and run.asked <= undisturbed.asked + len(killed)
        saw = f"{run.seconds:.1f} s, {run.asked} requests, {sum(run.charged.values())} charges"
        claim(same, f"run {number:>2}: killed {when(killed, after, helper_after)}; {saw}, the same answer")
    claim(kills >= runs // 2, f"{kills} kills. Every answer is the same, every charge was made once, at most one request more for each kill.")


def when(killed, after, helper_after):
    at = {"loop": after, "helper": helper_after}
    return ", ".join(f"{who} at {at[who]:.2f} s" for who in killed) or "nobody, it was faster"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--toolfleet", metavar="PATH", default="toolfleet", help="the program")
    parser.add_argument("--short", action="store_true", help=f"{RUNS_SHORT} runs instead of {RUNS}")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the moments")
    told = parser.parse_args()
    program = shutil.which(told.toolfleet)
    if program is None:
        parser.error("the program `toolfleet` is not found: `make demo-agent` builds it, or name it with --toolfleet")
    sys.stdout.reconfigure(line_buffering=True, errors="replace")
    # Leaving through SystemExit lets the story stop what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    stage, began = Stage(os.path.abspath(program)), time.monotonic()
    try:
        story(stage, RUNS_SHORT if told.short else RUNS, told.seed)
    except BaseException as error:
        reason = (str(error) or repr(error)) if isinstance(error, Exception) else "it was interrupted"
        print(paint("31", f"\nThe story broke off: {reason}"), file=sys.stderr)
        print(f"What there is to see is kept in {stage.folder}; its logs are dev.log and agents.log.", file=sys.stderr)
        return 1
    finally:
        stage.end()
    shutil.rmtree(stage.folder)
    print(f"\nEvery ✓ above was checked, in {time.monotonic() - began:.0f} s. Next: docs/agents.md.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
