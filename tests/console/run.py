#!/usr/bin/env python3
"""Has a browser try the console: pictures of every page, journeys of operators, the keyboard, texts of strangers, and how fast it is.

Starts a fleet on a folder of its own with the tools of tools.py, whose service is service.py, and then the modules of node/ one after the other.
Each prints a line for what it has asserted, with `not ok` where that did not hold, and figures. The exit code is 1 when anything did not hold.
The modules share the fleet; what the later ones break (its gateway, its tokens) the earlier ones need.

The first run installs playwright-core and axe-core from the npm registry into tests/console/node/node_modules, in the versions of
package-lock.json, and Chromium with a Chinese font from Debian's packages where there is none. `--short` does without the figures and most
of the pictures; `--calm` runs the part of that which waits for no clock, in a minute. `--load` takes the figures alone, on a fleet with a
history of 1,000,000 calls while 2,000 a second run: give it a release build (`--toolfleet target/release/toolfleet`); it takes four minutes.
"""

import argparse
import asyncio
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "blackbox"), str(ROOT / "scripts")]
sys.dont_write_bytecode = True

from fleet import Dev, command
from service import Service
from setup import find_npm
from tools import tools
from waiting import check

NODE = os.environ.get("TOOLFLEET_NODE", "node")
MODULES = HERE / "node" / "node_modules"
LOCK, INSTALLED = HERE / "node" / "package-lock.json", MODULES / ".package-lock.json"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
CHINESE_FONTS = ("fonts-wqy-microhei", "fonts-noto-cjk")
# In this order: pictures want a calm fleet, and `losses` takes the gateway and a token away. `doubts` mostly waits for a dead worker to be
# found, so what makes no doubts runs beside it.
RUNS = ("pictures", "access", "calls", "doubts", "scriptless", "hostile", "losses", "speed")
BESIDE = {"doubts": ["people", "playground", "streams", "schemas", "clocks"]}
NAMES = [*RUNS, *(name for names in BESIDE.values() for name in names)]
NOT_SHORT = ("speed",)
# Those that wait for no clock: no worker has to be found dead, nothing is killed.
CALM = ("access", "people", "playground", "schemas", "scriptless", "hostile")
RUN_SECONDS = 900
# What `--load` puts beside the figures, by `toolfleet bench`; it is ended when they are taken.
LOAD = ["--rate", "2000", "--effect", "once", "--seconds", "1800"]
HISTORY, CHUNK = 1_000_000, 50_000
# Calls of the last hour as they are after their end: half of them of another tenant, three of a hundred failed.
FINISHED = """
    INSERT INTO toolfleet.finished_calls
        (call_id, rev, from_state, state, outcome, source, effect_known, tenant, tool, tool_version, effect, queue, priority, key_retention_ms,
         args, args_hash, result, error, language, accepted_at, deadline_at, first_started_at, finished_at, queued_ms, run_ms, attempts,
         attempt_id, worker_id, claim_rev, attempt_started_at, attempt_timeout_ms, attempt_outcome, actor, reason)
    SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7000b' || lpad(to_hex(n), 15, '0'))::uuid,
           2, 'running', CASE WHEN bad THEN 'failed' ELSE 'succeeded' END::toolfleet.call_state,
           CASE WHEN bad THEN 'system_error' ELSE 'success' END::toolfleet.call_outcome,
           CASE WHEN bad THEN 'error' ELSE 'live' END::toolfleet.source, CASE WHEN bad THEN 'not_applied' ELSE 'applied' END::toolfleet.effect_known,
           CASE WHEN n % 2 = 0 THEN 'default' ELSE 'acme' END, 'charge', 1, 'once', 'default', 1, 86400000,
           json_build_object('account', 'c-' || n, 'cents', n), sha256('a'), CASE WHEN NOT bad THEN '{{"charged": true}}'::json END,
           CASE WHEN bad THEN '{{"code": "unavailable", "message": "The bank is away."}}'::json END, 'en', at, at + interval '5 minutes', at,
           at + interval '20 ms', 2, 18, 1, gen_random_uuid(), gen_random_uuid(), 1, at, 30000,
           CASE WHEN bad THEN 'definite_failure' ELSE 'applied' END::toolfleet.attempt_outcome, 'worker', 'completed'
    FROM (SELECT n, n % 33 = 0 AS bad, now() - interval '1 hour' * (1 - n::float8 / {all}) AS at
          FROM generate_series({first} + 1, {first} + {chunk}) n) made"""
LOAD_BEGINS_WITHIN = 900
# Who signs in: scopes, tenant.
TOKENS = {
    "ann": ("read,settle,approve,call,admin", "default"),
    "bob": ("read,settle,approve,call,admin", "default"),
    "looker": ("read", "default"),
    "leaving": ("read", "default"),
}


def packages():
    """The JavaScript packages of the lock, where they are not there yet."""
    wanted = {place: of["integrity"] for place, of in json.loads(LOCK.read_text())["packages"].items() if place}
    there = json.loads(INSTALLED.read_text())["packages"] if INSTALLED.exists() else {}
    if any(there.get(place, {}).get("integrity") != integrity for place, integrity in wanted.items()):
        npm = [*find_npm(), "ci", "--prefix", str(HERE / "node"), "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(npm, check=True, stdout=subprocess.DEVNULL)


def chromium():
    """The browser: that of TOOLFLEET_CHROMIUM, one that is here, or Debian's."""
    chosen = os.environ.get("TOOLFLEET_CHROMIUM")
    found = next(filter(None, [chosen, *map(shutil.which, CHROMIUM)]), None)
    if not found and debian("chromium"):
        found = shutil.which("chromium")
    if not found:
        sys.exit("The tests of the console need Chromium: install it (Debian: apt-get install chromium), or name its file in TOOLFLEET_CHROMIUM.")
    # Without one, pictures of the Chinese pages have boxes in the place of letters; nothing else is about it.
    chinese = [font for name in ("wqy", "*CJK*", "*cjk*") for font in glob.glob(f"/usr/share/fonts/**/{name}*", recursive=True)]
    if not chinese and not any(map(debian, CHINESE_FONTS)):
        print("no Chinese font could be had: the pictures of Chinese pages have boxes in the place of letters")
    return found


def debian(package):
    """Whether apt-get has installed it."""
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return False
    words = ["apt-get", "install", "--yes", "--no-install-recommends", package]
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


async def tried(options, folder):
    """Whether everything was as it should be."""
    browser, service = chromium(), Service()
    try:
        async with Dev(os.path.abspath(options.toolfleet), folder, tools(service.url), workers=1) as dev:
            info = dev.info()
            check(" is not applied" not in dev.log.read_text(), f"not all tools are applied: {dev.log.read_text()}")
            told = {
                "program": dev.program,
                "data": str(dev.data),
                "folder": str(folder),
                "url": info["gateway_url"],
                "service": service.url,
                "chromium": browser,
                "pictures": os.path.abspath(options.pictures),
                "short": options.short,
                "load": options.load,
                "axe": str(MODULES / "axe-core" / "axe.min.js"),
                "tokens": {"all": info["gateway_token"], **{name: await token(dev, name) for name in TOKENS}},
            }
            (Path(folder) / "told.json").write_text(json.dumps(told))
            os.makedirs(told["pictures"], exist_ok=True)
            with loaded(dev.program, info, folder) if options.load else nullcontext():
                # In a thread: the fleet is looked after meanwhile.
                return await asyncio.to_thread(run, options, folder)
    finally:
        service.close()


@contextmanager
def loaded(program, info, folder):
    """A large history, and calls that are made all the time."""
    psql = Path(os.environ.get("TOOLFLEET_POSTGRES_BIN", "")) / "psql"
    began = time.monotonic()
    for first in range(0, HISTORY, CHUNK):
        sql = FINISHED.format(all=HISTORY, first=first, chunk=CHUNK)
        subprocess.run([psql, "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", sql, info["database_url"]], check=True)
    subprocess.run([psql, "-Xqc", "VACUUM (ANALYZE) toolfleet.finished_calls", info["database_url"]], check=True)
    print(f"load    a history of {HISTORY:,} calls in {time.monotonic() - began:.0f} s, and {' '.join(LOAD)}", flush=True)
    words = [program, "bench", "--nats-url", info["nats_url"], "--database-url", info["database_url"], *LOAD]
    said = Path(folder) / "load.log"
    with said.open("wb") as log:
        bench = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        while not said.read_text():
            check(bench.poll() is None and time.monotonic() - began < LOAD_BEGINS_WITHIN, f"no load: {said.read_text()}")
            time.sleep(0.5)
        print(f"load    {said.read_text().strip()}", flush=True)
        yield
        check(bench.poll() is None, f"the load has ended: {said.read_text()}")
    finally:
        bench.send_signal(signal.SIGINT)
        bench.wait()


async def token(dev, name):
    scopes, tenant = TOKENS[name]
    words = ["tokens", "create", "--name", name, "--tenant", tenant, "--scope", scopes, "--note", "the browser tests"]
    return (await command(dev, *words)).decode().strip()


def run(options, folder):
    def is_meant(name):
        return name in options.only if options.only else not (options.short and name in NOT_SHORT)

    results, began = {}, time.monotonic()
    for name in RUNS:
        lanes = [list(filter(is_meant, lane)) for lane in ([name], BESIDE.get(name, []))]
        with ThreadPoolExecutor(len(lanes)) as beside:
            for done in beside.map(lambda lane: [(one, module(one, folder)) for one in lane], lanes):
                results.update(done)
    bad = [name for name, good in results.items() if not good]
    print(f"{len(results) - len(bad)} of {len(results)} modules as they should be in {time.monotonic() - began:.0f} s", *(["; not:", *bad] if bad else []))
    return not bad


def module(name, folder):
    """Runs a module and prints what it has said, in one piece; whether all that it claims holds."""
    start = time.monotonic()
    words = [NODE, str(HERE / "node" / f"{name}.mjs"), str(Path(folder) / "told.json")]
    try:
        said = subprocess.run(words, cwd=folder, timeout=RUN_SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        text, good = said.stdout, said.returncode == 0
    except subprocess.TimeoutExpired as late:
        text, good = f"{late.stdout or b''}\nnot ok  it ends within {RUN_SECONDS} s", False
    print(f"--- {name}, {time.monotonic() - start:.0f} s\n{text.rstrip()}", flush=True)
    return good


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--toolfleet", default=str(ROOT / "target" / "debug" / "toolfleet"))
    options.add_argument("--short", action="store_true", help="without the figures and most of the pictures")
    options.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help=f"this module only, may be given several times: {', '.join(NAMES)}")
    options.add_argument("--pictures", default=str(ROOT / "target" / "console"), help="the folder of the pictures")
    options.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    options.add_argument("--calm", action="store_true", help="in short, and without what waits for clocks")
    options.add_argument("--load", action="store_true", help="the figures alone, beside a large history and 2,000 calls a second")
    options = options.parse_args()
    if options.load:
        options.only = ["speed"]
    if options.calm:
        options.only, options.short = CALM, True
    packages()
    folder = tempfile.mkdtemp(prefix="toolfleet-console-")
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


if __name__ == "__main__":
    main()
