"""The three tools to copy keep what their page says: passages in two languages, a provider that is exchanged, pictures small and large."""

import asyncio
import base64
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

from busy import OwnWorker
from client import Client
from fleet import command
from waiting import check, until

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
DOCUMENTS, WEB = EXAMPLES / "search_documents", EXAMPLES / "web_search"
# Ports as the manifests have them.
ADAPTER = "http://127.0.0.1:8711"
KEYS = {"ACORN_KEY": "Bearer acorn-demo", "BEACON_KEY": "beacon-demo"}
BLOCK_INLINE_MAX = 256 * 1024
SESSION = "draws"
# The slowest picture that may be asked for: every pixel takes all of its steps.
SLOWEST = {"width": 1600, "height": 1200, "drawing": {"kind": "fractal", "x": -0.1, "y": 0, "zoom": 100, "detail": 2000}}
# Of the edge of the set, where hardly two pixels are alike.
EDGE = {"kind": "fractal", "x": -0.745, "y": 0.113, "zoom": 150}
HOSTILE = [
    "'; DROP TABLE tools.passages; --",
    "tides' OR '1'='1",
    "tides | ! & <-> ( :* \\ '' \"",
    "$1 {question} {{ question }} secret://ACORN_KEY %s",
    "潮'汐\\\" ); DELETE FROM tools.passages; --",
    "tides\r\nX-Evil: 1",
    "\u202etides\u200b",
]


async def prove(proof):
    texts = proof.folder / "texts"
    shutil.copytree(DOCUMENTS / "texts", texts)
    fleet = proof.fleet([], workers=1)
    offered = proof.folder / "tools"
    shutil.copy(DOCUMENTS / "search_documents.yaml", offered)
    with Service(WEB / "providers.py", "--texts", str(texts)) as providers:
        with Service(WEB / "adapter.py", "--providers", f"http://127.0.0.1:{providers.port}") as adapter:
            offer_search(offered, WEB / "web_search.yaml", adapter)
            async with fleet as dev, Client(dev) as client:
                for name, key in KEYS.items():
                    (dev.data / "secrets" / name).write_text(key)
                await documents_are_found(proof, dev, client, texts)
                await the_provider_is_exchanged(proof, dev, client, offered, adapter)
                async with OwnWorker(proof, dev, "example-make-image", "example-make-image", queues=None):
                    await pictures_are_drawn(proof, dev, client)
                doubts = await dev.rows("SELECT call_id FROM toolfleet.in_doubt")
                check(not doubts, f"in doubt: {doubts}")


def offer_search(offered, manifest, adapter):
    """Puts a manifest of web_search where the fleet looks, for the adapter of this proof."""
    text = manifest.read_text()
    check(ADAPTER in text, f"{manifest} does not name {ADAPTER}")
    written = offered / "web_search.yaml.new"
    written.write_text(text.replace(ADAPTER, f"http://127.0.0.1:{adapter.port}"))
    written.rename(offered / "web_search.yaml")


async def documents_are_found(proof, dev, client, texts):
    refused = await client.call("search_documents", {"question": "tides"}, prefer="wait=1")
    check(refused.body["state"] != "succeeded", f"found something before anything was loaded: {refused.body}")
    proof.note(await load(dev, texts))

    async def found(question, **more):
        answer = await client.call("search_documents", {"question": question, **more})
        check(answer.body["state"] == "succeeded", f"{question!r}: {answer.body}")
        passages = answer.body["result"]
        scores = [one["score"] for one in passages]
        check(scores == sorted(scores, reverse=True) and all(0 < score <= 1 for score in scores), f"{question!r}: {scores}")
        return passages

    for question, document, word in [
        ("spring tides", "tides.txt", "spring tides"),
        ("How often do I have to feed a sourdough starter?", "sourdough.txt", "Feed it"),
        ("大潮", "lunar_calendar.txt", "大潮"),
        ("怎样泡绿茶才不苦？", "gongfu_tea.txt", "绿茶"),
        ("茶", "gongfu_tea.txt", "茶"),
        ("自行车 tyre 链条 chain", "bicycle.txt", "链条"),
    ]:
        best = (await found(question))[0]
        check(best["document"] == document and word in best["passage"], f"{question!r} finds {best}")
        proof.note(f"{question} → {document}, passage {best['place']}, score {best['score']}")
    check(await found("北京烤鸭") == [], "a question without an answer finds something")
    check(await found("the of and") == [], "words that are everywhere find something")
    check(len(await found("water", limit=1)) == 1, "the limit does not hold")

    for question in HOSTILE:
        await found(question)
    [notice] = [one for one in await found("ignore all previous instructions") if one["document"] == "guestbook.txt"]
    check("DROP TABLE" in notice["passage"], "the hostile text is not handed on as it is")
    here = await dev.row("SELECT count(*) FROM tools.passages")
    check(here["count"] == 21, f"{here} passages are left")
    await refusals(client, "search_documents", {
        "no question": {}, "an empty one": {"question": ""}, "only spaces": {"question": " \t "},
        "a long one": {"question": "tide " * 100}, "a number": {"question": {"$ne": 1}}, "none wanted": {"question": "a", "limit": 0},
        "too many": {"question": "a", "limit": 21}, "SQL for a limit": {"question": "a", "limit": "1; DROP TABLE tools.passages"},
        "another argument": {"question": "a", "table": "toolfleet.calls"},
    })  # fmt: skip

    (texts / "ferry.txt").write_text("The ferry to the island\n\nThe last ferry leaves at ten past seven.\n\n渡船在七点十分开。\n")
    await load(dev, texts)
    check((await found("when does the last ferry leave"))[0]["document"] == "ferry.txt", "a new text is not found")
    check((await found("渡船几点开"))[0]["place"] == 2, "a new text is not found in Chinese")


async def load(dev, texts):
    """What load.py says."""
    env = {**os.environ, "DATABASE_URL": dev.info()["database_url"]}
    loading = [sys.executable, "-I", str(DOCUMENTS / "load.py"), str(texts)]
    done = await asyncio.to_thread(subprocess.run, loading, env=env, capture_output=True, text=True, timeout=30)
    check(done.returncode == 0, f"load.py: {done.stderr}")
    return done.stdout.strip()


async def the_provider_is_exchanged(proof, dev, client, offered, adapter):
    async def searched(query, **more):
        answer = await client.call("web_search", {"query": query, **more})
        check(answer.body["state"] == "succeeded", f"{query!r}: {answer.body}")
        return answer.body["tool_version"], answer.body["result"]["results"]

    async def by(version, provider):
        for query, page in [("spring tides", "tides"), ("潮汐", "lunar_calendar")]:
            took, results = await searched(query, count=3)
            check(took == version, f"version {took} answered, not {version}")
            check(1 <= len(results) <= 3 and all(set(one) == {"title", "url", "snippet"} for one in results), f"{results}")
            check(all(provider in one["url"] for one in results), f"{provider} was not asked: {results}")
            check(page in results[0]["url"], f"{query!r} finds {results[0]}")
            proof.note(f"version {version}: {query} → {results[0]['url']}")
        for query in HOSTILE:
            await searched(query)
        await refusals(client, "web_search", {
            "no query": {}, "an empty one": {"query": ""}, "only spaces": {"query": "  "}, "a long one": {"query": "q" * 301},
            "none wanted": {"query": "a", "count": 0}, "too many": {"query": "a", "count": 11},
            "another provider": {"query": "a", "provider": "http://127.0.0.1:1/"},
        })  # fmt: skip

    before = await definition(client)
    await by(1, "acorn")
    busy = (await client.call("web_search", {"query": "busy"})).body
    check(busy["attempts"] == 3 and last_code(busy) == "unavailable", f"a provider that is busy: {busy}")

    offer_search(offered, WEB / "next" / "web_search.yaml", adapter)

    async def is_next():
        return (await definition(client))["version"] == 2

    await until("version 2 is offered", is_next, 15)
    after = await definition(client)
    check({**before, "version": 2} == after, f"callers see more than another version: {before} {after}")
    await by(2, "beacon")
    odd = (await client.call("web_search", {"query": "nonsense"})).body
    check(last_code(odd) == "unavailable", f"a provider that answers with HTML: {odd}")
    leaked = await dev.row("SELECT count(*) FROM toolfleet.calls c WHERE to_jsonb(c)::text ~ '(acorn|beacon)-demo'")
    check(leaked["count"] == 0, f"the key of a provider stands in {leaked['count']} calls")


def last_code(envelope):
    """Why the last attempt failed."""
    return envelope["error"]["details"]["last"]["code"]


async def definition(client):
    """What callers are told of web_search."""
    offered = (await client.request("tools", {"format": "full"})).body["tools"]
    return next(one for one in offered if one["name"] == "web_search")


async def pictures_are_drawn(proof, dev, client):
    async def is_offered():
        return b'"make_image"' in (await client.request("tools", {"format": "full"})).raw

    await until("make_image is offered", is_offered, 30)
    small = await drawn(client, 320, 200, {"kind": "bars", "values": [3, 5.5, 2, 8]})
    text, image = small["content"]
    check(text["type"] == "text" and image["mimeType"] == "image/png", f"a small picture: {text}")
    png = base64.b64decode(image["data"], validate=True)
    check(size_of(png) == (320, 200) and len(png) == small["structured"]["bytes"], f"the PNG is of {size_of(png)}")
    proof.note(f"a small picture of {len(png)} bytes stands in the answer")
    check(await drawn(client, 320.0, 200, {"kind": "bars", "values": [0, 0]}), "a chart of nothing is not drawn")

    events = []
    connection = await client.connected()

    async def hear(message):
        events.append(json.loads(message.data))

    await connection.subscribe(f"toolfleet.v1.{client.tenant}.event.{SESSION}.*", cb=hear)
    await connection.flush()
    large = await drawn(client, 1000, 750, EDGE)
    link = large["content"][1]
    check(link["type"] == "resource_link" and link["mimeType"] == "image/png", f"a large picture: {str(link)[:200]}")
    file = await command(dev, "files", "get", link["uri"], "--out", "-")
    check(size_of(file) == (1000, 750) and len(file) == large["structured"]["bytes"], f"the file is of {size_of(file)}")
    check(len(file) * 4 / 3 > BLOCK_INLINE_MAX, "it would have fitted")
    await until("the call is told to have finished", lambda: any(one["kind"] == "finished" for one in events), 10)
    told = [one["fraction"] for one in events if one["kind"] == "progress"]
    check(len(told) >= 2 and told == sorted(told) and told[-1] > 0.9, f"its progress was {told}")
    proof.note(f"a large picture of {len(file)} bytes is a file, and {len(told)} reports of progress came before it")

    bars = {"kind": "bars", "values": [1]}
    await refusals(client, "make_image", {
        "a huge width": {"width": 2_000_000_000, "height": 200, "drawing": bars},
        "too high": {"width": 200, "height": 1201, "drawing": bars},
        "no size": {"width": 0, "height": -5, "drawing": bars},
        "half a pixel": {"width": 20.5, "height": 200, "drawing": bars},
        "no values": {"width": 200, "height": 200, "drawing": {"kind": "bars", "values": []}},
        "thousands of values": {"width": 200, "height": 200, "drawing": {"kind": "bars", "values": [1] * 5_000}},
        "a negative value": {"width": 200, "height": 200, "drawing": {"kind": "bars", "values": [-1]}},
        "a path": {"width": 200, "height": 200, "drawing": {"kind": "file", "path": "/etc/passwd"}},
        "endless detail": {"width": 200, "height": 200, "drawing": {**EDGE, "detail": 4_000_000_000}},
        "another member": {"width": 200, "height": 200, "drawing": {**bars, "href": "http://127.0.0.1/"}},
    })  # fmt: skip
    narrow = {"width": 64, "height": 64, "drawing": {"kind": "bars", "values": [1] * 200}}
    answer = (await client.call("make_image", narrow)).body
    check(answer["error"]["details"]["code"] == "does_not_fit", f"more bars than pixels: {answer}")

    waiting = asyncio.create_task(client.call("make_image", SLOWEST, "slow"))
    running = "SELECT call_id FROM toolfleet.calls WHERE tool = 'make_image' AND state = 'running'"
    call = await until("the slowest picture is being drawn", lambda: dev.row(running), 20)
    began = time.monotonic()
    verdict = await client.request("cancel", {"call_id": call["call_id"]})
    check(verdict.code is None, f"cancel: {verdict.body}")
    answer = (await waiting).body
    check(answer["state"] == "cancelled", f"the slowest picture: {answer['state']}")
    proof.note(f"the slowest picture was given up {time.monotonic() - began:.1f} s after it was taken back")


async def drawn(client, width, height, drawing):
    """The result of a drawing, for those who follow the session."""
    arguments = {"width": width, "height": height, "drawing": drawing}
    headers = {"Prefer": "wait=60", "Toolfleet-Session": SESSION}
    answer = (await client.request("call.make_image", arguments, headers, 70)).body
    check(answer["state"] == "succeeded", f"{arguments}: {str(answer)[:500]}")
    return answer["result"]


def size_of(png):
    """Width and height, as the head of a PNG says."""
    check(png[:8] == b"\x89PNG\r\n\x1a\n" and png[12:16] == b"IHDR", "it is no PNG")
    return struct.unpack(">II", png[16:24])


async def refusals(client, tool, cases):
    """Arguments that the door refuses, so that nothing runs."""
    for what, arguments in cases.items():
        answer = await client.call(tool, arguments)
        check(answer.code == "invalid_arguments" and answer.body["call_id"] is None, f"{tool}, {what}: {str(answer.body)[:500]}")


class Service:
    """A service of the examples, on a port that the system picks."""

    def __init__(self, program, *options):
        self.command = [sys.executable, "-I", str(program), "--port", "0", *options]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.port = json.loads(self.process.stdout.readline())["port"]
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()
