"""Waiting for facts, always with a bound; nothing here waits for time alone."""

import asyncio
import inspect
import time


class NotSo(AssertionError):
    """A claim of a proof that did not hold."""


class Away(Exception):
    """Somebody did not answer; asking again may help."""


def check(holds, sentence):
    """Ends the proof unless `holds`; the sentence says what was expected and what was seen."""
    if not holds:
        raise NotSo(sentence)


async def until(what, fact, timeout, pause=0.05):
    """The first truthy answer of `fact`, a plain or an async function; `NotSo` after `timeout` seconds."""
    ends = time.monotonic() + timeout
    while True:
        try:
            seen = await ask(fact)
        except Away as away:
            seen = None
            last = away
        else:
            last = seen
        if seen:
            return seen
        check(time.monotonic() < ends, f"not within {timeout:g} s: {what} (last seen: {last!r})")
        await asyncio.sleep(pause)


async def stays(what, fact, seconds, pause=0.1):
    """Looks at `fact` for some seconds: it must be truthy every time."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        seen = await ask(fact)
        check(seen, f"no longer so within {seconds:g} s: {what} (seen: {seen!r})")
        await asyncio.sleep(pause)


async def ask(fact):
    """The answer of a plain or an async function."""
    seen = fact()
    return await seen if inspect.isawaitable(seen) else seen
