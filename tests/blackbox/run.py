#!/usr/bin/env python3
"""Runs the proofs: each starts the real program on a folder of its own and looks at it from outside.

The last line is `N passed, N failed`; the exit code is 1 when anything failed.
The folder of a failed proof is kept, and the ends of its logs are printed.
"""

import argparse
import asyncio
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

import processes
from deployed import Deployed
from fleet import Dev
from waiting import NotSo, check

PROOFS = [
    "first_call",
    "bad_input",
    "definitions",
    "model_server",
    "contexts",
    "transcripts",
    "one_key",
    "nothing_left",
    "pauses",
    "brakes",
    "for_somebody",
    "once_killed",
    "kill_each",
    "restart_all",
    "dev_lifecycle",
    "many_programs",
    "tools_to_copy",
    "wallet",
    "workers_killed",
    "by_curl",
    "turns",
    "door",
    "agent_loop",
    "gateways_killed",
    "fleet_behind_fleet",
    "dashboard",
]
# Needs a program of the release before.
UPGRADE = "rolling_upgrade"
# The first is about `toolfleet dev` itself; the others connect without a user or have two fleets, `wallet` sets what a dispatcher starts with,
# `dashboard` and `tools_to_copy` start a worker of their own, `door` asks with the packages, `agent_loop` starts agents without a user, `contexts` is about
# requests to models, and `model_server` has no fleet at all.
NOT_DEPLOYED = ["dev_lifecycle", "model_server", "contexts", "pauses", "brakes", "for_somebody", "wallet", "dashboard", "by_curl", "turns", "door", "agent_loop", "tools_to_copy", "gateways_killed", "fleet_behind_fleet"]
PROOF_SECONDS = 600
TAIL_LINES = 30


class Proof:
    """What a proof is given: its size, its folder, and a way to say what it saw."""

    def __init__(self, name, options, program):
        self.name, self.program, self.before, self.short = name, program, options.before, options.short
        self.kind = Deployed if options.roles else Dev
        self.folder = Path(tempfile.mkdtemp(prefix=f"toolfleet-{name}-"))
        # As root, Postgres runs as another user, who must be able to pass through.
        self.folder.chmod(0o755)

    def fleet(self, tools, **sizes):
        """A fleet in this proof's folder."""
        return self.kind(self.program, self.folder, tools, **sizes)

    def note(self, text):
        """Says what was seen."""
        print(f"    {text}", flush=True)

    def run(self):
        """Whether it held. Whatever it saw, nothing it started may be left."""
        module = importlib.import_module(f"proofs.{self.name}")
        print(f"\n{self.name}: {module.__doc__.splitlines()[0]}", flush=True)
        try:
            asyncio.run(asyncio.wait_for(module.prove(self), PROOF_SECONDS))
            left = processes.in_folder(self.folder)
            check(not left, f"left running: {processes.describe(left)}")
        except Exception as error:
            self.explain(error)
            return False
        shutil.rmtree(self.folder)
        return True

    def explain(self, error):
        """Prints why, where from, and what the logs say last."""
        print(f"    FAILED: {error or repr(error)}")
        if not isinstance(error, NotSo):
            traceback.print_exception(error)
        place = traceback.extract_tb(error.__traceback__)
        here = [frame for frame in place if f"proofs/{self.name}" in frame.filename]
        for frame in here[-1:]:
            print(f"    at {frame.filename}:{frame.lineno}: {frame.line}")
        for log in sorted(self.folder.rglob("*.log")):
            print(f"    --- the end of {log}")
            for line in log.read_text(errors="replace").splitlines()[-TAIL_LINES:]:
                print(f"    | {line}")
        print(f"    kept: {self.folder}", flush=True)


def built_program():
    """The program that was built last in this repository."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target"))
    built = [path for path in target.glob("*/toolfleet") if path.is_file()]
    return str(max(built, key=lambda path: path.stat().st_mtime)) if built else "toolfleet"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--short", action="store_true", help="smaller numbers, for everyday use")
    parser.add_argument("--only", metavar="NAME", choices=[*PROOFS, UPGRADE], action="append", help=", ".join(PROOFS))
    parser.add_argument("--toolfleet", metavar="PATH", help="the program (default: the one built last)")
    parser.add_argument(
        "--roles", action="store_true", help=f"under the users and roles of deploy/, all but {', '.join(NOT_DEPLOYED)}"
    )
    parser.add_argument("--before", metavar="PATH", help=f"a program of the release before; runs {UPGRADE} alone")
    options = parser.parse_args()
    program = shutil.which(options.toolfleet or built_program())
    if program is None:
        parser.error("there is no program yet: build it with `cargo build`, or name it with --toolfleet")
    # Leaving through SystemExit lets every proof stop what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    results = []
    proofs = [name for name in PROOFS if not (options.roles and name in NOT_DEPLOYED)]
    for name in options.only or ([UPGRADE] if options.before else proofs):
        began = time.monotonic()
        held = Proof(name, options, os.path.abspath(program)).run()
        results.append((name, held, time.monotonic() - began))

    print(f"\n{'proof':<16}{'result':<9}{'seconds':>8}")
    for name, held, seconds in results:
        print(f"{name:<16}{'passed' if held else 'FAILED':<9}{seconds:>8.1f}")
    passed = sum(held for _, held, _ in results)
    print(f"{passed} passed, {len(results) - passed} failed")
    return 0 if passed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
