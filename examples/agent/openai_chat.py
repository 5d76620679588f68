"""The protocol openai_chat, as agent.py speaks it: for another one, write these functions anew.

A model may write anything; the fleet promises only that a reply has a first choice with a message.
"""

import json


def opening(task, brief):
    return [{"role": "system", "content": brief}, {"role": "user", "content": task}]


def said(reply):
    """Its text, that of its parts joined; blanks alone are none."""
    message = reply["choices"][0]["message"]
    for content in (message.get("content"), message.get("refusal")):
        parts = content if isinstance(content, list) else [content]
        texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
        text = "".join(text for text in texts if isinstance(text, str))
        if text.strip():
            return text
    return ""


def wished(reply):
    """The tools that it wishes for: id, name, and arguments as it wrote them. What is no wish has no name."""
    calls = reply["choices"][0]["message"].get("tool_calls") or []
    return [wish(place, call) for place, call in enumerate(calls if isinstance(calls, list) else [None])]


def wish(place, call):
    call = call if isinstance(call, dict) else {}
    function = call.get("function") if isinstance(call.get("function"), dict) else {}
    id_, name, arguments = call.get("id"), function.get("name"), function.get("arguments", "")
    try:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError):  # a number that agent.py could not read
        name, text = None, ""
    return id_ if id_ and isinstance(id_, str) else f"call_{place}", name if isinstance(name, str) else None, text


def mended(reply):
    """Its message as vendors take it back, where its wishes are not as they should be; else None."""
    wishes = wished(reply)
    try:
        functions = [(call["id"], call["function"]) for call in reply["choices"][0]["message"]["tool_calls"]]
        if wishes == [(id_, function["name"], function.get("arguments", "")) for id_, function in functions]:
            return None
    except (TypeError, KeyError, AttributeError):
        pass
    functions = [(id_, {"name": name or "none", "arguments": text}) for id_, name, text in wishes]
    calls = [{"id": id_, "type": "function", "function": function} for id_, function in functions]
    return {"role": "assistant", "content": said(reply) or None, "tool_calls": calls}


def handed(wishes, texts):
    """The messages with the results; the reply that wished for them stands before them."""
    return [{"role": "tool", "tool_call_id": id_, "content": text} for (id_, _, _), text in zip(wishes, texts)]
