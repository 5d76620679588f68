"""A fleet with a gateway, and a worker whose tools are those of the conformance suite; and the packages that speak with it."""

import asyncio
import contextlib
import json
import os
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

from fleet import Dev
from setup import find_npm
from waiting import until

NODE = os.environ.get("TOOLFLEET_NODE", "node")
MODULES = HERE / "node_modules"
LOCK, INSTALLED = HERE / "package-lock.json", MODULES / ".package-lock.json"
CONTENT = HERE / "content"
PROGRAMS = ROOT / "target" / "debug"


def add_programs(options):
    options.add_argument("--toolfleet", default=str(PROGRAMS / "toolfleet"))
    options.add_argument("--fixtures", default=str(PROGRAMS / "fleet_tests_mcp"), help="the worker with the tools of the suite")
    options.add_argument("--keep", action="store_true", help="keep the folder with the logs")


def held(options, tried):
    """Runs `tried` on a folder of its own, which is kept with its logs where something was not as it should be; ends with the exit code."""
    install()
    folder = tempfile.mkdtemp(prefix="toolfleet-mcp-")
    # As root, Postgres runs as another user, who must be able to pass through.
    os.chmod(folder, 0o755)
    good = False
    try:
        good = asyncio.run(tried(options, folder))
    finally:
        if good and not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"logs in {folder}")
    sys.exit(0 if good else 1)


def install():
    """The JavaScript packages of the lock, where they are not there yet."""
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


class Gateway:
    """One gateway of a fleet, on a port that it keeps when it is started again. Nobody is asked for a token."""

    def __init__(self, program, env, folder, number):
        self.program, self.env, self.log = program, env, Path(folder) / f"gateway-{number}.log"
        self.port, self.process = free_port(), None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self):
        content = ["--mcp-content", str(CONTENT)] if CONTENT.exists() else []
        words = [self.program, "gateway", "--auth", "none", "--listen", f"127.0.0.1:{self.port}", *content]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, env=self.env, stdout=log, stderr=log)
        await until("the gateway listens", lambda: listens(self.port), 30)

    def stop(self, kill=False):
        if self.process and self.process.poll() is None:
            self.process.kill() if kill else self.process.terminate()
            self.process.wait(20)


@contextlib.asynccontextmanager
async def serving(options, folder, tools=(), gateways=1):
    """The fleet, its gateways and the variables with which programs find it."""
    program, fixtures = os.path.abspath(options.toolfleet), os.path.abspath(options.fixtures)
    async with Dev(program, folder, list(tools), gateways=0) as dev:
        info = dev.info()
        env = {**os.environ, "DATABASE_URL": info["database_url"], "NATS_URL": info["nats_url"], "TOOLFLEET_PROGRAM": program}
        env.pop("TOOLFLEET_HTTP", None)
        started = [Gateway(program, env, folder, number) for number in range(gateways)]
        with (Path(folder) / "worker.log").open("wb") as log:
            worker = subprocess.Popen([fixtures, "--http", "127.0.0.1:0"], env=env, stdout=log, stderr=log)
        try:
            await asyncio.gather(*(gateway.start() for gateway in started))
            await until("the worker has applied its tools", lambda: has_tools(program, env, folder), 60)
            yield dev, started, env
        finally:
            for gateway in started:
                gateway.stop()
            worker.terminate()
            worker.wait(20)


def has_tools(program, env, folder):
    listed = subprocess.run([program, "tools", "list"], env=env, cwd=folder, capture_output=True, text=True)
    return "test_tool_with_task" in listed.stdout
