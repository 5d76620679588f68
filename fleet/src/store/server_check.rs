//! Is this Postgres fit to write to? What the server says of itself, and what of that is not safe.
//!
//! Read by one query and judged by a pure function. A process refuses to start for the same reasons that `doctor` explains.

use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::StoreError;

/// The settings and the state of a server, as one connection sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFacts {
    /// The version as a number: 150004 is 15.4.
    pub version: i32,
    /// Whether commits reach the disk.
    pub fsync: String,
    /// Whether a page that a crash tore can be repaired.
    pub full_page_writes: String,
    /// What our own sessions wait for before a commit is answered.
    pub synchronous_commit: String,
    /// Whether it is a standby.
    pub in_recovery: bool,
    /// Whether a session's transactions are read-only unless it says otherwise.
    pub read_only: bool,
    /// The isolation level of our transactions.
    pub isolation: String,
    /// Whether our triggers fire: they do not with the role `replica`.
    pub replication_role: String,
    /// Whether a page that cannot be read is taken for an empty one.
    pub zero_damaged_pages: String,
    /// Whether the server goes on after a failed fsync.
    pub data_sync_retry: String,
    /// The encoding of the database.
    pub encoding: String,
    /// Whether our role may read and write the ledger; true while there is none.
    pub role_may_write: bool,
}

/// One thing that is wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was found, and its consequence.
    pub what: String,
    /// What to do; empty where `what` says it.
    pub advice: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.advice.as_str() {
            "" => formatter.write_str(&self.what),
            advice => write!(formatter, "{}; {advice}", self.what),
        }
    }
}

/// The oldest server that has what we need.
const VERSION_MIN: i32 = 150_000;

/// Reads it. One statement, which takes no lock.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn read(connection: &mut PgConnection) -> Result<ServerFacts, StoreError> {
    let doing = "check the facts";
    let row = sqlx::query(
        "SELECT current_setting('server_version_num')::int AS version, current_setting('fsync') AS fsync, \
                current_setting('full_page_writes') AS full_page_writes, \
                current_setting('synchronous_commit') AS synchronous_commit, \
                pg_is_in_recovery() AS in_recovery, \
                (SELECT reset_val = 'on' FROM pg_settings WHERE name = 'default_transaction_read_only') AS read_only, \
                current_setting('transaction_isolation') AS isolation, \
                current_setting('session_replication_role') AS replication_role, \
                current_setting('zero_damaged_pages') AS zero_damaged_pages, \
                current_setting('data_sync_retry') AS data_sync_retry, \
                current_setting('server_encoding') AS encoding, \
                coalesce((SELECT has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') \
                          AND has_any_column_privilege(c.oid, 'UPDATE') \
                          FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                          WHERE n.nspname = 'toolfleet' AND c.relname = 'fleet'), true) AS role_may_write",
    )
    .fetch_one(connection)
    .await
    .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let read = |row: PgRow| -> Result<ServerFacts, sqlx::Error> {
        Ok(ServerFacts {
            version: row.try_get("version")?,
            fsync: row.try_get("fsync")?,
            full_page_writes: row.try_get("full_page_writes")?,
            synchronous_commit: row.try_get("synchronous_commit")?,
            in_recovery: row.try_get("in_recovery")?,
            read_only: row.try_get("read_only")?,
            isolation: row.try_get("isolation")?,
            replication_role: row.try_get("replication_role")?,
            zero_damaged_pages: row.try_get("zero_damaged_pages")?,
            data_sync_retry: row.try_get("data_sync_retry")?,
            encoding: row.try_get("encoding")?,
            role_may_write: row.try_get("role_may_write")?,
        })
    };
    read(row).map_err(|error| StoreError::unreadable(doing, error))
}

/// Everything that is not safe. Empty: it is fit to write to.
pub fn findings(facts: &ServerFacts) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |what: &str, advice: &str| {
        let (what, advice) = (what.to_owned(), advice.to_owned());
        found.push(Finding { what, advice });
    };
    if facts.version < VERSION_MIN {
        let version = facts.version / 10_000;
        let what = format!("the server is PostgreSQL {version}");
        add(&what, "use PostgreSQL 15 or newer");
    }
    if facts.in_recovery {
        let advice = "point DATABASE_URL at the primary";
        add("the server is a standby, which takes no writes", advice);
    } else if facts.read_only {
        let what = "transactions are read-only, so nothing can be recorded";
        add(
            what,
            "remove default_transaction_read_only for this server, user or database",
        );
    }
    if facts.fsync != "on" {
        let what = "fsync is off: a crash loses what was committed";
        add(what, "set fsync = on");
    }
    if facts.full_page_writes != "on" {
        let what = "full_page_writes is off: a crash can tear pages";
        add(what, "set full_page_writes = on");
    }
    if facts.synchronous_commit == "off" {
        let what = "synchronous_commit is off: answers would leave before they are durable";
        add(what, "remove what sets it for this user or database");
    }
    if facts.isolation != "read committed" {
        let what = format!(
            "the isolation level is {}: statements that look again would not see what others have done",
            facts.isolation
        );
        let advice = "remove default_transaction_isolation for this user or database";
        add(&what, advice);
    }
    if facts.replication_role != "origin" {
        let what = "session_replication_role is not origin: the ledger's own checks do not run";
        add(what, "remove what sets it for this user or database");
    }
    if facts.zero_damaged_pages != "off" {
        let what = "zero_damaged_pages is on: a damaged page would silently lose calls";
        add(what, "set zero_damaged_pages = off");
    }
    if facts.data_sync_retry != "off" {
        let what =
            "data_sync_retry is on: the server goes on after the disk refused what was committed";
        add(what, "set data_sync_retry = off and restart the server");
    }
    if facts.encoding != "UTF8" {
        let what = format!("the database keeps text as {}", facts.encoding);
        add(&what, "create the database with ENCODING 'UTF8'");
    }
    if !facts.role_may_write {
        let what = "this user may not read and write the ledger";
        let advice = "connect as the user who ran `toolfleet migrate`, or as a role of deploy/postgres/roles.sql";
        add(what, advice);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn safe() -> ServerFacts {
        ServerFacts {
            version: 150_004,
            fsync: "on".to_owned(),
            full_page_writes: "on".to_owned(),
            synchronous_commit: "on".to_owned(),
            in_recovery: false,
            read_only: false,
            isolation: "read committed".to_owned(),
            replication_role: "origin".to_owned(),
            zero_damaged_pages: "off".to_owned(),
            data_sync_retry: "off".to_owned(),
            encoding: "UTF8".to_owned(),
            role_may_write: true,
        }
    }

    #[test]
    fn safe_facts_has_no_findings() {
        assert_eq!(findings(&safe()), []);
        let synchronous_commit = "remote_apply".to_owned();
        let stricter = ServerFacts {
            synchronous_commit,
            ..safe()
        };
        assert_eq!(findings(&stricter), []);
    }

    #[test]
    fn everything_unsafe_is_found_at_once_with_what_to_do() {
        let off = || "off".to_owned();
        let found = findings(&ServerFacts {
            version: 140_010,
            fsync: off(),
            full_page_writes: off(),
            synchronous_commit: off(),
            in_recovery: true,
            // A standby is read-only as well; that is reported once.
            read_only: true,
            isolation: "serializable".to_owned(),
            replication_role: "replica".to_owned(),
            zero_damaged_pages: "on".to_owned(),
            data_sync_retry: "on".to_owned(),
            encoding: "SQL_ASCII".to_owned(),
            role_may_write: false,
        });
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected = [
            "PostgreSQL 14",
            "standby",
            "fsync",
            "full_page_writes",
            "synchronous_commit",
            "isolation",
            "session_replication_role",
            "zero_damaged_pages",
            "data_sync_retry",
            "SQL_ASCII",
            "may not read and write",
        ];
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected) && found.contains("; "), "{found}");
        }
    }
}
