"""What the model says, as the script writes it down: text, reasoning, tool calls, a refusal, and why it ended."""

import json
from dataclasses import dataclass, field

from asked import compact

FINISHES = ("stop", "tool_calls", "length", "content_filter")


@dataclass
class Part:
    """One piece of an answer; `text` of a tool call is its arguments, as they are sent."""

    kind: str
    text: str
    name: str = ""
    id: str = ""

    @property
    def written(self):
        """All that the model wrote for it."""
        return self.name + self.text

    @property
    def arguments(self):
        """The arguments as an object; empty where they are broken off or none."""
        try:
            value = json.loads(self.text)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


@dataclass
class Answer:
    """`usage` replaces what is counted, field by field; None sends none. `extra` and `message_extra` are fields that no vendor knows."""

    parts: list
    finish: str
    usage: dict | None = field(default_factory=dict)
    extra: dict = field(default_factory=dict)
    message_extra: dict = field(default_factory=dict)

    def text_of(self, kind):
        """All text of a kind, or None where there is no such part."""
        found = [part.text for part in self.parts if part.kind == kind]
        return "".join(found) if found else None

    def calls(self):
        return [part for part in self.parts if part.kind == "call"]


def parse(said):
    """An answer of the script; `ValueError` says what is wrong with it."""
    known = {"text", "reasoning", "tool_calls", "refusal", "finish", "usage", "extra", "message_extra"}
    if not isinstance(said, dict) or set(said) - known:
        raise ValueError(f"an answer is an object with some of {sorted(known)}, not {said!r}")
    parts = [Part(kind, said[kind]) for kind in ("reasoning", "text", "refusal") if said.get(kind) is not None]
    parts += [call(one) for one in said.get("tool_calls", [])]
    if not all(isinstance(part.text, str) for part in parts):
        raise ValueError(f"texts of an answer are strings: {said!r}")
    finish = said.get("finish", "tool_calls" if said.get("tool_calls") else "stop")
    if finish not in FINISHES:
        raise ValueError(f"finish is one of {FINISHES}, not {finish!r}")
    return Answer(parts, finish, said.get("usage", {}), said.get("extra", {}), said.get("message_extra", {}))


def call(said):
    """A tool call: arguments as an object, or as a string that is sent as it stands."""
    if not isinstance(said, dict) or not isinstance(said.get("name"), str) or set(said) - {"name", "arguments", "id"}:
        raise ValueError(f"a tool call is {{name, arguments, id?}}, not {said!r}")
    arguments = said.get("arguments", {})
    return Part("call", arguments if isinstance(arguments, str) else compact(arguments), said["name"], said.get("id", ""))
