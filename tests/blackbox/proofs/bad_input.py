"""Whatever is refused is refused with its code, stores nothing and does not consume its key.

The list of codes is read from the program's source, so a new refusal asks for a case here.
"""

import asyncio
import json
import re
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from client import Client, NobodyListens
from fleet import tool
from waiting import NotSo, check, stays, until

CODES = Path(__file__).resolve().parents[3] / "fleet/src/wire/code.rs"
BODY_BYTES_MAX = 256 * 1024
NOT_FROM_OUTSIDE = {
    "overloaded": "needs more callers than this machine can run",
    "quota_exceeded": "needs a tenant with a million open calls",
    "rate_limited": "needs a rate, which `toolfleet dev` does not set",
    "store_unavailable": "needs Postgres to be away, which kill_each does",
    "no_answer": "the gateway's: tests/tests/gateway/outages.rs",
    "unauthenticated": "the gateway's: tests/tests/gateway/bad_input.rs",
}
GOOD = {"text": "good"}
PROPERTIES = {
    "text": {"type": "string", "minLength": 1},
    "n": {"type": "integer", "minimum": 1, "maximum": 10},
    "tags": {"type": "array", "items": {"type": "string"}},
}


@dataclass
class Case:
    """One bad request: what is sent, and the codes that may answer it (none: any code)."""

    what: str
    codes: set
    body: bytes = json.dumps(GOOD).encode()
    headers: dict = field(default_factory=dict)
    tool: str = "echo"
    tenant: str = "default"


def case(code, what, body=Case.body, headers=None, **where):
    codes = set(code.split())
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Case(what, codes, body, headers or {}, **where)


def text(value):
    return b'{"text":' + value + b"}"


CASES = [
    case("malformed_json", "not JSON", b"good morning"),
    case("malformed_json", "a misspelt word", text(b"tru")),
    case("malformed_json", "something behind the object", b'{"text":"a"} {}'),
    case("malformed_json", "single quotes", b"{'text':'a'}"),
    case("malformed_json truncated_arguments", "nothing at all", b""),
    case("malformed_json invalid_arguments", "an array", b"[1,2]"),
    case("malformed_json invalid_arguments", "a number", b"42"),
    case("truncated_arguments", "the end of a string is missing", b'{"text":"good mor'),
    case("truncated_arguments", "the end of the object is missing", b'{"text":"a"'),
    case("invalid_unicode", "not UTF-8", text(b'"\xff\xfe"')),
    case("invalid_unicode", "half of a surrogate pair", text(rb'"\ud800"')),
    case("invalid_unicode", "an overlong form", text(b'"\xc0\xaf"')),
    case("nul_not_allowed", "an escaped NUL", text(rb'"a\u0000b"')),
    case("duplicate_key", "a key twice", b'{"text":"a","text":"b"}'),
    case("duplicate_key", "a key twice, once escaped", rb'{"text":"a","te\u0078t":"b"}'),
    case("depth_exceeded", "100,000 arrays in each other", text(b"[" * 100_000 + b"]" * 100_000)),
    case("too_many_nodes", "125,000 numbers", b'{"tags":[' + b"0," * 125_000 + b"0]}"),
    case("key_too_long", "a key of 100,000 letters", b'{"' + b"k" * 100_000 + b'":1}'),
    case("string_too_long", "a string of 260,000 letters", text(b'"' + b"s" * 260_000 + b'"')),
    case("number_out_of_range", "1e400", b'{"text":"a","n":1e400}'),
    case("number_too_long", "a number of 5,000 digits", b'{"text":"a","n":' + b"1" * 5_000 + b"}"),
    case("payload_too_large", "one byte too many", text(b'"' + b"p" * (BODY_BYTES_MAX - 10) + b'"')),
    case("payload_too_large", "900 KiB", text(b'"' + b"p" * (900 * 1024) + b'"')),
    case("invalid_arguments", "wrong in four ways", {"n": 99, "tags": "x", "extra": 1}),
    case("invalid_arguments", "an object for a string", {"text": {"deep": [1]}}),
    case("unknown_tool", "a tool that does not exist", tool="no_such_tool"),
    case("tool_retired", "a tool that is out of use", tool="out_of_use"),
    case("tool_paused", "a tool that an operator has paused", tool="paused"),
    case("repeated_failure", "the same mistake once more", {"text": []}, {"Toolfleet-Session": "loop"}, tool="impatient"),
    case("unknown_tool_version", "version 99", headers={"Toolfleet-Tool-Version": "99"}),
    case("invalid_tool_name", "capitals", tool="Echo"),
    case("invalid_tool_name", "a hyphen", tool="bad-name"),
    case("invalid_tool_name", "65 letters", tool="x" * 65),
    case("invalid_tool_name", "not ASCII", tool="météo"),
    case("invalid_tool_name", "two tokens", tool="echo.extra"),
    case("invalid_tenant", "an exclamation mark", tenant="bad!tenant"),
    case("invalid_tenant", "65 letters", tenant="x" * 65),
    case("invalid_tenant", "not ASCII", tenant="租户"),
    case("missing_idempotency_key", "a `once` tool", tool="write_once"),
    case("invalid_idempotency_key", "a blank inside", headers={"Idempotency-Key": "two words"}),
    case("invalid_idempotency_key", "256 characters", headers={"Idempotency-Key": "k" * 256}),
    case("invalid_idempotency_key", "not ASCII", headers={"Idempotency-Key": "ключ"}),
    case("deadline_invalid", "a word", headers={"Toolfleet-Deadline-Ms": "soon"}),
    case("deadline_invalid", "zero", headers={"Toolfleet-Deadline-Ms": "0"}),
    case("deadline_invalid", "negative", headers={"Toolfleet-Deadline-Ms": "-5"}),
    case("deadline_invalid", "more than a day", headers={"Toolfleet-Deadline-Ms": "86400001"}),
    case("deadline_invalid header_invalid", "a run without a date", headers={"Toolfleet-Run-Deadline": "tomorrow"}),
    case("deadline_invalid", "a run at the end of time", headers={"Toolfleet-Run-Deadline": "9999-12-31T23:59:59-23:59"}),
    case("deadline_invalid", "a run that is over", headers={"Toolfleet-Run-Deadline": "2020-01-01T00:00:00Z"}),
    case("header_invalid", "meta that only looks harmless",
         headers={"Toolfleet-Meta": '{"a":{"$serde_json::private::RawValue":"\\"\\u005cu0000\\""}}'}),
    case("header_invalid unknown_tool_version", "a version in words", headers={"Toolfleet-Tool-Version": "one"}),
    case("header_invalid", "a wait of 301 s", headers={"Prefer": "wait=301"}),
    case("header_invalid", "a wait in words", headers={"Prefer": "wait=long"}),
    case("header_invalid", "an unknown priority", headers={"Toolfleet-Priority": "urgent"}),
    case("header_invalid", "an unknown language", headers={"Toolfleet-Language": "tlh"}),
    case("header_invalid", "a session with a dot", headers={"Toolfleet-Session": "a.b"}),
    case("header_invalid", "a run of 65 letters", headers={"Toolfleet-Run": "r" * 65}),
    case("header_invalid", "meta that is not JSON", headers={"Toolfleet-Meta": "{"}),
    case("header_invalid", "meta that is not an object", headers={"Toolfleet-Meta": "[1]"}),
    case("header_invalid", "meta of 5 KiB", headers={"Toolfleet-Meta": json.dumps({"m": "m" * 5_000})}),
    case("header_invalid", "3,000 headers", headers={f"X-Header-{n}": "x" * 20 for n in range(3_000)}),
    case("header_invalid", "a header of 500 KB", headers={"X-Large": "x" * 500_000}),
]


async def prove(proof):
    tools = [
        tool("echo", "read", ["/bin/cat"], PROPERTIES, ["text"]),
        tool("write_once", "once", ["/bin/cat"], PROPERTIES, ["text"]),
        tool("out_of_use", "read", ["/bin/cat"], PROPERTIES, ["text"]),
        tool("paused", "read", ["/bin/cat"], PROPERTIES, ["text"]),
        tool("impatient", "read", ["/bin/cat"], PROPERTIES, ["text"], repeat_cap=1),
    ]
    async with proof.fleet(tools, workers=1) as dev, Client(dev) as client:
        await retire(dev, client, "out_of_use")
        await pause(dev, client, "paused")
        await client.request("call.impatient", {"text": []}, {"Toolfleet-Session": "loop"})
        before = await stored(dev)
        wrong = await refusals(client)
        check(await stored(dev) == before, "something was stored by a refused call")
        wrong += await keys_are_free(client)
        wrong += await key_reused(client)
        wrong += await ids(client)
        check(not wrong, f"{len(wrong)} of the cases:\n      " + "\n      ".join(wrong))
        proof.note(f"{len(CASES)} kinds of bad calls refused, nothing stored, every key still free")
        # An agent may not even ask there.
        if not dev.has_users:
            await nobody_listens(client)
        await other_bodies(client)
        await hijacked_replies(dev, client)
        await good_calls_work(client)
    every_code_has_a_case()


async def retire(dev, client, name):
    """Takes a tool out of use, and waits until the dispatcher does not offer it any more."""
    info = dev.info()
    servers = ["--database-url", info["database_url"], "--nats-url", info["nats_url"]]
    command = [dev.program, "tools", "retire", name, "--note", "nobody needs it", *servers]
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)

    async def is_gone():
        listed = await client.request("tools", b'{"format":"full"}')
        return all(offered["name"] != name for offered in listed.body["tools"])

    await until(f"{name} is not offered any more", is_gone, 10)


async def pause(dev, client, name):
    """Has calls of a tool refused, and waits until the dispatcher knows; calls that come before that are stored."""
    database = ["--database-url", dev.info()["database_url"]]
    command = [dev.program, "control", "pause", "--tool", name, "--refuse", "--note", "a proof", *database]
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)

    async def is_refused():
        return (await client.request(f"call.{name}", GOOD, {"Prefer": "respond-async"})).code == "tool_paused"

    await until(f"calls of {name} are refused", is_refused, 10)


async def refusals(client):
    """Sends every case; what was not as expected."""
    wrong = []
    for number, bad in enumerate(CASES):
        key = {} if bad.codes == {"missing_idempotency_key"} else {"idempotency-KEY": f"case-{number}"}
        headers = bad.headers if "Idempotency-Key" in bad.headers else {**bad.headers, **key}
        answer = await client.request(f"call.{bad.tool}", bad.body, headers or None, tenant=bad.tenant)
        complaint = refusal_is_wrong(answer, bad.codes)
        if complaint:
            wrong.append(f"{bad.what}: {complaint}")
        if bad.what == "wrong in four ways":
            details = (answer.body.get("error") or {}).get("details") or {}
            places = [violation["path"] for violation in details.get("violations", [])]
            if places != ["/extra", "/n", "/tags", "/text"]:
                wrong.append(f"{bad.what}: these places are named: {places}")
    return wrong


def refusal_is_wrong(answer, codes):
    """What is wrong with a refusal, None when nothing is."""
    if answer.code is None:
        return f"was accepted: {answer.body}"
    if codes and answer.code not in codes:
        return f"{answer.code}, expected {' or '.join(sorted(codes))}"
    headers = {name.lower() for name in answer.headers}
    if not {"nats-service-error", "nats-service-error-code"} <= headers:
        return f"the service error headers are missing: {sorted(headers)}"
    expected = {"state": "refused", "call_id": None, "is_error": True, "source": "error", "effect": "none"}
    if "state" in answer.body:
        other = {name: answer.body.get(name) for name, value in expected.items() if answer.body.get(name) != value}
        if other:
            return f"not as a refusal should be: {other}"
    return None if answer.body["error"]["message"] else "there is no message"


async def keys_are_free(client):
    """A good call with the key of each refused one is a new call."""
    numbers = [n for n, bad in enumerate(CASES) if "Idempotency-Key" not in bad.headers]
    answers = await asyncio.gather(*(client.submit("echo", GOOD, f"case-{n}") for n in numbers))
    taken = [(CASES[n].what, a.body) for n, a in zip(numbers, answers) if a.body.get("replayed") is not False]
    return [f"{what}: its key was consumed: {body}" for what, body in taken]


async def key_reused(client):
    """The same key with other arguments, or for another tool, is refused; with the same ones it is not."""
    first = await client.submit("echo", GOOD, "used")
    others = [("echo", {"text": "other"}), ("write_once", GOOD)]
    answers = [await client.submit(name, arguments, "used") for name, arguments in others]
    complaints = [refusal_is_wrong(answer, {"idempotency_key_reused"}) for answer in answers]
    wrong = [f"a used key: {complaint}" for complaint in complaints if complaint]
    again = await client.submit("echo", GOOD, "used")
    if not (again.body["replayed"] and again.body["call_id"] == first.body["call_id"]):
        wrong.append(f"a used key with the same arguments: {again.body}")
    return wrong


async def ids(client):
    """Ids that are none, and ids of calls that this tenant does not have."""
    wrong = []
    for bad in ["nonsense", "", str(uuid.uuid4()), "0" * 32, "'; DROP TABLE calls; --"]:
        complaint = refusal_is_wrong(await client.get(call_id=bad), {"invalid_id"})
        wrong += [f"the id {bad!r}: {complaint}"] if complaint else []
    known = (await client.submit("echo", GOOD, "for-ids")).body["call_id"]
    unknown = known[:24] + "000000000000"
    nowhere = await client.get(call_id=unknown)
    foreign = await client.request("get", {"call_id": known}, tenant="somebody-else")
    by_key = await client.get(tool="echo", idempotency_key="never-used")
    for what, answer in [("an unknown id", nowhere), ("a foreign id", foreign), ("an unknown key", by_key)]:
        complaint = refusal_is_wrong(answer, {"not_found"})
        wrong += [f"{what}: {complaint}"] if complaint else []
    if nowhere.raw.replace(unknown.encode(), b"") != foreign.raw.replace(known.encode(), b""):
        wrong.append("a foreign id does not answer exactly like an unknown one")
    return wrong


async def nobody_listens(client):
    """Subjects next to ours are nobody's."""
    for verb in ["call", "nonsense", "get.more", "tools.all"]:
        try:
            answer = await client.request(verb, GOOD)
        except NobodyListens:
            continue
        raise NotSo(f"{verb} was answered: {answer.body}")


async def other_bodies(client):
    """What is not JSON, or not what is expected, at the other endpoints."""
    bodies = [b"", b"nonsense", b"[]", b"{}", b'{"call_id":5}', b'{"format":"morse"}', b"\xff", b"[" * 50_000]
    for body in bodies:
        answer = await client.request("get", body)
        check(answer.code, f"get was not refused for {body[:30]!r}: {answer.body}")
    for body in [b"nonsense", b"[]", b'{"format":"morse"}', b"\xff", b"[" * 50_000]:
        answer = await client.request("tools", body)
        check(answer.code, f"tools was not refused for {body[:30]!r}: {answer.body}")


async def good_calls_work(client):
    """After all that, a call is answered; a malformed trace header is dropped, never refused."""
    answer = await client.request("call.echo", GOOD, {"traceparent": "00-nonsense-01"}, timeout=40)
    check(answer.body["state"] == "succeeded", f"a good call at the end: {answer.body}")


async def hijacked_replies(dev, client):
    """Answers are not sent into our own subjects or the server's; such a call is not even accepted."""
    before = await stored(dev)
    connection = await client.connected()
    subject, body = f"toolfleet.v1.{client.tenant}.call.echo", json.dumps(GOOD).encode()
    for reply in ["toolfleet.v1.default.call.echo", "toolfleet.jobs.default.x.1", "$JS.API.INFO", "$SRV.PING"]:
        await connection.publish(subject, body, reply=reply)
    await connection.flush()

    async def unchanged():
        return await stored(dev) == before

    await stays("a call whose reply would go into our own subjects is not stored", unchanged, 1)


async def stored(dev):
    return (await dev.row("SELECT count(*) FROM toolfleet.calls"))["count"]


def every_code_has_a_case():
    refusals = CODES.read_text().split("// Refusals")[1].split("// After acceptance")[0]
    known = set(re.findall(r'= "([a-z_]+)"', refusals))
    shown = {code for bad in CASES for code in bad.codes} | {"idempotency_key_reused"}
    missing = known - shown - set(NOT_FROM_OUTSIDE)
    check(known and not missing, f"refusals without a case here: {sorted(missing)}")
