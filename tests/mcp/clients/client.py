"""PyPI `mcp`: URL, revision, mark, journey. The steps of journey.mjs; in the newer revision the slow charge is a task."""

import asyncio
import json
import sys
from typing import Any, Literal

import anyio
from mcp import Client
from mcp.client.extension import ClientExtension, ResultClaim
from mcp.types import ElicitResult, Request, RequestParams, Result
from pydantic import ConfigDict, TypeAdapter

url, revision, mark, journey = sys.argv[1:5]
mode = revision if revision == "2026-07-28" else "legacy"
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


class Task(Result):
    """What a call became that takes its time."""

    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"] = "task"


class AboutTask(RequestParams):
    model_config = ConfigDict(extra="allow")


class GetTask(Request[AboutTask, Literal["tasks/get"]]):
    name_param = "taskId"
    method: Literal["tasks/get"] = "tasks/get"


class Tasks(ClientExtension):
    """Says that tasks are taken. Following them is done below, with a new client when one breaks."""

    identifier = "io.modelcontextprotocol/tasks"

    def claims(self):
        return (ResultClaim(result_type="task", model=Task, resolve=self.resolve),)

    async def resolve(self, _task, _context):
        raise RuntimeError("this client follows its tasks itself")


async def killed():
    """The slow charge, with a new connection whenever one breaks; the gateway is killed meanwhile."""
    task, extensions = None, [Tasks()] if mode != "legacy" else []
    for asked in range(1, 101):
        try:
            async with Client(url, mode=mode, extensions=extensions) as client:
                if mode == "legacy":
                    said = plain(await client.call_tool("charge_slowly", {"what": f"{mark}-killed"}))
                    return tell("killed", said=said, asked=asked)
                if task is None:
                    made = await client.session.call_tool("charge_slowly", {"what": f"{mark}-killed"}, allow_claimed=True)
                    task = plain(made)["taskId"]
                    tell("task", said=task)
                while True:
                    look = GetTask(params=AboutTask(taskId=task))
                    found = await client.session.send_request(look, TypeAdapter(dict[str, Any]))
                    if found["status"] == "completed":
                        return tell("killed", said=found["result"], asked=asked)
                    await anyio.sleep(found["pollIntervalMs"] / 1_000)
        except Exception as error:
            why = repr(error)
            await anyio.sleep(0.2)
    tell("killed", failed=why, asked=asked)


async def main():
    global decision
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


asyncio.run(killed() if journey == "killed" else main())
