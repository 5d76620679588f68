"""A real Prometheus that scrapes the processes of a fleet all the time, and is asked as Grafana asks it."""

import asyncio
import json
import math
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import processes
from waiting import Away, NotSo, check, until

CONFIG = {
    # A dispatcher reads figures from Postgres for each scrape, and waits at most 2 s for them.
    "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"},
    "scrape_configs": [
        {"job_name": "toolfleet", "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}]}
    ],
}
ASK_SECONDS = 10
START_SECONDS = 30
STOP_SECONDS = 30


class Prometheus:
    """It has a folder of its own, and listens on a free port."""

    def __init__(self, folder, rules):
        self.folder, self.process, self.url = folder / "prometheus", None, None
        self.folder.mkdir()
        # JSON is YAML.
        (self.folder / "prometheus.yml").write_text(json.dumps({**CONFIG, "rule_files": [str(rules)]}))
        self.targets([])

    async def __aenter__(self):
        command = [
            program(),
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            "--web.listen-address=127.0.0.1:0",
        ]
        with (self.folder / "prometheus.log").open("wb") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            await until("Prometheus is ready", self.is_ready, START_SECONDS)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_):
        self.process.terminate()
        try:
            await asyncio.to_thread(self.process.wait, STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise NotSo(f"Prometheus did not end within {STOP_SECONDS} s") from None

    async def is_ready(self):
        ended = self.process.poll()
        check(ended is None, f"Prometheus ended with code {ended} before it was ready")
        ports = processes.listens_on(self.process.pid)
        if not ports:
            return False
        self.url = f"http://127.0.0.1:{ports[0]}"
        return await asyncio.to_thread(get, f"{self.url}/-/ready")

    def targets(self, addresses):
        """What it scrapes from now on, such as `127.0.0.1:8401`."""
        written = self.folder / "targets.new"
        written.write_text(json.dumps([{"targets": sorted(addresses)}]))
        written.rename(self.folder / "targets.json")

    async def ask(self, path, **parameters):
        """What the API answers; None where it says that the query is wrong."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
        answer = json.loads(await asyncio.to_thread(get, url))
        return answer["data"] if answer["status"] == "success" else None

    async def up(self):
        """The addresses that answered the last scrape."""
        found = await self.ask("targets")
        return {target["labels"]["instance"] for target in found["activeTargets"] if target["health"] == "up"}

    async def now(self, query):
        """The numbers of a query at this moment."""
        return [float(series["value"][1]) for series in (await self.ask("query", query=query))["result"]]

    async def numbers(self, query, since=None):
        """How many series of a query have a number, since a moment or now; None where the query is wrong."""
        if since is None:
            found = await self.ask("query", query=query)
        else:
            found = await self.ask("query_range", query=query, start=since, end=time.time(), step="1s")
        if found is None:
            return None
        series = [one.get("values") or [one["value"]] for one in found["result"]]
        return sum(any(math.isfinite(float(number)) for _, number in values) for values in series)


def get(url):
    """The body of an answer; one of 400 and 422 says in its body what is wrong."""
    try:
        with urllib.request.urlopen(url, timeout=ASK_SECONDS) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        if error.code in (400, 422):
            return error.read()
        raise Away(f"{url}: {error}") from None
    except OSError as error:
        raise Away(f"{url}: {error}") from None


def program():
    """The one that `make setup` has put into .tools, or one of yours."""
    named = os.environ.get("TOOLFLEET_PROMETHEUS", "prometheus")
    found = shutil.which(named)
    check(found, f"there is no {named}: run `make setup`, then `. ./.tools/env`, or set TOOLFLEET_PROMETHEUS")
    return found
