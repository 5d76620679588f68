"""The script: rules in their order, of which the first one that matches and is not used up says what is answered."""

import json
import re
import threading
from dataclasses import dataclass, field

import answer as answers
import fault as faults
from frame import Style

MATCHES = {"text", "tools", "model", "turn", "role", "protocol", "stream"}
RULE = {
    "name", "match", "answer", "fault", "times", "headers", "gzip", "chunk", "write_bytes", "sse",
    "first_byte_ms", "first_chunk_ms", "chunk_ms",
}  # fmt: skip
DEFAULT = {"rules": [{"name": "hello", "answer": {"text": "Hello from the script."}}]}


@dataclass
class Rule:
    """One rule: whom it answers, with what, and how."""

    name: str
    match: dict
    answer: answers.Answer
    said: dict
    fault: dict | None
    left: float
    headers: dict
    gzip: bool
    style: Style
    write_bytes: int | None
    pauses: dict = field(default_factory=dict)

    def takes(self, asked):
        """Whether every word of `match` holds for a request."""
        holds = {
            "text": lambda wanted: re.search(wanted, asked.last_text) is not None,
            "model": lambda wanted: re.fullmatch(wanted, asked.model) is not None,
            "tools": lambda wanted: set(wanted) <= set(asked.tools) and (bool(wanted) or not asked.tools),
            "turn": lambda wanted: wanted == asked.turn,
            "role": lambda wanted: wanted == asked.last_role,
            "protocol": lambda wanted: wanted == asked.protocol,
            "stream": lambda wanted: wanted == asked.stream,
        }
        return self.left > 0 and all(holds[word](wanted) for word, wanted in self.match.items())


class Script:
    """The rules, and the models that exist with the tokens that each takes; no models means that every one exists."""

    def __init__(self, said):
        if not isinstance(said, dict) or set(said) - {"rules", "models"}:
            raise ValueError("a script is an object with `rules` and perhaps `models`")
        self.models = {name: known["context_tokens"] for name, known in said.get("models", {}).items()}
        self.rules = [parse(place, rule) for place, rule in enumerate(said["rules"])]
        self._one_at_a_time = threading.Lock()

    @classmethod
    def read(cls, text):
        """A script in JSON; `ValueError` says what is wrong with it."""
        try:
            return cls(json.loads(text))
        except (KeyError, TypeError, AttributeError, re.error) as wrong:
            raise ValueError(f"the script is malformed: {wrong!r}") from None

    def take(self, asked):
        """The rule that answers, used once more; None when there is none."""
        with self._one_at_a_time:
            for rule in self.rules:
                if rule.takes(asked):
                    rule.left -= 1
                    return rule
        return None


def parse(place, said):
    """One rule; what it does not know, it refuses, since a rule with a slip of the pen would match everything."""
    for words, known in [(said, RULE), (said.get("match", {}), MATCHES)]:
        if set(words) - known:
            raise ValueError(f"rule {place} has {sorted(set(words) - known)}; known are {sorted(known)}")
    if "answer" not in said and "fault" not in said:
        raise ValueError(f"rule {place} has neither answer nor fault")
    for pattern in [said.get("match", {}).get(word) for word in ("text", "model")]:
        re.compile(pattern or "")
    chunk = said.get("chunk", 8)
    style = Style(chunk=[chunk] if isinstance(chunk, int) else chunk, **said.get("sse", {}))
    if not style.chunk or not all(isinstance(size, int) and size > 0 for size in style.chunk):
        raise ValueError(f"rule {place}: chunk is a number of characters, or a list of them")
    return Rule(
        name=said.get("name", str(place)),
        match=said.get("match", {}),
        answer=answers.parse(said.get("answer", {"text": "Hello from the script."})),
        said=said.get("answer", {}),
        fault=faults.parse(place, said.get("fault")),
        left=said.get("times", float("inf")),
        headers=said.get("headers", {}),
        gzip=said.get("gzip", False),
        style=style,
        write_bytes=said.get("write_bytes"),
        pauses={name: said.get(name, 0) / 1000 for name in ("first_byte_ms", "first_chunk_ms", "chunk_ms")},
    )
