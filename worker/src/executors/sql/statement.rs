//! What a server says of a statement before it runs: whether a tool may run it, its parameters' types, its columns.
//!
//! `PREPARE … AS` takes only what can be prepared: one `SELECT`, `INSERT`, `UPDATE`, `DELETE`, `MERGE` or `VALUES`. So
//! `COMMIT`, `SET`, `COPY`, `DO`, `CALL` and all DDL are syntax errors to the server itself, and the extended protocol
//! refuses a second statement; what it does let through, `SELECT INTO`, we refuse. Then each `$n` becomes `$n::text::type`: every
//! parameter is sent as text, so numbers stay exact and any type will do.

use std::sync::Arc;

use fallible_iterator::FallibleIterator as _;
use fleet::{
    manifest::sql::{selects_into, with_placeholders},
    said,
    wire::message::Message,
};
use postgres_protocol::message::backend::RowDescriptionBody;

use super::{kind::Kind, limits::Limits, not_committed::NotCommitted, wire::Wire};

/// A statement that a tool may run.
#[derive(Debug)]
pub struct Statement {
    /// It, with the types of its parameters written out.
    pub(super) text: Arc<str>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) columns: Vec<Column>,
}

/// What a placeholder stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameter {
    /// The type as it is written in SQL, whatever lies in the `search_path`.
    pub(super) type_name: String,
    /// The same for people.
    pub(super) type_words: String,
    pub(super) shape: Shape,
}

/// How a JSON value becomes text of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// As itself.
    Scalar,
    /// As JSON.
    Json,
    /// As an array.
    Array,
    /// As an array, each item as JSON.
    Jsons,
}

/// A column of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The number of its type, by which a later answer shows that it is still the same.
    oid: u32,
}

impl Statement {
    /// Whether an answer has the columns that the server told of when it checked the statement.
    pub(super) fn answers(&self, columns: Option<&RowDescriptionBody>) -> bool {
        let mut known = self.columns.iter();
        let Some(columns) = columns else {
            return known.len() == 0;
        };
        let same = columns.fields().all(|column| {
            Ok(known
                .next()
                .is_some_and(|known| column.name() == known.name && column.type_oid() == known.oid))
        });
        same.unwrap_or(false) && known.next().is_none()
    }
}

/// The types of what was just prepared, through domains to what they are made of.
const PARAMETERS: &str = "
    WITH RECURSIVE asked (n, type, base) AS (
        SELECT p.n, p.type::pg_catalog.oid, p.type::pg_catalog.oid
        FROM pg_catalog.pg_prepared_statements s,
             pg_catalog.unnest(s.parameter_types) WITH ORDINALITY AS p (type, n)
        WHERE s.name = 'toolfleet_check'
        UNION ALL
        SELECT a.n, a.type, t.typbasetype
        FROM asked a JOIN pg_catalog.pg_type t ON t.oid = a.base WHERE t.typtype = 'd'
    )
    SELECT pg_catalog.format('%I.%I', n.nspname, named.typname), pg_catalog.format_type(a.type, -1),
           CASE WHEN t.oid IN (114, 3802) THEN 'json'
                WHEN t.oid IN (199, 3807) THEN 'jsons'
                WHEN t.typcategory = 'A' THEN 'array'
                ELSE 'scalar' END
    FROM asked a JOIN pg_catalog.pg_type t ON t.oid = a.base
         JOIN pg_catalog.pg_type named ON named.oid = a.type
         JOIN pg_catalog.pg_namespace n ON n.oid = named.typnamespace
    WHERE t.typtype <> 'd'
    ORDER BY a.n";

/// What the columns' types are made of, through domains and arrays to the last: how many arrays, its number, its sort, its name,
/// and the type's own name for people.
const COLUMNS: &str = "
    WITH RECURSIVE asked (n, type, base, arrays) AS (
        SELECT a.n, a.type, a.type, 0
        FROM pg_catalog.unnest($1::pg_catalog.oid[]) WITH ORDINALITY AS a (type, n)
        UNION ALL
        SELECT a.n, a.type, CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END,
               CASE t.typtype WHEN 'd' THEN a.arrays ELSE a.arrays + 1 END
        FROM asked a JOIN pg_catalog.pg_type t ON t.oid = a.base
        WHERE t.typtype = 'd' OR t.typcategory = 'A' AND t.typelem <> 0
    )
    SELECT a.arrays::pg_catalog.text, t.oid::pg_catalog.text, t.typtype::pg_catalog.text, t.typname::pg_catalog.text,
           pg_catalog.format_type(a.type, -1)
    FROM asked a JOIN pg_catalog.pg_type t ON t.oid = a.base
    WHERE t.typtype <> 'd' AND NOT (t.typcategory = 'A' AND t.typelem <> 0)
    ORDER BY a.n";
/// Our own questions are asked of the server's own names; the tool's statement is checked by those of its role.
const OURS: &str = "SET LOCAL search_path = pg_catalog, pg_temp";
const THEIRS: &str = "SET LOCAL search_path = DEFAULT";

/// Lets the server check a statement, and learns its types. Nothing of it is run, and nothing of the check stays.
///
/// # Errors
///
/// It is no statement that a tool may run, or the server is gone. The connection is fit for nothing else then.
pub(super) async fn check(
    wire: &mut Wire,
    statement: &str,
    placeholders: usize,
    limits: &Limits,
) -> Result<Statement, NotCommitted> {
    if selects_into(statement) {
        return Err(NotCommitted::Flaw(Message::fixed(
            "SELECT INTO creates a table; write INSERT INTO … SELECT",
            "SELECT INTO 会创建表；请写 INSERT INTO … SELECT",
        )));
    }
    wire.rows("BEGIN READ ONLY", &[]).await?;
    for (name, value) in limits.settings() {
        // Both are ours.
        wire.rows(&format!("SET LOCAL {name} = {value}"), &[])
            .await?;
    }
    prepare(wire, statement).await?;
    wire.rows(OURS, &[]).await?;
    let rows = wire.rows(PARAMETERS, &[]).await?;
    let parameters: Vec<Parameter> = rows.into_iter().filter_map(Parameter::of).collect();
    wire.rows(THEIRS, &[]).await?;
    wire.rows("DEALLOCATE toolfleet_check", &[]).await?;
    if parameters.len() != placeholders {
        let count = parameters.len();
        return Err(NotCommitted::Flaw(said!(
            "the statement has {count} placeholders and the manifest {placeholders} params; apply a version in which they fit",
            "语句有 {count} 个占位符，清单有 {placeholders} 个 params；请应用两者一致的版本"
        )));
    }
    let text = with_placeholders(statement, |number| {
        let index = usize::try_from(number)
            .ok()
            .and_then(|number| number.checked_sub(1));
        match index.and_then(|index| parameters.get(index)) {
            // Apart from what stands beside it.
            Some(parameter) => format!(" (${number}::pg_catalog.text::{}) ", parameter.type_name),
            None => format!("${number}"),
        }
    });
    let Some(text) = text else {
        return Err(NotCommitted::Flaw(Message::fixed(
            "the statement cannot be read; apply a version that can",
            "语句无法读懂；请应用能读懂的版本",
        )));
    };
    // Our reading of the statement must not have made another one of it.
    prepare(wire, &text).await?;
    wire.rows("DEALLOCATE toolfleet_check", &[]).await?;
    let described = wire.describe(&text).await?;
    wire.rows(OURS, &[]).await?;
    let columns = columns(wire, described).await?;
    wire.rows("ROLLBACK", &[]).await?;
    Ok(Statement {
        text: text.into(),
        parameters,
        columns,
    })
}

/// By the extended protocol, as everything that has bind values, even none: it takes one statement.
async fn prepare(wire: &mut Wire, statement: &str) -> Result<(), NotCommitted> {
    let prepare = format!("PREPARE toolfleet_check AS {statement}");
    wire.rows(&prepare, &[]).await.map(drop)
}

impl Parameter {
    fn of(row: Vec<String>) -> Option<Self> {
        let mut row = row.into_iter();
        Some(Self {
            type_name: row.next()?,
            type_words: row.next()?,
            shape: match row.next()?.as_str() {
                "json" => Shape::Json,
                "jsons" => Shape::Jsons,
                "array" => Shape::Array,
                _ => Shape::Scalar,
            },
        })
    }
}

/// What each column is, of which the server told the name and the type.
async fn columns(
    wire: &mut Wire,
    described: Vec<(String, u32)>,
) -> Result<Vec<Column>, NotCommitted> {
    let oids: Vec<String> = described.iter().map(|(_, oid)| oid.to_string()).collect();
    let types = wire
        .rows(COLUMNS, &[&format!("{{{}}}", oids.join(","))])
        .await?;
    if types.len() != described.len() {
        return Err(NotCommitted::Lost);
    }
    let mut columns: Vec<Column> = Vec::new();
    for ((name, oid), row) in described.into_iter().zip(types) {
        let Some(kind) = Kind::of(row.as_slice()) else {
            let kind = row.last().cloned().unwrap_or_default();
            return Err(NotCommitted::Flaw(said!(
                "column {name} has the type {kind}, which has no JSON; cast it to text in the statement",
                "列 {name} 的类型是 {kind}，它没有 JSON 形式；请在语句中转换为 text"
            )));
        };
        if columns.iter().any(|other| other.name == name) {
            return Err(NotCommitted::Flaw(said!(
                "two columns are named {name}; give one another name with AS in the statement",
                "有两列都叫 {name}；请在语句中用 AS 给其中一列另起名字"
            )));
        }
        columns.push(Column { name, kind, oid });
    }
    Ok(columns)
}
