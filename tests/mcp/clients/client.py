"""PyPI `mcp`: URL, revision, mark. The steps of journey.mjs."""

import asyncio
import json
import sys

import anyio
from mcp import Client
from mcp.types import ElicitResult

url, revision, mark = sys.argv[1:4]
decision = "accept"


def tell(step, **said):
    print(json.dumps({"step": step, **said}), flush=True)


async def tried(step, doing):
    try:
        tell(step, said=await doing())
    except Exception as error:
        tell(step, failed=str(error), code=getattr(getattr(error, "error", None), "code", None))


def plain(result):
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


async def decide(_context, _asked):
    return ElicitResult(action="accept", content={"decision": "approve"}) if decision == "accept" else ElicitResult(action=decision)


async def main():
    global decision
    mode = revision if revision == "2026-07-28" else "legacy"
    async with Client(url, mode=mode, elicitation_callback=decide) as client:

        async def call(name, arguments, **more):
            return plain(await client.call_tool(name, arguments, **more))

        async def names():
            listed, cursor = [], None
            while True:
                page = await client.list_tools(cursor=cursor)
                listed += [tool.name for tool in page.tools]
                cursor = page.next_cursor
                if not cursor:
                    return listed

        async def with_progress():
            seen = []

            async def progress(done, _total, _message):
                seen.append(done)

            result = await call("test_tool_with_progress", {}, progress_callback=progress)
            return {"seen": seen, "result": result}

        async def cancelled():
            with anyio.move_on_after(1.5) as scope:
                return await call("slow_compute", {"seconds": 25, "label": mark})
            assert scope.cancelled_caught
            raise RuntimeError("taken back by its client")

        await tried("list", names)
        await tried("call", lambda: call("echo", {"text": "hello"}))
        await tried("big", lambda: call("echo", {"text": "x" * 300}))
        await tried("tool_error", lambda: call("test_error_handling", {}))
        await tried("wrong_arguments", lambda: call("echo", {"txt": 1}))
        await tried("unknown_tool", lambda: call("no_such_tool", {}))
        await tried("progress", with_progress)
        await tried("cancel", cancelled)
        await tried("charge", lambda: call("charge", {"what": mark}))
        await tried("charge_again", lambda: call("charge", {"what": mark}))
        await tried("charge_on_purpose", lambda: call("charge", {"what": mark, "idempotency_key": f"{mark}-2"}))
        decision = "accept"
        await tried("approved", lambda: call("approved", {"what": f"{mark}-yes"}))
        decision = "decline"
        await tried("declined", lambda: call("approved", {"what": f"{mark}-no"}))


asyncio.run(main())
