//! What a server says of a statement before it runs: whether a tool may run it, the types of its parameters, its columns.
//!
//! `PREPARE … AS` takes only one `SELECT`, `INSERT`, `UPDATE`, `DELETE`, `MERGE` or `VALUES`. So `COMMIT`, `SET`, `COPY`, `DO`,
//! `CALL` and all DDL are syntax errors to the server itself, and the extended protocol refuses a second statement. `SELECT
//! INTO`, which the server accepts, is refused here. Then each `$n` becomes `$n::text::type`: every parameter is sent as text,
//! so numbers stay exact and any type works.

use std::sync::Arc;

use fleet::{
    manifest::sql::{selects_into, with_placeholders},
    said,
    wire::message::Message,
};
use sqlx::{
    AssertSqlSafe, Column as _, Executor, PgConnection, Row, SqlSafeStr, Statement as _,
    TypeInfo as _,
    postgres::{PgRow, types::Oid},
};

use super::{kind::Kind, not_committed::NotCommitted};

/// A statement that a tool may run.
#[derive(Debug)]
pub struct Statement {
    /// Its text, with the types of its parameters written out.
    pub(super) text: Arc<str>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) columns: Vec<Column>,
}

/// The type of a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameter {
    /// The type as SQL writes it, independent of the `search_path`.
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
    /// The oid of its type, by which a later answer shows that it is unchanged.
    oid: Option<Oid>,
}

impl Statement {
    /// Whether an answer has the columns that the server described when it checked the statement.
    pub(super) fn answers(&self, row: &PgRow) -> bool {
        let columns = row.columns();
        columns.len() == self.columns.len()
            && columns.iter().zip(&self.columns).all(|(column, known)| {
                column.name() == known.name && column.type_info().oid() == known.oid
            })
    }
}

/// The types of the statement that was just prepared; a domain is followed to its base type.
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

/// Has the server check a statement, and learns its types. Nothing of it is run.
pub(super) async fn check(
    connection: &mut PgConnection,
    statement: &str,
    placeholders: usize,
) -> Result<Statement, NotCommitted> {
    if selects_into(statement) {
        return Err(NotCommitted::Flaw(Message::fixed(
            "SELECT INTO creates a table; write INSERT INTO … SELECT",
            "SELECT INTO 会创建表；请写 INSERT INTO … SELECT",
        )));
    }
    prepare(connection, statement).await?;
    // Our own query uses the server's own names; the tool's statement is checked with the names of its role.
    sqlx::raw_sql("SET LOCAL search_path = pg_catalog, pg_temp")
        .execute(&mut *connection)
        .await?;
    let rows = sqlx::query(PARAMETERS)
        .persistent(false)
        .fetch_all(&mut *connection)
        .await?;
    let parameters = rows
        .iter()
        .map(|row| {
            let shape = match row.try_get::<&str, _>(2)? {
                "json" => Shape::Json,
                "jsons" => Shape::Jsons,
                "array" => Shape::Array,
                _ => Shape::Scalar,
            };
            Ok(Parameter {
                type_name: row.try_get(0)?,
                type_words: row.try_get(1)?,
                shape,
            })
        })
        .collect::<Result<Vec<_>, sqlx::Error>>()?;
    sqlx::raw_sql("SET LOCAL search_path = DEFAULT; DEALLOCATE toolfleet_check")
        .execute(&mut *connection)
        .await?;
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
            // With spaces, so that it does not join with its neighbours.
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
    // For unusual columns the driver asks the server more, along the role's path; where the role put false answers there, the
    // tool fails here. It also shows that our rewriting has not made another statement of it.
    prepare(connection, &text).await?;
    connection.execute("DEALLOCATE toolfleet_check").await?;
    let prepared = connection
        .prepare(AssertSqlSafe(text.clone()).into_sql_str())
        .await?;
    let mut columns: Vec<Column> = Vec::new();
    for column in prepared.columns() {
        let (name, info) = (column.name(), column.type_info());
        let Some(kind) = Kind::of(info) else {
            let kind = info.name().to_lowercase();
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
        columns.push(Column {
            name: name.to_owned(),
            kind,
            oid: info.oid(),
        });
    }
    Ok(Statement {
        text: text.into(),
        parameters,
        columns,
    })
}

/// By the extended protocol, which takes one statement only.
async fn prepare(connection: &mut PgConnection, statement: &str) -> Result<(), NotCommitted> {
    let prepare = AssertSqlSafe(format!("PREPARE toolfleet_check AS {statement}"));
    sqlx::query(prepare)
        .persistent(false)
        .execute(connection)
        .await?;
    Ok(())
}
