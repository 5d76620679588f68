//! The tools over MCP: what a client of either revision sends and gets, beside what becomes of it in the fleet.

mod answers;
mod calls;
mod content;
mod hang_up;
mod listing;
mod others;
mod pipe;
mod progress;
mod protocol;
mod questions;
mod rights;
mod rounds;
mod sessions;
mod stop;
mod subscriptions;
mod tasks;
mod twice;

use fleet_tests::web::{Web, WebAnswer, WebRequest};
use serde_json::Value;

/// The revisions that are served.
const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

const IN_META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}"#;

/// A client of one revision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    web: Web,
    revision: &'static str,
    /// What it declares that it can do, JSON text.
    can: &'static str,
}

/// A client of the newest revision.
pub(crate) const fn modern(web: Web) -> Client {
    Client {
        web,
        revision: MODERN,
        can: "{}",
    }
}

/// A client of the one that most clients speak.
pub(crate) const fn legacy(web: Web) -> Client {
    Client {
        web,
        revision: LEGACY,
        can: "{}",
    }
}

impl Client {
    /// The same client that declares this.
    const fn that_can(self, can: &'static str) -> Self {
        Self { can, ..self }
    }

    /// A request with these parameters, and this more in `_meta`: members of an object as text, for their bytes count.
    pub(crate) fn request(self, id: &str, method: &str, params: &str, meta: &str) -> WebRequest {
        let own = match self.revision {
            MODERN => IN_META.replace("{}", self.can),
            _ => String::new(),
        };
        self.saying(id, method, params, &own, meta)
    }

    /// The same of a client that says this of itself in `_meta`.
    fn saying(self, id: &str, method: &str, params: &str, own: &str, meta: &str) -> WebRequest {
        let comma = |left: &str, right: &str| match left.is_empty() || right.is_empty() {
            true => "",
            false => ",",
        };
        let meta = format!("{{{own}{}{meta}}}", comma(own, meta));
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}{}"_meta":{meta}}}}}"#,
            comma(params, "x")
        );
        let request = self
            .web
            .post("/mcp", body)
            .header("MCP-Protocol-Version", self.revision)
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream");
        match self.revision {
            MODERN => request.header("Mcp-Method", method),
            _ => request,
        }
    }

    /// A call of this tool.
    pub(crate) fn calling(self, tool: &str, arguments: &str, meta: &str) -> WebRequest {
        self.calling_as("1", tool, arguments, meta)
    }

    /// The same under this id.
    fn calling_as(self, id: &str, tool: &str, arguments: &str, meta: &str) -> WebRequest {
        let params = format!(r#""name":"{tool}","arguments":{arguments}"#);
        self.request(id, "tools/call", &params, meta)
            .header("Mcp-Name", tool)
    }

    /// Submits `{"what": what}` to a tool, and returns the result.
    async fn call(self, tool: &str, what: &str) -> Value {
        let arguments = format!(r#"{{"what":"{what}"}}"#);
        result(&self.calling(tool, &arguments, "").send().await)
    }
}

/// The result in an answer.
pub(crate) fn result(answer: &WebAnswer) -> Value {
    let told = answer.json();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(told["error"].is_null(), "{}", answer.text());
    told["result"].clone()
}

/// Status and number of an error of the protocol.
pub(crate) fn error(answer: &WebAnswer) -> (u16, i64) {
    let number = answer.json()["error"]["code"].as_i64();
    (
        answer.status,
        number.unwrap_or_else(|| panic!("{}", answer.text())),
    )
}

/// The texts of a result, in their order.
fn texts(result: &Value) -> Vec<String> {
    let blocks = result["content"].as_array().unwrap().iter();
    let texts = blocks.filter_map(|block| block["text"].as_str());
    texts.map(ToOwned::to_owned).collect()
}

/// What a result says of its call.
fn said(result: &Value) -> &Value {
    &result["_meta"]["io.toolfleet/call"]
}
