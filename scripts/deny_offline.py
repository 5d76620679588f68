#!/usr/bin/env python3
"""What `make deny` checks, as far as that goes without the network, and a line for what was not checked.

With cargo-deny all of it is left to cargo-deny. Without, the rules of deny.toml are held against two lists. Cargo.lock names
every crate: where it comes from and whether it is banned. The licence of a crate is in the crate itself, and cargo downloads
only what this system builds: `cargo metadata` is asked for this system's crates.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


def section(text, name):
    """The text of a section of deny.toml. Python knows TOML from 3.11 on, and 3.9 is enough for this project."""
    found = re.search(rf"^\[{name}\]\n(.*?)(?=^\[|\Z)", text, re.S | re.M)
    if not found:
        sys.exit(f"deny.toml has no section [{name}]")
    return re.sub(r"^\s*#.*$", "", found.group(1), flags=re.M)


def licences(text):
    allowed = re.search(r"^allow = \[(.*?)\]", section(text, "licenses"), re.S | re.M)
    return set(re.findall(r'"([^"]+)"', allowed.group(1)))


def banned(text):
    return set(re.findall(r'crate = "([^"]+)"', section(text, "bans")))


def is_met(expression, allowed):
    """Whether an SPDX expression is met: OR by one of its sides, AND by both."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))

    def either():
        met = both()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            met = both() or met
        return met

    def both():
        met = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            met = one() and met
        return met

    def one():
        token = tokens.pop(0)
        if token == "(":
            met = either()
            tokens.pop(0)
            return met
        if tokens and tokens[0] == "WITH":
            token = f"{token} WITH {tokens[1]}"
            del tokens[:2]
        return token in allowed

    return either()


def locked():
    """Name, version and source of each package of Cargo.lock; the source of our own packages is None."""
    for entry in (ROOT / "Cargo.lock").read_text().split("[[package]]")[1:]:
        fields = dict(re.findall(r'^(name|version|source) = "(.*)"$', entry, re.M))
        yield f"{fields['name']} {fields['version']}", fields["name"], fields.get("source")


def of_this_system():
    version = subprocess.run(["rustc", "-vV"], check=True, stdout=subprocess.PIPE, text=True).stdout
    host = re.search(r"^host: (.+)$", version, re.M).group(1)
    command = ["cargo", "metadata", "--locked", "--offline", "--all-features", "--format-version", "1", "--filter-platform", host]
    told = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return [package for package in json.loads(told.stdout)["packages"] if package["source"] is not None]


def by_lists():
    rules = (ROOT / "deny.toml").read_text()
    allowed, no_entry, problems = licences(rules), banned(rules), []
    packages = list(locked())
    for package, name, source in packages:
        if source not in (None, REGISTRY):
            problems.append(f"{package} comes from {source}")
        if name in no_entry:
            problems.append(f"{package} is banned")
    here = of_this_system()
    for package in here:
        licence = package["license"]
        if licence is None or not is_met(licence, allowed):
            problems.append(f"{package['name']} {package['version']} has the licence {licence}, which is not allowed")
    for problem in problems:
        print(problem)
    print(
        f"checked without cargo-deny: sources and banned crates of {len(packages)} packages, "
        f"licences of the {len(here)} foreign ones that this system builds, {len(problems)} problems"
    )
    print(
        "not checked: advisories, wildcards, several versions of a crate, licences of other systems' crates "
        "(cargo install cargo-deny --locked, then make deny)"
    )
    return 1 if problems else 0


def by_cargo_deny():
    deny = ["cargo", "deny", "--locked", "--offline", "check"]
    ended = subprocess.run([*deny, "bans", "licenses", "sources"], cwd=ROOT).returncode
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    if any(home.glob("advisory-db*")):
        ended = subprocess.run([*deny, "advisories"], cwd=ROOT).returncode or ended
        print("checked: advisories, as of when they were last fetched; make deny fetches them")
    else:
        print("not checked: advisories, which are not on this machine; make deny fetches them")
    return ended


if __name__ == "__main__":
    sys.exit(by_cargo_deny() if shutil.which("cargo-deny") else by_lists())
