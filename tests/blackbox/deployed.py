"""A whole fleet as deploy/README.md says: each process is a user of nats-server and a role of Postgres, as they are shipped.

Its Postgres is that of a `toolfleet dev`, whose own dispatcher has another database and another nats-server and no part in this.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import processes
from fleet import Dev
from waiting import check, until

ROLES = Path(__file__).resolve().parents[2] / "deploy/postgres/roles.sql"
PASSWORD = "0123456789abcdef"
TENANTS = ["default", "kill-worker", "kill-dispatcher", "kill-nats", "kill-postgres"]
SERVICES = ["look", "echo"]
READY_SECONDS = 60
STOP_SECONDS = 45
RESTART_SECONDS = 0.2


class Kept:
    """A process that is started again when it ends, as systemd does."""

    def __init__(self, kind, name, command, env, folder):
        self.kind, self.name, self.command, self.env, self.folder = kind, name, command, env, folder
        self.log = folder / f"{name}.log"
        self.process, self.task = None, None

    def spawn(self):
        with self.log.open("ab") as log:
            self.told = log.tell()
            self.process = subprocess.Popen(
                self.command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )

    async def keep(self):
        while True:
            await asyncio.sleep(0.02)
            if self.process.poll() is not None:
                await asyncio.sleep(RESTART_SECONDS)
                self.spawn()

    def is_ready(self):
        ended = self.process.poll()
        check(ended is None, f"{self.name} ended with code {ended} before it was ready")
        return self.log.read_bytes().find(b"is ready", self.told) >= 0

    async def stop(self):
        """Ends it in order; returns whether that took too long."""
        if self.task:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task
        self.process.send_signal(signal.SIGTERM)
        ends = time.monotonic() + STOP_SECONDS
        while self.process.poll() is None and time.monotonic() < ends:
            await asyncio.sleep(0.02)
        late = self.process.poll() is None
        if late:
            self.process.kill()
        self.process.wait()
        return late


class Deployed(Dev):
    """It answers as `Dev` does; what is different is how it is started, and who one is."""

    has_users = True

    def __init__(self, program, folder, tools, workers=2, dispatchers=1):
        super().__init__(program, folder, tools, workers, dispatchers)
        self.command[self.command.index("--tools") + 1] = str(self.folder / "none")
        (self.folder / "none").mkdir(exist_ok=True)
        self.command[self.command.index("--workers") + 1] = "0"
        self.command[self.command.index("--dispatchers") + 1] = "1"
        self.nats, self.kept, self.users = self.folder / "nats", [], {}

    async def start(self):
        began = time.monotonic()
        await super().start()
        try:
            await self.start_all()
        except BaseException:
            await self.stop()
            raise
        return time.monotonic() - began

    async def start_all(self):
        # Postgres has another port after each start.
        owner = super().info()["database_url"]
        self.place = owner.rsplit("@", 1)[1].rsplit("/", 1)[0]
        self.owner = owner.rsplit("/", 1)[0] + "/fleet"
        if not self.users:
            self.lay_out(owner)
        server = os.environ.get("TOOLFLEET_NATS_SERVER", "nats-server")
        await self.run([("nats", "nats-server", [server, "-c", str(self.nats / "nats-server.conf")], {})])
        state = ["--state-dir", str(self.folder / "workers")]
        http = ["--http", "127.0.0.1:0"]
        dispatchers, workers = self.sizes["dispatcher"], self.sizes["worker"]
        await self.run(
            [
                ("dispatcher", f"dispatcher-{n}", [self.program, "dispatcher", *http, "--name", f"dispatcher-{n}"],
                 {**self.users["dispatcher"], "DATABASE_URL": self.url_of("dispatcher")})
                for n in range(dispatchers)
            ]
        )  # fmt: skip
        await self.run(
            [
                ("worker", f"worker-{n}", [self.program, "worker", *http, "--name", f"worker-{n}", *state],
                 {**self.users["worker-default"], "DATABASE_URL": self.url_of("worker")})
                for n in range(workers)
            ]
        )  # fmt: skip
        await until("a dispatcher offers every tool", self.offered, READY_SECONDS)

    async def offered(self):
        """Whether the tools are there for callers."""
        said = await asyncio.to_thread(self.toolfleet, "tools", "list", "--json")
        return said and all(kept.process.poll() is None for kept in self.kept)

    async def run(self, specs):
        started = []
        for kind, name, command, env in specs:
            kept = Kept(kind, name, command, {**os.environ, **env}, self.folder)
            kept.spawn()
            started.append(kept)
            self.kept.append(kept)
        for kept in started:
            ready = listens(self.port) if kept.kind == "nats" else kept.is_ready
            await until(f"{kept.name} is ready", ready, READY_SECONDS, 0.02)
            kept.task = asyncio.ensure_future(kept.keep())

    def lay_out(self, owner):
        """Once: the database and its roles, the users of nats-server, the tools."""
        psql(owner, "-c", "CREATE DATABASE fleet")
        psql(self.owner, "-f", str(ROLES))
        for role in ["migrate", "dispatcher", "worker", "operator", "reader"]:
            psql(self.owner, "-c", f"ALTER ROLE toolfleet_{role} PASSWORD '{PASSWORD}'")
        self.toolfleet("migrate", "--grant", DATABASE_URL=self.url_of("migrate"))
        self.port = free_port()
        self.toolfleet(
            "nats-config", "--tenant", ",".join(TENANTS), "--service", ",".join(SERVICES),
            "--url", f"nats://127.0.0.1:{self.port}", "--out", str(self.nats),
        )  # fmt: skip
        conf = self.nats / "nats-server.conf"
        text = conf.read_text()
        for theirs, ours in [
            ("listen: 127.0.0.1:4222", f"listen: 127.0.0.1:{self.port}"),
            ("http: 127.0.0.1:8222\n", ""),
            ("store_dir: /var/lib/nats", f'store_dir: "{self.folder}/store"'),
        ]:
            check(text.count(theirs) == 1, f"nats-server.conf is not as expected: {theirs}")
            text = text.replace(theirs, ours)
        conf.write_text(text)
        for file in self.nats.glob("*.env"):
            lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
            self.users[file.stem] = dict(line.split("=", 1) for line in lines)
        if any((self.folder / "tools").iterdir()):
            self.toolfleet("tools", "apply", str(self.folder / "tools"))

    def toolfleet(self, *words, **env):
        """What the program prints; as an operator where nothing else is said."""
        operator = {"DATABASE_URL": self.url_of("operator"), **self.users.get("operator", {})}
        ran = subprocess.run(
            [self.program, *words], env={**os.environ, **operator, **env}, capture_output=True, text=True, timeout=60,
            cwd=self.folder,
        )  # fmt: skip
        check(ran.returncode == 0, f"toolfleet {' '.join(words)}: {ran.stderr}")
        return ran.stdout

    def url_of(self, role):
        return f"postgres://toolfleet_{role}:{PASSWORD}@{self.place}/fleet"

    async def stop(self):
        kept, self.kept = self.kept, []
        late = [one.name for one in reversed(kept) if await one.stop()]
        await super().stop()
        check(not late, f"did not end when they were told to: {late}")

    def info(self):
        """As dev.json would say it."""
        info = super().info()
        if not self.kept:
            return info
        pids = {kind: [] for kind in ["nats", "dispatcher", "worker"]}
        for kept in self.kept:
            running = kept.process.poll() is None and processes.look(kept.process.pid)
            if running:
                self.named.setdefault(running.pid, running.started)
            pids[kept.kind].append(kept.process.pid if running else None)
        return {
            "nats_url": f"nats://127.0.0.1:{self.port}",
            "database_url": self.owner,
            "nats_pid": pids["nats"][0],
            "postgres_pid": info["postgres_pid"],
            "dispatcher_pids": pids["dispatcher"],
            "worker_pids": pids["worker"],
        }

    def login(self, who):
        user = self.users[who]
        return user["NATS_URL"], user["NATS_INBOX"]


def psql(url, *words):
    folder = os.environ.get("TOOLFLEET_POSTGRES_BIN")
    program = os.path.join(folder, "psql") if folder else "psql"
    ran = subprocess.run([program, "-Xq", "-v", "ON_ERROR_STOP=1", *words, url], capture_output=True, text=True)
    check(ran.returncode == 0, f"psql: {ran.stderr}")


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def listens(port):
    def fact():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True

    return fact
