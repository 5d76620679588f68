#!/usr/bin/env python3
"""Has the conformance suite of the Model Context Protocol try a gateway: its fixtures are native tools of a worker.

Starts a fleet on a folder of its own, with that worker and a gateway beside it, and runs the scenarios that both revisions require, and those of
tasks. Prints the summary of each leg. What the fleet does not offer stands in baseline.yml with its reason; the exit code is 1 when anything else
fails, or when something that stands there passes.

The first run installs the suite from the npm registry into tests/mcp/node_modules, in the versions of package-lock.json.
"""

import argparse
import asyncio
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

from served import NODE, add_programs, held, serving

SUITE = HERE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
REVISIONS = ("2026-07-28", "2025-11-25")
TASKS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-status-notifications",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
)
LEG_SECONDS = 900


async def tried(options, folder):
    """Whether every leg ended as the baseline says."""
    async with serving(options, folder) as (_dev, [gateway], _env):
        # In a thread: the fleet is looked after meanwhile.
        return await asyncio.to_thread(run, options, folder, gateway.url)


def run(options, folder, url):
    legs = {f"server {revision}": ["--requirements", revision] for revision in REVISIONS}
    if options.scenario:
        legs = {options.scenario: ["--scenario", options.scenario, "--spec-version", options.revision]}
    elif not options.short:
        legs |= {scenario: ["--scenario", scenario] for scenario in TASKS}
    return all([leg(options, folder, url, name, words) for name, words in legs.items()])


def leg(options, folder, url, name, words):
    command = [NODE, str(SUITE), "server", "--url", url, *words]
    command += ["--expected-failures", str(HERE / "baseline.yml"), "-o", str(Path(folder) / "results" / name.replace(" ", "-"))]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LEG_SECONDS)
    text = said.stdout + said.stderr
    (Path(folder) / f"{name.replace(' ', '-')}.log").write_text(text)
    summary = re.split(r"^=== SUMMARY ===$", text, flags=re.MULTILINE)
    passed = said.returncode == 0
    print(f"--- {name}: {'as expected' if passed else 'NOT as expected'} (exit code {said.returncode})")
    if options.verbose or not passed or len(summary) > 1:
        print((summary[-1] if len(summary) > 1 else text[-options.tail :]).strip())
    sys.stdout.flush()
    return passed


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_programs(options)
    options.add_argument("--short", action="store_true", help="without the scenarios of tasks")
    options.add_argument("--scenario", help="this one only")
    options.add_argument("--revision", default=REVISIONS[0], help="of --scenario")
    options.add_argument("--verbose", action="store_true")
    options.add_argument("--tail", type=int, default=6_000, help="the characters of a failure that are printed")
    options = options.parse_args()
    held(options, tried)


if __name__ == "__main__":
    main()
