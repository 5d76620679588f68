"""The protocol `openai_chat`: POST /v1/chat/completions."""

import re
import time
import uuid

from asked import Asked, Refusal, compact, said_last, texts_of, turn_of

PATH = "/v1/chat/completions"
NAME = "openai_chat"
# What of a request counts against the context besides what is read.
RESERVES = None
ROLES = ("system", "assistant", "user", "function", "tool", "developer")
KINDS = {401: "invalid_request_error", 429: "requests", 503: "service_unavailable_error"}
CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
FINISHES = {"stop": "stop", "tool_calls": "tool_calls", "length": "length", "content_filter": "content_filter"}


def read(body, **_options):
    """What is asked, or a `Refusal` as the vendor words it."""
    if not isinstance(body.get("model"), str):
        raise Refusal(400, "you must provide a model parameter")
    messages = body.get("messages")
    if messages is None:
        raise Refusal(400, "Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        words = "Invalid type for 'messages': expected an array of objects, but got something else instead."
        raise Refusal(400, words, param="messages", code="invalid_type")
    if not messages:
        words = "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
        raise Refusal(400, words, param="messages", code="empty_array")
    if "stream_options" in body and not body.get("stream"):
        words = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise Refusal(400, words, param="stream_options")
    if "tool_choice" in body and not body.get("tools"):
        words = "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified."
        raise Refusal(400, words, param="tool_choice")
    pair(messages)
    tools = [tool.get(tool.get("type", ""), {}).get("name") for tool in body.get("tools") or []]
    last = said_last(messages)
    return Asked(
        NAME, body, body["model"], bool(body.get("stream")), "\n".join(texts_of(last.get("content"))), last["role"],
        turn_of([message["role"] == "assistant" for message in messages]), tools, list(everything(body, messages)),
    )  # fmt: skip


def everything(body, messages):
    for message in messages:
        yield from texts_of(message.get("content"))
        for call in message.get("tool_calls") or []:
            function = call.get("function", {})
            yield from (str(function.get("name", "")), str(function.get("arguments", "")))
    if body.get("tools"):
        yield compact(body["tools"])


def pair(messages):
    """Every tool call has its result right behind it, and every result its call."""
    open_calls, calls_known = [], False
    for place, message in enumerate(messages):
        role = message.get("role")
        if role not in ROLES:
            known = ", ".join(f"'{role}'" for role in ROLES[:-1])
            words = f"Invalid value: '{role}'. Supported values are: {known}, and '{ROLES[-1]}'."
            raise Refusal(400, words, param=f"messages[{place}].role", code="invalid_value")
        check_message(place, message)
        if role == "tool":
            wanted = message.get("tool_call_id")
            if not calls_known:
                words = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                raise Refusal(400, words, param=f"messages.[{place}].role")
            if wanted not in open_calls:
                words = f"Invalid parameter: 'tool_call_id' of '{wanted}' not found in 'tool_calls' of previous message."
                raise Refusal(400, words, param=f"messages.[{place}].tool_call_id")
            open_calls.remove(wanted)
            continue
        all_answered(open_calls, place)
        open_calls = [call.get("id") for call in message.get("tool_calls") or []]
        calls_known = bool(open_calls)
    all_answered(open_calls, len(messages))


def check_message(place, message):
    """What a message must have, and what of it may not be empty."""
    calls = message.get("tool_calls")
    if calls == []:
        name = f"messages[{place}].tool_calls"
        words = f"Invalid '{name}': empty array. Expected an array with minimum length 1, but got an empty array instead."
        raise Refusal(400, words, param=name, code="empty_array")
    for n, call in enumerate(calls or []):
        check_call(f"messages[{place}].tool_calls[{n}]", call)
    ids = [call["id"] for call in calls or []]
    for one in ids:
        if ids.count(one) > 1:
            name = f"messages[{place}].tool_calls"
            raise Refusal(400, f"Invalid '{name}': duplicate value '{one}' for 'id'.", param=name, code="invalid_value")
    spoken = message["role"] == "assistant" and (calls or message.get("refusal") or message.get("function_call"))
    if message.get("content") is None and not spoken:
        words = "Invalid value for 'content': expected a string, got null."
        raise Refusal(400, words, param=f"messages.[{place}].content")


def check_call(name, call):
    """What a tool call must have. Those of the type `custom` are taken as they are."""
    kind, function = call.get("type"), call.get("function")
    if kind not in ("function", "custom", None):
        words = f"Invalid value: '{kind}'. Supported values are: 'function' and 'custom'."
        raise Refusal(400, words, param=f"{name}.type", code="invalid_value")
    needed = {"id": call.get("id"), "type": kind}
    if kind != "custom":
        function = function if isinstance(function, dict) else {}
        needed |= {"function.name": function.get("name"), "function.arguments": function.get("arguments")}
    for field, value in needed.items():
        if value is None:
            words = f"Missing required parameter: '{name}.{field}'."
            raise Refusal(400, words, param=f"{name}.{field}", code="missing_required_parameter")
        if not isinstance(value, str):
            words = f"Invalid type for '{name}.{field}': expected a string, but got an object instead."
            raise Refusal(400, words, param=f"{name}.{field}", code="invalid_type")
    tool, name = needed.get("function.name", "custom"), f"{name}.function.name"
    if len(tool) > 64:
        words = f"Invalid '{name}': string too long. Expected a string with maximum length 64, but got one with length {len(tool)} instead."
        raise Refusal(400, words, param=name, code="string_above_max_length")
    if not re.fullmatch("[a-zA-Z0-9_-]+", tool):
        words = f"Invalid '{name}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        raise Refusal(400, words, param=name, code="invalid_value")


def all_answered(open_calls, place):
    if open_calls:
        words = (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
            f"The following tool_call_ids did not have response messages: {', '.join(map(str, open_calls))}"
        )
        raise Refusal(400, words, param=f"messages.[{place}].role")


def too_long(limit, read_tokens, _asked):
    words = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {read_tokens} tokens. "
        "Please reduce the length of the messages."
    )
    return Refusal(400, words, param="messages", code="context_length_exceeded")


def no_model(model):
    words = f"The model `{model}` does not exist or you do not have access to it."
    return Refusal(404, words, kind="invalid_request_error", code="model_not_found")


def no_json():
    return Refusal(400, "We could not parse the JSON body of your request. The OpenAI API expects a JSON payload.")


def check_headers(_headers):
    """Nothing is demanded besides the key."""


def check_key(headers, keys):
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key:
        words = (
            "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth "
            "(i.e. Authorization: Bearer YOUR_KEY)."
        )
        raise Refusal(401, words, kind="invalid_request_error")
    if key not in keys:
        words = "Incorrect API key provided: ********. You can find your API key at https://platform.openai.com/account/api-keys."
        raise Refusal(401, words, kind="invalid_request_error", code="invalid_api_key")


def error(refusal):
    """A refusal as the vendor's object."""
    kind = refusal.kind or KINDS.get(refusal.status, "server_error" if refusal.status >= 500 else "invalid_request_error")
    return {"error": {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.code}}


def error_frame(refusal, style):
    """An error inside a stream."""
    return style.event(error(refusal))


def headers(_status=200):
    return {"x-request-id": f"req_{uuid.uuid4().hex}", "openai-version": "2020-10-01"}


def told(usage):
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_input, "cache_write_tokens": usage.cache_write, "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning, "audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    }  # fmt: skip


def head(asked, kind):
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": asked.model,
        "service_tier": "default",
        "system_fingerprint": "fp_scripted",
    }


def named(call):
    return call.id or f"call_{uuid.uuid4().hex[:24]}"


def reply(asked, answer, usage):
    """The whole answer as one object."""
    message = {"role": "assistant", "content": answer.text_of("text"), "refusal": answer.text_of("refusal"), "annotations": []}
    calls = [
        {"id": named(call), "type": "function", "function": {"name": call.name, "arguments": call.text}} for call in answer.calls()
    ]
    message |= {"tool_calls": calls} if calls else {}
    choice = {"index": 0, "message": message | answer.message_extra, "logprobs": None, "finish_reason": FINISHES[answer.finish]}
    whole = head(asked, "chat.completion") | {"choices": [choice]}
    return whole | ({"usage": told(usage)} if usage else {}) | answer.extra


def stream(asked, answer, usage, style):
    """The same answer as events."""
    wants_usage = bool((asked.body.get("stream_options") or {}).get("include_usage"))
    common = head(asked, "chat.completion.chunk") | answer.extra

    def chunk(delta, finish=None, text=""):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        # With include_usage, every chunk has the field.
        return style.event(common | {"choices": [choice]} | ({"usage": None} if wants_usage else {}), text=text)

    yield chunk({"role": "assistant", "content": "" if answer.text_of("text") is not None else None, "refusal": None})
    parts = [strings(chunk, name, value, style) for name, value in answer.message_extra.items()]
    places = {id(call): place for place, call in enumerate(answer.calls())}
    for part in answer.parts:
        if part.kind == "call":
            parts.append(called(chunk, places[id(part)], part, style))
        elif part.kind != "reasoning":
            name = "content" if part.kind == "text" else "refusal"
            parts.append(([], [chunk({name: piece}, text=piece) for piece in style.pieces(part.text)], []))
    yield from style.weave(parts)
    yield chunk({}, FINISHES[answer.finish])
    if wants_usage and usage:
        yield style.event(common | {"choices": [], "usage": told(usage)}, tells=True)
    if style.done:
        yield style.event("[DONE]")


def strings(chunk, name, value, style):
    """A field that the vendor's protocol does not know: strings come in pieces, other values at once."""
    pieces = style.pieces(value) if isinstance(value, str) else [value]
    return [], [chunk({name: piece}) for piece in pieces], []


def called(chunk, place, call, style):
    """A tool call: id and name first, then its arguments."""
    function = {"name": call.name, "arguments": ""}
    opening = chunk({"tool_calls": [{"index": place, "id": named(call), "type": "function", "function": function}]}, text=call.name)
    deltas = [
        chunk({"tool_calls": [{"index": place, "function": {"arguments": piece}}]}, text=piece) for piece in style.pieces(call.text)
    ]
    return [opening], deltas, []
