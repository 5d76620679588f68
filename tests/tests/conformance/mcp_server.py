"""An MCP server that does whatever a server can do: over HTTP or stdio, in the newer revision or the older, by the name of the tool.

`mcp_server.py http|stdio modern|legacy FOLDER`: each run of a tool leaves files in FOLDER, so that effects are counted here and not by who
calls. Over HTTP the first line on standard output is the port.
"""

import json
import os
import select
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CARRIER, REVISION, FOLDER = sys.argv[1:4]
MODERN, LEGACY = "2026-07-28", "2025-11-25"
PLAIN = {"type": "object"}
NAMES = ("echo facts no secret crash hang slow endless garbage silent nul given work ask task_ok task_no task_hang progress"
         " invalid internal odd late twice other long effect_then_crash structured count large"
         " tell obey mute pings noise changing vast").split()
# What answers as no server should.
ODD = ("odd", "twice", "other", "long", "vast")
# How the answer of each breaks off before it comes, over HTTP in the older revision, and what a GET for the rest of it gets then.
BROKEN = ("closed polled torn unnamed lost missing gone json redirected never").split()
NAMES += [f"broken_{word}" for word in BROKEN]


def tools():
    names = list(NAMES)
    if os.path.exists(os.path.join(FOLDER, "tools")):
        # So many in all.
        with open(os.path.join(FOLDER, "tools")) as file:
            names += [f"more_{number}" for number in range(int(file.read()) - len(names))]
    tools = [{"name": name, "description": f"does {name}", "inputSchema": PLAIN} for name in names]
    for name in sorted(os.listdir(FOLDER)):
        # A test changes what the server says of its tools.
        if name.endswith(".tool"):
            with open(os.path.join(FOLDER, name)) as file:
                changed = json.load(file)
            tools = [tool for tool in tools if tool["name"] != changed["name"]] + [changed]
    more = os.path.join(FOLDER, "more")
    if os.path.exists(more):
        with open(more) as file:
            number = int(file.read())
        tools += [{"name": f"more {count}", "description": "does more", "inputSchema": PLAIN} for count in range(number - len(tools))]
    return tools


class Run:
    """One run of a tool, in the folder."""

    lock = threading.Lock()
    count = 0

    def __init__(self):
        with Run.lock:
            Run.count += 1
            self.path = os.path.join(FOLDER, f"{os.getpid()}-{Run.count}")
        open(self.path + ".begun", "w").close()

    def end(self):
        open(self.path + ".ended", "w").close()


def effect():
    with open(os.path.join(FOLDER, "effects"), "a") as file:
        file.write("x\n")


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def replies():
    """What the client has answered to what this server asked."""
    path = os.path.join(FOLDER, "replies")
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file]


def replied(message):
    message.pop("params", None)
    message.pop("raw", None)
    with open(os.path.join(FOLDER, "replies"), "a") as file:
        file.write(json.dumps(message) + "\n")


class Failure(Exception):
    def __init__(self, code, message="x"):
        super().__init__(message)
        self.code = code


def call(params, headers, gone, tell):  # noqa: C901
    """What a tool answers: a result, or a text that is one already."""
    name, meta = params["name"], params.get("_meta", {})
    if name == "echo":
        # As it came: a float would lose digits here.
        raw = params["raw"]
        raw = raw[raw.index('"arguments":') + len('"arguments":'):]
        raw = raw[:raw.rindex(',"_meta"')] if ',"_meta"' in raw else raw.rstrip().removesuffix("}}")
        return f'{{"resultType":"complete","content":[],"structuredContent":{raw}}}'
    if name == "count":
        effect()
        return {"content": [], "structuredContent": {"ok": True}}
    if name == "structured":
        return text("words", structuredContent={"n": 1})
    if name == "facts":
        told = meta.get("io.toolfleet/attempt", {})
        facts = {key: told.get(key) for key in ("call_id", "attempt", "tenant", "session", "deadline_ms")}
        facts.update(traceparent=meta.get("traceparent"), idempotency_key=meta.get("io.toolfleet/idempotency-key"))
        return {"content": [], "structuredContent": facts}
    if name == "no":
        return text("it is sold out", isError=True)
    if name == "secret":
        token = os.environ.get("TOKEN") or headers.get("X-Token")
        return text(f"the token {token} is wrong", isError=True)
    if name == "tell":
        # Not before the test wants to know it.
        while not os.path.exists(os.path.join(FOLDER, "tell")):
            time.sleep(0.01)
        return text(f"the token is {os.environ.get('TOKEN')}")
    if name == "mute":
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return text("nobody hears it")
    if name == "pings":
        if CARRIER == "http":
            return "pings"
        for number in range(3):
            tell({"jsonrpc": "2.0", "id": f"p-{number}", "method": "ping"})
        tell({"jsonrpc": "2.0", "id": "r-1", "method": "roots/list"})
        while len(replies()) < 4:
            time.sleep(0.01)
        return {"content": [], "structuredContent": replies()}
    if name == "noise":
        for large in (70_000, 3_000_000):
            tell({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "x" * large, "progress": 1}})
            tell({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": [0] * (large // 3)}})
            tell({"jsonrpc": "2.0", "id": "x" * large, "method": "ping"})
        return text("x" * 500_000)
    if name == "given":
        return {"content": [], "structuredContent": {
            "environment": {k: v for k, v in os.environ.items() if k not in ("PATH", "HOME", "LANG", "TOKEN", "PWD", "OLDPWD", "_") and "PYENV" not in k} if CARRIER == "stdio" else {},
            "headers": {k: v for k, v in headers.items() if k.lower() != "x-token"}, "raw": params["raw"]}}
    if name == "hang":
        while not gone(0.05):
            pass
        return None
    if name == "obey":
        # As servers do that say what was cancelled.
        while not gone(0.05):
            pass
        raise Failure(-32800, "cancelled")
    if name == "slow":
        time.sleep(1)
        return text("done")
    if name == "late":
        time.sleep(1.5)
        effect()
        return text("late")
    if name == "effect_then_crash":
        effect()
        os._exit(3)
    if name == "crash":
        if CARRIER == "stdio":
            os._exit(3)
        return "crash"
    if name == "garbage":
        return {"content": "oops"}
    if name == "silent":
        return {}
    if name == "nul":
        return '{"resultType":"complete","content":[],"structuredContent":{"a": "x\\u0000y", "b": ["\\ud800z"]}}'
    if name == "endless":
        return "endless"
    if name == "changing":
        effect()
        with open(os.path.join(FOLDER, "changing.tool"), "w") as file:
            json.dump({"name": name, "description": "does another thing", "inputSchema": PLAIN}, file)
        tell({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        time.sleep(0.3)
        return text("done")
    if name == "vast":
        effect()
        return name
    if name == "large":
        effect()
        return text("x" * 3_000_000)
    if name == "work":
        if os.fork() == 0:
            os.setsid()
            Run()
            time.sleep(60)
            os._exit(0)
        while sum(name.endswith(".begun") for name in os.listdir(FOLDER)) < 2:
            time.sleep(0.01)
        return text("done")
    if name == "progress":
        token = meta.get("progressToken")
        for done in (1, 2):
            tell({"jsonrpc": "2.0", "method": "notifications/progress",
                  "params": {"progressToken": token, "progress": done, "total": 4, "message": f"step {done}"}})
        return text("done")
    if name == "ask":
        if "inputResponses" in params:
            return {"content": [], "structuredContent": {"state": params.get("requestState"), "said": params["inputResponses"]}}
        return {"resultType": "input_required", "requestState": "s-1", "inputRequests": {
            "who": {"method": "elicitation/create", "params": {"message": "For whom?", "requestedSchema": PLAIN}}}}
    if name.startswith("task_"):
        effect()
        return {"resultType": "task", "taskId": name, "status": "working", "pollIntervalMs": 50,
                "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": 1000}
    if name == "invalid":
        raise Failure(-32602, "no such city")
    if name == "internal":
        raise Failure(-32603)
    if name in ODD:
        return name
    if name.startswith("broken_"):
        effect()
        return name
    raise Failure(-32602, "unknown tool")


LOOKS = {}


def task(params):
    name = params["taskId"]
    LOOKS[name] = LOOKS.get(name, 0) + 1
    state = {"resultType": "complete", "taskId": name, "status": "working", "pollIntervalMs": 50}
    if name != "task_hang" and LOOKS[name] > 2:
        state["status"] = "completed"
        state["result"] = text("task done") if name == "task_ok" else text("task said no", isError=True)
    return state


def answer(message, headers, gone, tell):
    """The result of a request."""
    method, params = message["method"], message.get("params", {})
    if REVISION == "legacy":
        if method == "initialize":
            return {"protocolVersion": LEGACY, "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}}
        if method == "ping":
            return {}
    elif method == "initialize":
        raise Failure(-32601)
    elif params.get("_meta", {}).get("io.modelcontextprotocol/protocolVersion") != MODERN:
        raise Failure(-32022)
    complete = {"resultType": "complete"} if REVISION == "modern" else {}
    if method == "tools/list":
        # Two pages.
        all_tools = tools()
        half = len(all_tools) // 2
        with open(os.path.join(FOLDER, "lists"), "a") as file:
            file.write("x\n")
        if params.get("cursor"):
            return {**complete, "tools": all_tools[half:]}
        return {**complete, "tools": all_tools[:half], "nextCursor": "2"}
    if method == "tasks/get":
        return task(params)
    if method == "tasks/cancel":
        open(os.path.join(FOLDER, "cancelled-task"), "w").close()
        return dict(complete)
    if method == "tools/call":
        run = Run()
        try:
            result = call(params, headers, gone, tell)
        finally:
            run.end()
        return result if not isinstance(result, dict) or "resultType" in result else {**complete, **result}
    raise Failure(-32601)


def respond(message, headers, gone, tell):
    """The whole answer: a message, a text that is one, or a word for what is none."""
    about = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        result = answer(message, headers, gone, tell)
    except Failure as failure:
        return {**about, "error": {"code": failure.code, "message": str(failure)}}
    if isinstance(result, str) and result.startswith("{"):
        return f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},"result":{result}}}'
    if isinstance(result, str) or result is None:
        return result
    return {**about, "result": result}


def odd(word, about, write):
    """Answers that no server should give; `write` takes one message. False: the connection ends without more."""
    good = {**about, "result": {"resultType": "complete", **text("late")}}
    if word == "odd":
        write("this is no JSON")
    elif word == "twice":
        write({**about, "result": {"resultType": "complete", **text("first")}})
        write(good)
    elif word == "other":
        write({**about, "id": 999_999, "result": {"resultType": "complete", **text("of another")}})
        write({"jsonrpc": "2.0", "id": None, "result": {}})
        write({**about, "result": {"resultType": "complete", **text("mine")}})
    elif word == "vast":
        write({**about, "result": {"resultType": "complete", **text("x" * 100 * 1024 * 1024)}})
    elif word == "long":
        write({**about, "result": {"resultType": "complete", **text("x" * 20_000_000)}})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    sessions = set()
    broke_at = 0.0

    def log_message(self, *_):
        pass

    def gone(self, wait):
        readable, _, _ = select.select([self.connection], [], [], wait)
        return bool(readable)

    def send(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, code, about):
        # Some servers put every error of the protocol into a success.
        if os.path.exists(os.path.join(FOLDER, "always-200")):
            status = 200
        self.send(status, json.dumps({**about, "error": {"code": code, "message": "x"}}).encode(), Content_Type="application/json")

    def stream(self, body, is_whole=True):
        """A stream of events that ends here: closed, or torn off."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        self.wfile.write(f"{len(body):x}\r\n{body}\r\n".encode() + (b"0\r\n\r\n" if is_whole else b""))

    def break_off(self, word, call):
        """The answer to a call, up to where it breaks off. An event's id says which call it is of, and which event."""
        Handler.broke_at = time.monotonic()
        priming = f"id: {word}/{call}/1\nretry: 300\ndata: \n\n"
        if word == "torn":
            self.stream(priming + f'id: {word}/{call}/2\ndata: {{"jsonrpc"', is_whole=False)
        elif word == "unnamed":
            self.stream("retry: 1\ndata: \n\n")
        else:
            self.stream(priming)

    def do_GET(self):
        """The rest of an answer that broke off."""
        waited = time.monotonic() - Handler.broke_at
        at = self.headers.get("Last-Event-ID")
        with open(os.path.join(FOLDER, "gets"), "a") as file:
            file.write(json.dumps({"at": at, "waited": waited, "is_known": self.headers.get("Mcp-Session-Id") in Handler.sessions,
                                   "accept": self.headers.get("Accept"), "has_body": "Content-Length" in self.headers}) + "\n")
        word, call, event = at.split("/")
        answer = json.dumps({"jsonrpc": "2.0", "id": int(call), "result": text("taken up")})
        rest = f"id: {word}/{call}/{int(event) + 1}\ndata: {answer}\n\n"
        Handler.broke_at = time.monotonic()
        if word == "polled" and event != "4":
            self.stream(f"id: {word}/{call}/{int(event) + 1}\ndata: \n\n")
        elif word == "never":
            self.stream(": nothing\n\n")
        elif word == "lost":
            self.close_connection = True
        elif word in ("missing", "gone"):
            self.send({"missing": 405, "gone": 404}[word])
        elif word == "json":
            self.send(200, answer.encode(), Content_Type="application/json")
        elif word == "redirected" and self.path != "/elsewhere":
            self.send(307, Location="/elsewhere")
        else:
            self.stream(rest)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        message = json.loads(body)
        message.setdefault("params", {})["raw"] = body.decode()
        if "id" not in message:
            return self.send(202)
        if "method" not in message:
            replied(message)
            return self.send(202)
        about = {"jsonrpc": "2.0", "id": message["id"]}
        name, method = self.headers.get("Mcp-Name"), message["method"]
        # Who follows it runs the tool there.
        if os.path.exists(os.path.join(FOLDER, "redirect")) and method == "tools/call" and self.path != "/elsewhere":
            return self.send(307, Location="/elsewhere")
        if os.path.exists(os.path.join(FOLDER, "unauthorized")) and method == "tools/call":
            return self.send(401)
        if REVISION == "modern":
            if self.headers.get("Mcp-Protocol-Version") != MODERN or self.headers.get("Mcp-Method") != method:
                return self.refuse(400, -32020, about)
            if method == "tools/call" and name != message["params"]["name"]:
                return self.refuse(400, -32020, about)
        elif method != "initialize":
            if os.path.exists(os.path.join(FOLDER, "forget")):
                os.remove(os.path.join(FOLDER, "forget"))
                Handler.sessions.clear()
            session = self.headers.get("Mcp-Session-Id")
            if session is None:
                return self.refuse(400, -32000, about)
            if session not in Handler.sessions:
                return self.refuse(404, -32001, about)
        more = {}
        if REVISION == "legacy" and method == "initialize":
            more["Mcp_Session_Id"] = f"session-{len(Handler.sessions)}-{os.getpid()}-{time.time()}"
            Handler.sessions.add(more["Mcp_Session_Id"])
        streamed = []
        came = respond(message, self.headers, self.gone, streamed.append)
        if came is None or came == "crash":
            self.close_connection = True
            return None
        if came == "pings":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            pings = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(100)]
            self.wfile.write("".join(f"data: {json.dumps(ping)}\n\n" for ping in pings).encode())
            self.wfile.flush()
            while len(replies()) < 32:
                time.sleep(0.01)
            result = {**about, "result": {"resultType": "complete", **text("done")}}
            self.wfile.write(f"data: {json.dumps(result)}\n\n".encode())
            return None
        if came == "endless":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            try:
                self.wfile.write(f'{{"jsonrpc":"2.0","id":{message["id"]},"result":{{"content":["'.encode())
                while True:
                    self.wfile.write(b"x" * 65536)
            except OSError:
                return None
        if isinstance(came, str) and came.startswith("broken_"):
            return self.break_off(came.removeprefix("broken_"), message["id"])
        if came in ODD or streamed:
            parts = []
            if isinstance(came, str) and came in ODD:
                odd(came, about, parts.append)
            else:
                parts = streamed + [came]
            written = [part if isinstance(part, str) else json.dumps(part) for part in parts]
            body = ": hello\n\n" + "".join(f"event: message\ndata: {part}\n\n" for part in written)
            try:
                return self.send(200, body.encode(), Content_Type="text/event-stream", **more)
            except ConnectionError:
                return None
        body = came if isinstance(came, str) else json.dumps(came)
        status = 404 if isinstance(came, dict) and came.get("error", {}).get("code") == -32601 else 200
        return self.send(status, body.encode(), Content_Type="application/json", **more)


def serve_http():
    port = 0
    if os.path.exists(os.path.join(FOLDER, "port")):
        with open(os.path.join(FOLDER, "port")) as file:
            port = int(file.read())
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    # The server ends with who started it.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    server.serve_forever()


def serve_stdio():
    writing, cancelled, greeted = threading.Lock(), {}, []

    def write(part):
        line = part if isinstance(part, str) else json.dumps(part)
        with writing:
            sys.stdout.write(line.replace("\n", " ") + "\n")
            sys.stdout.flush()

    def work(message):
        flag = cancelled[message["id"]]
        about = {"jsonrpc": "2.0", "id": message["id"]}
        came = respond(message, {}, flag.wait, write)
        if came == "endless":
            with writing:
                sys.stdout.write(f'{{"jsonrpc":"2.0","id":{message["id"]},"result":{{"content":["')
                while True:
                    sys.stdout.write("x" * 65536)
        if isinstance(came, str) and came in ODD:
            odd(came, about, write)
        elif came is not None:
            write(came)

    for line in sys.stdin:
        message = json.loads(line)
        message.setdefault("params", {})["raw"] = line
        while os.path.exists(os.path.join(FOLDER, f"{os.getpid()}.held")):
            # It reads no further.
            open(os.path.join(FOLDER, f"{os.getpid()}.holding"), "w").close()
            time.sleep(0.01)
        if os.path.exists(os.path.join(FOLDER, f"{os.getpid()}.frozen")):
            continue
        if "method" not in message:
            replied(message)
            continue
        if "id" not in message:
            if message["method"] == "notifications/cancelled":
                flag = cancelled.get(message["params"]["requestId"])
                if flag:
                    flag.set()
            continue
        if REVISION == "legacy" and not greeted and message["method"] != "initialize":
            write({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32602, "message": "not initialized"}})
            continue
        greeted.append(message["method"])
        cancelled[message["id"]] = threading.Event()
        if message["method"] == "tools/call" and message["params"]["name"] in ("echo", "count"):
            work(message)
        else:
            threading.Thread(target=work, args=(message,), daemon=True).start()


if CARRIER == "http":
    serve_http()
else:
    open(os.path.join(FOLDER, f"{os.getpid()}.pid"), "w").close()
    serve_stdio()
