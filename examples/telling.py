"""How the story of demo.py is told: what it says, what it shows, and what it claims."""

import json
import sys


class NotAsTold(Exception):
    """Something did not turn out as the story says."""


def claim(holds, sentence):
    """Says something that was just seen to be so."""
    if not holds:
        raise NotAsTold(sentence)
    print(paint("32", "  ✓ ") + sentence)


def paint(colour, text):
    """The text in an ANSI colour, where somebody is watching."""
    return f"\033[{colour}m{text}\033[0m" if sys.stdout.isatty() else text


def tell(text):
    print(f"  {text}")


def show(value):
    """JSON, one field a line when it is long."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) <= 100:
        return print(f"    {line}")
    lines = [f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in value.items()]
    return print("    {" + ",\n     ".join(lines) + "}")
