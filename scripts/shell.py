"""What the set-up scripts share: saying, running, logging, and comparing versions."""

import re
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"
LOG = TOOLS / "setup.log"


class Missing(Exception):
    """Something cannot be had; the text says what is wrong and what to do."""


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
