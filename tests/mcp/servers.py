#!/usr/bin/env python3
"""Has MCP servers of others be tools of a fleet: the scenarios that the conformance suite has for clients, and `server-everything`.

The suite starts a server for each scenario and a program that should use it; that program (leg.py) has the fleet discover, apply and call. What
the fleet does not do stands in baseline.yml with its reason. `server-everything` is discovered over stdio and over HTTP, applied, and its tools
are called. The exit code is 1 when anything is not as expected.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

from served import MODULES, NODE, add_programs, free_port, held, listens

from fleet import Dev
from waiting import until

SUITE = MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
EVERYTHING = MODULES / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
REVISIONS = ("2026-07-28", "2025-11-25")
LEG_SECONDS = 1_500
# What a tool of `server-everything` is called with, and what its answer has.
CALLS = {
    "echo": ({"message": "hello"}, "Echo: hello"),
    "get-sum": ({"a": 2, "b": 3}, "5"),
    "get-structured-content": ({"location": "New York"}, "temperature"),
    "get-tiny-image": ({}, "image/png"),
    "trigger-long-running-operation": ({"duration": 1, "steps": 2}, "completed"),
}


class Fleet:
    """The commands of a fleet, as its operator types them."""

    def __init__(self, options, folder, info):
        self.program, self.folder = os.path.abspath(options.toolfleet), Path(folder)
        self.env = {**os.environ, "DATABASE_URL": info["database_url"], "NATS_URL": info["nats_url"]}

    async def run(self, *words, code=0):
        process = await asyncio.create_subprocess_exec(
            self.program, *words, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = await process.communicate()
        if code is not None and process.returncode != code:
            raise AssertionError(f"toolfleet {' '.join(words)} ended with {process.returncode}: {err.decode()[-2_000:]}")
        return out.decode()

    async def apply(self, **manifest):
        path = self.folder / f"{manifest['name']}.json"
        path.write_text(json.dumps({"kind": "mcp_server", "version": 1, "trust": "trusted", **manifest}))
        await self.run("tools", "apply", str(path))


async def everything(fleet, name, transport):
    """Whether its tools are what they should be."""
    await fleet.apply(name=name, transport=transport)
    into = fleet.folder / f"tools-{name}"
    found = await fleet.run("mcp", "discover", name, "--into", str(into))
    print(f"server-everything, {name}: {len(found.splitlines())} tools found", found if not any(into.glob("*")) else "")
    await fleet.run("tools", "apply", str(into))
    names = {}
    for path in into.glob("*.json"):
        manifest = json.loads(path.read_text())
        names[manifest["executor"]["mcp"]["tool"]] = manifest["name"]
    good = True
    for upstream, (arguments, expected) in CALLS.items():
        if upstream not in names:
            print(f"  NOT: {upstream}: it was not found")
            good = False
            continue
        key = f"{name}-{upstream}"
        answer = await fleet.run("call", names[upstream], "--args", json.dumps(arguments), "--key", key, "--json", code=None)
        right = '"state":"succeeded"' in answer.replace(" ", "") and expected in answer
        good &= right
        print(f"  {'ok' if right else 'NOT'}: {upstream}: {answer.strip()[:300]}")
    again = await fleet.run("mcp", "discover", name)
    unchanged = sum(line.startswith("unchanged") for line in again.splitlines())
    print(f"  discovered again: {unchanged} unchanged")
    return good and unchanged == len(names)


async def tried(options, folder):
    async with Dev(os.path.abspath(options.toolfleet), folder, [], gateways=0) as dev:
        fleet = Fleet(options, folder, dev.info())
        good = True
        if not options.scenario:
            good &= await everything(fleet, "everything_stdio", {"stdio": {"command": [NODE, str(EVERYTHING), "stdio"]}})
            port = free_port()
            with (Path(folder) / "everything.log").open("wb") as log:
                server = subprocess.Popen(
                    [NODE, str(EVERYTHING), "streamableHttp"], env={**os.environ, "PORT": str(port)}, stdout=log, stderr=log
                )
            try:
                await until("server-everything listens", lambda: listens(port), 30)
                good &= await everything(fleet, "everything_http", {"http": {"url": f"http://127.0.0.1:{port}/mcp"}})
            finally:
                server.kill()
                server.wait()
        place = Path(folder) / "place.json"
        place.write_text(json.dumps({"toolfleet": fleet.program, "env": {name: fleet.env[name] for name in ("DATABASE_URL", "NATS_URL")}}))
        return await asyncio.to_thread(legs, options, folder, place) and good


def legs(options, folder, place):
    wanted = {f"client {revision}": ["--requirements", revision] for revision in REVISIONS}
    if options.scenario:
        wanted = {options.scenario: ["--scenario", options.scenario, "--spec-version", options.revision]}
    return all([leg(options, folder, place, name, words) for name, words in wanted.items()])


def leg(options, folder, place, name, words):
    program = f"{sys.executable} {HERE / 'leg.py'} {place}"
    command = [NODE, str(SUITE), "client", "--command", program, *words, "--timeout", "60000"]
    command += ["--expected-failures", str(HERE / "baseline.yml"), "-o", str(Path(folder) / "results" / name.replace(" ", "-"))]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LEG_SECONDS)
    text = said.stdout + said.stderr
    (Path(folder) / f"{name.replace(' ', '-')}.log").write_text(text)
    results = [line for line in text.splitlines() if re.match(r"[✓✗] |Total|  ✗|Unexpected|Stale", re.sub(r"\x1b\[\d*m", "", line))]
    passed = said.returncode == 0
    print(f"--- {name}: {'as expected' if passed else 'NOT as expected'} (exit code {said.returncode})")
    # Scenarios of OAuth are in the baseline; no tool of a fleet has them.
    print("\n".join(line for line in results if "auth/" not in line) if results else text[-options.tail :])
    sys.stdout.flush()
    return passed


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_programs(options)
    options.add_argument("--scenario", help="this one only")
    options.add_argument("--revision", default=REVISIONS[0], help="of --scenario")
    options.add_argument("--tail", type=int, default=6_000, help="the characters of a leg that are printed")
    options = options.parse_args()
    held(options, tried)


if __name__ == "__main__":
    main()
