"""What the packages do not show: the lines of a stream as they are on the wire, and what is written differently on request."""

import http.client
import json
import urllib.parse
import zlib

import cases
from protocols import PROTOCOLS, agree, without_unkept
from standin import KEY, check

SAYS = {"answer": {"text": cases.TEXT}, "chunk": 3}
CALLS = {"answer": {"tool_calls": cases.CALLS}, "chunk": 4}


def look(server, say):
    for protocol in PROTOCOLS:
        door = protocol(server.url)
        server.play([SAYS])
        status, headers, text = raw(server, protocol.path, door.body() | {"stream": True})
        check(status == 200 and headers["content-type"].startswith("text/event-stream"), f"{protocol.name}: {status} {headers}")
        events = parsed(text)
        names = [name for name, _ in events]
        LOOKS[protocol.name](server, door, names, events)
        check("".join(deltas(protocol.name, events)) == cases.TEXT, f"{protocol.name}: the deltas are not the text")
        styles(server, protocol, door)
        broken_off(server, protocol, door)
    say("names of events, [DONE], include_usage, cumulative usage; CRLF, comments, no end, interleaved, gzip, broken arguments: as scripted")


def of_chat(server, door, names, events):
    check(set(names) == {None}, f"events of openai_chat have no names: {names}")
    check(events[-1][1] == "[DONE]" and sum(data == "[DONE]" for _, data in events) == 1, "one [DONE], at the end")
    check(all("usage" not in json.loads(data) for _, data in events[:-1]), "usage without include_usage")
    server.settle()
    check(server.sums()["models"][cases.MODEL]["told"] == 0, "no usage was told")
    _, _, text = raw(server, door.path, door.body() | {"stream": True, "stream_options": {"include_usage": True}})
    chunks = [json.loads(data) for _, data in parsed(text)[:-1]]
    check([chunk["usage"] is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False], "usage stands in the last chunk alone")
    check(chunks[-1]["choices"] == [] and all(chunk["choices"] for chunk in chunks[:-1]), "the last chunk has no choice")


def of_responses(_server, _door, names, events):
    check(all(json.loads(data)["type"] == name for name, data in events), f"an event's name is its type: {names}")
    check(names[:2] == ["response.created", "response.in_progress"] and names[-1] == "response.completed", f"order: {names}")


def of_messages(_server, _door, names, events):
    check(all(json.loads(data)["type"] == name for name, data in events), f"an event's name is its type: {names}")
    check(names[:2] == ["message_start", "ping"] and names[-2:] == ["message_delta", "message_stop"], f"order: {names}")
    first, last = json.loads(events[0][1])["message"]["usage"], json.loads(events[-2][1])["usage"]
    check(first["output_tokens"] == 1 and last["output_tokens"] == cases.tokens(cases.TEXT), f"usage is cumulative: {first}, {last}")
    check(last["input_tokens"] == first["input_tokens"] == cases.READ, f"the input is told twice: {first}, {last}")


LOOKS = {"openai_chat": of_chat, "openai_responses": of_responses, "anthropic": of_messages}


def styles(server, protocol, door):
    """What is lawful, or nearly, and rare."""
    body = door.body() | {"stream": True}
    server.play([SAYS])
    usual = texts(server, protocol, body)
    server.play([SAYS | {"sse": {"line_end": "\r\n", "comments": True}}])
    _, _, text = raw(server, protocol.path, body)
    check("\n" not in text.replace("\r\n", "") and ": keep-alive\r\n" in text, f"{protocol.name}: lines end with CRLF, and there are comments")
    check("".join(deltas(protocol.name, parsed(text))) == "".join(usual), f"{protocol.name}: CRLF changes the text")
    server.play([SAYS | {"sse": {"done": False}}])
    _, _, text = raw(server, protocol.path, body)
    check("[DONE]" not in text and "message_stop" not in text, f"{protocol.name}: the end is left out")
    server.play([SAYS | {"gzip": True, "write_bytes": 5}])
    for stream in (False, True):
        _, headers, data = raw(server, protocol.path, door.body() | {"stream": stream}, as_bytes=True)
        check(headers["content-encoding"] == "gzip", f"{protocol.name}: {headers}")
        text = zlib.decompress(data, 31).decode()
        inside = "".join(deltas(protocol.name, parsed(text))) == cases.TEXT if stream else json.dumps(cases.TEXT, ensure_ascii=False) in text
        check(inside, f"{protocol.name}: what was compressed is not the answer: {text}")
    server.play([CALLS | {"sse": {"interleave": True}}])
    places = [place for place in map(place_of, texts_of_calls(server, protocol, body)) if place is not None]
    check(places != sorted(places), f"{protocol.name}: the pieces of two calls take turns: {places}")
    together = door.together(**door.body())
    agree(without_unkept(protocol.expected(CALLS["answer"])), together, f"{protocol.name}, interleaved")


def broken_off(server, protocol, door):
    """Arguments that end in their middle go out as they are, and finish says why."""
    half = '{"city": "Os'
    calls = [{"id": "call_a", "name": "get_weather", "arguments": half}]
    server.play([{"answer": {"tool_calls": calls, "finish": "length"}, "chunk": 5}])
    events = texts_of_calls(server, protocol, door.body() | {"stream": True})
    check("".join(map(arguments_in, events)) == half, f"{protocol.name}: the pieces are not {half}")
    reply, word = door.answered(**door.body()), {"openai_chat": "length", "openai_responses": "incomplete", "anthropic": "max_tokens"}
    check(f'"{word[protocol.name]}"' in reply.to_json(), f"{protocol.name}: {reply}")
    if protocol.name == "anthropic":
        check(reply.content[0].input == {}, f"{reply}")
    else:
        check(json.dumps(half) in reply.to_json(), f"{protocol.name}: {reply}")


def arguments_in(event):
    """The piece of arguments that an event has."""
    if event.get("type") == "response.function_call_arguments.delta":
        return event["delta"]
    if event.get("type") == "content_block_delta":
        return event["delta"]["partial_json"]
    calls = [call for choice in event.get("choices", []) for call in choice["delta"].get("tool_calls", [])]
    return "".join(call["function"]["arguments"] for call in calls)


def texts(server, protocol, body):
    return list(deltas(protocol.name, parsed(raw(server, protocol.path, body)[2])))


def texts_of_calls(server, protocol, body):
    events = parsed(raw(server, protocol.path, body)[2])
    return [json.loads(data) for _, data in events if data != "[DONE]"]


def place_of(event):
    """Of which call a piece of arguments is."""
    if event.get("type") == "response.function_call_arguments.delta":
        return event["output_index"]
    if event.get("type") == "content_block_delta":
        return event["index"]
    calls = [call for choice in event.get("choices", []) for call in choice["delta"].get("tool_calls", [])]
    return calls[0]["index"] if calls else None


def deltas(name, events):
    """The texts of the deltas."""
    for _, data in events:
        event = {} if data == "[DONE]" else json.loads(data)
        if name == "openai_chat" and event.get("choices"):
            yield event["choices"][0]["delta"].get("content") or ""
        if name == "openai_responses" and event.get("type") == "response.output_text.delta":
            yield event["delta"]
        if name == "anthropic" and event.get("type") == "content_block_delta":
            yield event["delta"]["text"]


def parsed(text):
    """The events of a stream as (name, data)."""
    events, name = [], None
    for line in text.splitlines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        if field == "data":
            events.append((name, value))
            name = None
    return events


def raw(server, path, body, as_bytes=False):
    """One request without any package: status, headers in lower case, and the body."""
    place = urllib.parse.urlsplit(server.url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
    headers = {"Authorization": f"Bearer {KEY}", "anthropic-version": "2023-06-01", "Content-Type": "application/json"}
    connection.request("POST", path, json.dumps(body), headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, data if as_bytes else data.decode()
