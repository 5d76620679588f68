"""Scripts: what is no script is refused whole and changes nothing, the example of the folder is one, and the program ends as it should."""

import json
import signal
import subprocess
import sys
import urllib.error

import cases
from protocols import PROTOCOLS
from standin import KEY, SERVER, StandIn, check

HELLO = {"answer": {"text": "Hello."}}
# What is wrong, and a word of what is said to it.
WRONG = [
    ([], "object"),
    ({}, "rules"),
    ({"rules": [HELLO], "rule": 1}, "rules"),
    ({"rules": [{}]}, "neither answer nor fault"),
    ({"rules": [{"anwser": {"text": "x"}}]}, "anwser"),
    ({"rules": [HELLO | {"match": {"texts": "x"}}]}, "texts"),
    ({"rules": [HELLO | {"match": {"text": "("}}]}, "malformed"),
    ({"rules": [HELLO | {"chunk": 0}]}, "chunk"),
    ({"rules": [HELLO | {"sse": {"ends": 1}}]}, "malformed"),
    ({"rules": [{"answer": {"txt": "x"}}]}, "an answer is"),
    ({"rules": [{"answer": {"text": 4}}]}, "strings"),
    ({"rules": [{"answer": {"tool_calls": [{"arguments": {}}]}}]}, "a tool call is"),
    ({"rules": [{"answer": {"finish": "done"}}]}, "finish is one of"),
    ({"rules": [{"fault": {"kind": "flood"}}]}, "the kind of a fault"),
    ({"rules": [{"fault": {"kind": "drop", "at": 4}}]}, "a fault drop has"),
    ({"rules": [{"fault": {"kind": "cut", "end": "now"}}]}, "end is one of"),
    ({"rules": [HELLO], "models": {"m": {}}}, "context_tokens"),
]


def play(server, say):
    server.play([{"answer": {"text": "The first."}}])
    for script, words in WRONG:
        try:
            server.ask("PUT", "/script", script)
        except urllib.error.HTTPError as refused:
            said = json.load(refused)["error"]["message"]
            check(refused.code == 400 and words in said, f"{script}: {said}")
        else:
            check(False, f"{script} was taken")
    for protocol in PROTOCOLS:
        door = protocol(server.url, max_retries=0)
        check("The first." in door.answered(**door.body()).to_json(), "a script that was refused changes nothing")
        server.play([HELLO | {"match": {"text": "never"}}])
        try:
            door.answered(**door.body())
        except door.package.InternalServerError as none:
            check(none.status_code == 501 and "No rule" in str(none), f"{none!r}")
        else:
            check(False, "no rule matched, and it was answered")
        unknown(server, door)
        server.play([{"answer": {"text": "The first."}}])
    example(say)
    ends()
    say(f"{len(WRONG)} scripts refused; fields that no vendor knows, and usage left out; ends with its parent and on SIGTERM")


def unknown(server, door):
    """Fields that the vendor does not know reach the client, and so does it that usage is left out."""
    extra = {"extra": {"region": "north", "model": "scripted-1"}, "message_extra": {"thoughts": "quite a few of them"}}
    server.play([{"answer": {"text": "Hm.", "usage": None, **extra}}])
    reply = door.answered(**door.body())
    check((reply.model_extra["region"], reply.model) == ("north", "scripted-1"), f"{door.name}: {reply}")
    check(not getattr(reply, "usage", None), f"{door.name}: {reply}")
    check(extra["message_extra"]["thoughts"] in reply.to_json(), f"{door.name}: {reply}")
    events = door.streamed(**door.body())
    check("north" in events[0].to_json(), f"{door.name}: {events[0]}")
    if door.name == "openai_chat":
        pieces = [event.choices[0].delta.model_extra.get("thoughts", "") for event in events if event.choices]
        check("".join(pieces) == "quite a few of them" and len([piece for piece in pieces if piece]) == 3, f"{pieces}")
    entries = server.log()
    check([(entry["usage"], entry["untold"]) for entry in entries] == [(None, {"input": cases.READ, "output": 1})] * 2, f"{entries}")


def example(say):
    """The script of the folder is what its page says."""
    with StandIn("--script", str(SERVER.with_name("script.json")), "--context-tokens", f"{cases.MODEL}=500") as server:
        for protocol in PROTOCOLS:
            door = protocol(server.url)
            asked = door.body("How is the weather?") | door.offering(cases.TOOLS)
            check("Bergen" in door.answered(**asked).to_json(), "two calls")
        statuses = [entry["status"] for entry in server.log()]
        check(statuses == [429, 200, 200, 200], f"busy once: {statuses}")
    say("examples/models/script.json: busy once, then two calls in each protocol")


def ends():
    """SIGTERM is an end without an error; without a pipe for stdin, the process goes on; a wrong script is told at the start."""
    command = [sys.executable, str(SERVER), "--port", "0", "--key", KEY]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    port = json.loads(process.stdout.readline())["port"]
    check(process.poll() is None and port > 0, "it ended, though /dev/null is no parent")
    process.send_signal(signal.SIGTERM)
    check(process.wait(5) == 0, f"SIGTERM ended it with {process.returncode}")
    process.stdout.close()
    wrong = subprocess.run([*command, "--script", __file__], stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
    check(wrong.returncode == 2 and b"Traceback" not in wrong.stderr, f"a wrong script: {wrong}")
