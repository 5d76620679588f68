"""What one request asks of a model, whichever protocol it came in, and what it is refused with."""

import json
from dataclasses import dataclass, field

from usage import tokens


@dataclass
class Asked:
    """A request as the script matches it; `texts` is everything that the model reads, and `tokens` what that counts."""

    protocol: str
    body: dict
    model: str
    stream: bool
    last_text: str = ""
    last_role: str = ""
    turn: int = 1
    tools: list = field(default_factory=list)
    texts: list = field(default_factory=list)

    def __post_init__(self):
        self.tokens = tokens(self.texts)


class Refusal(Exception):
    """A request that the vendor would not answer: status and words; `kind`, `param` and `code` as far as the vendor has them."""

    def __init__(self, status, message, kind=None, param=None, code=None, headers=None):
        super().__init__(message)
        self.status, self.message, self.kind = status, message, kind
        self.param, self.code, self.headers = param, code, headers or {}


def texts_of(content):
    """The texts of a message's content: a string, or a list of parts of which some have text."""
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    found = []
    for part in filter(lambda part: isinstance(part, dict), parts):
        for name in ("text", "refusal", "thinking"):
            if isinstance(part.get(name), str):
                found.append(part[name])
        if part.get("type") == "tool_result":
            found += texts_of(part.get("content"))
        if part.get("type") == "tool_use":
            found += [str(part.get("name")), compact(part.get("input"))]
    return found


def said_last(messages):
    """The last message that is no note of the system behind others; the last one where all are."""
    notes = ("system", "developer")
    said = [message for message in messages if message.get("role") not in notes]
    return (said or messages or [{}])[-1]


def turn_of(makers):
    """Which answer of the model is asked for, from 1: `makers` says for each message whether the model made it; several in a row are one."""
    return 1 + sum(mine and not before for mine, before in zip(makers, [False, *makers]))


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
