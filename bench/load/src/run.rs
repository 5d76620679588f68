//! All workloads of a plan, one after the other, with the floor between them.

use std::{
    path::{Path, PathBuf},
    thread,
};

use anyhow::Context;
use fleet::{bus::connect::Bus, call::Effect, store::PgConnection};

use crate::{
    figures,
    floor::{Floor, FloorRun},
    ledger::Ledger,
    measure::{BESIDE, Bench},
    nats,
    plan::{Plan, Turn},
    processes::Watched,
    progress::Progress,
    report::{Report, Servers},
    tools::{self, Kind},
    way::GatewayPlace,
    workload::Via,
};

/// The fleet that is measured.
#[derive(Debug)]
pub struct Site<'a> {
    /// The fleet's NATS.
    pub bus: &'a Bus,
    /// A gateway of it, where something goes over HTTP.
    pub gateway: Option<&'a GatewayPlace>,
    /// The processes whose CPU and memory count.
    pub watched: &'a [Watched],
    /// The folder in which workers record effects.
    pub effects: PathBuf,
    /// Whether the bench started the servers.
    pub is_its_own: bool,
}

/// Applies the tools of a plan, as an operator would, and tells the fleet.
///
/// # Errors
///
/// A tool of that name and version exists with other content, or Postgres or NATS does not answer.
pub async fn apply(plan: &Plan, connection: &mut PgConnection, bus: &Bus) -> anyhow::Result<()> {
    let called = |name: &str| {
        let mut turns = plan.turns();
        turns.any(|turn| tools::name(turn.effect, turn.kind) == name)
    };
    let manifests = tools::manifests(plan.copies, called)?;
    tools::apply_all(connection, bus, &manifests)
        .await
        .context("apply the tools of the bench")
}

/// Measures all of it. The workers of the bench run, and have its tools.
///
/// # Errors
///
/// The fleet does not answer, or its calls do not end.
pub async fn measure(
    plan: &Plan,
    site: &Site<'_>,
    ledger: &mut Ledger,
    floor: Option<Floor>,
    progress: &mut Progress,
) -> anyhow::Result<Report> {
    let mut servers = servers(plan, site, ledger).await?;
    if plan.history > 0 {
        let what = format!("{} calls of history", plan.history);
        progress.step(&what);
        ledger.make_history(plan.history, |_calls| {}).await?;
    }
    let run = uuid::Uuid::new_v4().as_fields().0;
    let effects: &Path = &site.effects;
    let mut bench = Bench {
        watched: site.watched,
        effects,
        bus: site.bus,
        gateway: site.gateway,
        ledger,
        progress,
        warm_up: plan.warm_up,
        seconds: plan.seconds,
        backlog: plan.backlog,
    };
    if plan.held > 0 {
        let any = Turn {
            effect: Effect::Read,
            kind: Kind::Plain,
            via: Via::Nats,
        };
        let any = plan.workload(run, 0, any);
        bench.park(&any.beside(BESIDE, plan.held, true)).await?;
    }
    let (mut workloads, mut floors) = (Vec::new(), Vec::<FloorRun>::new());
    for (number, turn) in (1..).zip(plan.turns()) {
        if let (Some(floor), true) = (&floor, floors.is_empty()) {
            bench.progress.step("floor");
            floors.push(floor.run().await?);
        }
        let workload = plan.workload(run, number, turn);
        let mut measured = Box::pin(bench.measure(&workload)).await?;
        if let Some(floor) = &floor {
            bench.progress.step("floor");
            floors.push(floor.run().await?);
            let neighbours = floors.iter().rev().take(2);
            let neighbours: Vec<f64> = neighbours.map(|one| one.calls_per_s).collect();
            if let Some((mean, ratio)) = figures::ratio(measured.calls_per_s, &neighbours) {
                measured.floor_calls_per_s = Some((mean * 10.0).round() / 10.0);
                measured.ratio = Some((ratio * 1000.0).round() / 1000.0);
            }
        }
        workloads.push(measured);
    }
    // The stream certainly exists only now.
    servers.nats = nats::settings(site.bus, site.is_its_own).await;
    Ok(Report {
        servers,
        workloads,
        floors,
    })
}

async fn servers(plan: &Plan, site: &Site<'_>, ledger: &mut Ledger) -> anyhow::Result<Servers> {
    let dispatchers = site.watched.iter();
    let dispatchers = dispatchers
        .filter(|one| one.name.starts_with("dispatcher"))
        .count();
    Ok(Servers {
        postgres: ledger.settings().await?,
        nats: Default::default(),
        dispatchers: Some(dispatchers).filter(|seen| *seen > 0),
        workers: plan.workers,
        cpus: thread::available_parallelism().map_or(0, usize::from),
        dev: site.is_its_own,
        optimised: !cfg!(debug_assertions),
    })
}
