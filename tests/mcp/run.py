#!/usr/bin/env python3
"""Has the conformance suite of the Model Context Protocol try a gateway: its fixtures are native tools of a worker.

Starts a fleet on a folder of its own, with that worker and a gateway beside it, and runs the scenarios that both revisions require, and those of
tasks. Prints the summary of each leg. What the fleet does not offer stands in baseline.yml with its reason; the exit code is 1 when anything else
fails, or when something that stands there passes.

The first run installs the suite from the npm registry into tests/mcp/node_modules, in the versions of package-lock.json.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "blackbox"))
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

from fleet import Dev
from setup import find_npm
from waiting import until

SUITE = HERE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
LOCK, INSTALLED = HERE / "package-lock.json", HERE / "node_modules" / ".package-lock.json"
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


def install():
    """The packages of the lock, where they are not there yet."""
    wanted = {place: of["integrity"] for place, of in json.loads(LOCK.read_text())["packages"].items() if place}
    there = json.loads(INSTALLED.read_text())["packages"] if INSTALLED.exists() else {}
    if any(there.get(place, {}).get("integrity") != integrity for place, integrity in wanted.items()):
        npm = [*find_npm(), "ci", "--prefix", str(HERE), "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(npm, check=True, stdout=subprocess.DEVNULL)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def listens(port):
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


async def tried(options, folder):
    """Whether every leg ended as the baseline says."""
    program, fixtures = os.path.abspath(options.toolfleet), os.path.abspath(options.fixtures)
    async with Dev(program, folder, [], gateways=0) as dev:
        info, port = dev.info(), free_port()
        env = {**os.environ, "DATABASE_URL": info["database_url"], "NATS_URL": info["nats_url"], "TOOLFLEET_PROGRAM": program}
        env.pop("TOOLFLEET_HTTP", None)
        content = ["--mcp-content", str(HERE / "content")] if (HERE / "content").exists() else []
        started = {
            "worker": [fixtures, "--http", "127.0.0.1:0"],
            "gateway": [program, "gateway", "--auth", "none", "--listen", f"127.0.0.1:{port}", *content],
        }
        processes = []
        try:
            for name, words in started.items():
                with (Path(folder) / f"{name}.log").open("wb") as log:
                    processes.append(subprocess.Popen(words, env=env, stdout=log, stderr=log))
            await until("the gateway listens", lambda: listens(port), 30)
            await until("the worker has applied its tools", lambda: has_tools(program, env, folder), 60)
            # Not one after the other from here: the fleet runs beside it.
            return await asyncio.to_thread(run, options, folder, f"http://127.0.0.1:{port}/mcp")
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(20)


def has_tools(program, env, folder):
    listed = subprocess.run([program, "tools", "list"], env=env, cwd=folder, capture_output=True, text=True)
    return "test_tool_with_task" in listed.stdout


def run(options, folder, url):
    legs = {f"server {revision}": ["--requirements", revision] for revision in REVISIONS}
    if options.scenario:
        legs = {options.scenario: ["--scenario", options.scenario, "--spec-version", options.revision]}
    elif not options.short:
        legs |= {scenario: ["--scenario", scenario] for scenario in TASKS}
    return all([leg(options, folder, url, name, words) for name, words in legs.items()])


def leg(options, folder, url, name, words):
    command = [os.environ.get("TOOLFLEET_NODE", "node"), str(SUITE), "server", "--url", url, *words]
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
    options.add_argument("--toolfleet", default=str(ROOT / "target" / "debug" / "toolfleet"))
    options.add_argument("--fixtures", default=str(ROOT / "target" / "debug" / "fleet_tests_mcp"), help="the worker with the tools of the suite")
    options.add_argument("--short", action="store_true", help="without the scenarios of tasks")
    options.add_argument("--scenario", help="this one only")
    options.add_argument("--revision", default=REVISIONS[0], help="of --scenario")
    options.add_argument("--verbose", action="store_true")
    options.add_argument("--tail", type=int, default=6_000, help="the characters of a failure that are printed")
    options.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    options = options.parse_args()
    install()
    folder = tempfile.mkdtemp(prefix="toolfleet-mcp-")
    os.chmod(folder, 0o755)
    agrees = False
    try:
        agrees = asyncio.run(tried(options, folder))
    finally:
        if agrees and not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"logs in {folder}")
    sys.exit(0 if agrees else 1)


if __name__ == "__main__":
    main()
