//! **What keeps vacuum from freeing rows?** The oldest snapshot that may still see rows of the ledger.
//!
//! Vacuum frees no row that some transaction may still see. An open transaction of another session, a prepared transaction, and
//! a replica that reports its own queries all hold a snapshot. While one is old, every move of a call leaves a dead row behind,
//! and statements become slower. A session of another database has no influence here.

use std::time::Duration;

use sqlx::{PgPool, postgres::PgRow};
use tokio::time::Instant;

use super::{StoreError, answer::listen, columns::Columns};

/// The kind of holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HolderKind {
    /// A session with an open transaction.
    Session,
    /// A prepared transaction, which belongs to no session any more.
    Prepared,
    /// A replica that reports the oldest snapshot of its own queries (`hot_standby_feedback`).
    Replica,
    /// A replication slot that keeps it for a replica, connected or not.
    Slot,
}

/// The holder of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotHolder {
    /// What it is.
    pub kind: HolderKind,
    /// Its process; `None` for a prepared transaction and for a slot without a replica.
    pub pid: Option<i32>,
    /// The user of a session, the identifier of a prepared transaction, the name of a slot.
    pub name: String,
    /// How long its transaction has been open. `None` where Postgres does not know, or does not show it to this user: for
    /// sessions of other users the user needs `pg_read_all_stats`.
    pub open_for: Option<Duration>,
    /// How many transactions have begun since.
    pub transactions: u32,
    /// The oldest transaction whose rows it may still need: it stays the same as long as the snapshot does.
    pub horizon: u32,
}

/// The holder that holds back vacuum most; `None` where there is none. Own statement, takes no lock, changes nothing.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn oldest(pool: &PgPool) -> Result<Option<SnapshotHolder>, StoreError> {
    let doing = "look what keeps vacuum from its work";
    // A session may have a snapshot and a transaction id; the older one counts. A user without `pg_read_all_stats` sees both of
    // any session, but neither its type nor its start; a replica's process belongs to no database. The snapshot of a vacuum keeps
    // no other one from anything.
    let row = listen(sqlx::query(
        "SELECT kind, pid, name, (extract(epoch FROM now() - since) * 1000)::bigint, age(horizon), horizon::text::bigint \
         FROM ( \
             SELECT CASE WHEN datname IS NULL THEN 'replica' ELSE 'session' END AS kind, \
                    pid, coalesce(usename, '')::text AS name, xact_start AS since, \
                    CASE WHEN backend_xmin IS NULL OR age(backend_xid) > age(backend_xmin) THEN backend_xid \
                         ELSE backend_xmin END AS horizon \
             FROM pg_stat_activity \
             WHERE pid <> pg_backend_pid() AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum) \
               AND coalesce(backend_type, 'hidden') IN ('client backend', 'walsender', 'hidden') \
               AND coalesce(datname, current_database()) = current_database() \
             UNION ALL \
             SELECT 'prepared', NULL, gid, prepared, transaction FROM pg_prepared_xacts WHERE database = current_database() \
             UNION ALL \
             SELECT 'slot', active_pid, slot_name::text, NULL, xmin FROM pg_replication_slots) held \
         WHERE horizon IS NOT NULL ORDER BY age(horizon) DESC, since LIMIT 1",
    )
    .fetch_optional(pool)).await;
    row.and_then(|row| row.as_ref().map(read).transpose())
        .map_err(|error| StoreError::from_sqlx(doing, error))
}

fn read(row: &PgRow) -> Result<SnapshotHolder, sqlx::Error> {
    let mut columns = Columns::of(row);
    let kind: String = columns.next()?;
    Ok(SnapshotHolder {
        kind: match kind.as_str() {
            "prepared" => HolderKind::Prepared,
            "replica" => HolderKind::Replica,
            "slot" => HolderKind::Slot,
            _ => HolderKind::Session,
        },
        pid: columns.next()?,
        name: columns.next()?,
        open_for: columns
            .next::<Option<i64>>()?
            .map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0))),
        transactions: u32::try_from(columns.next::<i32>()?).unwrap_or(0),
        horizon: u32::try_from(columns.next::<i64>()?).unwrap_or(0),
    })
}

/// How long the oldest snapshot has existed, for a process that looks repeatedly. Pure: the time is an argument.
#[derive(Debug, Default)]
pub struct SnapshotWatch {
    /// The last horizon, and since when it has been the same.
    since: Option<(u32, Instant)>,
}

impl SnapshotWatch {
    /// The age by Postgres, or the time since it was first seen here, whichever is more; zero where no transaction has begun
    /// since.
    pub fn age(&mut self, holder: Option<&SnapshotHolder>, now: Instant) -> Duration {
        let Some(holder) = holder.filter(|holder| holder.transactions > 0) else {
            self.since = None;
            return Duration::ZERO;
        };
        let (_, since) = self
            .since
            .take_if(|(horizon, _)| *horizon == holder.horizon)
            .unwrap_or((holder.horizon, now));
        self.since = Some((holder.horizon, since));
        let seen = now.saturating_duration_since(since);
        holder.open_for.unwrap_or_default().max(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(horizon: u32, transactions: u32, open_for: Option<u64>) -> SnapshotHolder {
        SnapshotHolder {
            kind: HolderKind::Session,
            pid: Some(4_711),
            name: "ada".to_owned(),
            open_for: open_for.map(Duration::from_secs),
            transactions,
            horizon,
        }
    }

    #[test]
    fn a_snapshot_is_as_old_as_postgres_says_or_as_long_as_it_was_seen() {
        let (mut watch, now) = (SnapshotWatch::default(), Instant::now());
        let seconds = Duration::from_secs;
        let mut age = |holder: Option<&SnapshotHolder>, at| watch.age(holder, now + seconds(at));
        assert_eq!(age(Some(&holder(7, 10, Some(300))), 0), seconds(300));
        // A user without the right to see the start.
        assert_eq!(age(Some(&holder(8, 1, None)), 10), seconds(0));
        assert_eq!(age(Some(&holder(8, 900, None)), 70), seconds(60));
        // Another holder has become the oldest.
        assert_eq!(age(Some(&holder(9, 900, None)), 80), seconds(0));
        // An idle database may have an old transaction and nothing to free.
        assert_eq!(age(Some(&holder(9, 0, Some(50))), 90), seconds(0));
        assert_eq!(age(None, 100), seconds(0));
        assert_eq!(age(Some(&holder(9, 900, None)), 110), seconds(0));
    }
}
