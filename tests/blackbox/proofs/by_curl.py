"""docs/gateway.md is typed word for word, with a plain curl: what is printed there is what is answered."""

import asyncio
import itertools
import os
import re
import signal
from pathlib import Path

from waiting import check, until

PAGE = Path(__file__).resolve().parents[3] / "docs/gateway.md"
SECTIONS = ["A first call", "Following a session"]
ID = "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"
WAIT_SECONDS = 20


async def prove(proof):
    async with proof.fleet([], workers=1) as dev:
        page = PAGE.read_text()
        shell = await Shell.open(proof, dev)
        seen, printed, commands = {}, "", 0
        for section in SECTIONS:
            for before, mark, body in blocks(page.split(f"\n## {section}\n")[1].split("\n## ")[0]):
                if mark in ("python", "yaml"):
                    (proof.folder / before.rsplit("`", 2)[1]).write_text(body)
                    await applied(dev, before) if mark == "yaml" else None
                elif mark == "sh":
                    for there, here in seen.items():
                        body = body.replace(there, here)
                    printed, commands = await shell.run(body), commands + 1
                else:
                    seen.update(as_printed(body, await shell.also(printed, body)))
        check(commands >= 9 and len(seen) >= 3, f"only {commands} commands and {len(seen)} ids in {PAGE}")
        await shell.close()
    proof.note(f"{commands} blocks of {PAGE.name} typed, every answer as printed, but for ids, moments and what is measured")


def blocks(section):
    """The blocks of a section: the line before each, how it is marked, and its text."""
    before, lines = "", iter(section.splitlines())
    for line in lines:
        if line.startswith("```"):
            yield before, line[3:], "".join(f"{text}\n" for text in itertools.takewhile(lambda text: text != "```", lines))
            before = ""
        elif line:
            before = line


async def applied(dev, before):
    """Waits until `dev` says so: then it can be called."""
    name = Path(before.rsplit("`", 2)[1]).name
    await until(f"{name} is applied", lambda: f"tools: {name}: " in dev.log.read_text(), 30)


def as_printed(promised, said):
    """The ids of the page with those of this run; fails where what was said is not what the page has."""
    ids = {}
    lines = [line for line in promised.splitlines() if line]
    for line in lines:
        pattern, names = re.escape(line), []
        pattern = pattern.replace(r"\-", "-").replace('\\"', '"')
        for found in re.findall(ID, line):
            names.append(found)
            pattern = pattern.replace(found, f"({ID})", 1)
        pattern = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\\\.\d+Z", lambda _: TIME, pattern)
        pattern = re.sub(r'"(queued|run)_ms":\d+', r'"\1_ms":\\d+', pattern)
        pattern = re.sub(r"id: *\d+-\d+", r"id: \\d+-\\d+", pattern.replace("\\ ", " "))
        found = re.search(f"^{pattern}\r?$", said, re.MULTILINE)
        check(found, f"the page promises\n{line}\nand this was said:\n{said}")
        ids.update(zip(names, found.groups()))
    return ids


class Shell:
    """A terminal, as a person has it."""

    def __init__(self, process):
        self.process, self.ended = process, 0

    @classmethod
    async def open(cls, proof, dev):
        process = await asyncio.create_subprocess_exec(
            "bash", "--noprofile", "--norc", cwd=proof.folder, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, limit=1 << 20, env=dict(os.environ), start_new_session=True,
        )
        shell = cls(process)
        # The page's folder of the fleet is `.toolfleet`; this one's is another.
        (proof.folder / ".toolfleet").symlink_to(dev.data)
        return shell

    async def run(self, text):
        """What a block prints until its last command has ended."""
        mark = f"END-{self.ended}"
        self.ended += 1
        # A body has no newline at its end.
        self.process.stdin.write(f"{text}\nprintf '\\n{mark}\\n'\n".encode())
        await self.process.stdin.drain()
        said = []
        while True:
            line = await asyncio.wait_for(self.process.stdout.readline(), WAIT_SECONDS)
            check(line, f"the shell has ended after {text}")
            if line.decode().strip() == mark:
                return "".join(said)
            said.append(line.decode())

    async def also(self, printed, promised):
        """What was printed, with what a command in the background has still to print of what is promised."""
        ends = asyncio.get_running_loop().time() + WAIT_SECONDS
        wanted = promised.count("\ndata: ") + promised.startswith("data: ")
        while printed.count("\ndata: ") < wanted and asyncio.get_running_loop().time() < ends:
            line = await asyncio.wait_for(self.process.stdout.readline(), WAIT_SECONDS)
            printed += line.decode()
        return printed

    async def close(self):
        # With everything that it has in the background.
        os.killpg(self.process.pid, signal.SIGTERM)
        await self.process.communicate()
