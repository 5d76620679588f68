"""Every event of the speaker's transcripts, held against the types of OpenAI's package and put together by its client."""

import copy
import json
from pathlib import Path

from waiting import NotSo, check

SNAPSHOTS = Path(__file__).resolve().parents[3] / "gateway/src/speaker/tests/snapshots"
OURS = "toolfleet."


async def prove(proof):
    valid, put_together = published()
    events, ours, kinds = 0, 0, set()
    for transcript in sorted(SNAPSHOTS.glob("*.snap")):
        client = None
        for event in said(transcript):
            if event["type"].startswith(OURS):
                ours += 1
                continue
            complaint = valid(event)
            check(not complaint, f"{transcript.name}: the vendor's types refuse {event['type']}: {complaint}")
            if event["type"] == "response.created":
                client = put_together()
            client(event)
            events += 1
            kinds.add(event["type"])
    check(events > 100 and len(kinds) > 35, f"only {events} events of {len(kinds)} kinds in {SNAPSHOTS}")
    refuse_what_is_spoilt(valid)
    proof.note(f"{events} events of {len(kinds)} kinds fit the vendor's types, and its client puts them together; {ours} of our own")


def said(transcript):
    """The events of a transcript, in order."""
    lines = transcript.read_text().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


def published():
    """What complains of an event that does not fit, and what makes a client."""
    try:
        from openai import omit
        from openai._models import construct_type
        from openai.lib.streaming.responses._responses import ResponseStreamState
        from openai.types.responses import ResponseStreamEvent
        from pydantic import TypeAdapter, ValidationError
    except ImportError as missing:
        raise NotSo(f"{missing}: run `make setup` with Python 3.11 or newer, which installs the vendors' packages") from None
    adapter = TypeAdapter(ResponseStreamEvent)

    def complaint(event):
        try:
            adapter.validate_python(event, strict=True, extra="forbid")
        except ValidationError as error:
            return str(error)

    def client():
        state = ResponseStreamState(input_tools=omit, text_format=omit)
        return lambda event: state.handle_event(construct_type(type_=ResponseStreamEvent, value=event))

    return complaint, client


def refuse_what_is_spoilt(valid):
    """What takes everything says nothing."""
    everything = [event for transcript in SNAPSHOTS.glob("*.snap") for event in said(transcript)]
    done = next(event for event in everything if event["type"] == "response.output_item.done" and event["item"]["type"] == "mcp_call")
    for spoil in [lambda event: event.update(surprise=1), lambda event: event["item"].update(surprise=1),
                  lambda event: event["item"].pop("server_label"), lambda event: event["item"].update(status="odd")]:
        spoilt = copy.deepcopy(done)
        spoil(spoilt)
        check(valid(spoilt), f"the vendor's types take {spoilt}")
