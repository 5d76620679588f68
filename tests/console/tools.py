"""The test tools: every effect, every way to end or to wait, and schemas that a form has to survive."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "blackbox"))

from fleet import tool

TEXT = {"type": "string"}
ACCOUNT = {
    "account": {"type": "string", "minLength": 1, "description": "The account to charge"},
    "cents": {"type": "integer", "minimum": 1, "description": "The amount in cents"},
}
NONE = {"retry": {"strategy": "none"}}


def tools(service):
    """The manifests, whose tools ask the service at this address."""

    def at(verb):
        return {"http": {"method": "POST", "url": f"{service}/{verb}"}}

    agreed = {"by": "operator", "count": 2, "expires": "1h", "reason": "Transfers need the yes of two people."}
    again = {"strategy": "fixed", "max_attempts": 3, "base": "300ms"}
    return [
        tool("look", "read", at("fine"), {"word": TEXT, "n": {"type": "integer"}}, ["word"]),
        tool("flaky", "read", at("flaky"), {"gate": TEXT}, retry=again, timeout="50s", deadline="10m"),
        tool("down", "read", at("down"), {"n": {"type": "integer"}}, retry={**again, "base": "100ms"}),
        tool("gated", "read", at("gate"), {"gate": TEXT}, ["gate"], timeout="50s", **NONE),
        tool("charge", "once", at("charge"), ACCOUNT, ["account", "cents"], timeout="2s", deadline="10m", **NONE),
        # Its page is opened while it runs, before its doubt begins.
        tool("charge_slowly", "once", at("charge"), ACCOUNT, ["account", "cents"], timeout="6s", deadline="10m", **NONE),
        # Run by a worker that the tests start and kill themselves. Its time is over some seconds after its worker is found dead.
        tool("charge_far", "once", at("charge"), ACCOUNT, ["account", "cents"], queue="far", timeout="27s", deadline="10m", **NONE),
        tool("set_limit", "idempotent", at("fine"), playground(), ["account", "limit"], timeout="5s", idempotency={"header": "Idempotency-Key"}),
        tool("transfer", "once", at("fine"), ACCOUNT, ["account", "cents"], approval=agreed, timeout="5s", **NONE),
        tool("report", "once", at("later"), {"month": TEXT}, ["month"], completion={"statuses": [202], "wait": "30m"}, deadline="1h", **NONE),
        tool("breaks", "read", at("down"), {}, breaker={"calls": 2, "open": "5m", "open_max": "5m"}, when_open="wait", deadline="10m", **NONE),
        tool("limited", "read", at("fine"), {}, rate_limit={"calls": 1, "per": "10m"}, deadline="30m"),
        tool("paused", "read", at("fine"), {"n": {"type": "integer"}}, deadline="30m"),
        *hostile(at),
        *schemas(at),
    ]


def playground():
    """What a form is made of: objects in objects, lists, a choice, ticks."""
    place = {"type": "object", "properties": {"city": TEXT, "zip": TEXT}, "required": ["city"], "additionalProperties": False}
    return {
        "account": {"type": "string", "minLength": 1, "description": "Whose limit it is"},
        "limit": {"type": "integer", "minimum": 0, "description": "The limit in cents"},
        "currency": {"enum": ["EUR", "CHF"]},
        "urgent": {"type": "boolean"},
        "address": place,
        "tags": {"type": "array", "items": TEXT},
        "factor": {"type": "number"},
    }


def hostile(at):
    """Tools that take and say anything: whatever stands in a call of theirs was written by a stranger."""
    anything = {"input_schema": {"type": "object"}, "queue": "default", "timeout": "10s", **NONE}
    return [
        {**tool("echo", "read", at("echo")), **anything},
        {**tool("long_line", "read", at("long")), **anything, "output_limit": "2MiB"},
        {**tool("refuse", "once", at("refuse")), **anything},
        {**tool("ask", "once", at("fine")), **anything, "approval": {"by": "operator", "expires": "1h"}},
        {**tool("doubtful", "once", at("hang")), **anything, "timeout": "1s"},
    ]


def schemas(at):
    """Schemas that a form has to survive."""
    tree = {"type": "object", "properties": {"name": TEXT, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}
    wide = {f"field_{n:03}": {"type": "integer"} for n in range(500)}
    made = [
        ("shape_recursive", {"type": "object", "properties": {"tree": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": tree}}),
        ("shape_wide", {"type": "object", "properties": wide, "additionalProperties": False}),
        ("shape_typeless", {"type": "object", "properties": {"any": {}, "other": {"description": "no type"}}}),
        ("shape_pattern", {"type": "object", "properties": {"slow": {"type": "string", "pattern": "^(a+)+$"}}, "required": ["slow"]}),
        ("shape_markup", {
            "type": "object",
            "properties": {"</script><script>window.__ran=1</script>": TEXT, "<img src=x onerror=window.__ran=1>": {"enum": ["<b>", "</option>"]}},
            "description": "</script><img src=x onerror='window.__ran=1'>",
        }),
    ]
    said = "</textarea><img src=x onerror='window.__ran=1'>\u202egnp.exe {{7*7}}"
    return [{**tool(name, "read", at("fine")), "input_schema": schema, "description": said} for name, schema in made]
