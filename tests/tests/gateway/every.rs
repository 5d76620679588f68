//! Every endpoint, as the document of the API lists them: so a table over them has a new one as soon as it is there.

use fleet_tests::web::{Web, WebRequest};
use serde_json::{Value, json};

/// An endpoint, with a request that it understands.
#[derive(Debug, Clone)]
pub(crate) struct Example {
    pub(crate) method: String,
    /// As the document has it.
    pub(crate) template: String,
    /// With its query.
    pub(crate) path: String,
    /// Empty for a GET.
    pub(crate) body: String,
    /// Whether it wants to know who asks.
    pub(crate) asks: bool,
}

impl Example {
    pub(crate) fn is_post(&self) -> bool {
        self.method == "POST"
    }

    pub(crate) fn line(&self) -> String {
        format!("{} {} HTTP/1.1", self.method, self.path)
    }

    /// The request, with its body.
    pub(crate) fn request(&self, web: Web) -> WebRequest {
        self.at(web, &self.path)
    }

    /// The request without a body, which says that one comes.
    pub(crate) fn without_its_body(&self, web: Web) -> WebRequest {
        let request = web.request(&self.line());
        match self.is_post() {
            true => request.header("Content-Length", "10"),
            false => request,
        }
    }

    /// The same at another path.
    pub(crate) fn at(&self, web: Web, path: &str) -> WebRequest {
        match self.is_post() {
            true => web.post(path, self.body.clone()),
            false => web.request(&format!("{} {path} HTTP/1.1", self.method)),
        }
    }

    /// Whether its body is a file, which may be anything.
    pub(crate) fn takes_anything(&self) -> bool {
        self.template == "/v1/files"
    }

    /// The path with this in the place of its name; `None`: it has none.
    pub(crate) fn named(&self, name: &str) -> Option<String> {
        let (before, rest) = self.template.split_once('{')?;
        let (_, after) = rest.split_once('}')?;
        Some(format!("{before}{name}{after}"))
    }
}

/// Those whose answer ends by itself.
pub(crate) fn answering(call: &str) -> Vec<Example> {
    let document = gateway::document();
    let is_stream = |one: &Example| {
        let operation = &document["paths"][&one.template][one.method.to_lowercase()];
        let content = &operation["responses"]["200"]["content"];
        !one.is_post() && content.get("text/event-stream").is_some()
    };
    let all = endpoints(call).into_iter();
    all.filter(|one| !is_stream(one)).collect()
}

/// All of them, about this call.
pub(crate) fn endpoints(call: &str) -> Vec<Example> {
    let document = gateway::document();
    let paths = document["paths"].as_object().unwrap();
    let all = paths.iter().flat_map(|(template, item)| {
        let operations = item.as_object().unwrap().iter();
        operations.map(move |(method, operation)| example(call, template, method, operation))
    });
    all.collect()
}

fn example(call: &str, template: &str, method: &str, operation: &Value) -> Example {
    let path = template
        .replace("{tool}", "look")
        .replace("{call}", call)
        .replace("{session}", "s-1")
        .replace("{turn}", &format!("turn_{}", "0af9".repeat(8)))
        .replace("{file}", "0193a1b2-c3d4-7e5f-8a6b-0123456789ab")
        .replace("{token}", "x.y");
    let query = match operation["operationId"].as_str().unwrap() {
        "call_by_key" => "?tool=look&idempotency_key=k",
        "openapi" => "?tools=1",
        _other => "",
    };
    let decision = || json!({"args_hash": "0".repeat(64), "note": "n"});
    let body = match operation["operationId"].as_str().unwrap() {
        "call" | "check" => json!({"what": "bad"}),
        "batch" => json!({"calls": [{"tool": "look", "args": {"what": "bad"}}]}),
        "settle" => json!({"outcome": "applied", "note": "n"}),
        "output" => json!({"token": "x.y", "result": 1}),
        "approve" | "deny" => decision(),
        "complete" => json!({"result": 1}),
        "make_turn" => json!({"calls": [{"tool": "look", "args": {"what": "bad"}}]}),
        "turn_outputs" => json!({"outputs": [{"call_id": call, "result": 1}]}),
        "control" => json!({"do": "list"}),
        "chat_completions" | "messages" => json!({"model": "look", "messages": []}),
        "responses" => json!({"model": "look", "input": "bad"}),
        "mcp" => json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
        }),
        _empty => json!({}),
    };
    let method = method.to_uppercase();
    Example {
        body: match method.as_str() {
            "POST" => body.to_string(),
            _get => String::new(),
        },
        asks: operation["security"] != json!([]),
        template: template.to_owned(),
        path: format!("{path}{query}"),
        method,
    }
}
