#!/usr/bin/env python3
"""What encryption costs: the same workloads with TLS to nats-server and Postgres and without, in turn, as a Markdown table.

    python3 bench/tls.py [--toolfleet PATH] [--seconds 10] [--turns 3] [--effect read,once]

Each turn is a Postgres, a nats-server and a dispatcher of its own, once without and once with TLS; the ratio is that of the medians. The
certificates are made by openssl for the run. With TLS it ends if a session of the fleet is not encrypted. It needs the servers that `make setup` finds; start it
with `. ./.tools/env`. Exit code 1 when a call was lost or doubled.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from servers import psql, started, stopped

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
SETTINGS = """
listen: 127.0.0.1:-1
ports_file_dir: "{folder}/ports"
max_payload: 8MB
jetstream {{ store_dir: "{folder}/nats" }}
"""
TLS = 'tls {{ cert_file: "{folder}/server.pem", key_file: "{folder}/server.key" }}\n'
IN_THE_CLEAR = """SELECT count(*) FROM pg_stat_activity JOIN pg_stat_ssl USING (pid)
                  WHERE application_name LIKE 'toolfleet%' AND datname = 'measured' AND NOT ssl"""


def until(what, fact):
    """Waits at most 60 s for a fact; returns it."""
    began = time.monotonic()
    while not (found := fact()):
        if time.monotonic() - began > 60:
            sys.exit(f"waited in vain for {what}")
        time.sleep(0.05)
    return found


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def certify(folder):
    """An authority, and a certificate of 127.0.0.1."""
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl(folder, "req", "-x509", *KEY, "-keyout", "authority.key", "-out", "authority.pem", "-days", "2", "-subj", "/CN=bench")
    openssl(folder, "req", *KEY, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=127.0.0.1")
    signed = ["-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial", "-extfile", "names"]
    openssl(folder, "x509", "-req", "-in", "server.csr", "-out", "server.pem", "-days", "2", *signed)


def encrypt_postgres(folder, url):
    """Has a running Postgres take TLS: from the next connection on."""
    data = (folder / "dev" / "postgres").resolve()
    owner = data.stat()
    for name in ("server.pem", "server.key"):
        shutil.copy(folder / name, data / name)
        os.chown(data / name, owner.st_uid, owner.st_gid)
        os.chmod(data / name, 0o600)
    for change in ("ssl_cert_file = 'server.pem'", "ssl_key_file = 'server.key'", "ssl = on"):
        run_sql(url, f"ALTER SYSTEM SET {change}")
    run_sql(url, "SELECT pg_reload_conf()")
    until("Postgres to take TLS", lambda: psql(url, "SELECT (current_setting('ssl') = 'on')::integer")[0])


def run_sql(url, sql):
    folder = os.environ.get("TOOLFLEET_POSTGRES_BIN")
    program = str(pathlib.Path(folder) / "psql") if folder else "psql"
    subprocess.run([program, url, "-qc", sql], check=True, stdout=subprocess.DEVNULL)


def serve(folder, is_tls):
    """A nats-server, and its port."""
    (folder / "ports").mkdir()
    settings = (SETTINGS + (TLS if is_tls else "")).format(folder=folder)
    (folder / "server.conf").write_text(settings)
    program = os.environ.get("TOOLFLEET_NATS_SERVER", "nats-server")
    log = (folder / "nats.log").open("wb")
    server = subprocess.Popen([program, "-c", str(folder / "server.conf")], stdout=log, stderr=log)
    told = until("nats-server", lambda: list((folder / "ports").glob("*.ports")))[0]
    return server, json.loads(told.read_text())["nats"][0].rsplit(":", 1)[1]


def turn(options, is_tls):
    """The calls a second of each effect."""
    with tempfile.TemporaryDirectory(prefix="toolfleet-tls-") as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        certify(folder)
        dev = subprocess.Popen(
            [options.toolfleet, "dev", "--data", str(folder / "dev"), "--workers", "0", "--gateways", "0", "--nats-port", "0", "--postgres-port", "0", "--http-port", "0"],
            stdout=subprocess.DEVNULL,
        )
        server = dispatcher = None
        try:
            url = started(folder / "dev", dev)["database_url"]
            # A ledger of its own: the dispatcher of `dev` has another nats-server.
            run_sql(url, "CREATE DATABASE measured")
            if is_tls:
                encrypt_postgres(folder, url)
            server, port = serve(folder, is_tls)
            database = url.rsplit("/", 1)[0] + f"/measured?sslmode={'require' if is_tls else 'disable'}"
            env = {**os.environ, "DATABASE_URL": database, "NATS_URL": f"{'tls' if is_tls else 'nats'}://127.0.0.1:{port}"}
            if is_tls:
                env["NATS_CA"] = str(folder / "authority.pem")
            subprocess.run([options.toolfleet, "migrate"], env=env, check=True, stdout=subprocess.DEVNULL)
            log = (folder / "dispatcher.log").open("wb")
            command = [options.toolfleet, "dispatcher", "--http", "127.0.0.1:0"]
            dispatcher = subprocess.Popen(command, env=env, stdout=log, stderr=log)
            until("the dispatcher", lambda: b"is ready" in (folder / "dispatcher.log").read_bytes())
            command = [options.toolfleet, "bench", "--json", "--effect", options.effect, "--seconds", str(options.seconds)]
            bench = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
            time.sleep(options.seconds / 2)
            if is_tls and psql(url, IN_THE_CLEAR)[0]:
                bench.kill()
                sys.exit("a session of the fleet is not encrypted")
            told = json.loads(bench.communicate()[0])
            return {of["name"]: of for of in told["workloads"]}
        finally:
            stopped(dispatcher, dev)
            stopped(server)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolfleet", default="target/release/toolfleet")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--effect", default="read,idempotent,once")
    options = parser.parse_args()
    options.toolfleet = str(pathlib.Path(options.toolfleet).resolve())
    turns = [(turn(options, False), turn(options, True)) for _ in range(options.turns)]
    wrong = 0
    print("| workload | calls/s without | calls/s with TLS | ratio | p50 ms without | with | turns |\n|---|---|---|---|---|---|---|")
    for name in turns[0][0]:
        plain, tls = ([arms[index][name] for arms in turns] for index in (0, 1))
        without, encrypted = (statistics.median(of["calls_per_s"] for of in arm) for arm in (plain, tls))
        waits = [statistics.median(of["p50_ms"] for of in arm) for arm in (plain, tls)]
        wrong += sum(of["lost"] + of["doubled"] for of in plain + tls)
        ratios = ", ".join(f"{t['calls_per_s'] / p['calls_per_s']:.2f}" for p, t in zip(plain, tls))
        print(f"| {name} | {without:.0f} | {encrypted:.0f} | {encrypted / without:.2f} | {waits[0]:.1f} | {waits[1]:.1f} | {ratios} |")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
