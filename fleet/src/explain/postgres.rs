//! The meaning of a failure of Postgres, and what to do about it.

use std::io;

use super::{
    chain::{driver, system},
    destination::Destination,
};
use crate::store::{StoreError, server_check::Finding};

/// Words it. Without a destination, the place is left out.
pub(super) fn explain(problem: &StoreError, at: Option<&Destination>) -> Finding {
    let server = at.map_or_else(|| "Postgres".to_owned(), |at| format!("Postgres at {at}"));
    let setting = at.map_or("DATABASE_URL", |at| at.setting.as_str());
    let told = |what: String, advice: &str| Finding {
        what,
        advice: advice.to_owned(),
    };
    match problem {
        StoreError::Unavailable { doing, source } => away(&server, setting, at, doing, source),
        StoreError::Refused { doing, source } => refused(&server, setting, at, doing, source),
        StoreError::NotSent { doing } => told(
            format!("{doing}: the connection to {server} is lost, and nothing was sent"),
            "try again",
        ),
        StoreError::Unreadable { doing, what } => told(
            format!("{doing}: {what}"),
            "another release wrote it: use that one",
        ),
        // These contain their own advice.
        StoreError::UnsafeServer(what) => {
            told(format!("{server} is not fit for the ledger: {what}"), "")
        }
        StoreError::UnknownSchema(what) => told(format!("{server}: {what}"), ""),
        StoreError::BadUrl => told(
            format!("{setting} is not a postgres:// URL"),
            "write postgres://user:password@host:port/database, with %40 for an @ in the password",
        ),
    }
}

fn away(
    server: &str,
    setting: &str,
    at: Option<&Destination>,
    doing: &str,
    source: &sqlx::Error,
) -> Finding {
    let (what, advice) = match source {
        sqlx::Error::Io(problem) if problem.kind() == io::ErrorKind::ConnectionRefused => (
            format!("{server} is away: connection refused"),
            at.map_or_else(
                || format!("start it, or correct {setting}"),
                Destination::revival,
            ),
        ),
        sqlx::Error::Io(problem) if problem.to_string().contains("failed to lookup address") => {
            let host = at.and_then(|at| at.address.rsplit_once(':'));
            let host = host.map_or("the host", |(host, _port)| host);
            (
                format!("{host} ({setting}) is not the name of a machine"),
                "correct the host".to_owned(),
            )
        }
        sqlx::Error::Io(problem) if problem.kind() == io::ErrorKind::TimedOut => (
            format!("{server} does not answer"),
            "see whether the server hangs, a firewall stands between, or the address is another's"
                .to_owned(),
        ),
        sqlx::Error::Io(problem) => (
            format!("{server} closed the connection: {}", system(problem)),
            "look at its log, and whether the address is Postgres's".to_owned(),
        ),
        sqlx::Error::PoolTimedOut => (
            format!("{server} gave no connection in time"),
            "look at its log and its max_connections".to_owned(),
        ),
        sqlx::Error::Protocol(_) => (
            format!("what answers at {} is not Postgres", place(at)),
            at.map_or_else(|| format!("correct {setting}"), Destination::correction),
        ),
        sqlx::Error::Database(answer) => (
            format!("{server} is not ready: {}", answer.message()),
            "try again in a moment".to_owned(),
        ),
        other => (
            format!("{server} does not answer ({doing}): {}", driver(other)),
            "look at its log".to_owned(),
        ),
    };
    Finding { what, advice }
}

fn refused(
    server: &str,
    setting: &str,
    at: Option<&Destination>,
    doing: &str,
    source: &sqlx::Error,
) -> Finding {
    let answer = source.as_database_error();
    let code = answer.and_then(|answer| answer.code()).unwrap_or_default();
    let message = answer.map(|answer| answer.message()).unwrap_or_default();
    let role = at.and_then(|at| at.role.as_deref()).unwrap_or("this role");
    let database = at.and_then(|at| at.database.as_deref());
    let database = database.unwrap_or("the database");
    let (what, advice) = match &*code {
        "28P01" => (
            format!("{server} does not take the password of {role}"),
            format!("correct it in {setting}"),
        ),
        "28000" => (
            format!("{server} does not let {role} in: {message}"),
            format!("correct the role in {setting}, or allow it in pg_hba.conf"),
        ),
        "3D000" => (
            format!("{server} has no database {database}"),
            format!("create it, or correct {setting}"),
        ),
        "42501" => (
            format!("{server} does not allow {role} to {doing}: {message}"),
            format!(
                "{}, or name another role in {setting}",
                grant(doing, role, database)
            ),
        ),
        "53300" => (
            format!("{server} has no connection left: {message}"),
            "raise max_connections, or end what holds them".to_owned(),
        ),
        "53100" => (
            format!("{server} could not {doing}: {message}"),
            "make room on its disk".to_owned(),
        ),
        "55P03" | "57014" | "40P01" => (
            format!("{server} could not {doing} now: {message}"),
            "try again".to_owned(),
        ),
        _other => (
            format!("{server} refused to {doing}: {}", driver(source)),
            "look at its log".to_owned(),
        ),
    };
    Finding { what, advice }
}

/// The grant that a role lacks for this.
fn grant(doing: &str, role: &str, database: &str) -> String {
    if doing == "migrate the schema" {
        format!(
            "run this as the owner of the schema, or GRANT CREATE ON DATABASE {database} TO {role}"
        )
    } else {
        format!(
            "GRANT USAGE ON SCHEMA toolfleet TO {role}, and SELECT on its views (docs/history.md)"
        )
    }
}

fn place(at: Option<&Destination>) -> String {
    at.map_or_else(|| "this address".to_owned(), ToString::to_string)
}
