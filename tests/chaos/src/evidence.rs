//! The files that a run leaves: for the oracle, and for people when the oracle finds a breach.

use std::{
    fs,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use futures_util::TryStreamExt;
use sqlx::AssertSqlSafe;
use tokio::time::{Instant, sleep};

use crate::{
    effects,
    moment::{Moment, moment},
    oracle::{self, Ends, Exit, Facts, How, Injected, Struck},
    wire::{
        nats::{self, Fault, Message},
        postgres,
    },
    world::World,
};

/// How long processes of tools may outlive the worker that started them.
const LEFTOVER_MAX: Duration = Duration::from_secs(6);
const POLL: Duration = Duration::from_millis(50);
/// The clients' file in the folder of a run.
pub(crate) const HISTORY: &str = "history.jsonl";
/// Part of many calls' arguments: no log may hold it.
const ARGUMENT: &str = "DROP TABLE tools.accounts";
/// What a person wants to see of the ledger.
const VIEWS: [&str; 6] = [
    "calls",
    "attempts",
    "call_events",
    "approvals",
    "in_doubt",
    "workers",
];

/// Lets the fleet leave, and collects all that is known of the run.
///
/// # Errors
///
/// A file cannot be read, or Postgres does not answer.
pub(crate) async fn collect(
    world: &mut World,
    out: &Path,
    clients_began: Moment,
    healed_at: Option<Moment>,
) -> Result<Facts> {
    let pool = world.servers.database.pool.clone();
    world.scrape().await;
    // Before those leave who would let them go.
    let held = oracle::held(&pool).await?;
    let stayed = world.leave().await?;
    let leftover_processes = until_gone(&world.effects_file).await;
    let ends = Ends {
        history: out.join(HISTORY),
        effects: world.effects_file.clone(),
        tables: effects::read_tables(&pool)
            .await?
            .into_iter()
            .map(|row| (row.tool, row.n, row.times))
            .collect(),
        totals: Some((i64::try_from(effects::TOTAL)?, effects::total(&pool).await?)),
        injected: injected(world, clients_began),
        metrics: world.metrics(),
        logs: logs(out)?.into_iter().chain(nats_log(world)?).collect(),
        leftover_processes,
        secret_marker: Some(ARGUMENT.to_owned()),
        clock_moves: world.clock_moves.clone(),
        held,
        healed_at,
        exits: exits(world, out),
        stopped: stayed.is_empty(),
        stayed: stayed.iter().map(ToString::to_string).collect(),
    };
    oracle::load(ends, &pool, moment).await
}

fn injected(world: &World, clients_began: Moment) -> Injected {
    let mut struck = world.struck.clone();
    let mut note = |member, how, at, lasts| {
        struck.push(Struck {
            member,
            pid: None,
            how,
            from: at,
            until: at + lasts,
        });
    };
    for seat in world.seats() {
        for (_, fault, at) in seat.postgres.struck_at() {
            note(Some(seat.member), How::Ledger, at, lasts(fault));
        }
        for (message, fault, at) in seat.nats.struck_at() {
            // Whatever else happens to a message is no tool's affair.
            if message == Message::Tool || fault == Fault::Cut {
                note(Some(seat.member), How::Bus, at, 0);
            }
        }
    }
    for (_, fault, at) in world.tools.struck_at() {
        note(None, How::ToolDatabase, at, lasts(fault));
    }
    let wires = world.seats().iter().map(|seat| &seat.nats);
    let faults = wires
        .chain([&world.clients])
        .flat_map(nats::Wire::struck_at);
    let asked_again = faults.filter_map(|(message, fault, at)| match (message, fault) {
        (Message::Request, Fault::Duplicate) => Some(at..=at),
        // The last one may have been asked at any time before.
        (Message::Request, Fault::RepeatLast) => Some(clients_began..=at),
        _ => None,
    });
    Injected {
        clients_began,
        processes: world.processes.clone(),
        struck,
        asked_again: asked_again.collect(),
        clock_moves: world.clock_moves.clone(),
    }
}

/// For how many milliseconds it goes on after it has struck.
fn lasts(fault: postgres::Fault) -> Moment {
    match fault {
        postgres::Fault::Outage(ms) => ms.into(),
        _ => 0,
    }
}

/// How processes ended that were not told to.
fn exits(world: &World, out: &Path) -> Vec<Exit> {
    let exits = world.exits.iter().map(|left| {
        let log = fs::read_to_string(out.join(format!("{}.log", left.name))).unwrap_or_default();
        Exit {
            member: left.member,
            name: left.name.clone(),
            started: left.started,
            at: left.at,
            code: left.status.code(),
            was_ready: log.contains(" is ready"),
            was_told: log.contains("was declared gone"),
        }
    });
    exits.collect()
}

/// What nats-server says, of every start.
fn nats_log(world: &World) -> Result<Option<(String, String)>> {
    let logs = world.servers.logs();
    let log = logs.iter().find(|(_, name)| *name == "nats.log");
    let read = |path: &PathBuf| {
        let text = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        Ok((
            "nats".to_owned(),
            String::from_utf8_lossy(&text).into_owned(),
        ))
    };
    log.map(|(path, _)| read(path)).transpose()
}

fn logs(out: &Path) -> Result<Vec<(String, String)>> {
    let mut logs = Vec::new();
    for entry in fs::read_dir(out).with_context(|| format!("read {}", out.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|kind| kind == "log") {
            let text = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            logs.push((
                name.into_owned(),
                String::from_utf8_lossy(&text).into_owned(),
            ));
        }
    }
    Ok(logs)
}

/// The processes of tools that are still there when their time is over.
async fn until_gone(effects_file: &Path) -> Vec<String> {
    let began = Instant::now();
    loop {
        let left = tool_processes(effects_file);
        if left.is_empty() || began.elapsed() > LEFTOVER_MAX {
            return left;
        }
        sleep(POLL).await;
    }
}

/// Every program of a tool of this run has the file of effects in its command line.
fn tool_processes(effects_file: &Path) -> Vec<String> {
    let file = effects_file.to_string_lossy().into_owned();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = all.filter_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<&str> = std::str::from_utf8(&line).ok()?.split('\0').collect();
        let is_tool = matches!(words.get(1), Some(&("tool" | "linger")))
            && words.iter().any(|word| **word == file);
        is_tool.then(|| {
            format!(
                "{} {}",
                entry.file_name().to_string_lossy(),
                words.join(" ")
            )
        })
    });
    lines.collect()
}

/// Keeps what people need to understand what went wrong.
///
/// # Errors
///
/// A file cannot be written.
pub(crate) async fn dump(world: &World, out: &Path) -> Result<()> {
    let pool = &world.servers.database.pool;
    for view in VIEWS {
        let path = out.join(format!("{view}.jsonl"));
        let file = fs::File::create(&path).with_context(|| format!("create {}", path.display()))?;
        let mut file = BufWriter::new(file);
        // Made of constants of this file.
        let sql = format!("SELECT to_json(v)::text FROM toolfleet.{view} v");
        let mut rows = sqlx::query_scalar::<_, String>(AssertSqlSafe(sql)).fetch(pool);
        while let Some(row) = rows.try_next().await.context("read the ledger")? {
            writeln!(file, "{row}")?;
        }
        file.flush()?;
    }
    for (from, to) in world.servers.logs() {
        let to: PathBuf = out.join(to);
        // A server's log lies in a folder that goes with the run.
        fs::copy(&from, &to).with_context(|| format!("copy {}", from.display()))?;
    }
    Ok(())
}
