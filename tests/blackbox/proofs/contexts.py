"""Random conversations are kept within their limit by each strategy in each protocol, and the strict model server refuses none of them."""

import asyncio
import random
import sys
from pathlib import Path

from client import Client
from waiting import check

MODELS = Path(__file__).resolve().parents[2] / "models"
STRATEGIES = ["trim", "sliding_window", "summarize", "hybrid"]
LIMIT = 1200
AT_ONCE = 16


async def prove(proof):
    sys.path.insert(0, str(MODELS))
    import standin

    many = 10 if proof.short else 834
    with standin.StandIn() as server:
        summed = {"text": "They talked of this and that, and nothing was decided."}
        server.play([{"match": {"model": "sum"}, "answer": summed}, {"answer": {"text": "Yes."}}])
        kinds = [(protocol, strategy) for protocol in PATHS for strategy in STRATEGIES]
        tools = [model(server.url, standin.KEY, *kind) for kind in kinds] + [writer(server.url, standin.KEY, p) for p in PATHS]
        async with proof.fleet(tools, workers=2) as dev, Client(dev) as client:
            for protocol, strategy in kinds:
                seen = await ask_many(client, protocol, strategy, many)
                sent = await asyncio.to_thread(received, server)
                refused = [entry["error"] for entry in sent if entry["status"] != 200]
                check(not refused, f"the model server refused: {refused[:1]}")
                check(len(sent) >= many, f"{len(sent)} requests at the model server")
                proof.note(
                    f"{protocol} {strategy}: {many} conversations, {seen['edited']} changed, {seen['summaries']} with a summary, "
                    f"{seen['unmet']} longer than the limit by what has to stay, 0 refused"
                )


def received(server):
    """What the server was asked since this was last looked at."""
    server.settle()
    entries = server.ask("GET", "/log")["entries"]
    server.ask("DELETE", "/log")
    return entries


async def ask_many(client, protocol, strategy, many):
    seen = {"edited": 0, "summaries": 0, "unmet": 0}
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(n):
        async with turn:
            request = conversation(protocol, random.Random(f"{protocol} {n}"))
            answer = await client.request(f"call.{protocol}_{strategy}", request, timeout=60)
        check(answer.body["state"] == "succeeded", f"{protocol} {strategy} {n}: {answer.body['error']}")
        for edit in answer.body["result"].get("edits", []):
            check(edit["interceptor"] == "context", str(edit))
            # As long as the rest stays as it was, what is told is what was sent.
            within = edit["to"] <= edit["limit"]
            check(within != edit.get("unmet", False), f"{protocol} {strategy} {n}: {edit}")
            check("no_summary" not in edit or edit["no_summary"] == "too_short", f"{protocol} {strategy} {n}: {edit}")
            seen["edited"] += 1
            seen["summaries"] += "summary" in edit
            seen["unmet"] += not within

    await asyncio.gather(*[one(n) for n in range(many)])
    return seen


PATHS = {"openai_chat": "/v1/chat/completions", "openai_responses": "/v1/responses", "anthropic": "/v1/messages"}


def chat(url, key, protocol, name):
    header = {"x-api-key": key} if protocol == "anthropic" else {"authorization": f"Bearer {key}"}
    route = {"name": "main", "url": url + PATHS[protocol], "model": name, "headers": header}
    return {"chat": {"protocol": protocol, "routes": [route]}}


def model(url, key, protocol, strategy):
    """A chat tool whose conversations are kept short in this way."""
    context = {"strategy": strategy, "max_tokens": LIMIT, "keep_last": 6, "keep_turns": 3}
    if strategy == "summarize":
        context["summarize_above"] = LIMIT // 2
    if strategy in ("summarize", "hybrid"):
        context["summary_tool"] = f"sum_{protocol}"
    return {
        "name": f"{protocol}_{strategy}", "version": 1, "description": "Answers a conversation.", "effect": "read",
        "executor": chat(url, key, protocol, "large"), "retry": {"max_attempts": 1},
        "context": {**context, "clear_tool_results": {"above": 800, "keep": 2}},
    }  # fmt: skip


def writer(url, key, protocol):
    return {
        "name": f"sum_{protocol}", "version": 1, "description": "Sums up.", "effect": "read", "visibility": "hidden",
        "executor": chat(url, key, protocol, "sum"),
    }  # fmt: skip


def conversation(protocol, chance):
    """Questions, answers and calls of tools, as a careful program would send them."""
    turns = []
    for _ in range(chance.randint(1, 25)):
        turns.append(("user", text(chance)))
        for _ in range(chance.choice([0, 0, 1, 3])):
            turns.append(("calls", [text(chance) for _ in range(chance.randint(1, 3))]))
        turns.append(("assistant", text(chance)))
    turns.append(("user", text(chance)))
    ids = iter(range(10_000))
    messages = [message for turn in turns for message in WRITE[protocol](turn, ids)]
    request = {"input" if protocol == "openai_responses" else "messages": messages}
    if chance.random() < 0.5:
        request |= SYSTEM[protocol](messages, text(chance))
    if protocol == "anthropic":
        request["max_tokens"] = 50
    return request


def text(chance):
    words = chance.choice([["one", "two", "and", "with"], ["天气", "今天", "很好"], ["17", "3.5", "--"]])
    return " ".join(chance.choices(words, k=chance.choice([3, 20, 20, 60, 200])))


def in_chat(turn, ids):
    who, said = turn
    if who != "calls":
        return [{"role": who, "content": said}]
    made = [(f"call_{next(ids)}", result) for result in said]
    calls = [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}} for one, _ in made]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        *[{"role": "tool", "tool_call_id": one, "content": result} for one, result in made],
    ]


def in_responses(turn, ids):
    who, said = turn
    if who != "calls":
        return [{"role": who, "content": said}]
    made = [(f"call_{next(ids)}", result) for result in said]
    return [
        *[{"type": "function_call", "call_id": one, "name": "look", "arguments": "{}"} for one, _ in made],
        *[{"type": "function_call_output", "call_id": one, "output": result} for one, result in made],
    ]


def in_anthropic(turn, ids):
    who, said = turn
    if who != "calls":
        return [{"role": who, "content": said}]
    made = [(f"toolu_{next(ids)}", result) for result in said]
    return [
        {"role": "assistant", "content": [{"type": "tool_use", "id": one, "name": "look", "input": {}} for one, _ in made]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": one, "content": result} for one, result in made]},
    ]


WRITE = {"openai_chat": in_chat, "openai_responses": in_responses, "anthropic": in_anthropic}
SYSTEM = {
    "openai_chat": lambda messages, said: messages.insert(0, {"role": "system", "content": said}) or {},
    "openai_responses": lambda _messages, said: {"instructions": said},
    "anthropic": lambda _messages, said: {"system": said},
}
