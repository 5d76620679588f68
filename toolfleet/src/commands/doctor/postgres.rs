//! The ledger: its server, its schema, and its contents.

use std::{collections::BTreeMap, time::Duration};

use fleet::{
    explain::Servers,
    ids::QueueName,
    manifest::ExecutorSpec,
    mcp,
    registry::{Registry, Tool},
    store::{
        PgPool, StoreError,
        health::{self, Doubts, Partitions, Server, Waiting, Worker},
        locks::blockers,
        server_check::{self, ServerFacts},
        session::{Postgres, within},
        snapshot::{self, HolderKind, SnapshotHolder},
    },
};
use time::OffsetDateTime;

use super::{
    check::{Check, age, capital, count},
    locks,
};
use crate::commands::connect;

/// What the other checks need to know.
#[derive(Debug, Default)]
pub(super) struct PostgresState {
    pub(super) server: Option<Server>,
    pub(super) ledger: Option<Ledger>,
}

/// The contents of the ledger.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) pool: PgPool,
    /// The tools of every queue, but for those that look at MCP servers.
    pub(super) queues: BTreeMap<QueueName, Vec<OfferedTool>>,
    /// Tools that are statements on this database.
    pub(super) on_the_fleet: Vec<String>,
    /// The largest answer that one of these tools may give, in bytes.
    pub(super) output_max: usize,
    /// The longest arguments that one of them takes, in bytes.
    pub(super) arguments_max: usize,
    pub(super) waiting: Vec<Waiting>,
    pub(super) workers: Vec<Worker>,
    pub(super) doubts: Doubts,
}

/// A tool that is offered, and its version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OfferedTool {
    pub(super) name: String,
    pub(super) version: i32,
}

impl Ledger {
    /// Workers that are alive by the ledger.
    pub(super) fn living(&self) -> impl Iterator<Item = &Worker> {
        self.workers.iter().filter(|worker| worker.state != "dead")
    }
}

/// How long each read may take.
const LOOK_MAX: Duration = Duration::from_secs(6);
/// The most connections to Postgres of one process.
const CONNECTIONS_OF_A_PROCESS: usize = 10;
/// How far this machine's clock may be off before a person should look.
const CLOCK_OFF_MAX_S: f64 = 5.0;

/// Checks all of it, as far as Postgres answers.
pub(super) async fn look(postgres: &Postgres, servers: &Servers) -> (Vec<Check>, PostgresState) {
    let (mut checks, mut seen) = (Vec::new(), PostgresState::default());
    let looked = look_into(postgres, &mut checks, &mut seen).await;
    if let Err(problem) = looked {
        let name = match problem {
            StoreError::UnknownSchema(_) => "schema",
            _ => "postgres",
        };
        checks.push(Check::error(name, problem, servers));
    }
    (checks, seen)
}

/// This machine's clock, to be compared with Postgres's.
#[expect(
    clippy::disallowed_methods,
    reason = "whether it is wrong is the question"
)]
fn wall_clock() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

async fn look_into(
    postgres: &Postgres,
    checks: &mut Vec<Check>,
    seen: &mut PostgresState,
) -> Result<(), StoreError> {
    let mut connection = postgres.connect_to_look().await?;
    let reading = server_check::read(&mut connection);
    let facts = within("check the server", LOOK_MAX, reading).await?;
    drop(connection);
    let pool = postgres.pool_for_reading(1);
    let before = wall_clock();
    let server = health::server(&pool).await?;
    let off = clock_off(before, server.now, wall_clock());
    checks.extend(judge(&facts, &server));
    let holder = within(
        "look for old transactions",
        LOOK_MAX,
        snapshot::oldest(&pool),
    );
    checks.push(transactions(holder.await?.as_ref()));
    let blocking = within("look for locks", LOOK_MAX, blockers(&pool));
    checks.push(locks::judge(&blocking.await?));
    checks.push(autovacuum(&server));
    checks.push(clock(off));
    seen.server = Some(server);

    connect::known_schema(postgres).await?;
    checks.push(Check::ok("schema", "as this program knows it"));
    checks.extend(history(&health::partitions(&pool).await?));
    let registry = Registry::default();
    within("read tools", LOOK_MAX, registry.refresh(&pool)).await?;
    let default = "default".parse();
    let default: QueueName = default.expect("the default queue has a valid name");
    let queues = registry.queues().into_iter().chain([default]);
    let mut queues: BTreeMap<QueueName, Vec<OfferedTool>> =
        queues.map(|queue| (queue, Vec::new())).collect();
    let run = registry.all_offered().into_iter();
    let run = run.filter(|tool| !tool.manifest.is_run_by_client() && !looks_at_servers(tool));
    for tool in run {
        let tools = queues.entry(tool.manifest.queue.clone()).or_default();
        tools.push(OfferedTool {
            name: tool.manifest.name.to_string(),
            version: tool.manifest.version,
        });
    }
    queues.values_mut().for_each(|tools| tools.sort_unstable());
    let is_on_the_fleet =
        |spec: &ExecutorSpec| matches!(spec, ExecutorSpec::Sql(sql) if sql.is_on_fleet());
    let on_the_fleet = registry.all_current();
    let on_the_fleet = on_the_fleet.iter().map(|tool| &tool.manifest);
    let on_the_fleet = on_the_fleet.filter(|manifest| is_on_the_fleet(&manifest.executor));
    let on_the_fleet = on_the_fleet.map(|manifest| manifest.name.to_string());
    let outputs = registry.all_current();
    let outputs = outputs.iter().filter(|tool| !looks_at_servers(tool));
    let outputs = outputs.map(|tool| tool.manifest.output_limit);
    let taken = registry.all_current();
    let taken = taken
        .iter()
        .map(|tool| tool.manifest.arguments_limits().bytes);
    seen.ledger = Some(Ledger {
        queues,
        on_the_fleet: on_the_fleet.collect(),
        output_max: outputs.max().unwrap_or_default(),
        arguments_max: taken.max().unwrap_or_default(),
        waiting: health::waiting(&pool).await?,
        workers: health::workers(&pool).await?,
        doubts: health::doubts(&pool).await?,
        pool,
    });
    Ok(())
}

/// Whether it is one of the fleet's own tools that look at MCP servers.
///
/// They come with the first server of a queue and stay. An operator cannot change their manifests, so a finding about one would stay for
/// ever. `toolfleet mcp discover` says itself when no worker has looked, and reads what was found from the ledger where no message
/// carries it.
fn looks_at_servers(tool: &Tool) -> bool {
    mcp::is_for_operators(tool.manifest.name.as_str())
}

fn judge(facts: &ServerFacts, server: &Server) -> Vec<Check> {
    let found = server_check::findings(facts);
    if found.is_empty() {
        let found = format!(
            "PostgreSQL {} takes writes and keeps what it commits",
            server.version
        );
        return vec![Check::ok("postgres", found)];
    }
    let fail = |finding: server_check::Finding| {
        let advice = format!("{}: no process starts before", capital(&finding.advice));
        Check::unfit("postgres", finding.what, advice)
    };
    found.into_iter().map(fail).collect()
}

/// How long a transaction may be open before a person should look.
const OPEN_MAX: Duration = Duration::from_secs(60);
/// The same where Postgres does not say how long: so many transactions have begun since.
const TRANSACTIONS_MAX: u32 = 100_000;

fn transactions(holder: Option<&SnapshotHolder>) -> Check {
    let name = "transactions";
    let is_old = |holder: &&SnapshotHolder| match holder.open_for {
        Some(open_for) => open_for > OPEN_MAX,
        None => holder.transactions > TRANSACTIONS_MAX,
    };
    let Some(holder) = holder.filter(is_old) else {
        return Check::ok(name, "none keeps vacuum from its work");
    };
    let (who, pid) = (&holder.name, holder.pid.unwrap_or_default());
    let what = match holder.kind {
        HolderKind::Session => format!("a transaction of user {who} (process {pid})"),
        HolderKind::Prepared => format!("the prepared transaction {who}"),
        HolderKind::Replica => format!("a query on a replica of user {who} (process {pid})"),
        HolderKind::Slot => format!("the replication slot {who}"),
    };
    let since = match holder.open_for {
        Some(open_for) => format!("for {}", age(open_for.as_secs_f64())),
        None => format!("since {} transactions ago", holder.transactions),
    };
    let found = format!(
        "{what} has kept vacuum from its work {since}: dead rows stay, and the ledger becomes slower"
    );
    let advice = match holder.kind {
        HolderKind::Session if holder.open_for.is_none() => format!(
            "End it if it is not needed: SELECT pg_terminate_backend({pid}). GRANT pg_read_all_stats to this user to see since when"
        ),
        HolderKind::Session => {
            format!("End it if it is not needed: SELECT pg_terminate_backend({pid})")
        }
        HolderKind::Prepared => {
            "COMMIT PREPARED or ROLLBACK PREPARED it (pg_prepared_xacts)".into()
        }
        HolderKind::Replica => {
            "End the long query on the replica, or set hot_standby_feedback to off there".into()
        }
        HolderKind::Slot => {
            "Connect its replica again, or drop the slot (pg_drop_replication_slot)".into()
        }
    };
    Check::warn(name, found, advice)
}

/// How seldom autovacuum may look, in seconds, where nothing else vacuums the open calls.
const NAPTIME_MAX_S: i64 = 5;

fn autovacuum(server: &Server) -> Check {
    let name = "autovacuum";
    if !server.autovacuum {
        let found = "autovacuum or track_counts is off: tables grow and statements become slow";
        return Check::warn(name, found, "Set both to on");
    }
    let Some(seconds) = server.only_vacuum_s.filter(|it| *it > NAPTIME_MAX_S) else {
        return Check::ok(name, "on");
    };
    let found = format!(
        "it looks every {}, and below PostgreSQL 17 the role of dispatchers may not vacuum what it changes: open calls grow and \
         statements become slow",
        age(f64::from(u32::try_from(seconds).unwrap_or(u32::MAX)))
    );
    let advice = "ALTER SYSTEM SET autovacuum_naptime = '1s', then SELECT pg_reload_conf()";
    Check::warn(name, found, advice)
}

/// How far this machine's clock is off, in seconds, beyond what the round trip explains.
fn clock_off(before: OffsetDateTime, postgres: OffsetDateTime, after: OffsetDateTime) -> f64 {
    let ahead = (before - postgres).as_seconds_f64();
    let behind = (postgres - after).as_seconds_f64();
    ahead.max(0.0) - behind.max(0.0)
}

fn clock(off: f64) -> Check {
    if off.abs() <= CLOCK_OFF_MAX_S {
        return Check::ok("clock", "this machine and Postgres agree");
    }
    let side = if off > 0.0 { "ahead of" } else { "behind" };
    let found = format!(
        "this machine is {} {side} Postgres; nothing is decided by it, but logs are misleading",
        age(off.abs())
    );
    Check::warn("clock", found, "Let both follow a time server")
}

fn history(partitions: &Partitions) -> Vec<Check> {
    let name = "partitions";
    let mut checks = Vec::new();
    if partitions.missing_days > 0 {
        let missing = usize::try_from(partitions.missing_days).unwrap_or_default();
        let found = format!(
            "{} from today on lack their partition; what ends then goes to the default one",
            count(missing, "day")
        );
        let advice = "A running dispatcher makes them every hour: look at its log";
        checks.push(Check::warn(name, found, advice));
    }
    if partitions.stray_rows > 0 {
        let many = if partitions.stray_rows >= 1_000 {
            "at least "
        } else {
            ""
        };
        let found = format!(
            "{many}{} rows of history lie in a default partition and will never be dropped",
            partitions.stray_rows
        );
        let advice =
            "Nothing is wrong with them; they came while no dispatcher made partitions ahead";
        checks.push(Check::warn(name, found, advice));
    }
    if checks.is_empty() {
        checks.push(Check::ok(name, "made ahead, and nothing lies outside"));
    }
    checks
}

/// Whether there are enough connections for these processes and one more of each, as during an upgrade.
pub(super) fn connections(server: &Server, workers: usize, dispatchers: usize) -> Check {
    let needed = (workers + dispatchers + 2) * CONNECTIONS_OF_A_PROCESS;
    let strangers = usize::try_from(server.strangers).unwrap_or_default();
    let there = usize::try_from(server.connections_max).unwrap_or_default();
    let found = format!(
        "{there} may be had; {} and {} with one more of each need up to {needed}, others have {strangers}",
        count(dispatchers, "dispatcher"),
        count(workers, "worker")
    );
    if needed + strangers <= there {
        return Check::ok("connections", found);
    }
    let advice = "Raise max_connections: who gets none is told that Postgres is away";
    Check::warn("connections", found, advice)
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    fn server() -> Server {
        Server {
            version: "15.4".to_owned(),
            connections_max: 97,
            strangers: 3,
            autovacuum: true,
            only_vacuum_s: None,
            now: OffsetDateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_clock_is_off_by_what_the_way_of_the_answer_cannot_explain() {
        let at = |seconds| OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(seconds);
        assert!(clock_off(at(10), at(12), at(14)).abs() < 0.001);
        assert!((clock_off(at(30), at(12), at(32)) - 18.0).abs() < 0.001);
        assert!((clock_off(at(1), at(12), at(2)) + 10.0).abs() < 0.001);
        assert_eq!(clock(4.0).status, Status::Ok);
        assert!(clock(18.0).found.contains("18 s ahead of"));
        assert!(clock(-18.0).found.contains("18 s behind"));
    }

    #[test]
    fn what_keeps_vacuum_from_its_work_is_named_with_how_to_end_it() {
        let holder = |kind, open_for, transactions| SnapshotHolder {
            kind,
            pid: Some(4_711),
            name: "ada".to_owned(),
            open_for,
            transactions,
            horizon: 1,
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let session = HolderKind::Session;
        assert_eq!(transactions(None).status, Status::Ok);
        let young = holder(session, seconds(59), 5_000_000);
        assert_eq!(transactions(Some(&young)).status, Status::Ok);
        assert_eq!(
            transactions(Some(&holder(session, None, 100_000))).status,
            Status::Ok
        );
        let cases = [
            (
                holder(session, seconds(300), 5),
                "user ada (process 4711)",
                "pg_terminate_backend(4711)",
            ),
            (
                holder(session, None, 100_001),
                "100001 transactions ago",
                "pg_read_all_stats",
            ),
            (
                holder(HolderKind::Prepared, seconds(300), 5),
                "the prepared transaction ada",
                "ROLLBACK PREPARED",
            ),
            (
                holder(HolderKind::Replica, seconds(300), 5),
                "on a replica",
                "hot_standby_feedback",
            ),
            (
                holder(HolderKind::Slot, None, 100_001),
                "the replication slot ada",
                "pg_drop_replication_slot",
            ),
        ];
        for (holder, found, advice) in cases {
            let check = transactions(Some(&holder));
            assert_eq!(check.status, Status::Warn);
            assert!(check.found.contains(found), "{}", check.found);
            assert!(check.advice.unwrap().contains(advice));
        }
    }

    #[test]
    fn autovacuum_has_to_look_often_where_nothing_else_vacuums() {
        let every = |only_vacuum_s| {
            let server = Server {
                only_vacuum_s,
                ..server()
            };
            autovacuum(&server)
        };
        for fine in [None, Some(1), Some(5)] {
            assert_eq!(every(fine).status, Status::Ok, "{fine:?}");
        }
        let seldom = every(Some(60));
        assert_eq!(seldom.status, Status::Warn);
        assert!(seldom.found.contains("every 60 s"), "{}", seldom.found);
        assert!(seldom.advice.unwrap().contains("autovacuum_naptime = '1s'"));
    }

    #[test]
    fn connections_have_to_last_for_one_more_of_each() {
        assert_eq!(connections(&server(), 5, 2).status, Status::Ok);
        assert_eq!(connections(&server(), 6, 2).status, Status::Warn);
    }

    #[test]
    fn history_that_nobody_keeps_is_found() {
        let judge = |missing_days, stray_rows| {
            let checks = history(&Partitions {
                missing_days,
                stray_rows,
            });
            checks.iter().map(|check| check.status).collect::<Vec<_>>()
        };
        assert_eq!(judge(0, 0), [Status::Ok]);
        assert_eq!(judge(1, 0), [Status::Warn]);
        assert_eq!(judge(2, 1_000), [Status::Warn, Status::Warn]);
    }
}
