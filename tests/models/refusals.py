"""What the vendors refuse, in their words: the packages' typed exceptions, each by one request."""

import http.client
import json
import urllib.parse
from functools import cache

import anthropic
import openai

import cases
from protocols import PROTOCOLS, Chat, Messages, Responses
from standin import KEY, StandIn, check

LIMIT = 50
LONG = "word " * 400
USER = {"role": "user", "content": "hi"}
ANSWER = {"role": "assistant", "content": "Hello."}


def chat_call(*ids):
    calls = [{"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def chat_result(one):
    return {"role": "tool", "tool_call_id": one, "content": "4"}


def response_call(one):
    return {"type": "function_call", "call_id": one, "name": "f", "arguments": "{}"}


def response_result(one):
    return {"type": "function_call_output", "call_id": one, "output": "4"}


def message_call(*ids):
    return {"role": "assistant", "content": [{"type": "tool_use", "id": one, "name": "f", "input": {}} for one in ids]}


def message_result(*ids):
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": one, "content": "4"} for one in ids]}


# Protocol, what is wrong, what of the body is different, and the fields and the words of the exception.
BAD = "invalid_request_error"
TABLE = [
    (Chat, "orphaned result", {"messages": [USER, chat_result("call_x")]}, {"param": "messages.[1].role", "type": BAD, "code": None},
     "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'"),
    (Chat, "unknown id", {"messages": [USER, chat_call("call_a"), chat_result("call_x")]}, {"param": "messages.[2].tool_call_id"},
     "'tool_call_id' of 'call_x' not found in 'tool_calls' of previous message"),
    (Chat, "missing result", {"messages": [USER, chat_call("call_a", "call_b"), chat_result("call_a"), USER]}, {"param": "messages.[3].role"},
     "did not have response messages: call_b"),
    (Chat, "missing at the end", {"messages": [USER, chat_call("call_a")]}, {"type": BAD}, "did not have response messages: call_a"),
    (Chat, "unknown role", {"messages": [{"role": "robot", "content": "hi"}]}, {"param": "messages[0].role", "code": "invalid_value"},
     "Invalid value: 'robot'. Supported values are: 'system'"),
    (Chat, "no messages", {"messages": []}, {"param": "messages", "code": "empty_array"}, "Expected an array with minimum length 1"),
    (Chat, "options without stream", {"stream_options": {"include_usage": True}}, {"param": "stream_options"}, "only allowed when 'stream'"),
    (Chat, "choice without tools", {"tool_choice": "auto"}, {"type": BAD}, "only allowed when 'tools' are specified"),
    (Chat, "no calls", {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": []}]},
     {"param": "messages[1].tool_calls", "code": "empty_array"}, "Expected an array with minimum length 1"),
    (Chat, "arguments as an object", {"messages": [USER, {"role": "assistant", "tool_calls": [
        {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": {}}}]}]},
     {"param": "messages[1].tool_calls[0].function.arguments", "code": "invalid_type"}, "expected a string, but got an object"),
    (Chat, "null content", {"messages": [{"role": "user", "content": None}]}, {"param": "messages.[0].content"}, "got null"),
    (Chat, "a reference", {"messages": [{"$call": "c_1"}, USER]}, {"param": "messages[0].role"}, "Invalid value: 'None'"),
    (Chat, "too long", {"messages": [{"role": "user", "content": LONG}]}, {"param": "messages", "code": "context_length_exceeded"},
     f"This model's maximum context length is {LIMIT} tokens. However, your messages resulted in 500 tokens."),
    (Responses, "orphaned result", {"input": [USER, response_result("call_x")]}, {"param": "input", "type": BAD, "code": None},
     "No tool call found for function call output with call_id call_x."),
    (Responses, "result before its call", {"input": [USER, response_result("call_a"), response_call("call_a")]}, {"param": "input"},
     "No tool call found for function call output with call_id call_a."),
    (Responses, "missing result", {"input": [USER, response_call("call_a"), response_call("call_b"), response_result("call_b")]},
     {"param": "input"}, "No tool output found for function call call_a."),
    (Responses, "a reference", {"input": [{"$call": "c_1"}, USER]}, {"param": "input[0]", "code": "invalid_value"}, "Invalid value: ''"),
    (Responses, "unknown state", {"previous_response_id": "resp_x"}, {"code": "previous_response_not_found"}, "'resp_x' not found"),
    (Responses, "too long", {"input": LONG}, {"param": "input", "code": "context_length_exceeded"}, "exceeds the context window of this model"),
    (Messages, "orphaned result", {"messages": [USER, ANSWER, message_result("toolu_x")]}, {},
     "messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_x."),
    (Messages, "unknown id", {"messages": [USER, message_call("toolu_a"), message_result("toolu_a", "toolu_x")]}, {},
     "messages.2.content.1: unexpected `tool_use_id`"),
    (Messages, "missing result", {"messages": [USER, message_call("toolu_a", "toolu_b"), message_result("toolu_b")]}, {},
     "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_a."),
    (Messages, "result behind text", {"messages": [USER, message_call("toolu_a"), {"role": "user", "content": [
        {"type": "text", "text": "well"}, *message_result("toolu_a")["content"]]}]}, {}, "immediately after: toolu_a"),
    (Messages, "roles in a row", {"messages": [USER, USER]}, {}, 'but found multiple "user" roles in a row'),
    (Messages, "assistant first", {"messages": [ANSWER, USER]}, {}, 'first message must use the "user" role'),
    (Messages, "unknown role", {"messages": [{"role": "tool", "content": "4"}]}, {}, 'Unexpected role "tool"'),
    (Messages, "empty content", {"messages": [{"role": "user", "content": ""}]}, {}, "must have non-empty content"),
    (Messages, "empty text", {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]}, {}, "must be non-empty"),
    (Messages, "a reference", {"messages": [{"$call": "c_1"}, USER]}, {}, "messages.0.role: Field required"),
    (Messages, "input as a string", {"messages": [USER, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "toolu_a", "name": "f", "input": "{}"}]}]}, {}, "tool_use.input: Input should be a valid dictionary"),
    (Messages, "thoughts of others", {"messages": [USER, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "eA=="}]}, USER]}, {}, "Invalid `signature` in `thinking` block"),
    (Messages, "tools of one name", {"tools": [{"name": "f", "input_schema": {"type": "object"}}] * 2}, {}, "names must be unique"),
    (Messages, "no messages", {"messages": []}, {}, "at least one message is required"),
    (Messages, "negative max_tokens", {"max_tokens": -1}, {}, "max_tokens: Input should be greater than or equal to 0"),
    (Messages, "too long", {"messages": [{"role": "user", "content": LONG}]}, {}, f"prompt is too long: 500 tokens > {LIMIT} maximum"),
    (Messages, "no room to answer", {"max_tokens": LIMIT}, {},
     f"input length and `max_tokens` exceed context limit: {cases.READ} + {LIMIT} > {LIMIT}"),
]  # fmt: skip
# What holds in every protocol: what is wrong, key, model, status, the words of OpenAI and of Anthropic, the code of OpenAI.
EVERYWHERE = [
    ("wrong key", "sk-wrong", cases.MODEL, 401, "Incorrect API key provided", "invalid x-api-key", "invalid_api_key"),
    ("unknown model", "sk-right", "gpt-0", 404, "The model `gpt-0` does not exist or you do not have access to it.", "model: gpt-0",
     "model_not_found"),
]  # fmt: skip
TAKEN = [
    (Chat, {"messages": [USER, chat_call("call_a", "call_b"), chat_result("call_b"), chat_result("call_a"), ANSWER, USER]}),
    (Responses, {"input": [USER, response_call("call_a"), ANSWER, response_result("call_a"), USER]}),
    (Messages, {"messages": [USER, message_call("toolu_a", "toolu_b"), message_result("toolu_b", "toolu_a"), ANSWER, USER]}),
    (Messages, {"messages": [USER, {"role": "system", "content": "note"}, ANSWER, USER]}),
]


@cache
def door_of(protocol, url, key=KEY):
    """One client for all of its questions."""
    return protocol(url, key)


def meet(server, say):
    server.play([{"answer": {"text": "taken"}}], models={cases.MODEL: {"context_tokens": LIMIT}})
    for stream in (False, True):
        for protocol, what, changes, fields, words in TABLE:
            door = door_of(protocol, server.url)
            body = door.body() | ({"max_tokens": 20} if protocol is Messages else {}) | changes
            refused(server, door, f"{protocol.name}, {what}", body, 400, fields, words, stream)
        for what, key, model, status, of_openai, of_anthropic, code in EVERYWHERE:
            for protocol in PROTOCOLS:
                door, is_openai = door_of(protocol, server.url, key), protocol.package is openai
                body = door.body() | {"model": model}
                fields = {"code": code, "type": BAD} if is_openai else {}
                refused(server, door, f"{protocol.name}, {what}", body, status, fields, of_openai if is_openai else of_anthropic, stream)
    for protocol, changes in TAKEN:
        door = door_of(protocol, server.url)
        body = door.body() | ({"max_tokens": 20} if protocol is Messages else {}) | changes
        check("taken" in door.answered(**body).to_json(), f"{protocol.name} refuses {changes}")
    server.settle()
    for entry in server.log():
        check("sk-" not in str(entry), f"the log shows a key: {entry}")
    bare(server)
    joined(say)
    say(f"{len(TABLE)} refusals and {len(EVERYWHERE)} in each protocol, plain and before a stream: typed exceptions, one request each")


TYPES = {400: BAD, 401: "authentication_error", 404: "not_found_error"}


def refused(server, door, what, body, status, fields, words, stream):
    kinds = {400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError"}
    server.settle()
    server.ask("DELETE", "/log")
    if stream and "stream_options" in body:
        return
    try:
        door.streamed(**body) if stream else door.answered(**body)
    except getattr(door.package, kinds[status]) as error:
        seen = error
    else:
        check(False, f"{what}: it was answered")
    check(seen.status_code == status and words in str(seen), f"{what}: {seen.status_code} {seen}")
    for name, value in fields.items():
        check(getattr(seen, name) == value, f"{what}: {name} is {getattr(seen, name)!r}, not {value!r}")
    if door.package is anthropic:
        check(seen.body["error"]["type"] == TYPES[status] and seen.request_id, f"{what}: {seen.body}")
    [entry] = server.log()
    check((entry["ended"], entry["status"]) == ("refused", status) and words in entry["error"], f"{what}: {entry}")


def bare(server):
    """What no package lets through: no key, no version, no JSON, a field left out."""
    place = urllib.parse.urlsplit(server.url)
    right, version = {"Authorization": "Bearer sk-right"}, {"anthropic-version": "2023-06-01"}
    for path, headers, body, status, words in [
        ("/v1/chat/completions", {}, "{}", 401, "You didn't provide an API key."),
        ("/v1/messages", version, "{}", 401, "x-api-key header is required"),
        ("/v1/messages", right, "{}", 400, "anthropic-version: header is required"),
        ("/v1/messages", right | version, '{"model": "m", "messages": []}', 400, "max_tokens: Field required"),
        ("/v1/messages", right | version, '{"model": "m", "max_tokens": 1}', 400, "messages: Field required"),
        ("/v1/messages", right | version, "{", 400, "not valid JSON"),
        ("/v1/messages", right | version, '{"model": "scripted", "max_tokens": 1, "messages": [4]}', 400, "messages.0: Input should be"),
        ("/v1/chat/completions", right, "{", 400, "We could not parse the JSON body of your request."),
        ("/v1/chat/completions", right, "{}", 400, "you must provide a model parameter"),
        ("/v1/chat/completions", right, '{"model": "m"}', 400, "Missing required parameter: 'messages'."),
        ("/v1/chat/completions", right, '{"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [4]}', 400, "Invalid request body"),
        ("/v1/responses", right, '{"model": "m"}', 400, "Missing required parameter: 'input'."),
        ("/v1/nothing", right, "{}", 404, "Unknown request URL: POST /v1/nothing."),
    ]:
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        said = json.loads(answer.read())["error"]["message"]
        check(answer.status == status and words in said, f"{path} {headers} {body}: {answer.status} {said}")
        connection.close()


def joined(say):
    """With --join-roles, what the vendor takes today."""
    with StandIn("--join-roles") as server:
        reply = Messages(server.url).answered(**Messages(server.url).body() | {"messages": [USER, USER, ANSWER, USER]})
        check(reply.content[0].text == "Hello from the script.", f"{reply}")
        [entry] = server.log()
        check(entry["turn"] == 2, f"{entry}")
    say("with --join-roles, Anthropic messages of one role in a row are one")
