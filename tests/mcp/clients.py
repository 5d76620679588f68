#!/usr/bin/env python3
"""Has three MCP clients of others speak with a gateway, in both revisions: PyPI `mcp`, npm `@modelcontextprotocol/client` and `sdk`.

Each lists, calls, gets an error, follows progress, takes a call back, charges twice with one intention and once more on purpose, and is asked
for an approval that its user gives or denies. What they were told is looked at, and what happened is counted at the tools. One line for each
client and step; the exit code is 1 when anything was not as it should be.

The first run installs the clients from the npm registry and PyPI, in the versions of package-lock.json and clients/requirements.txt.
"""

import argparse
import asyncio
import json
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


async def spoken(dev, gateway, effects, name, command, revision, mark):
    """What one client was told, and what came of it: the steps that were not as they should be."""
    process = await asyncio.create_subprocess_exec(
        *command, gateway.url, revision, mark, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=CLIENTS
    )
    out, err = await asyncio.wait_for(process.communicate(), CLIENT_SECONDS)
    steps = {said["step"]: said for said in map(json.loads, out.splitlines())}
    verdicts = {}
    for step, claim in CLAIMS.items():
        try:
            verdicts[step] = bool(claim(steps[step], mark))
        except (KeyError, TypeError, IndexError):
            verdicts[step] = False

    async def count(what):
        calls = await dev.rows("SELECT call_id FROM toolfleet.calls WHERE args->>'what' = :'what'", what=what)
        calls = {row["call_id"] for row in calls}
        return sum(1 for effect in lines(effects) if effect["call_id"] in calls)

    async def ended():
        rows = await dev.rows("SELECT state FROM toolfleet.calls WHERE tool = 'slow_compute' AND args->>'label' = :'label'", label=mark)
        return [row["state"] for row in rows] == ["cancelled"]

    try:
        verdicts["cancelled in the history"] = bool(await until("the call is cancelled", ended, 20))
    except AssertionError:
        verdicts["cancelled in the history"] = False
    verdicts["two charges, one yes, no more"] = [await count(mark + end) for end in ("", "-yes", "-no")] == [2, 1, 0]
    wrong = [step for step, right in verdicts.items() if not right]
    print(f"{name}, {revision}: {len(verdicts) - len(wrong)} of {len(verdicts)} steps as they should be")
    for step in wrong:
        print(f"  NOT: {step}: {json.dumps(steps.get(step))[:1_500]}")
    if process.returncode != 0:
        print(f"  it ended with {process.returncode}: {err.decode()[-1_500:]}")
    return not wrong and process.returncode == 0


async def tried(options, folder):
    effects = Path(folder) / "effects.jsonl"
    effect = [*PYTHON, str(TOOLS / "effect.py"), "--effects", str(effects)]
    what = {"what": TEXT}
    tools = [
        tool("echo", "read", ["/bin/cat"], {"text": TEXT}, ["text"]),
        tool("charge", "once", effect, what, ["what"]),
        tool("approved", "once", effect, what, ["what"], approval={"by": "caller"}),
    ]
    async with serving(options, folder, tools) as (dev, [gateway], _env):
        good = True
        for name, (command, revisions) in clients().items():
            for revision in revisions:
                mark = f"{name}-{revision}".replace(" ", "-")
                good &= await spoken(dev, gateway, effects, name, command, revision, mark)
        return good


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_programs(options)
    options = options.parse_args()
    held(options, tried)


if __name__ == "__main__":
    main()
