"""What runs on this machine, read from /proc. A zombie does not run."""

import contextlib
import os
from collections import namedtuple
from pathlib import Path

Process = namedtuple("Process", "pid parent started")
"""`started` is in clock ticks since boot: with it, a pid that was given out again is not mistaken."""


def look(pid):
    """The process with this pid, or None when there is none or it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name stands in parentheses and may hold anything; what follows the last one is regular.
    state, parent, *others = text[text.rindex(")") + 2 :].split()
    if state in "ZX":
        return None
    return Process(pid, int(parent), int(others[17]))


def everything():
    """Every running process."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [process for process in map(look, pids) if process]


def alive(pid, started=None):
    """Whether this process runs; with `started`, whether it is still the same one."""
    process = look(pid)
    return process is not None and started in (None, process.started)


def descendants(pid):
    """The processes that this one started, and theirs, as far as nobody in between has gone."""
    running = everything()
    family, grew = {pid}, True
    while grew:
        young = {p.pid for p in running if p.parent in family} - family
        family |= young
        grew = bool(young)
    return family - {pid}


def of_call(call_id):
    """The processes that were started for a call, known by the environment they were given."""
    mark = f"TOOLFLEET_CALL_ID={call_id}".encode()
    return [p.pid for p in everything() if mark in read(p.pid, "environ").split(b"\0")]


def in_folder(folder):
    """The processes that work in a folder or were started with a path in it."""
    folder = os.path.realpath(folder)
    me = os.getpid()
    return [p.pid for p in everything() if p.pid != me and touches(p.pid, folder)]


def touches(pid, folder):
    """Whether a process works in a folder or names it in its command line."""
    try:
        place = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        place = ""
    return (place + "/").startswith(folder + "/") or folder.encode() in read(pid, "cmdline")


def listens_on(pid):
    """The ports of 127.0.0.1 on which a process listens for TCP."""
    links = []
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    except OSError:
        return []
    rows = [line.split() for line in read(pid, "net/tcp").decode().splitlines()[1:]]
    # 0A: it listens. The address is written with its last byte first.
    listening = {f"socket:[{row[9]}]": row[1] for row in rows if row[3] == "0A"}
    places = [listening[link] for link in links if link in listening]
    return [int(place.partition(":")[2], 16) for place in places if place.startswith("0100007F")]


def describe(pids):
    """Pids with their command lines, for a message."""
    lines = {pid: read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace") for pid in pids}
    return ", ".join(f"{pid} ({line.strip()[:80]})" for pid, line in lines.items())


def read(pid, name):
    """A file of a process, empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
