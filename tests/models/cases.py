"""The cases of the matrix: what the script says, and what each vendor's package must then have read."""

import json

MODEL = "scripted"
TOOLS = ("get_weather", "get_time")
WORDS = "What about this?"
READ = 4  # tokens of WORDS: 16 bytes

TEXT = "Grüße aus 北京, and a line\nwith \"quotes\" and 🎉."
REFUSAL = "I cannot help with that."
CUT = "Once upon a time there was"
REASONING = "They ask for the capital."
CALLS = [
    {"id": "call_a", "name": "get_weather", "arguments": {"city": "Tromsø", "days": 3}},
    {"id": "call_b", "name": "get_time", "arguments": {"zones": ["UTC", "CET"], "exact": True}},
]

CASES = {
    "text": {"text": TEXT},
    "parallel tool calls": {"text": "Let me look.", "tool_calls": CALLS},
    "tool calls alone": {"tool_calls": CALLS},
    "refusal": {"refusal": REFUSAL},
    "length": {"text": CUT, "finish": "length"},
    "reasoning, cache": {
        "reasoning": REASONING, "text": "Oslo.", "usage": {"input": 1000, "cached_input": 700, "cache_write": 200},
    },
}  # fmt: skip


def tokens(*texts):
    """The stand-in's rule, written down once more."""
    return -(-sum(len(text.encode()) for text in texts) // 4)


def counted(answer):
    """What the case counts: input, cached, written to the cache, output, reasoning."""
    calls = [text for call in answer.get("tool_calls", []) for text in (call["name"], arguments(call))]
    texts = [answer[kind] for kind in ("reasoning", "text", "refusal") if kind in answer]
    said = answer.get("usage", {})
    output, reasoning = tokens(*texts, *calls), tokens(answer.get("reasoning", ""))
    return said.get("input", READ), said.get("cached_input", 0), said.get("cache_write", 0), output, reasoning


def arguments(call):
    return json.dumps(call["arguments"], ensure_ascii=False, separators=(",", ":"))


def chat(answer):
    """What ChatCompletion must say."""
    read, cached, written, output, reasoning = counted(answer)
    message = {"role": "assistant", "content": answer.get("text"), "refusal": answer.get("refusal"), "annotations": []}
    if "tool_calls" in answer:
        message["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": arguments(call)}}
            for call in answer["tool_calls"]
        ]
    finish = answer.get("finish") or ("tool_calls" if "tool_calls" in answer else "stop")
    return {
        "object": "chat.completion",
        "model": MODEL,
        "service_tier": "default",
        "system_fingerprint": "fp_scripted",
        "choices": [{"index": 0, "logprobs": None, "finish_reason": finish, "message": message}],
        "usage": {
            "prompt_tokens": read,
            "completion_tokens": output,
            "total_tokens": read + output,
            "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": reasoning,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        },
    }


def responses(answer):
    """What Response must say, but for what it repeats of the request."""
    read, cached, written, output, reasoning = counted(answer)
    status = "incomplete" if answer.get("finish") == "length" else "completed"
    items, content = [], []
    if "reasoning" in answer:
        items.append({"type": "reasoning", "summary": [{"type": "summary_text", "text": answer["reasoning"]}]})
    if "text" in answer:
        content.append({"type": "output_text", "text": answer["text"], "annotations": [], "logprobs": []})
    if "refusal" in answer:
        content.append({"type": "refusal", "refusal": answer["refusal"]})
    if content:
        items.append({"type": "message", "role": "assistant", "status": status, "content": content})
    for call in answer.get("tool_calls", []):
        fields = {"call_id": call["id"], "name": call["name"], "arguments": arguments(call)}
        items.append({"type": "function_call", "status": status, **fields})
    return {
        "object": "response",
        "model": MODEL,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "output": items,
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": read + output,
        },
    }


def messages(answer):
    """What Message must say."""
    read, cached, written, output, _ = counted(answer)
    content = []
    if "reasoning" in answer:
        content.append({"type": "thinking", "thinking": answer["reasoning"], "signature": "c2NyaXB0ZWQ="})
    if "text" in answer:
        content.append({"type": "text", "text": answer["text"]})
    for call in answer.get("tool_calls", []):
        content.append({"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]})
    reason = {"length": "max_tokens"}.get(answer.get("finish"), "tool_use" if "tool_calls" in answer else "end_turn")
    refused = {"type": "refusal", "category": None, "explanation": answer["refusal"]} if "refusal" in answer else None
    return {
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": content,
        "stop_reason": "refusal" if refused else reason,
        "stop_sequence": None,
        "stop_details": refused,
        "usage": {
            "input_tokens": read - cached - written,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": cached,
            "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
            "output_tokens": output,
            "service_tier": "standard",
        },
    }
