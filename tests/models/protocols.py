"""The vendors' own packages, each protocol by the same four verbs: answered, streamed, put together, refused."""

import anthropic
import openai

import cases
from standin import KEY, check

# What is new in each answer.
FRESH = {"id", "created", "created_at", "completed_at"}


class Chat:
    """OpenAI's Chat Completions."""

    name, package, path, expected = "openai_chat", openai, "/v1/chat/completions", staticmethod(cases.chat)

    def __init__(self, url, key=KEY, **more):
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, **more)
        self.many = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, **more)

    def body(self, words=cases.WORDS):
        return {"model": cases.MODEL, "messages": [{"role": "user", "content": words}]}

    def offering(self, names):
        """The tools of a request."""
        schema = {"type": "object", "properties": {}}
        return {"tools": [{"type": "function", "function": {"name": name, "parameters": schema}} for name in names]}

    def answered(self, **body):
        return self.client.chat.completions.create(**body)

    def opened(self, **body):
        """A stream of typed events."""
        return self.client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True})

    def streamed(self, **body):
        return list(self.opened(**body))

    def together(self, **body):
        """What the package itself makes of the events."""
        with self.client.chat.completions.stream(**body, stream_options={"include_usage": True}) as stream:
            stream.until_done()
            return stream.current_completion_snapshot

    async def said(self, **body):
        """The text of one stream of many."""
        stream = await self.many.chat.completions.create(**body, stream=True)
        return "".join([event.choices[0].delta.content or "" async for event in stream])

    def told(self, reply):
        """Input and output as the reply tells them, everything included."""
        return reply.usage.prompt_tokens, reply.usage.completion_tokens


class Responses:
    """OpenAI's Responses."""

    name, package, path, expected = "openai_responses", openai, "/v1/responses", staticmethod(cases.responses)

    def __init__(self, url, key=KEY, **more):
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, **more)
        self.many = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, **more)

    def body(self, words=cases.WORDS):
        return {"model": cases.MODEL, "input": words}

    def offering(self, names):
        schema = {"type": "object", "properties": {}}
        return {"tools": [{"type": "function", "name": name, "parameters": schema, "strict": False} for name in names]}

    def answered(self, **body):
        return self.client.responses.create(**body)

    def opened(self, **body):
        return self.client.responses.create(**body, stream=True)

    def streamed(self, **body):
        events = list(self.opened(**body))
        numbers = [event.sequence_number for event in events]
        check(numbers == list(range(len(events))), f"the events are numbered {numbers}")
        return events

    def together(self, **body):
        with self.client.responses.stream(**body) as stream:
            last = [event for event in stream][-1]
        return last.response

    async def said(self, **body):
        stream = await self.many.responses.create(**body, stream=True)
        return "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])

    def told(self, reply):
        return reply.usage.input_tokens, reply.usage.output_tokens


class Messages:
    """Anthropic's Messages."""

    name, package, path, expected = "anthropic", anthropic, "/v1/messages", staticmethod(cases.messages)

    def __init__(self, url, key=KEY, **more):
        self.client = anthropic.Anthropic(base_url=url, api_key=key, **more)
        self.many = anthropic.AsyncAnthropic(base_url=url, api_key=key, **more)

    def body(self, words=cases.WORDS):
        return {"model": cases.MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": words}]}

    def offering(self, names):
        return {"tools": [{"name": name, "input_schema": {"type": "object", "properties": {}}} for name in names]}

    def answered(self, **body):
        return self.client.messages.create(**body)

    def opened(self, **body):
        return self.client.messages.create(**body, stream=True)

    def streamed(self, **body):
        return list(self.opened(**body))

    def together(self, **body):
        with self.client.messages.stream(**body) as stream:
            return stream.get_final_message()

    async def said(self, **body):
        async with self.many.messages.stream(**body) as stream:
            return await stream.get_final_text()

    def told(self, reply):
        usage = reply.usage
        return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens, usage.output_tokens


PROTOCOLS = (Chat, Responses, Messages)


def exact(kind, value):
    """The typed object holds nothing that its type does not know, lacks nothing that it must have, and its values have the right types."""
    unknown = list(surprises(value, kind))
    check(not unknown, f"the vendor's type does not know {unknown}")
    type(value).model_validate(value.to_dict())


def surprises(value, place):
    """Where fields stand that the vendor's types do not have."""
    if isinstance(value, list):
        for n, one in enumerate(value):
            yield from surprises(one, f"{place}[{n}]")
    elif hasattr(value, "model_extra"):
        yield from (f"{place}.{name}" for name in value.model_extra or {})
        for name in type(value).model_fields:
            yield from surprises(getattr(value, name, None), f"{place}.{name}")


def difference(wanted, seen, place="reply"):
    """The first place at which something wanted is not so; None when all of it is there. What was not wanted is not looked at."""
    if isinstance(wanted, dict) and isinstance(seen, dict):
        for name, value in wanted.items():
            found = difference(value, seen.get(name), f"{place}.{name}")
            if found:
                return found
        return None
    if isinstance(wanted, list) and isinstance(seen, list) and len(wanted) == len(seen):
        pairs = enumerate(zip(wanted, seen))
        return next(filter(None, (difference(one, other, f"{place}[{n}]") for n, (one, other) in pairs)), None)
    return None if wanted == seen else f"{place}: {wanted!r} was scripted and {seen!r} read"


def agree(wanted, reply, what):
    apart = difference(wanted, reply.to_dict())
    check(apart is None, f"{what}: {apart}")


def without_unkept(wanted):
    """Without what the packages do not keep when they put a stream together."""
    if wanted.get("object") != "chat.completion":
        return wanted
    [choice] = wanted["choices"]
    kept = {name: value for name, value in choice["message"].items() if name != "annotations"}
    return wanted | {"choices": [{**choice, "message": kept}]}
