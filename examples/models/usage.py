"""What a request and its answer count: the rule is a token for each four bytes of UTF-8 that were begun."""

from dataclasses import asdict, dataclass

BYTES_A_TOKEN = 4


def tokens(texts):
    """The tokens of some texts together."""
    return -(-sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) // BYTES_A_TOKEN)


@dataclass
class Usage:
    """`input` is all that was read, cached and written to the cache included; `output` is all that was written, reasoning included."""

    input: int = 0
    cached_input: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0

    def add(self, other):
        for name, count in asdict(other).items():
            setattr(self, name, getattr(self, name) + count)

    def as_json(self):
        return asdict(self)


def count(asked, answer):
    """The usage of an answer, with what the script says of it in the place of what was counted; None where the script says null."""
    if answer.usage is None:
        return None
    counted = {
        "input": asked.tokens,
        "output": tokens(part.written for part in answer.parts),
        "reasoning": tokens(part.text for part in answer.parts if part.kind == "reasoning"),
    }
    usage = Usage(**{**counted, **answer.usage})
    usage.cached_input = min(usage.cached_input, usage.input)
    usage.cache_write = min(usage.cache_write, usage.input - usage.cached_input)
    return usage
