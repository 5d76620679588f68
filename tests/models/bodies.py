"""Whether a request is one that the vendor's package would send: its own request types judge the body."""

from collections.abc import Iterator, Mapping
from functools import cache

from pydantic import TypeAdapter, ValidationError


@cache
def judge(protocol):
    """The type of a protocol's requests."""
    if protocol == "anthropic":
        from anthropic.types import message_create_params as params

        return TypeAdapter(params.MessageCreateParams)
    if protocol == "openai_responses":
        from openai.types.responses import response_create_params as params

        return TypeAdapter(params.ResponseCreateParams)
    from openai.types.chat import completion_create_params as params

    return TypeAdapter(params.CompletionCreateParams)


def complaint(protocol, body):
    """What the vendor's types have against a body; None when it fits."""
    try:
        read(judge(protocol).validate_python(body, extra="forbid"))
    except ValidationError as error:
        return str(error)
    return None


def read(value):
    """Reads to the end what pydantic would look at only then: the types say Iterable."""
    if isinstance(value, Mapping):
        for one in value.values():
            read(one)
    elif isinstance(value, (list, Iterator)) or type(value).__name__ == "ValidatorIterator":
        for one in value:
            read(one)
