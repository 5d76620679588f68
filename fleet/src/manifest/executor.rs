//! How a tool is run, as its manifest says it: one kind of executor and what that kind needs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a tool is run; exactly one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ExecutorSpec {
    /// An HTTP request.
    Http(HttpSpec),
    /// A program on the worker's machine.
    Process(ProcessSpec),
    /// A request to a NATS service.
    Nats(NatsSpec),
    /// A statement on a PostgreSQL database.
    Sql(SqlSpec),
    /// A handler in the worker's own program.
    Native(NativeSpec),
}

impl ExecutorSpec {
    /// The word for its kind, as in the manifest.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Process(_) => "process",
            Self::Nats(_) => "nats",
            Self::Sql(_) => "sql",
            Self::Native(_) => "native",
        }
    }
}

/// An HTTP request made of the arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSpec {
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: String,
    /// An RFC 6570 template over the arguments; scheme, host and port are literal.
    pub url: String,
    /// Header values: text, `secret://NAME`, or `{argument}` standing alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Query parameters: text, `secret://NAME`, or `{argument}` standing alone. An absent argument leaves it out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, String>,
    /// A JSON value in which a string that is exactly `{argument}` is replaced by that argument's value.
    /// Absent: the arguments themselves, for methods that have a body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
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

/// A request to a service, with the arguments as its body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NatsSpec {
    /// The subject that the service listens on; literal.
    pub subject: String,
}

/// One prepared statement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlSpec {
    /// One `SELECT`, `INSERT`, `UPDATE`, `DELETE`, `MERGE`, `VALUES` or `WITH`, with the placeholders `$1`, `$2`, …
    pub statement: String,
    /// What the placeholders stand for, in their order: `{argument}`, or a literal value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<Value>,
    /// `fleet`, or `secret://NAME` of a connection URL.
    pub database: String,
}

impl SqlSpec {
    /// The word for the fleet's own database.
    pub const FLEET: &'static str = "fleet";

    /// Whether it runs on the fleet's own database.
    pub fn is_on_fleet(&self) -> bool {
        self.database == Self::FLEET
    }
}

/// A handler that was linked into a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NativeSpec {
    /// The name under which the worker's program knows it.
    pub handler: String,
}
