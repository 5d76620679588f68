"""Holds canonical.py against the published vectors. With --write it fills in vectors that have only name and input."""

import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True

from canonical import Number, canonical, read, sha256, write

VECTORS = Path(__file__).resolve().parents[2] / "schemas" / "canonical.json"


def main():
    published = json.loads(VECTORS.read_text())
    if "--write" in sys.argv:
        fill_in(published)
    wrong = []
    for vector in published["vectors"]:
        name, text = vector["name"], vector["input"]
        spellings = {"as published": text, "canonical": vector["canonical"], "respelled": respelled(read(text))}
        for spelling, text in spellings.items():
            if (canonical(text), sha256(text)) != (vector["canonical"], vector["sha256"]):
                wrong.append(f"{name}, {spelling}: {canonical(text)!r}")
    for case in published["invalid"]:
        try:
            wrong.append(f"{case['name']} has a form: {canonical(case['input'])!r}")
        except ValueError:
            pass
    print("\n".join(wrong) or f"{len(published['vectors'])} vectors and {len(published['invalid'])} invalid texts agree")
    return 1 if wrong else 0


def respelled(value):
    """The same value with its keys backwards, every character escaped, and room everywhere."""
    if isinstance(value, str) and not isinstance(value, Number):
        units = value.encode("utf-16-be")
        return '"' + "".join(f"\\u{units[at]:02X}{units[at + 1]:02x}" for at in range(0, len(units), 2)) + '"'
    if isinstance(value, list):
        return "[ " + " , ".join(map(respelled, value)) + "\n]"
    if isinstance(value, dict):
        entries = [f"{respelled(key)}\t: {respelled(value[key])}" for key in reversed(sorted(value))]
        return "{ " + " ,\r\n".join(entries) + " }"
    return write(value)


def fill_in(published):
    for vector in published["vectors"]:
        vector.setdefault("canonical", canonical(vector["input"]))
        vector.setdefault("sha256", sha256(vector["input"]))
    VECTORS.write_text(json.dumps(published, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
