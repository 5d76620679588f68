#!/usr/bin/env python3
"""Has schemathesis try the document of the API: it makes requests of it, good and bad ones, and holds every answer against it.

Starts a fleet with a gateway on a folder of its own, and prints how many requests were made of how many operations, and what was found.
The exit code is 1 when anything was found. `--short` makes a few requests of each operation.

The first run installs schemathesis from PyPI into .tools/schemathesis, apart from everything else, in the versions of requirements.txt.
"""

import argparse
import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "blackbox"))
sys.dont_write_bytecode = True

from fleet import Dev, command, tool
from waiting import until

VENV = ROOT / ".tools" / "schemathesis"
PINS = HERE / "requirements.txt"
STAMP = VENV / "requirements.txt"
EXAMPLES, EXAMPLES_SHORT = 60, 8
CAT = ["/bin/cat"]
TEXT = {"type": "string", "maxLength": 40}
TOOLS = [
    tool("echo", "read", CAT, {"text": TEXT, "n": {"type": "integer", "minimum": 0, "default": 1}}, ["text"]),
    tool("charge", "once", CAT, {"account": TEXT, "cents": {"type": "integer", "minimum": 1}}, ["account", "cents"]),
    tool("limited", "read", CAT, {"unit": {"enum": ["c", "f"]}}, ["unit"], rate_limit={"calls": 1000, "per": "1s"}),
    tool("asks_first", "once", CAT, {"to": TEXT}, ["to"], approval={"by": "caller"}),
]


def program():
    """schemathesis, installed where it is not there yet."""
    if not (STAMP.exists() and STAMP.read_bytes() == PINS.read_bytes()):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
        pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "-r", str(PINS)], check=True)
        shutil.copy(PINS, STAMP)
    return str(VENV / "bin" / "schemathesis")


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def serves(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.status == 200


async def tried(options, folder):
    """Whether the document and the gateway agree."""
    async with Dev(os.path.abspath(options.toolfleet), folder, TOOLS) as dev:
        info, port = dev.info(), free_port()
        token = ["tokens", "create", "--name", "schemathesis", "--tenant", "default", "--note", "a try"]
        token = (await command(dev, *token, "--scope", "call,read,approve,settle,admin")).decode().strip()
        url = f"http://127.0.0.1:{port}"
        env = {**os.environ, "DATABASE_URL": info["database_url"], "NATS_URL": info["nats_url"]}
        words = ["gateway", "--listen", f"127.0.0.1:{port}", "--http", "127.0.0.1:0"]
        with (Path(folder) / "gateway.log").open("wb") as log:
            gateway = subprocess.Popen([options.toolfleet, *words], env=env, stdout=log, stderr=log)
        try:
            def is_there():
                try:
                    return serves(f"{url}/v1/openapi.json")
                except OSError:
                    return False

            await until("the gateway to serve", is_there, 30)
            return run(options, folder, url, token)
        finally:
            gateway.terminate()
            gateway.wait(10)


def run(options, folder, url, token):
    examples = EXAMPLES_SHORT if options.short else EXAMPLES
    words = [program(), "--config-file", str(HERE / "schemathesis.toml"), "run", f"{url}/v1/openapi.json?tools=1", "--header", f"Authorization: Bearer {token}"]
    words += ["--max-examples", str(examples)]
    # One worker: Python 3.11 gives up over lambdas that two threads read at a time.
    words += ["--seed", str(options.seed), "--continue-on-failure", "--no-color", "--workers", "1"]
    words += ["--request-timeout", "60", "--suppress-health-check", "all"]
    said = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    (Path(folder) / "schemathesis.log").write_text(said.stdout + said.stderr)
    failures = re.findall(r"^- .*$", said.stdout, re.MULTILINE)
    if said.returncode != 0:
        print(said.stdout[-options.tail :], said.stderr[-4_000:], sep="\n")
    counts = re.search(r"^SUMMARY.*?=+\n(.*?)(?:\n=|\Z)", said.stdout.replace("= SUMMARY", "\nSUMMARY"), re.DOTALL | re.MULTILINE)
    print(counts.group(1).strip() if counts else said.stdout[-1_500:])
    print(f"schemathesis ended with {said.returncode}: {len(failures)} lines of failures, at most {examples} examples for each operation and phase")
    return said.returncode == 0


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--toolfleet", default=str(ROOT / "target" / "debug" / "toolfleet"))
    options.add_argument("--short", action="store_true", help="a few requests of each operation")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--tail", type=int, default=20_000, help="the characters of a failure that are printed")
    options.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    options = options.parse_args()
    folder = tempfile.mkdtemp(prefix="toolfleet-openapi-")
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
