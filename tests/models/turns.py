"""A conversation of three turns, in which each reply goes back as the package gives it: the rules choose by turn, tools, role and text."""

import copy

import cases
from bodies import complaint
from protocols import PROTOCOLS
from standin import check

RULES = [
    {"name": "no tools", "match": {"tools": []}, "answer": {"text": "Without tools I cannot."}},
    {"name": "other model", "match": {"model": "other-.*"}, "answer": {"text": "I am another."}},
    {"name": "thinks once", "match": {"turn": 1}, "answer": {"reasoning": "Two at once.", "tool_calls": cases.CALLS}, "times": 1},
    {"name": "thought enough", "match": {"turn": 1}, "answer": {"text": "I did that before."}},
    {"name": "has results", "match": {"role": "tool", "text": "^cold$"}, "answer": {"text": "It is cold."}},
    {"name": "last", "match": {"turn": 3, "role": "user", "text": "(?i)thank"}, "answer": {"text": "My pleasure."}},
]
SAID = ["thinks once", "has results", "last", "thought enough", "no tools"]


def chat_results(calls):
    return [{"role": "tool", "tool_call_id": call["id"], "content": "cold"} for call in calls]


def response_results(calls):
    return [{"type": "function_call_output", "call_id": call["id"], "output": "cold"} for call in calls]


def message_results(calls):
    results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "cold"} for call in calls]
    # Only the text of the last message is matched, and it is that of all its results.
    return [{"role": "user", "content": [results[0], {**results[1], "content": []}]}]


def chat_back(reply):
    """The request type has no annotations, though the reply has."""
    message = reply.choices[0].message.to_dict()
    return [{name: value for name, value in message.items() if name != "annotations"}]


def response_back(reply):
    return [item.to_dict() for item in reply.output]


def message_back(reply):
    return [{"role": "assistant", "content": [block.to_dict() for block in reply.content]}]


WAYS = {
    "openai_chat": ("messages", chat_back, chat_results),
    "openai_responses": ("input", response_back, response_results),
    "anthropic": ("messages", message_back, message_results),
}


def take(server, say):
    for protocol in PROTOCOLS:
        door = protocol(server.url)
        for stream in (False, True):
            ask = talk(server, door, stream, door.body())
            ask(**door.body() | door.offering(cases.TOOLS) | {"model": "other-1"})
            log = server.log()
            seen = [entry["rule"] for entry in log]
            check(seen == [*SAID, "other model"], f"{protocol.name}: the rules were {seen}")
            check([entry["turn"] for entry in log[:3]] == [1, 2, 3], f"{protocol.name}: turns {[entry['turn'] for entry in log]}")
            fit(protocol.name, log)
    say("three turns in each protocol: the replies go back as they came, and the requests are of the vendors' types")


def talk(server, door, stream, body):
    """Five requests to what the package is pointed at, made of this one; how it was asked."""
    field, back, results = WAYS[door.name]
    server.play(RULES)
    ask = door.together if stream else door.answered
    items = [{"role": "user", "content": cases.WORDS}]
    tools = door.offering(cases.TOOLS)
    first = ask(**body | {field: items} | tools)
    items += [*back(first), *results(cases.CALLS)]
    if stream:
        # The packages add fields of their own when they put a stream together, which no vendor takes back.
        items = without_own(items)
    second = ask(**body | {field: items} | tools)
    items += [*(without_own(back(second)) if stream else back(second)), {"role": "user", "content": "Thank you"}]
    ask(**body | {field: items} | tools)
    ask(**body | {field: [items[0]]} | tools)
    ask(**body)
    return ask


OWN = {"parsed", "parsed_arguments", "parsed_output", "index"}


def without_own(value):
    if isinstance(value, list):
        return [without_own(one) for one in value]
    if isinstance(value, dict):
        return {name: without_own(one) for name, one in value.items() if name not in OWN and one is not None or name == "content"}
    return value


def fit(name, log):
    """The bodies are requests of the vendor's type, and that type says no to what is not."""
    for entry in log:
        wrong = complaint(name, entry["body"])
        check(wrong is None, f"{name}: {wrong and wrong[:800]}")
    for spoil in [lambda body: body.update(surprise=1), lambda body: body.update(model=4), lambda body: body["tools"][0].update(surprise=1)]:
        spoilt = copy.deepcopy(log[0]["body"])
        spoil(spoilt)
        check(complaint(name, spoilt), f"{name}: the vendor's types take {spoilt}")
