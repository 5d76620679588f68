"""The program that the suite starts for each scenario of clients, its server's URL as the last argument: what it does, a fleet does.

The server becomes one of the fleet, its tools are discovered and applied, and the tools that the scenario wants are called.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

place, url = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2]
scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
env = {**os.environ, **place["env"]}
server = f"s{abs(hash(url)) % 10**9}"
ACCEPTED = {"action": "accept", "content": {"confirmed": True}}


def run(*words):
    return subprocess.run([place["toolfleet"], *words], env=env, capture_output=True, text=True, timeout=60)


def told(ran):
    print(" ".join(ran.args[1:3]), ran.returncode, ran.stdout[-1_000:], ran.stderr[-1_000:], file=sys.stderr)
    return ran


def discovered(folder):
    manifest = {"kind": "mcp_server", "name": server, "version": 1, "transport": {"http": {"url": url}}, "trust": "trusted"}
    (folder / "server.json").write_text(json.dumps(manifest))
    told(run("tools", "apply", str(folder / "server.json")))
    told(run("mcp", "discover", server, "--into", str(folder / "tools")))
    if any((folder / "tools").glob("*")):
        told(run("tools", "apply", str(folder / "tools")))
    manifests = [json.loads(path.read_text()) for path in (folder / "tools").glob("*.json")]
    return {manifest["executor"]["mcp"]["tool"]: manifest["name"] for manifest in manifests}


def call(name, arguments):
    """One call to its end: what it asks is answered, and the same key is the same call."""
    words = ["call", name, "--args", json.dumps(arguments), "--key", f"{server}-{name}", "--wait", "30", "--json"]
    envelope = json.loads(told(run(*words)).stdout)
    for _ in range(4):
        if envelope.get("state") != "awaiting_client":
            break
        awaiting = envelope["awaiting"]
        answers = {asked: ACCEPTED for asked in awaiting["requests"]["inputRequests"]}
        given = json.dumps({"inputResponses": answers})
        told(run("calls", "output", envelope["call_id"], "--token", awaiting["token"], "--input", given))
        envelope = json.loads(told(run(*words)).stdout)
    return envelope


WANTED = {
    "tools_call": [("add_numbers", {"a": 5, "b": 3})],
    "http-invalid-tool-headers": [("valid_tool", {"region": "us-west1"})],
    "sep-2322-client-request-state": [
        ("test_mrtr_echo_state", {}),
        ("test_mrtr_unrelated", {}),
        ("test_mrtr_no_state", {}),
        ("test_mrtr_no_result_type", {}),
    ],
}

with tempfile.TemporaryDirectory() as folder:
    tools = discovered(Path(folder))
    wanted = WANTED.get(scenario) or [(one["name"], one["arguments"]) for one in context.get("toolCalls", [])]
    for upstream, arguments in wanted or [(upstream, {}) for upstream in tools]:
        if upstream in tools:
            print(json.dumps(call(tools[upstream], arguments)), file=sys.stderr)
