"""Installing from the system's packages, without a question and without side effects."""

import os
import re
import shlex
import shutil
import tempfile
from pathlib import Path

from shell import Missing, log_tail, logged, run, say

# The oldest Postgres we run on; an older package is not worth installing.
POSTGRES_AT_LEAST = (15,)

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
TOO_OLD = (f"install Postgres {POSTGRES_AT_LEAST[0]} or newer by hand and set "
           "TOOLFLEET_POSTGRES_BIN to its bin folder")

# Debian starts a system-wide cluster when the server is installed; we want the programs only.
# The drop-in is there while we install and gone afterwards, so nothing else changes its ways.
DEBIAN_DROP_IN = "/etc/postgresql-common/createcluster.d/toolfleet-setup.conf"
WITHOUT_CLUSTER = """
trap 'rm -f "$0"' EXIT
mkdir -p "$(dirname "$0")" && echo 'create_main_cluster = false' >"$0" && "$@"
"""


def install(need, why, needs):
    """Installs what stands for `need` in the table, as root or with a sudo that asks nothing.

    Where neither is possible, the sentence names the packages of all `needs`, so that an
    administrator is asked only once.
    """
    name = next((name for name in MANAGERS if shutil.which(name)), None)
    if name is None:
        raise Missing(f"missing: {why}. None of {', '.join(MANAGERS)} is here to install it with")
    manager, packages = MANAGERS[name], MANAGERS[name][need]
    prefix = elevation(name)
    if prefix is None:
        every = [package for one in needs for package in manager[one]]
        raise Missing(f"missing: {why}. It takes an administrator to install it; "
                      f"this is the command for all that is missing here:\n"
                      f"  {manager['by_hand']} {shlex.join(every)}")
    say(f"installs {' '.join(packages)} with {name}: {why}")
    prefix = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive"]
    if "update" in manager:
        # One broken source fails the whole update; the lists may hold what we need all the same.
        logged([*prefix, *manager["update"]])
    command = [*manager["install"], *packages]
    if name == "apt-get" and need == "postgres":
        if apt_candidate("postgresql") < POSTGRES_AT_LEAST:
            raise Missing(f"the postgresql package of this system is too old: {TOO_OLD}")
        command = ["sh", "-c", WITHOUT_CLUSTER, DEBIAN_DROP_IN, *command]
    if not logged([*prefix, *command]):
        raise Missing(f"{name} could not install {' '.join(packages)}. "
                      f"The end of .tools/setup.log:\n{log_tail()}")


def take_out(package, programs):
    """Puts programs of a Debian package into files, without installing the package, which may start
    a server. Nobody needs to be root for that. The caller looks whether they are there."""
    if not all(shutil.which(tool) for tool in ("apt-get", "dpkg-deb")):
        return
    with tempfile.TemporaryDirectory() as folder:
        inside = ["sh", "-c", 'cd "$0" && "$@"', folder]
        download = [*inside, "apt-get", "-q", "-o", "Acquire::Retries=3", "download", package]
        if not logged(download):
            prefix = elevation("apt-get")
            # The lists may be too old to find it.
            if prefix is None or not logged([*prefix, *MANAGERS["apt-get"]["update"]]):
                return
            if not logged(download):
                return
        found = next(Path(folder).glob("*.deb"), None)
        if not found or not logged(["dpkg-deb", "-x", str(found), folder]):
            return
        for program, into in programs.items():
            into.parent.mkdir(exist_ok=True)
            # Under another name first: the one that is there may be running.
            shutil.copy(Path(folder, program), into.with_suffix(".new"))
            into.with_suffix(".new").replace(into)


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
