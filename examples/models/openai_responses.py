"""The protocol `openai_responses`: POST /v1/responses."""

import time
import uuid
from itertools import count

from asked import Asked, Refusal, compact, said_last, texts_of, turn_of
from openai_chat import check_headers, check_key, error, headers, no_json, no_model

__all__ = ["check_headers", "check_key", "error", "headers", "no_json", "no_model"]
PATH = "/v1/responses"
NAME = "openai_responses"
RESERVES = None
ROLES = ("assistant", "system", "developer", "user")
MADE = ("function_call", "reasoning", "custom_tool_call")
FINISHES = {"length": "max_output_tokens", "content_filter": "content_filter"}
# What a request may say of itself and a reply repeats, and what it is when it was not said.
REPEATED = {
    "background": False, "instructions": None, "max_output_tokens": None, "max_tool_calls": None, "metadata": {},
    "parallel_tool_calls": True, "previous_response_id": None, "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None}, "safety_identifier": None, "temperature": 1.0,
    "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_logprobs": 0, "top_p": 1.0,
    "truncation": "disabled", "user": None,
}  # fmt: skip


def read(body, **_options):
    """What is asked, or a `Refusal` as the vendor words it."""
    if not isinstance(body.get("model"), str):
        raise Refusal(400, "Missing required parameter: 'model'.", param="model", code="missing_required_parameter")
    given = body.get("input")
    if given is None:
        raise Refusal(400, "Missing required parameter: 'input'.", param="input", code="missing_required_parameter")
    if not isinstance(given, str) and not (isinstance(given, list) and all(isinstance(item, dict) for item in given)):
        words = "Invalid type for 'input': expected one of a string or an array of objects, but got something else instead."
        raise Refusal(400, words, param="input", code="invalid_type")
    if body.get("previous_response_id"):
        words = f"Previous response with id '{body['previous_response_id']}' not found."
        raise Refusal(400, words, param="previous_response_id", code="previous_response_not_found")
    items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given
    for place, item in enumerate(items):
        if kind_of(item) == "message" and item.get("role") not in ROLES:
            known = "'assistant', 'system', 'developer', and 'user'"
            words = f"Invalid value: '{item.get('role', '')}'. Supported values are: {known}."
            raise Refusal(400, words, param=f"input[{place}]", code="invalid_value")
    pair(items)
    last = said_last(items)
    role = "tool" if kind_of(last).endswith("_output") else last.get("role", "")
    tools = [tool.get("name") for tool in body.get("tools") or []]
    made = [kind_of(item) in MADE or item.get("role") == "assistant" for item in items]
    return Asked(
        NAME, body, body["model"], bool(body.get("stream")), "\n".join(said(last)), role, turn_of(made), tools,
        list(everything(body, items)),
    )  # fmt: skip


def kind_of(item):
    return item.get("type", "message")


def said(item):
    return texts_of(item.get("output") if kind_of(item).endswith("_output") else item.get("content"))


def everything(body, items):
    yield from texts_of(body.get("instructions"))
    for item in items:
        yield from said(item)
        if kind_of(item) == "function_call":
            yield from (str(item.get("name", "")), str(item.get("arguments", "")))
    if body.get("tools"):
        yield compact(body["tools"])


def pair(items):
    """Every tool call has a result behind it, and every result a call before it."""
    answered = {item.get("call_id") for item in items if kind_of(item) == "function_call_output"}
    called = set()
    for item in items:
        call = item.get("call_id")
        if kind_of(item) == "function_call":
            called.add(call)
            if call not in answered:
                raise Refusal(400, f"No tool output found for function call {call}.", param="input")
        if kind_of(item) == "function_call_output" and call not in called:
            raise Refusal(400, f"No tool call found for function call output with call_id {call}.", param="input")


def too_long(_limit, _read_tokens, _asked):
    words = "Your input exceeds the context window of this model. Please adjust your input and try again."
    return Refusal(400, words, param="input", code="context_length_exceeded")


def error_frame(refusal, style, number=0):
    """An error inside a stream."""
    fields = error(refusal)["error"]
    event = {"type": "error", "code": fields["code"] or fields["type"], "message": fields["message"], "param": fields["param"]}
    return style.event(event | {"sequence_number": number}, "error")


def failed(asked, answer, refusal):
    """An answer that failed on its way, as the object that a 200 has then."""
    words = {"code": refusal.code or "server_error", "message": refusal.message}
    return head(asked, answer) | {"status": "failed", "error": words}


def told(usage):
    if usage is None:
        return None
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached_input, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }


def head(asked, answer):
    repeated = {name: asked.body.get(name, default) for name, default in REPEATED.items()}
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "model": asked.model,
        "output": [],
        "service_tier": "default",
        "usage": None,
        **repeated,
        **answer.extra,
    }


def ended(begun, answer, output, usage):
    """The whole answer as one object."""
    reason = FINISHES.get(answer.finish)
    fields = {"status": "incomplete", "incomplete_details": {"reason": reason}} if reason else {"status": "completed"}
    fields |= {"completed_at": None if reason else int(time.time()), "output": output, "usage": told(usage)}
    return begun | fields


def items_of(answer):
    """The output items, each with the part that grows in it. Text and a refusal are the content of one message."""
    status = "incomplete" if answer.finish in FINISHES else "completed"
    items, message = [], None
    for part in answer.parts:
        if part.kind == "reasoning":
            item = {"id": f"rs_{uuid.uuid4().hex}", "type": "reasoning", "summary": [{"type": "summary_text", "text": part.text}]}
            items.append((item, [part]))
        elif part.kind == "call":
            call = part.id or f"call_{uuid.uuid4().hex[:24]}"
            item = {"id": f"fc_{uuid.uuid4().hex}", "type": "function_call", "status": status, "name": part.name}
            items.append((item | {"call_id": call, "arguments": part.text}, [part]))
        else:
            if message is None:
                message = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "status": status, "role": "assistant", "content": []}
                items.append((message | answer.message_extra, []))
                message = items[-1][0]
            message["content"].append(content(part, part.text))
            items[-1][1].append(part)
    return items


def content(part, text):
    if part.kind == "refusal":
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def reply(asked, answer, usage):
    """The whole answer as one object."""
    return ended(head(asked, answer), answer, [item for item, _ in items_of(answer)], usage)


def stream(asked, answer, usage, style):
    """The same answer as events, numbered in the order in which they are sent."""
    begun, items, numbers = head(asked, answer), items_of(answer), count()

    def event(name, text, fields, tells=False):
        return style.event({"type": name, "sequence_number": next(numbers), **fields}, name, text, tells)

    yield event("response.created", "", {"response": begun})
    yield event("response.in_progress", "", {"response": begun})
    # Made when they are sent, not before: so the numbers follow the order of weaving.
    for name, text, fields in style.weave([grown(place, item, parts, style) for place, (item, parts) in enumerate(items)]):
        yield event(name, text, fields)
    name = "response.incomplete" if answer.finish in FINISHES else "response.completed"
    whole = ended(begun, answer, [item for item, _ in items], usage)
    yield event(name, "", {"response": whole}, tells=usage is not None)


def grown(place, item, parts, style):
    """An item: it is added, its parts grow, it is done; as names, texts and fields."""
    at = {"item_id": item["id"], "output_index": place}
    if item["type"] == "function_call":
        [part] = parts
        bare, name = {"arguments": "", "status": "in_progress"}, "response.function_call_arguments"
        deltas = [(f"{name}.delta", piece, at | {"delta": piece}) for piece in style.pieces(part.text)]
        deltas.append((f"{name}.done", "", at | {"arguments": part.text}))
    elif item["type"] == "reasoning":
        [part] = parts
        bare, name, inside = {"summary": []}, "response.reasoning_summary_text", at | {"summary_index": 0}
        deltas = [("response.reasoning_summary_part.added", "", inside | {"part": {"type": "summary_text", "text": ""}})]
        deltas += [(f"{name}.delta", piece, inside | {"delta": piece}) for piece in style.pieces(part.text)]
        deltas.append((f"{name}.done", "", inside | {"text": part.text}))
        deltas.append(("response.reasoning_summary_part.done", "", inside | {"part": item["summary"][0]}))
    else:
        bare, deltas = {"content": [], "status": "in_progress"}, []
        for index, part in enumerate(parts):
            deltas += spoken(at | {"content_index": index}, part, style)
    named = parts[0].name if item["type"] == "function_call" else ""
    added = ("response.output_item.added", named, {"output_index": place, "item": item | bare})
    return [added], deltas, [("response.output_item.done", "", {"output_index": place, "item": item})]


def spoken(at, part, style):
    """A content part of a message."""
    name = "response.refusal" if part.kind == "refusal" else "response.output_text"
    field = "refusal" if part.kind == "refusal" else "text"
    more = {} if part.kind == "refusal" else {"logprobs": []}
    events = [("response.content_part.added", "", at | {"part": content(part, "")})]
    events += [(f"{name}.delta", piece, at | {"delta": piece} | more) for piece in style.pieces(part.text)]
    events.append((f"{name}.done", "", at | {field: part.text} | more))
    events.append(("response.content_part.done", "", at | {"part": content(part, part.text)}))
    return events
