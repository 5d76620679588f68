"""A chapter of demo.py: the three tools to copy, a picture, a search in documents, and a search on the web whose provider is exchanged."""

import base64
import os
import subprocess
import sys
from pathlib import Path

from telling import NotAsTold, claim, show, tell

HERE = Path(__file__).resolve().parent
DOCUMENTS, WEB = HERE / "search_documents", HERE / "web_search"
KEYS = {"ACORN_KEY": "Bearer acorn-demo", "BEACON_KEY": "beacon-demo"}
# Of the edge of the Mandelbrot set, where hardly two pixels are alike.
FRACTAL = {"kind": "fractal", "x": -0.745, "y": 0.113, "zoom": 150}
PATIENCE_SECONDS = 30


async def tools_to_copy(story):
    story.chapter("Three tools to copy")
    await documents(story)
    await the_web(story)
    await pictures(story)


async def documents(story):
    tell("search_documents is one SQL statement. A loader puts a folder of texts where it looks:")
    loading = [sys.executable, "-I", str(DOCUMENTS / "load.py"), str(DOCUMENTS / "texts")]
    env = {**os.environ, "DATABASE_URL": story.dev()["database_url"]}
    done = subprocess.run(loading, env=env, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise NotAsTold(f"load.py: {done.stderr}")
    tell(done.stdout.strip())
    offer(story, DOCUMENTS / "search_documents.yaml")
    await until_offered(story, "search_documents")
    for question, document in [("spring tides", "tides.txt"), ("大潮", "lunar_calendar.txt")]:
        envelope = await story.call("search_documents", {"question": question, "limit": 1})
        show(envelope["result"][0])
        claim(envelope["result"][0]["document"] == document, f"The best passage for {question} is in {document}.")


async def the_web(story):
    _, providers = story.serve("web_search/providers.py")
    _, adapter = story.serve("web_search/adapter.py", "--providers", f"http://127.0.0.1:{providers}")
    for name, key in KEYS.items():
        (story.folder / "data/secrets" / name).write_text(key)
    tell("web_search has one name and two providers: version 1 asks Acorn, version 2 asks Beacon.")
    for version, manifest, provider in [(1, "web_search.yaml", "acorn"), (2, "next/web_search.yaml", "beacon")]:
        offer(story, WEB / manifest, adapter)
        await until_offered(story, "web_search", version)
        envelope = await story.call("web_search", {"query": "night train", "count": 1})
        show(envelope["result"]["results"][0])
        claim(provider in envelope["result"]["results"][0]["url"], f"Version {envelope['tool_version']} asked {provider}, and answers in the same shape.")


async def pictures(story):
    program = Path(story.program).with_name("example-make-image")
    if not program.exists():
        raise NotAsTold(f"There is no {program}: `make demo` builds it, and so does `cargo build -p example-make-image`.")
    tell("make_image is Rust code, in a worker program of its own:")
    dev = story.dev()
    state = story.folder / "make-image"
    state.mkdir(mode=0o700)
    command = [str(program), "--http", "127.0.0.1:0", "--name", "make-image", "--state-dir", str(state)]
    env = {**os.environ, "DATABASE_URL": dev["database_url"], "NATS_URL": dev["nats_url"]}
    with (story.folder / "make-image.log").open("wb") as log:
        worker = subprocess.Popen(command, env=env, cwd=story.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    story.started.append(worker)
    await until_offered(story, "make_image")
    bars = {"width": 320, "height": 200, "drawing": {"kind": "bars", "values": [3, 5, 2]}}
    envelope = await story.call("make_image", bars)
    block = envelope["result"]["content"][1]
    png = base64.b64decode(block["data"])
    claim(png.startswith(b"\x89PNG"), f"A small picture, of {len(png)} bytes, stands in the answer.")
    envelope = await story.call("make_image", {"width": 1000, "height": 750, "drawing": FRACTAL})
    block = envelope["result"]["content"][1]
    show(block)
    size = envelope["result"]["structured"]["bytes"]
    claim(block["type"] == "resource_link", f"A large one, of {size} bytes, is kept as a file, and the answer has a link to it.")
    worker.terminate()
    worker.wait(PATIENCE_SECONDS)


def offer(story, manifest, adapter=None):
    """Puts a manifest into the folder of the running fleet, in the place of an earlier one of its name."""
    text = manifest.read_text()
    if adapter:
        text = text.replace("http://127.0.0.1:8711", f"http://127.0.0.1:{adapter}")
    # As a whole or not at all: the fleet looks while this is written.
    (story.folder / "offered").write_text(text)
    (story.folder / "offered").rename(story.folder / "tools" / manifest.name)


async def until_offered(story, name, version=1):
    """Waits until callers are told of this version of a tool."""

    async def is_offered():
        offered = await story.offered()
        return any((one["name"], one["version"]) == (name, version) for one in offered)

    await story.until(f"version {version} of {name} is offered", is_offered, PATIENCE_SECONDS)
