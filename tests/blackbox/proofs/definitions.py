"""The definitions that a fleet hands out are what the vendors' own packages take, in every format.

Ten tools of different shapes; nothing may stand in a definition that the published types do not know.
"""

import copy
import re

from client import Client
from fleet import tool
from waiting import NotSo, check

TEXT = {"type": "string", "minLength": 1, "maxLength": 80}
CAT = ["/bin/cat"]
ANSWER = {"type": "object", "properties": {"id": TEXT}, "required": ["id"]}
PLACE = {
    "type": "object",
    "properties": {"kind": {"const": "place"}, "name": TEXT},
    "required": ["kind", "name"],
    "additionalProperties": False,
}
POINT = {
    "type": "object",
    "properties": {"kind": {"const": "point"}, "x": {"type": "number"}, "y": {"type": "number"}},
    "required": ["kind", "x", "y"],
    "additionalProperties": False,
}
TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node", "description": "Where it begins"}},
    "required": ["root"],
    "additionalProperties": False,
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"label": TEXT, "below": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["label", "below"],
            "additionalProperties": False,
        }
    },
    "$schema": "https://json-schema.org/draft/2020-12/schema",
}
LINE = {
    "type": "object",
    "properties": {"item": TEXT, "count": {"type": "integer", "minimum": 1, "maximum": 99}},
    "required": ["item"],
    "additionalProperties": False,
}
TOOLS = [
    tool("nested", "once", CAT, {"to": {"type": "object", "properties": {"city": TEXT, "zip": {"type": "string"}},
                                        "required": ["city"], "additionalProperties": False}}, ["to"]),
    tool("arrays", "idempotent", CAT, {"lines": {"type": "array", "items": LINE, "minItems": 1, "maxItems": 20},
                                       "tags": {"type": "array", "items": TEXT}, "key": {"type": "string"}}, ["lines"],
         idempotency={"argument": "key"}, output_schema=ANSWER),
    tool("enums", "read", CAT, {"unit": {"enum": ["celsius", "fahrenheit"]}, "level": {"enum": [1, 2, 3]}}, ["unit"]),
    tool("unions", "read", CAT, {"where": {"oneOf": [PLACE, POINT]}, "when": {"anyOf": [
        {"type": "string", "format": "date-time"}, {"type": "integer", "minimum": 0}]}}, ["where"]),
    tool("nullable", "read", CAT, {"note": {"type": ["string", "null"]}, "more": {"type": ["string", "null"],
                                                                                  "default": None}}, ["note"]),
    tool("reference", "read", CAT, input_schema=TREE, output_schema={"type": "array"}),
    tool("nothing", "read", CAT, input_schema={"type": "object"}),
    tool("chinese", "read", CAT, {"city": {**TEXT, "description": "城市的名称，例如：北京"}, "days": {"type": "integer"}},
         ["city"], description="查询一个城市未来几天的天气。用户问到天气时使用。", language="zh"),
    tool("long", "read", CAT, {"limit": {"type": "integer", "default": 10}, "id": {"type": "string", "format": "uuid"},
                               "page": {"type": "string", "format": "uri", "pattern": "^https://"}}, [],
         description="Looks up orders. " * 60),
    tool("open_map", "read", CAT, {"labels": {"type": "object", "additionalProperties": {"type": "string"}}}),
]
NAMES = sorted(manifest["name"] for manifest in TOOLS)
NOT_STRICT = {"open_map"}
# https://developers.openai.com/api/docs/guides/structured-outputs, "Supported schemas".
STRICT_KEYWORDS = set(
    "type enum const anyOf $ref $defs description properties required additionalProperties items minItems maxItems "
    "pattern format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf".split()
)
STRICT_FORMATS = set("date-time time date duration email hostname ipv4 ipv6 uuid".split())
VENDORS_NAME = re.compile("[a-zA-Z0-9_-]{1,64}")


async def prove(proof):
    vendors = published()
    async with proof.fleet(TOOLS, workers=1) as dev, Client(dev) as client:
        for form, validate in vendors.items():
            listed = await offered(client, format=form)
            validate(listed["tools"])
            names = [definition.get("function", definition)["name"] for definition in listed["tools"]]
            check(names == NAMES, f"{form} lists {names}")
            check(all(map(VENDORS_NAME.fullmatch, names)), f"{form} has names that a vendor refuses: {names}")
        proof.note(f"{len(NAMES)} tools as {', '.join(vendors)}: each fits the vendor's types, and nothing is over")
        strict = await offered(client, format="openai", strict=True)
        vendors["openai"](strict["tools"])
        proof.note(strictness(strict))
        refused = await client.request("tools", {"format": "mcp", "strict": True})
        check(refused.code == "invalid_arguments", f"strict for MCP: {refused.body}")


async def offered(client, **asked):
    answer = await client.request("tools", asked)
    check(answer.code is None, f"tools {asked}: {answer.body}")
    return answer.body


def published():
    """For each format, what holds a list of definitions against the vendor's published types."""
    try:
        from anthropic.types import ToolParam
        from mcp_types import ListToolsResult
        from openai.types.chat import ChatCompletionToolParam
        from pydantic import TypeAdapter, ValidationError
    except ImportError as missing:
        raise NotSo(f"{missing}: run `make setup` with Python 3.11 or newer, which installs the vendors' packages") from None

    def held(kind, wrap):
        adapter = TypeAdapter(kind)

        def complaint(tools):
            try:
                adapter.validate_python(wrap(tools), strict=True, extra="forbid")
            except ValidationError as error:
                return str(error)

        def validate(tools):
            check(not complaint(tools), f"the vendor's types refuse a definition: {complaint(tools)}")
            # What takes everything says nothing.
            for spoil in [lambda tool: tool.update(surprise=1), lambda tool: tool.get("function", tool).pop("name"),
                          lambda tool: (tool.get("function") or tool.get("annotations") or tool).update(surprise=1)]:
                spoilt = copy.deepcopy(tools)
                spoil(spoilt[-1])
                check(complaint(spoilt), f"the vendor's types take {spoilt[-1]}")

        return validate

    return {
        "openai": held(list[ChatCompletionToolParam], lambda tools: tools),
        "anthropic": held(list[ToolParam], lambda tools: tools),
        "mcp": held(ListToolsResult, lambda tools: {"tools": tools}),
    }


def strictness(listed):
    """Each schema is in the subset, and OpenAI's own function finds nothing to change in it."""
    from openai.lib._pydantic import _ensure_strict_json_schema

    reasons = {entry["name"]: entry["reason"] for entry in listed["not_strict"]}
    check(set(reasons) == NOT_STRICT, f"not strict: {reasons}")
    for function in (definition["function"] for definition in listed["tools"]):
        name, schema = function["name"], function["parameters"]
        check(function["strict"] is (name not in NOT_STRICT), f"{name} says strict {function['strict']}")
        if not function["strict"]:
            continue
        subset(schema, name)
        ours = copy.deepcopy(schema)
        theirs = _ensure_strict_json_schema(ours, path=(), root=ours)
        check(theirs == schema, f"OpenAI's own function makes something else of {name}: {schema} -> {theirs}")
    return f"strict: {len(listed['tools']) - len(reasons)} of them; not: {reasons}"


def subset(schema, place):
    """Everything that the guide demands of one schema and of all in it."""
    unknown = set(schema) - STRICT_KEYWORDS
    check(not unknown, f"{place} uses {unknown}")
    check("$ref" not in schema or len(schema) == 1, f"{place} has something beside its $ref: {schema}")
    check({"type", "anyOf", "$ref"} & set(schema), f"{place} says no type: {schema}")
    check(schema.get("format", "date") in STRICT_FORMATS, f"{place} has the format {schema.get('format')}")
    kinds = schema.get("type", [])
    if "object" in ([kinds] if isinstance(kinds, str) else kinds):
        check(schema["additionalProperties"] is False, f"{place} is open")
        check(schema["required"] == list(schema["properties"]), f"{place} does not require all of its properties")
    for keyword in ["properties", "$defs"]:
        for name, below in schema.get(keyword, {}).items():
            subset(below, f"{place}/{keyword}/{name}")
    for index, below in enumerate(schema.get("anyOf", [])):
        subset(below, f"{place}/anyOf/{index}")
    if "items" in schema:
        subset(schema["items"], f"{place}/items")
