"""The protocol `anthropic`: POST /v1/messages."""

import uuid
from itertools import takewhile

from asked import Asked, Refusal, compact, texts_of, turn_of

PATH = "/v1/messages"
NAME = "anthropic"
RESERVES = "max_tokens"
# `system` stands between others, for which it is as if it were not there.
ROLES = ("user", "assistant", "system")
KINDS = {
    401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
    429: "rate_limit_error", 504: "timeout_error", 529: "overloaded_error",
}  # fmt: skip
SIGNATURE = "c2NyaXB0ZWQ="
FINISHES = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}


def read(body, join_roles=False):
    """What is asked, or a `Refusal` as the vendor words it."""
    for name, kind, wanted in [
        ("model", str, "string"),
        ("max_tokens", int, "integer"),
        ("messages", list, "list"),
    ]:
        if name not in body:
            raise Refusal(400, f"{name}: Field required")
        if not isinstance(body[name], kind) or isinstance(body[name], bool):
            raise Refusal(400, f"{name}: Input should be a valid {wanted}")
    if body["max_tokens"] < 0:
        raise Refusal(400, "max_tokens: Input should be greater than or equal to 0")
    messages = body["messages"]
    if not messages:
        raise Refusal(400, "messages: at least one message is required")
    for place, message in enumerate(messages):
        check_message(place, message, is_last=place == len(messages) - 1)
    if join_roles:
        messages = joined(messages)
    alternate(messages)
    pair(messages)
    last = messages[-1]
    blocks = blocks_of(last)
    role = "tool" if any(is_a(block, "tool_result") for block in blocks) else last["role"]
    tools = [tool.get("name") for tool in body.get("tools") or []]
    if len(set(tools)) < len(tools):
        raise Refusal(400, "tools: Tool names must be unique.")
    return Asked(
        NAME, body, body["model"], bool(body.get("stream")), "\n".join(texts_of(last["content"])), role,
        turn_of([message["role"] == "assistant" for message in messages]), tools, list(everything(body)),
    )  # fmt: skip


def everything(body):
    yield from texts_of(body.get("system"))
    for message in body["messages"]:
        yield from texts_of(message["content"])
    if body.get("tools"):
        yield compact(body["tools"])


def blocks_of(message):
    """The blocks in their places; a text has none."""
    return message["content"] if isinstance(message["content"], list) else []


def check_message(place, message, is_last):
    if not isinstance(message, dict):
        raise Refusal(400, f"messages.{place}: Input should be a valid dictionary or object to extract fields from")
    for name in ("role", "content"):
        if name not in message:
            raise Refusal(400, f"messages.{place}.{name}: Field required")
    if message["role"] not in ROLES:
        words = f"messages: Unexpected role \"{message['role']}\". Allowed roles are \"user\" or \"assistant\"."
        raise Refusal(400, words)
    if not isinstance(message["content"], (str, list)):
        raise Refusal(400, f"messages.{place}.content: Input should be a valid list")
    if not message["content"] and not (is_last and message["role"] == "assistant"):
        words = f"messages.{place}: all messages must have non-empty content except for the optional final assistant message"
        raise Refusal(400, words)
    for n, block in enumerate(blocks_of(message)):
        where = f"messages.{place}.content.{n}"
        if is_a(block, "text") and not block.get("text"):
            raise Refusal(400, "messages: text content blocks must be non-empty")
        if is_a(block, "tool_use") and not isinstance(block.get("input"), dict):
            raise Refusal(400, f"{where}.tool_use.input: Input should be a valid dictionary")
        if is_a(block, "thinking") and block.get("signature") != SIGNATURE:
            raise Refusal(400, f"{where}: Invalid `signature` in `thinking` block")


def joined(messages):
    """Messages of one role in a row as one, as the vendor reads them since 2024."""
    found = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if found and found[-1]["role"] == message["role"]:
            found[-1] = {**found[-1], "content": [*found[-1]["content"], *blocks]}
        else:
            found.append({**message, "content": blocks})
    return found


def alternate(messages):
    """Strict, as the vendor was until 2024: what passes here passes there."""
    messages = [message for message in messages if message["role"] != "system"]
    if not messages or messages[0]["role"] != "user":
        raise Refusal(400, 'messages: first message must use the "user" role')
    for before, message in zip(messages, messages[1:]):
        if before["role"] == message["role"]:
            role = message["role"]
            words = f'messages: roles must alternate between "user" and "assistant", but found multiple "{role}" roles in a row'
            raise Refusal(400, words)


def pair(messages):
    """Every tool call has its result in the next message, and every result its call in the one before."""
    calls, asked_at = [], 0
    for place, message in enumerate(messages):
        if message["role"] == "system":
            continue
        results = [(n, block.get("tool_use_id")) for n, block in enumerate(blocks_of(message)) if is_a(block, "tool_result")]
        for n, wanted in results:
            if wanted not in calls:
                words = (
                    f"messages.{place}.content.{n}: unexpected `tool_use_id` found in `tool_result` blocks: {wanted}. "
                    "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
                )
                raise Refusal(400, words)
        # Results stand before everything else, or they are none.
        first = {block["tool_use_id"] for block in takewhile(lambda block: is_a(block, "tool_result"), blocks_of(message))}
        all_answered([call for call in calls if call not in first], asked_at)
        asked_at = place
        calls = [block.get("id") for block in blocks_of(message) if is_a(block, "tool_use")]
        for call in calls:
            if calls.count(call) > 1:
                raise Refusal(400, "messages: `tool_use` ids must be unique")
    all_answered(calls, asked_at)


def is_a(block, kind):
    return isinstance(block, dict) and block.get("type") == kind


def all_answered(open_calls, place):
    if open_calls:
        words = (
            f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(map(str, open_calls))}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
        )
        raise Refusal(400, words)


def too_long(limit, read_tokens, asked):
    if read_tokens > limit:
        return Refusal(400, f"prompt is too long: {read_tokens} tokens > {limit} maximum")
    wanted = asked.body["max_tokens"]
    words = (
        f"input length and `max_tokens` exceed context limit: {read_tokens} + {wanted} > {limit}, "
        "decrease input length or `max_tokens` and try again"
    )
    return Refusal(400, words)


def no_model(model):
    return Refusal(404, f"model: {model}")


def no_json():
    return Refusal(400, "The request body is not valid JSON: expected value: line 1 column 1 (char 0)")


def check_headers(headers):
    if not headers.get("anthropic-version"):
        raise Refusal(400, "anthropic-version: header is required")


def check_key(headers, keys):
    bearer = headers.get("Authorization", "").partition(" ")[2]
    key = headers.get("x-api-key") or bearer
    if not key:
        raise Refusal(401, "x-api-key header is required")
    if key not in keys:
        raise Refusal(401, "invalid x-api-key")


def error(refusal):
    """A refusal as the vendor's object."""
    kind = refusal.kind or KINDS.get(refusal.status, "api_error" if refusal.status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": refusal.message}, "request_id": f"req_{uuid.uuid4().hex[:24]}"}


def error_frame(refusal, style):
    """An error inside a stream."""
    return style.event(error(refusal), "error")


def headers(status=200):
    """Those of every answer, and of an error the word whether the vendor's package is to ask again."""
    again = {} if status < 400 else {"x-should-retry": "true" if status in (408, 409, 429) or status >= 500 else "false"}
    return {"request-id": f"req_{uuid.uuid4().hex[:24]}"} | again


def told(usage, output):
    if usage is None:
        return {}
    return {
        "usage": {
            "input_tokens": usage.input - usage.cached_input - usage.cache_write,
            "cache_creation_input_tokens": usage.cache_write,
            "cache_read_input_tokens": usage.cached_input,
            "cache_creation": {"ephemeral_5m_input_tokens": usage.cache_write, "ephemeral_1h_input_tokens": 0},
            "output_tokens": output,
            "service_tier": "standard",
        }
    }


def head(asked, answer):
    return {
        "id": f"msg_{uuid.uuid4().hex[:24]}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
    } | answer.extra | answer.message_extra  # fmt: skip


def named(call):
    return call.id or f"toolu_{uuid.uuid4().hex[:24]}"


def ending(answer):
    """Why it ended; a refusal's words are no content."""
    refused = answer.text_of("refusal")
    details = None if refused is None else {"type": "refusal", "category": None, "explanation": refused}
    reason = FINISHES[answer.finish] if refused is None else "refusal"
    return {"stop_reason": reason, "stop_sequence": None, "stop_details": details}


def reply(asked, answer, usage):
    """The whole answer as one object."""
    whole = head(asked, answer) | ending(answer) | told(usage, usage and usage.output)
    return whole | {"content": [block(part, full=True) for part in answer.parts if part.kind != "refusal"]}


def block(part, full=False):
    """A part as a content block; while it is streamed, it begins empty."""
    if part.kind == "call":
        return {"type": "tool_use", "id": named(part), "name": part.name, "input": part.arguments if full else {}}
    if part.kind == "reasoning":
        return {"type": "thinking", "thinking": part.text if full else "", "signature": SIGNATURE if full else ""}
    return {"type": "text", "text": part.text if full else ""}


def stream(asked, answer, usage, style):
    """The same answer as events. The usage of message_delta is cumulative: it is all of it, not what came since message_start."""
    begun = head(asked, answer) | told(usage, 1)
    yield style.event({"type": "message_start", "message": begun}, "message_start")
    yield style.event({"type": "ping"}, "ping")
    shown = [part for part in answer.parts if part.kind != "refusal"]
    yield from style.weave([framed(place, part, style) for place, part in enumerate(shown)])
    counted = told(usage, usage and usage.output)
    if counted:
        counted["usage"] = {name: count for name, count in counted["usage"].items() if name not in ("cache_creation", "service_tier")}
    yield style.event({"type": "message_delta", "delta": ending(answer)} | counted, "message_delta", tells=bool(counted))
    if style.done:
        yield style.event({"type": "message_stop"}, "message_stop")


def framed(place, part, style):
    """A block: it starts, grows and stops."""

    def event(name, text="", **fields):
        return style.event({"type": name, "index": place, **fields}, name, text)

    opening = [event("content_block_start", part.name, content_block=block(part))]
    kind, field = {
        "text": ("text_delta", "text"),
        "call": ("input_json_delta", "partial_json"),
        "reasoning": ("thinking_delta", "thinking"),
    }[part.kind]
    deltas = [event("content_block_delta", piece, delta={"type": kind, field: piece}) for piece in style.pieces(part.text)]
    if part.kind == "call":
        # The vendor's first fragment is empty.
        deltas.insert(0, event("content_block_delta", delta={"type": kind, field: ""}))
    if part.kind == "reasoning":
        deltas.append(event("content_block_delta", delta={"type": "signature_delta", "signature": SIGNATURE}))
    return opening, deltas, [event("content_block_stop")]
