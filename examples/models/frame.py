"""A stream of server-sent events, piece by piece: what goes out at once, and the order of pieces of several parts."""

from dataclasses import dataclass, field
from itertools import chain, cycle, zip_longest

from asked import compact


@dataclass
class Frame:
    """What is written at once: `text` is what the model said in it, `tells` is whether the whole usage has been told after it."""

    data: bytes
    text: str = ""
    tells: bool = False


@dataclass
class Style:
    """How a stream is written; everything but the default is lawful too, or nearly."""

    line_end: str = "\n"
    comments: bool = False
    done: bool = True
    interleave: bool = False
    chunk: list = field(default_factory=lambda: [8])

    def event(self, data, name=None, text="", tells=False):
        """One event; `data` is an object, or a text as it stands."""
        lines = [": keep-alive"] if self.comments else []
        lines += [f"event: {name}"] if name else []
        lines += ["data: " + (data if isinstance(data, str) else compact(data)), "", ""]
        return Frame(self.line_end.join(lines).encode("utf-8", "surrogatepass"), text, tells)

    def pieces(self, text):
        """A text in pieces of `chunk` characters; several sizes take turns."""
        sizes, at, found = cycle(self.chunk), 0, []
        while at < len(text):
            found.append(text[at : (at := at + next(sizes))])
        return found

    def weave(self, parts):
        """The frames of all parts, each of which is (opening, deltas, closing): one part after the other, or the deltas of all in turn."""
        if not self.interleave:
            return [frame for part in parts for frames in part for frame in frames]
        openings, deltas, closings = ([part[n] for part in parts] for n in range(3))
        in_turn = (frame for row in zip_longest(*deltas) for frame in row if frame)
        return [*chain(*openings), *in_turn, *chain(*closings)]
