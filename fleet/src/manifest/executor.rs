//! How a tool is run, as its manifest says it: one kind of executor and what that kind needs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{said, wire::message::Message};

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
    /// How many rows it must return or change; anything else is rolled back as a business error. Absent: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<RowBounds>,
}

/// How many rows a statement must return, or change where it returns none. Both bounds are included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowBounds {
    /// The fewest; absent: none will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    /// The most; absent: as many as there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

impl RowBounds {
    /// Whether so many rows are what was expected.
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

/// A handler that was linked into a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NativeSpec {
    /// The name under which the worker's program knows it.
    pub handler: String,
}
