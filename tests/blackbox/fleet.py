"""A whole fleet, started as a user starts it: `toolfleet dev` on a folder of its own."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import processes
from waiting import Away, check, until

TOOLS = Path(__file__).parent / "tools"
PYTHON = [sys.executable, "-I", "-S"]
START_SECONDS = 90
STOP_SECONDS = 45
KINDS = ["worker", "dispatcher", "nats", "postgres"]


class Dev:
    """One `toolfleet dev`. It signals only what it started, or what dev.json names."""

    has_users = False

    def __init__(self, program, folder, tools, workers=2, dispatchers=1, gateways=1, settings=None):
        self.program, self.folder = program, Path(folder)
        self.data, self.log = self.folder / "data", self.folder / "dev.log"
        self.command = [program, "dev", "--data", str(self.data), "--tools", str(self.folder / "tools")]
        self.command += ["--workers", str(workers), "--dispatchers", str(dispatchers), "--gateways", str(gateways)]
        # Free ports: the usual ones are for a fleet that stays.
        self.command += ["--nats-port", "0", "--postgres-port", "0", "--http-port", "0", "--gateway-port", "0"]
        self.sizes = {"worker": workers, "dispatcher": dispatchers, "gateway": gateways, "nats": 1, "postgres": 1}
        # Variables that its processes start with.
        self.settings = settings or {}
        self.process = None
        self.named = {}
        (self.folder / "tools").mkdir(exist_ok=True)
        for manifest in tools:
            # JSON is YAML.
            (self.folder / "tools" / f"{manifest['name']}.yaml").write_text(json.dumps(manifest))

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *_):
        await self.stop()

    async def start(self):
        """Starts it and waits until it says that it is ready; the seconds that took."""
        before, began = self.identity(), time.monotonic()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **self.settings},
            )
        try:
            await until("dev.json is written", lambda: self.has_spoken(before), START_SECONDS, 0.02)
        except BaseException:
            await self.stop()
            raise
        self.info()
        return time.monotonic() - began

    def has_spoken(self, before):
        ended = self.process.poll()
        check(ended is None, f"toolfleet dev ended with code {ended} before it was ready")
        return self.identity() not in (None, before)

    def identity(self):
        """Which dev.json this is: it is replaced, never written to."""
        try:
            found = (self.data / "dev.json").stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    async def stop(self):
        """Ends it as Ctrl-C would; what then still runs is ended hard, and reported."""
        if self.process is None:
            return
        dev, self.process = self.process, None
        try:
            self.info()
        except Away:
            pass  # It did not get as far as dev.json.
        if dev.poll() is None:
            dev.send_signal(signal.SIGTERM)
        try:
            await until("toolfleet dev has ended", lambda: dev.poll() is not None, STOP_SECONDS)
        finally:
            if dev.poll() is None:
                dev.kill()
                dev.wait()
            left = [pid for pid, started in self.named.items() if processes.alive(pid, started)]
            said = processes.describe(left)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        check(not left, f"these outlived toolfleet dev: {said}")

    def info(self):
        """dev.json as it stands now."""
        try:
            info = json.loads((self.data / "dev.json").read_bytes())
        except FileNotFoundError:
            raise Away("there is no dev.json") from None
        for process in filter(None, map(processes.look, pids_in(info))):
            self.named.setdefault(process.pid, process.started)
        return info

    def login(self, _who):
        """Where nats-server is and what inboxes begin with: here everybody is the same."""
        return self.info()["nats_url"], "_INBOX"

    def pids(self, kind):
        """The pids of one kind of process, as dev.json names them now; one that is being replaced is not there."""
        info = self.info()
        pids = info[f"{kind}_pids"] if f"{kind}_pids" in info else [info[f"{kind}_pid"]]
        return [pid for pid in pids if pid]

    def kill(self, pid):
        """kill -9, of a process that dev.json names now."""
        check(pid in pids_in(self.info()), f"dev.json does not name {pid}")
        os.kill(pid, signal.SIGKILL)

    async def replaced(self, kind, pid):
        """Waits until dev.json names as many of a kind as there should be, and not this one."""

        def fact():
            now = self.pids(kind)
            return pid not in now and len(now) == self.sizes[kind] and all(map(processes.alive, now))

        await until(f"dev.json names another {kind} than {pid}", fact, 60)

    async def rows(self, sql, **values):
        """The rows of a query as dictionaries; `:'name'` stands for a value."""
        named = [part for name, value in values.items() for part in ("-v", f"{name}={value}")]
        folder = os.environ.get("TOOLFLEET_POSTGRES_BIN")
        psql = os.path.join(folder, "psql") if folder else "psql"
        command = [psql, "-XqAt", "-v", "ON_ERROR_STOP=1", *named, self.info()["database_url"]]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PGCONNECT_TIMEOUT": "5"},
        )
        asked = f"SELECT coalesce(json_agg(rows), '[]') FROM (\n{sql}\n) rows;\n"
        answer, complaint = await process.communicate(asked.encode())
        if process.returncode == 2:
            raise Away(f"Postgres: {complaint.decode().strip()}")
        check(process.returncode == 0, f"psql: {complaint.decode().strip()}")
        return json.loads(answer)

    async def row(self, sql, **values):
        """The one row of a query, or None."""
        rows = await self.rows(sql, **values)
        check(len(rows) < 2, f"{len(rows)} rows where one was expected")
        return rows[0] if rows else None

    async def states(self, tenant):
        """How many calls of a tenant stand in which state."""
        sql = "SELECT state, count(*) FROM toolfleet.calls WHERE tenant = :'tenant' GROUP BY state"
        return {row["state"]: row["count"] for row in await self.rows(sql, tenant=tenant)}

    async def call(self, call_id):
        """A call as its history shows it."""
        return await self.row("SELECT * FROM toolfleet.calls WHERE call_id = :'id'", id=call_id)

    async def worker_of(self, call_id):
        """The pid of the worker that runs a call, once one does."""
        sql = """SELECT w.pid FROM toolfleet.calls c JOIN toolfleet.workers w ON w.name = c.worker
                 WHERE c.call_id = :'id' AND c.state = 'running' AND w.state = 'live'"""
        row = await self.row(sql, id=call_id)
        return row and row["pid"]


async def control(dev, *words):
    """What an operator types after `toolfleet control`; what was printed."""
    return await command(dev, "control", *words)


async def command(dev, *words):
    """What a person types after `toolfleet`; what was printed."""
    info = dev.info()
    env = {**os.environ, "DATABASE_URL": info["database_url"], "NATS_URL": info["nats_url"]}
    process = await asyncio.create_subprocess_exec(
        dev.program, *words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    said, complaint = await process.communicate()
    check(process.returncode == 0, f"toolfleet {' '.join(words)}: {complaint.decode()}")
    return said


def tool(name, effect, executor, properties=None, required=(), **fields):
    """A manifest; further fields as they stand in one."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}} if properties is None else properties,
        "required": list(required),
        "additionalProperties": False,
    }
    executor = {"process": {"command": executor}} if isinstance(executor, list) else executor
    return {
        "name": name,
        "version": 1,
        "description": f"The tool {name} of a proof.",
        "effect": effect,
        "input_schema": schema,
        "executor": executor,
        **fields,
    }


def lines(path):
    """The objects of a JSON lines file; none while there is no file."""
    try:
        return [json.loads(line) for line in Path(path).read_text().splitlines()]
    except FileNotFoundError:
        return []


def pids_in(info):
    """Every pid that a dev.json names."""
    pids = [*info["dispatcher_pids"], *info["worker_pids"], *info.get("gateway_pids", []), info["nats_pid"], info["postgres_pid"]]
    return [pid for pid in pids if pid]
