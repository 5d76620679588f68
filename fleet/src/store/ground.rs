//! The ground that the ledger stands on: what Postgres says of itself, and what of it is not safe.
//!
//! Read by one query, judged by a pure function: a process refuses to start on what `doctor` explains.

use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::StoreError;

/// What one connection sees of its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ground {
    /// The version as a number: 150004 is 15.4.
    pub version: i32,
    /// Whether what is committed reaches the disk at all.
    pub fsync: String,
    /// Whether a page that a crash tore can be repaired.
    pub full_page_writes: String,
    /// What our own sessions wait for before a commit is answered.
    pub synchronous_commit: String,
    /// Whether it only follows another server.
    pub in_recovery: bool,
}

/// One thing that is not as it has to be, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was found and what it leads to.
    pub what: String,
    /// What to do.
    pub advice: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}; {}", self.what, self.advice)
    }
}

/// The oldest server that has what we need.
const VERSION_MIN: i32 = 150_000;

/// Reads it. One statement, which takes no lock.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn read(connection: &mut PgConnection) -> Result<Ground, StoreError> {
    let doing = "check the ground";
    let row = sqlx::query(
        "SELECT current_setting('server_version_num')::int AS version, current_setting('fsync') AS fsync, \
                current_setting('full_page_writes') AS full_page_writes, \
                current_setting('synchronous_commit') AS synchronous_commit, \
                pg_is_in_recovery() AS in_recovery",
    )
    .fetch_one(connection)
    .await
    .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let read = |row: PgRow| -> Result<Ground, sqlx::Error> {
        Ok(Ground {
            version: row.try_get("version")?,
            fsync: row.try_get("fsync")?,
            full_page_writes: row.try_get("full_page_writes")?,
            synchronous_commit: row.try_get("synchronous_commit")?,
            in_recovery: row.try_get("in_recovery")?,
        })
    };
    read(row).map_err(|error| StoreError::unreadable(doing, error))
}

/// Everything about it that is not safe. Empty: writes may go there.
pub fn findings(ground: &Ground) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |what: &str, advice: &str| {
        let (what, advice) = (what.to_owned(), advice.to_owned());
        found.push(Finding { what, advice });
    };
    if ground.version < VERSION_MIN {
        let version = ground.version / 10_000;
        let what = format!("the server is PostgreSQL {version}");
        add(&what, "use PostgreSQL 15 or newer");
    }
    if ground.in_recovery {
        let advice = "point DATABASE_URL at the primary";
        add("the server is a standby, which takes no writes", advice);
    }
    if ground.fsync != "on" {
        let what = "fsync is off: a crash loses what was committed";
        add(what, "set fsync = on");
    }
    if ground.full_page_writes != "on" {
        let what = "full_page_writes is off: a crash can tear pages";
        add(what, "set full_page_writes = on");
    }
    if ground.synchronous_commit == "off" {
        let what = "synchronous_commit is off: answers would leave before they are durable";
        add(what, "remove what sets it for this user or database");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn safe() -> Ground {
        Ground {
            version: 150_004,
            fsync: "on".to_owned(),
            full_page_writes: "on".to_owned(),
            synchronous_commit: "on".to_owned(),
            in_recovery: false,
        }
    }

    #[test]
    fn safe_ground_has_no_findings() {
        assert_eq!(findings(&safe()), []);
        let synchronous_commit = "remote_apply".to_owned();
        let stricter = Ground {
            synchronous_commit,
            ..safe()
        };
        assert_eq!(findings(&stricter), []);
    }

    #[test]
    fn everything_unsafe_is_found_at_once_with_what_to_do() {
        let off = || "off".to_owned();
        let found = findings(&Ground {
            version: 140_010,
            fsync: off(),
            full_page_writes: off(),
            synchronous_commit: off(),
            in_recovery: true,
        });
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected = [
            "PostgreSQL 14",
            "standby",
            "fsync",
            "full_page_writes",
            "synchronous_commit",
        ];
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected) && found.contains("; "), "{found}");
        }
    }
}
