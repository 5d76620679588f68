//! How a tool is run, as its manifest says: one kind of executor and what that kind needs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{chat::ChatSpec, origin::origin};
use crate::{call::words, ids::ServerName, said, wire::message::Message};

/// Registers the kinds of executors: one line each, with the field of the manifest in snake case.
macro_rules! kinds {
    ($($(#[$doc:meta])+ $variant:ident($spec:ty),)+) => {
        /// How a tool is run; exactly one kind.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case", deny_unknown_fields)]
        pub enum ExecutorSpec {
            $($(#[$doc])+ $variant($spec),)+
        }

        impl ExecutorSpec {
            fn of_kind(&self) -> &dyn Kind {
                match self {
                    $(Self::$variant(spec) => spec,)+
                }
            }
        }
    };
}

kinds! {
    /// An HTTP request.
    Http(HttpSpec),
    /// A program on the worker's machine.
    Process(ProcessSpec),
    /// A request to a NATS service.
    Nats(NatsSpec),
    /// A statement on a PostgreSQL database.
    Sql(SqlSpec),
    /// A tool of an MCP server.
    Mcp(McpSpec),
    /// A request to a model.
    Chat(ChatSpec),
    /// A handler in the worker's own program.
    Native(NativeSpec),
    /// The program of the caller: the call is handed to it in the answer to its submission.
    Client(ClientSpec),
    /// A kind that only the worker's own program knows.
    Own(OwnSpec),
}

impl ExecutorSpec {
    /// The word for its kind: the field of the manifest, or the kind that `own` names.
    pub fn kind(&self) -> &str {
        self.of_kind().name()
    }

    /// What an attempt depends on outside the fleet. Contains no secret and no argument.
    ///
    /// The origin of the URL, the program, the subject, the database, the handler; for a program's own kind, the name of the
    /// kind; of a model, those of all its routes.
    pub fn target(&self) -> String {
        self.of_kind().target()
    }

    /// Whether an attempt may go to this target.
    pub fn has_target(&self, target: &str) -> bool {
        match self {
            Self::Chat(spec) => spec.targets().iter().any(|one| one == target),
            _of_one => self.target() == target,
        }
    }

    /// Where the manifest may send the downstream key of a call.
    pub(super) fn key_places(&self) -> KeyPlaces {
        self.of_kind().key_places()
    }
}

/// What each kind defines.
trait Kind {
    fn name(&self) -> &str;
    fn target(&self) -> String;
    fn key_places(&self) -> KeyPlaces;
}

/// Where the manifest may send the downstream key of a call; every tool is told it besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyPlaces {
    /// A header or an argument; one is required.
    One,
    /// A header or an argument; neither is required.
    AtMostOne,
    /// An argument only.
    Argument {
        /// A sentence for the manifest's author: why there are no headers.
        no_header: &'static str,
        /// Whether a tool of this kind can recognise a repetition by what it writes, without `idempotency`.
        by_itself: bool,
    },
    /// Its executor decides.
    Any,
}

impl KeyPlaces {
    const NO_HEADERS: Self = Self::Argument {
        no_header: "nothing here has headers: leave header out or write argument",
        by_itself: true,
    };
}

/// An HTTP request made of the arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSpec {
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: String,
    /// An RFC 6570 template over the arguments; scheme, host and port are literal.
    pub url: String,
    /// Header values: text, `secret://NAME`, or `{argument}` and nothing else.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Query parameters: text, `secret://NAME`, or `{argument}` and nothing else. An absent argument leaves it out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, String>,
    /// A JSON value in which a string that is exactly `{argument}` is replaced by that argument's value.
    /// Absent: the arguments themselves, for methods that have a body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// Whether its answer may be a stream of events, with parts of the answer before the answer itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
}

impl Kind for HttpSpec {
    fn name(&self) -> &str {
        "http"
    }

    fn target(&self) -> String {
        origin(&self.url)
    }

    fn key_places(&self) -> KeyPlaces {
        KeyPlaces::One
    }
}

/// A program, its arguments on stdin as one JSON object, its answer on stdout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessSpec {
    /// The program and its fixed arguments; never a shell line.
    pub command: Vec<String>,
    /// Its environment besides `PATH`, `LANG` and ours: text or `secret://NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where it starts; the worker's own folder when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

impl Kind for ProcessSpec {
    fn name(&self) -> &str {
        "process"
    }

    fn target(&self) -> String {
        self.command.first().cloned().unwrap_or_default()
    }

    fn key_places(&self) -> KeyPlaces {
        KeyPlaces::Argument {
            no_header: "a program has no headers; it finds the key in TOOLFLEET_IDEMPOTENCY_KEY: leave header out or write argument",
            by_itself: false,
        }
    }
}

/// Nothing that the fleet runs: what the caller's program is to make of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientSpec {
    /// As what kind of item of a model's answer the call is shown.
    #[serde(default)]
    pub presents: Presents,
}

words! {
    /// As what kind of item of a model's answer a call is shown.
    #[derive(Default)]
    Presents {
        /// A call of a function, with its arguments.
        #[default]
        FunctionCall = "function_call",
        /// A call of a custom tool, with its input as text.
        CustomToolCall = "custom_tool_call",
        /// A command for a shell.
        ShellCall = "shell_call",
    }
}

impl Kind for ClientSpec {
    fn name(&self) -> &str {
        "client"
    }

    fn target(&self) -> String {
        "client".to_owned()
    }

    fn key_places(&self) -> KeyPlaces {
        KeyPlaces::NO_HEADERS
    }
}

/// A request to a service, with the arguments as its body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NatsSpec {
    /// The subject that the service listens on; literal.
    pub subject: String,
}

impl Kind for NatsSpec {
    fn name(&self) -> &str {
        "nats"
    }

    fn target(&self) -> String {
        self.subject.clone()
    }

    fn key_places(&self) -> KeyPlaces {
        KeyPlaces::AtMostOne
    }
}

/// One prepared statement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlSpec {
    /// One `SELECT`, `INSERT`, `UPDATE`, `DELETE`, `MERGE`, `VALUES` or `WITH`, with the placeholders `$1`, `$2`, …
    pub statement: String,
    /// The values of the placeholders, in their order: `{argument}`, or a literal value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<Value>,
    /// `fleet`, or `secret://NAME` of a connection URL.
    pub database: String,
    /// How many rows it must return or change; anything else is rolled back as a business error. Absent: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<RowBounds>,
}

impl Kind for SqlSpec {
    fn name(&self) -> &str {
        "sql"
    }

    fn target(&self) -> String {
        self.database.clone()
    }

    fn key_places(&self) -> KeyPlaces {
        KeyPlaces::NO_HEADERS
    }
}

/// How many rows a statement must return, or change where it returns none. Both bounds are included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowBounds {
    /// The fewest; absent: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    /// The most; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

impl RowBounds {
    /// Whether this number of rows is within the bounds.
    pub fn admit(self, rows: u64) -> bool {
        self.min.is_none_or(|min| rows >= min) && self.max.is_none_or(|max| rows <= max)
    }

    /// What was expected, as the object of "expected …": `exactly 2 rows`, `at least 1 row`.
    pub fn told(self) -> Message {
        let plural = |rows: u64| if rows == 1 { "row" } else { "rows" };
        match (self.min, self.max) {
            (Some(min), Some(max)) if min == max => {
                let noun = plural(min);
                said!("exactly {min} {noun}", "恰好 {min} 行")
            }
            (Some(0) | None, Some(max)) => {
                let noun = plural(max);
                said!("at most {max} {noun}", "最多 {max} 行")
            }
            (Some(min), None) => {
                let noun = plural(min);
                said!("at least {min} {noun}", "至少 {min} 行")
            }
            (Some(min), Some(max)) => said!("{min} to {max} rows", "{min} 到 {max} 行"),
            (None, None) => Message::fixed("any number of rows", "任意行数"),
        }
    }
}

impl SqlSpec {
    /// The word for the fleet's own database.
    pub const FLEET: &'static str = "fleet";
    /// The most rows that a statement may return, and that `rows` may expect.
    pub const ROWS_MAX: u64 = 10_000;

    /// Whether it runs on the fleet's own database.
    pub fn is_on_fleet(&self) -> bool {
        self.database == Self::FLEET
    }
}

/// A tool of an MCP server that was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpSpec {
    /// The server.
    pub server: ServerName,
    /// The name that the server has for it.
    pub tool: String,
    /// What the server must say of the tool, as [`crate::mcp::pin`] makes it of its definition.
    pub pin: String,
    /// The same without its title and description. `None`: those may not change either, whatever the server's `on_change` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// What an error that the tool reports says of its effect.
    #[serde(default)]
    pub errors: McpErrors,
}

words! {
    /// What an error that a tool of an MCP server reports (`isError`) says of its effect.
    #[derive(Default)]
    McpErrors {
        /// It did not do what was asked.
        #[default]
        SaidNo = "said_no",
        /// It may have done it.
        Unknown = "unknown",
    }
}

impl Kind for McpSpec {
    fn name(&self) -> &str {
        "mcp"
    }

    fn target(&self) -> String {
        format!("mcp:{}", self.server)
    }

    fn key_places(&self) -> KeyPlaces {
        KeyPlaces::Argument {
            no_header: "a tool of an MCP server has no headers of its own; it finds the key in _meta: leave header out or write argument",
            by_itself: false,
        }
    }
}

impl Kind for ChatSpec {
    fn name(&self) -> &str {
        "chat"
    }

    fn target(&self) -> String {
        self.targets().join(", ")
    }

    fn key_places(&self) -> KeyPlaces {
        KeyPlaces::Any
    }
}

/// A handler that was linked into a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NativeSpec {
    /// The name under which the worker's program knows it.
    pub handler: String,
}

impl Kind for NativeSpec {
    fn name(&self) -> &str {
        "native"
    }

    fn target(&self) -> String {
        self.handler.clone()
    }

    fn key_places(&self) -> KeyPlaces {
        KeyPlaces::NO_HEADERS
    }
}

/// A tool of a kind that a worker's own program brings along.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnSpec {
    /// The name under which the program has registered its executor.
    pub kind: String,
    /// The executor's own settings. The fleet reads only `secret://NAME` in them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub spec: Map<String, Value>,
}

impl OwnSpec {
    /// Whether this can be the name of a kind: 1 to 64 of a-z, 0-9, `_` and `-`, the first a letter.
    pub fn is_kind(name: &str) -> bool {
        let letter = |byte: u8| byte.is_ascii_lowercase();
        let other =
            |byte: u8| letter(byte) || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
        name.len() <= 64 && name.bytes().next().is_some_and(letter) && name.bytes().all(other)
    }
}

impl Kind for OwnSpec {
    fn name(&self) -> &str {
        &self.kind
    }

    fn target(&self) -> String {
        self.kind.clone()
    }

    fn key_places(&self) -> KeyPlaces {
        KeyPlaces::Any
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_has_its_name_and_its_target() {
        for (spec, kind, target) in [
            (
                json!({"http": {"method": "GET", "url": "HTTPS://API.example.com:443/v1/{city}?q={q}"}}),
                "http",
                "https://api.example.com",
            ),
            (
                json!({"http": {"method": "GET", "url": "http://127.0.0.1:8080{/path}"}}),
                "http",
                "http://127.0.0.1:8080",
            ),
            (
                json!({"process": {"command": ["python3", "tool.py"]}}),
                "process",
                "python3",
            ),
            (
                json!({"nats": {"subject": "weather.get"}}),
                "nats",
                "weather.get",
            ),
            (
                json!({"sql": {"statement": "SELECT 1", "database": "secret://BANK"}}),
                "sql",
                "secret://BANK",
            ),
            (
                json!({"chat": {"protocol": "anthropic", "routes": [
                    {"name": "a", "url": "https://A.example.com/v1/messages", "model": "m"},
                    {"name": "b", "url": "https://b.example.com/v1/messages", "model": "m"},
                    {"name": "c", "url": "https://a.example.com:443/v1/messages", "model": "n"},
                ], "first_token": "1m", "idle": "30s"}}),
                "chat",
                "https://a.example.com m, https://b.example.com m, https://a.example.com n",
            ),
            (json!({"native": {"handler": "sum.v1"}}), "native", "sum.v1"),
            (
                json!({"client": {"presents": "shell_call"}}),
                "client",
                "client",
            ),
            (
                json!({"own": {"kind": "journal", "spec": {"file": "a"}}}),
                "journal",
                "journal",
            ),
        ] {
            let read: ExecutorSpec = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!((read.kind(), read.target().as_str()), (kind, target));
            assert_eq!(serde_json::to_value(&read).unwrap(), spec);
        }
    }
}
