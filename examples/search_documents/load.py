#!/usr/bin/env python3
"""Puts the passages of a folder of texts where search_documents finds them, in place of what was there.

    python3 load.py texts

A text is a file *.txt or *.md in UTF-8: its first line is the title, and a passage ends at an empty line. The tables are made if
they are missing. All of it is one transaction: a search that runs meanwhile sees the old passages or the new ones.

Needs psql, in TOOLFLEET_POSTGRES_BIN or on the PATH, and the URL of the database in DATABASE_URL, or as --database-url.
"""

import argparse
import csv
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

TABLES = Path(__file__).resolve().parent / "tables.sql"
FILES_MAX = 10_000
FILE_BYTES_MAX = 4 * 1024 * 1024
# A longer paragraph is cut, behind a sentence where there is one: the table takes no more than 2,000 characters.
PASSAGE_MAX = 1_200


class Unfit(Exception):
    """A folder, a file or a database with which nothing can be loaded."""


def passages(folder):
    """A row for each passage of each text, in the order of the names."""
    files = sorted(path for path in Path(folder).iterdir() if path.suffix in (".txt", ".md") and path.is_file())
    if not files:
        raise Unfit(f"{folder} has no files *.txt or *.md")
    if len(files) > FILES_MAX:
        raise Unfit(f"{folder} has {len(files)} texts, more than {FILES_MAX}")
    for path in files:
        title, *paragraphs = re.split(r"\n\s*\n", read(path).strip())
        # A text of one paragraph is found by it.
        pieces = [piece for paragraph in paragraphs or [title] for piece in cut(" ".join(paragraph.split()))]
        title = title.splitlines()[0].strip()[:200] if title else path.stem
        for place, piece in enumerate(pieces, 1):
            yield path.name, place, title, piece


def read(path):
    with path.open("rb") as file:
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise Unfit(f"{path} is larger than {FILE_BYTES_MAX} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unfit(f"{path} is not UTF-8: {error}") from None
    # Postgres has no such character.
    return text.replace("\0", " ").replace("\r\n", "\n")


def cut(text):
    """The pieces of a paragraph, each ending behind a sentence or a word where that is possible."""
    while len(text) > PASSAGE_MAX:
        ends = [match.end() for match in re.finditer(r"[.!?] |[。！？；]", text[:PASSAGE_MAX])]
        end = (ends or [text.rfind(" ", 0, PASSAGE_MAX) + 1])[-1] or PASSAGE_MAX
        yield text[:end].strip()
        text = text[end:].strip()
    if text:
        yield text


def script(rows):
    """What psql is told."""
    lines = io.StringIO()
    csv.writer(lines, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    copy = "COPY tools.passages (document, place, title, passage) FROM STDIN WITH (FORMAT csv);\n"
    said = "SELECT count(*) || ' passages of ' || count(DISTINCT document) || ' documents' FROM tools.passages;\n"
    return f"{TABLES.read_text(encoding='utf-8')}\nDELETE FROM tools.passages;\n{copy}{lines.getvalue()}\\.\n{said}"


def run(url, text):
    """Runs the script as one transaction; what it said."""
    psql = shutil.which("psql", path=os.environ.get("TOOLFLEET_POSTGRES_BIN") or os.environ["PATH"])
    if psql is None:
        raise Unfit("psql is not found: set TOOLFLEET_POSTGRES_BIN to the folder it is in")
    place = urlsplit(url)
    # Every user of the machine can read the arguments of a program.
    secret = {"PGPASSWORD": unquote(place.password)} if place.password else {}
    open_place = urlunsplit(place._replace(netloc=place.netloc.replace(f":{place.password}@", "@")))
    done = subprocess.run(
        [psql, "-XqAt1", "-v", "ON_ERROR_STOP=1", "-f", "-", open_place],
        input=text.encode(),
        capture_output=True,
        env={**os.environ, "PGCLIENTENCODING": "UTF8", "PGCONNECT_TIMEOUT": "10", **secret},
    )
    if done.returncode:
        raise Unfit(f"psql: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode().strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", help="the folder of texts")
    parser.add_argument("--database-url", default=os.environ.get("DATABASE_URL"), metavar="URL", help="(default: DATABASE_URL)")
    options = parser.parse_args()
    if not options.database_url:
        parser.error("there is no DATABASE_URL: `. .toolfleet/env` sets that of `toolfleet dev`")
    try:
        print(run(options.database_url, script(passages(options.folder))))
    except (Unfit, OSError) as unfit:
        sys.exit(f"load.py: {unfit}")


if __name__ == "__main__":
    main()
