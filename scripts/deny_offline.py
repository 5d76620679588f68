#!/usr/bin/env python3
"""What `make deny` checks, as far as that goes without the network, and a line for what was not checked.

With cargo-deny all of it is left to cargo-deny. Without, the rules of deny.toml are held against `cargo metadata`: where the
crates come from, which of them are banned, and their licences.
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


def by_metadata():
    rules = (ROOT / "deny.toml").read_text()
    command = ["cargo", "metadata", "--locked", "--offline", "--all-features", "--format-version", "1"]
    told = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    packages = json.loads(told.stdout)["packages"]
    allowed, no_entry, problems = licences(rules), banned(rules), []
    for package in packages:
        name = f"{package['name']} {package['version']}"
        if package["source"] not in (None, REGISTRY):
            problems.append(f"{name} comes from {package['source']}")
        if package["name"] in no_entry:
            problems.append(f"{name} is banned")
        if package["source"] is None:
            continue
        licence = package["license"]
        if licence is None or not is_met(licence, allowed):
            problems.append(f"{name} has the licence {licence}, which is not allowed")
    for problem in problems:
        print(problem)
    print(f"checked without cargo-deny: sources, banned crates and licences of {len(packages)} packages, {len(problems)} problems")
    print("not checked: advisories, wildcards, several versions of a crate (cargo install cargo-deny --locked, then make deny)")
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
    sys.exit(by_cargo_deny() if shutil.which("cargo-deny") else by_metadata())
