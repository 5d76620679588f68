#!/usr/bin/env python3
"""Has three MCP clients of others speak with a gateway, in both revisions: PyPI `mcp`, npm `@modelcontextprotocol/client` and `sdk`.

Each lists, calls, gets an error, follows progress, takes a call back, charges twice with one intention and once more on purpose, and is asked
for an approval that its user gives or denies; then its gateway is killed while a charge of it runs, as a task where the client takes one, and it
asks again. What they were told is looked at, and what happened is counted at the tools. One line for each
client and step; the exit code is 1 when anything was not as it should be.

The first run installs the clients from the npm registry and PyPI, in the versions of package-lock.json and clients/requirements.txt.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

from served import NODE, ROOT, add_programs, held, serving

from fleet import PYTHON, TOOLS, lines, tool
from waiting import until

CLIENTS = HERE / "clients"
VENV, PINS = ROOT / ".tools" / "mcp", CLIENTS / "requirements.txt"
MODERN, LEGACY = "2026-07-28", "2025-11-25"
CLIENT_SECONDS = 180
TEXT = {"type": "string", "maxLength": 400}


def python():
    """A Python with the client, installed where it is not there yet."""
    stamp = VENV / "requirements.txt"
    if not (stamp.exists() and stamp.read_bytes() == PINS.read_bytes()):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
        pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "-r", str(PINS)], check=True)
        shutil.copy(PINS, stamp)
    return str(VENV / "bin" / "python")


def clients():
    script = lambda name: str(CLIENTS / name)
    return {
        "PyPI mcp": ([python(), script("client.py")], (MODERN, LEGACY)),
        "npm client": ([NODE, script("client.mjs")], (MODERN, LEGACY)),
        "npm sdk": ([NODE, script("sdk.mjs")], (LEGACY,)),
    }


def text(result):
    return " ".join(block.get("text", "") for block in result["content"])


def told(result):
    return result["_meta"]["io.toolfleet/call"]


# What each step was told, as a claim that must hold.
CLAIMS = {
    "list": lambda said, _: {"echo", "charge", "approved", "toolfleet_get", "greet"} <= set(said["said"]),
    "call": lambda said, _: said["said"]["structuredContent"] == {"text": "hello"} and not said["said"].get("isError"),
    "big": lambda said, _: said["said"]["structuredContent"] == {"text": "x" * 300},
    "tool_error": lambda said, _: said["said"]["isError"] and "intentionally" in text(said["said"]),
    "wrong_arguments": lambda said, _: said["said"]["isError"] and "txt" in text(said["said"]),
    "unknown_tool": lambda said, _: said["code"] == -32602,
    "progress": lambda said, _: len(said["said"]["seen"]) >= 3 and said["said"]["seen"] == sorted(said["said"]["seen"]),
    "cancel": lambda said, _: "failed" in said,
    "charge": lambda said, _: not said["said"].get("isError") and not told(said["said"])["replayed"],
    "charge_again": lambda said, _: told(said["said"])["replayed"] and "nothing was run again" in text(said["said"]),
    "charge_on_purpose": lambda said, _: not told(said["said"])["replayed"],
    "approved": lambda said, _: not said["said"].get("isError") and said["said"]["structuredContent"]["what"].endswith("-yes"),
    "declined": lambda said, _: said["said"]["isError"],
}


def has_one_answer(steps):
    """The charge was made once, and its client knows: by its task, or as it asked again."""
    said = steps["killed"]
    call, result = told(said["said"]), said["said"]
    is_known = steps["task"]["said"] == call["id"] if "task" in steps else call["replayed"]
    return not result.get("isError") and result["structuredContent"]["what"].endswith("-killed") and said["asked"] > 1 and is_known


class Foreign:
    """One client of somebody else, in one revision; what it is told goes to `steps`."""

    def __init__(self, name, command, revision, url):
        self.mark = f"{name}-{revision}".replace(" ", "-")
        self.takes_tasks = name == "PyPI mcp" and revision == MODERN
        self.command, self.steps, self.faults = [*command, url, revision, self.mark], {}, []

    async def begin(self, journey):
        return await asyncio.create_subprocess_exec(
            *self.command, journey, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=CLIENTS
        )

    def hears(self, line):
        said = json.loads(line)
        self.steps[said["step"]] = said

    async def end(self, process):
        out, err = await asyncio.wait_for(process.communicate(), CLIENT_SECONDS)
        for line in out.splitlines():
            self.hears(line)
        if process.returncode != 0:
            self.faults.append(f"it ended with {process.returncode}: {err.decode()[-1_500:]}")

    def verdict(self, claim):
        try:
            return bool(claim())
        except (KeyError, TypeError, IndexError):
            return False


async def spoken(dev, gateway, effects, name, command, revision):
    """What one client was told, and what came of it: whether all was as it should be."""
    client = Foreign(name, command, revision, gateway.url)
    mark = client.mark

    async def count(what):
        calls = await dev.rows("SELECT call_id FROM toolfleet.calls WHERE args->>'what' = :'what'", what=what)
        calls = {row["call_id"] for row in calls}
        return sum(1 for effect in lines(effects) if effect["call_id"] in calls)

    async def is_cancelled():
        rows = await dev.rows("SELECT state FROM toolfleet.calls WHERE tool = 'slow_compute' AND args->>'label' = :'label'", label=mark)
        return [row["state"] for row in rows] == ["cancelled"]

    async def is_charged():
        return await count(f"{mark}-killed") == 1

    await client.end(await client.begin("journey"))
    survivor = await client.begin("killed")
    await until("the slow charge is made", is_charged, 30)
    if client.takes_tasks:
        client.hears(await asyncio.wait_for(survivor.stdout.readline(), 30))
    gateway.stop(kill=True)
    await gateway.start()
    await client.end(survivor)

    verdicts = {step: client.verdict(lambda claim=claim, step=step: claim(client.steps[step], mark)) for step, claim in CLAIMS.items()}
    verdicts["killed"] = client.verdict(lambda: has_one_answer(client.steps))
    try:
        verdicts["cancelled in the history"] = bool(await until("the call is cancelled", is_cancelled, 20))
    except AssertionError:
        verdicts["cancelled in the history"] = False
    charges = [await count(mark + end) for end in ("", "-yes", "-no", "-killed")]
    verdicts["two charges, one yes, one over a killed gateway, no more"] = charges == [2, 1, 0, 1]
    wrong = [step for step, right in verdicts.items() if not right]
    print(f"{name}, {revision}: {len(verdicts) - len(wrong)} of {len(verdicts)} steps as they should be")
    if not wrong:
        how = "as a task" if client.takes_tasks else "asked again"
        print(f"  a charge over a killed gateway, {how}: {text(client.steps['killed']['said'])[:200]}")
    for step in wrong:
        print(f"  NOT: {step}: {json.dumps(client.steps.get(step))[:1_500]}")
    for fault in client.faults:
        print(f"  NOT: {fault}")
    return not wrong and not client.faults


async def page_is_right(gateway):
    """The programs of docs/mcp.md do what the page says."""
    page, good = (ROOT / "docs" / "mcp.md").read_text(), True
    env = {**os.environ, "TOOLFLEET_GATEWAY_URL": gateway.url.removesuffix("/mcp"), "TOOLFLEET_TOKEN": "tf_nobody_asks"}
    for mark, words in {"python": [python(), "-"], "js": [NODE, "--input-type=module", "-"]}.items():
        block = page.split(f"\n```{mark}\n", 1)[1].split("\n```", 1)[0]
        process = await asyncio.create_subprocess_exec(
            *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=CLIENTS, env=env
        )
        out, _ = await asyncio.wait_for(process.communicate(block.encode()), CLIENT_SECONDS)
        right = process.returncode == 0 and b"greet" in out and b"Ada" in out
        print(f"docs/mcp.md, {mark}: {'as the page says' if right else f'NOT: {out.decode()[-1_500:]}'}")
        good &= right
    return good


async def tried(options, folder):
    effects = Path(folder) / "effects.jsonl"
    effect = [*PYTHON, str(TOOLS / "effect.py"), "--effects", str(effects)]
    what = {"what": TEXT}
    tools = [
        tool("echo", "read", ["/bin/cat"], {"text": TEXT}, ["text"]),
        tool("charge", "once", effect, what, ["what"]),
        tool("charge_slowly", "once", [*effect, "--seconds", "5"], what, ["what"]),
        tool("approved", "once", effect, what, ["what"], approval={"by": "caller"}),
    ]
    async with serving(options, folder, tools) as (dev, [gateway], _env):
        good = await page_is_right(gateway)
        for name, (command, revisions) in clients().items():
            for revision in revisions:
                good &= await spoken(dev, gateway, effects, name, command, revision)
        return good


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_programs(options)
    options = options.parse_args()
    held(options, tried)


if __name__ == "__main__":
    main()
