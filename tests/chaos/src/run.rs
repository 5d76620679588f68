//! One plan from beginning to verdict.

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    clients::{self, Accounts, Clients, Summary},
    evidence,
    login::Who,
    moment::{Moment, moment},
    mutants::Mutant,
    operator::{self, Operator},
    oracle::{self, Breach, Verdict},
    plan::{Kind, Plan, What, When},
    world::{Deaths, World},
};

/// How many clients there are.
const CLIENTS: u32 = 32;
/// How often the world is looked after.
const TICK: Duration = Duration::from_millis(20);
/// How often processes are asked for their metrics: one that is killed takes what it counted since with it.
const SCRAPE: Duration = Duration::from_secs(1);
/// So long clients go on at least once the fleet has recovered, where that is to be judged.
const WELL_MIN: Duration = Duration::from_secs(15);
/// How long everything may take to be decided after the last fault.
///
/// A lease (15 s), or an attempt whose worker lives and has forgotten it (30 s after its end), twice, and some.
const QUIET_MAX: Duration = Duration::from_secs(90);

/// The rule that a fleet comes to rest.
const QUIET: &str = "everything_is_decided_in_time";

/// How a run is done.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where its files are kept.
    pub out: PathBuf,
    /// A mistake that is made on purpose.
    pub mutant: Option<&'static Mutant>,
    /// Whether every part of the fleet logs in as the users and roles that are shipped. What the harness itself does to Postgres
    /// and reads from it, it does as a superuser.
    pub roles: bool,
}

/// What came of a run.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The plan.
    #[serde(skip)]
    pub plan: Plan,
    /// What the oracle says.
    pub verdict: Verdict,
    /// What clients did.
    pub summary: Summary,
    /// How often each kind of fault has struck.
    pub struck: BTreeMap<String, u64>,
    /// How many of the plan's entries have struck; the others wait for what did not happen.
    pub entries_struck: u64,
    /// How often each change of a statement was made, where there is a mistake on purpose: without all of them it proves
    /// nothing.
    pub rewritten: Vec<u64>,
    /// How processes ended.
    #[serde(skip)]
    pub deaths: Deaths,
    /// How long it took from the last fault until everything was decided; `None`: it was not in time.
    pub quiet_after_ms: Option<u64>,
    /// How long all of it took.
    pub took_ms: u64,
}

/// Runs a plan.
///
/// # Errors
///
/// The harness itself fails: a server does not come back, a file cannot be written. What is wrong with the fleet is in
/// the outcome.
pub async fn run(plan: &Plan, options: &Options) -> Result<Outcome> {
    let began = Instant::now();
    options.mutant.map_or(Ok(()), Mutant::is_planted)?;
    let out = &options.out;
    if out.exists() {
        // Of an earlier run: its logs would be taken for ours.
        fs::remove_dir_all(out).with_context(|| format!("remove {}", out.display()))?;
    }
    fs::create_dir_all(out).with_context(|| format!("create {}", out.display()))?;
    write(out, "plan.json", plan)?;
    let mut world = World::start(plan, options.mutant, options.roles, out).await?;
    let stop = CancellationToken::new();
    let (asked, asked_so_far) = watch::channel(0);
    let history = out.join(evidence::HISTORY);
    let clients = Clients {
        seed: plan.seed,
        agent: Who::Agent.login(world.servers.folder(), world.clients.port())?,
        other_agent: Who::OtherAgent.login(world.servers.folder(), world.clients.port())?,
        operator: Who::Operator.login(world.servers.folder(), world.clients.port())?,
        history: history.clone(),
        effects_file: world.effects_file.clone(),
        asked,
        stop: stop.clone(),
        clients: CLIENTS,
        pace: None,
    };
    let clients_began = moment();
    let mut operating = JoinSet::new();
    let operator = Operator {
        seed: plan.seed,
        login: clients.operator.clone(),
        ledger: world.servers.ledger_of_operator(options.roles),
    };
    operating.spawn(operator::work(
        operator,
        clients.asked.subscribe(),
        stop.clone(),
    ));
    let mut working = JoinSet::new();
    working.spawn(clients::run(clients));
    let healed_at = stage(&mut world, plan, &asked_so_far).await?;
    stop.cancel();
    // Those that wait for an answer have their patience; the world goes on in the meantime.
    let summary = loop {
        if let Some(ended) = working.try_join_next() {
            break ended.context("the clients do not panic")??;
        }
        world.look_after().await?;
        sleep(TICK).await;
    };
    while let Some(ended) = operating.join_next().await {
        ended.context("the operator does not panic")??;
    }
    world.heal().await?;
    operator::end_all(&world.servers.login(Who::Operator)?).await?;
    let quiet_from = Instant::now();
    let quiet = until_quiet(&mut world).await?;
    let quiet_after_ms = quiet.then(|| as_ms(quiet_from.elapsed()));
    world.scrape().await;
    let accounts = Accounts {
        seed: plan.seed,
        agent: world.servers.login(Who::Agent)?,
        other_agent: world.servers.login(Who::OtherAgent)?,
        operator: world.servers.login(Who::Operator)?,
        history: history.clone(),
    };
    let settled = clients::settle_accounts(accounts).await?;
    // A submission that was lost is a new call now.
    let still_quiet = until_quiet(&mut world).await?;
    let facts = evidence::collect(&mut world, out, clients_began, healed_at).await?;
    let mut verdict = oracle::judge(&facts);
    verdict.breaches.extend(surprises(&summary, &settled));
    if !(quiet && still_quiet) {
        verdict.breaches.push(Breach {
            rule: QUIET,
            call: None,
            text: format!("undecided, or not ready, {QUIET_MAX:?} after the last fault"),
        });
    }
    let (struck, entries_struck) = tally(&world, plan);
    let outcome = Outcome {
        plan: plan.clone(),
        verdict,
        summary,
        struck,
        entries_struck,
        rewritten: world.rewritten(),
        deaths: world.deaths,
        quiet_after_ms,
        took_ms: as_ms(began.elapsed()),
    };
    write(out, "outcome.json", &outcome)?;
    if !outcome.verdict.holds() {
        evidence::dump(&world, out).await?;
    }
    world.servers.end().await;
    Ok(outcome)
}

/// What clients were told that contradicts the contract, whatever faults there were.
fn surprises(run: &Summary, after: &Summary) -> Vec<Breach> {
    let told = run.surprises.iter().chain(&after.surprises);
    let breach = |text: &String| Breach {
        rule: "no_answer_contradicts_the_contract",
        call: None,
        text: text.clone(),
    };
    told.map(breach).collect()
}

/// Plays the plan while clients are at work. Returns when the faults ended, where clients went on after that.
async fn stage(
    world: &mut World,
    plan: &Plan,
    asked: &watch::Receiver<u64>,
) -> Result<Option<Moment>> {
    let began = Instant::now();
    let whole = Duration::from_secs(plan.seconds);
    let mut until = began + whole;
    let mut healed_at = None;
    let mut due = by_time(plan);
    let mut scraped = Instant::now();
    while Instant::now() < until {
        if plan.mode == Kind::Liveness && healed_at.is_none() && began.elapsed() > whole / 2 {
            due.clear();
            world.heal().await?;
            healed_at = Some(moment());
            // The last fault, and its end, may have taken long: a server had to come back.
            until = until.max(Instant::now() + oracle::RECOVERY_MAX + WELL_MIN);
        }
        let so_far = *asked.borrow();
        // One at a time: what is overdue because the last one took long is no volley.
        if let Some((at, what)) = due.front().copied()
            && at <= so_far
        {
            due.pop_front();
            world.strike(what).await?;
        }
        world.look_after().await?;
        if scraped.elapsed() > SCRAPE {
            world.scrape().await;
            scraped = Instant::now();
        }
        sleep(TICK).await;
    }
    Ok(healed_at)
}

/// The faults that strike when clients have asked so often, in their order.
fn by_time(plan: &Plan) -> VecDeque<(u64, What)> {
    let timed = plan.entries.iter().filter_map(|entry| match entry.when {
        When::Asked(times) => Some((times, entry.what)),
        _ => None,
    });
    let mut timed: Vec<(u64, What)> = timed.collect();
    timed.sort_by_key(|(times, _)| *times);
    timed.into()
}

/// Waits until every call is decided and every process ready. Returns whether that is so in time.
async fn until_quiet(world: &mut World) -> Result<bool> {
    let began = Instant::now();
    while began.elapsed() < QUIET_MAX {
        world.look_after().await?;
        if world.servers.is_all_decided().await {
            return Ok(world.until_ready().await?.is_none());
        }
        sleep(TICK).await;
    }
    Ok(false)
}

/// How often each kind of fault has struck, and how many entries of the plan have.
fn tally(world: &World, plan: &Plan) -> (BTreeMap<String, u64>, u64) {
    let mut struck: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |name: &str, times: u64| {
        if times > 0 {
            *struck.entry(name.to_owned()).or_default() += times;
        }
    };
    let mut entries = 0;
    for (name, times) in &world.times {
        entries += times;
        add(name, *times);
    }
    let wires = world.seats().iter().map(|seat| &seat.postgres);
    for wire in wires.chain([&world.tools]) {
        for (_, _, fault) in wire.struck() {
            add(What::Statement(fault).name(), 1);
        }
    }
    let wires = world.seats().iter().map(|seat| &seat.nats);
    for wire in wires.chain([&world.clients]) {
        for (_, _, fault) in wire.struck() {
            add(What::Message(fault).name(), 1);
        }
    }
    let on_wires = |entry: &&crate::plan::Entry| {
        matches!(entry.when, When::Statement(member, statement, nth)
            if world.postgres(member).is_some_and(|wire| wire.struck().iter().any(|(k, n, _)| (*k, *n) == (statement, nth))))
            || matches!(entry.when, When::Message(member, message, nth)
                if world.nats(member).is_some_and(|wire| wire.struck().iter().any(|(k, n, _)| (*k, *n) == (message, nth))))
    };
    entries += u64::try_from(plan.entries.iter().filter(on_wires).count()).unwrap_or(u64::MAX);
    add("process ended at a checkpoint", world.deaths.at_checkpoints);
    add(
        "process stopped at a checkpoint",
        world.deaths.stopped_at_checkpoints,
    );
    entries += world.deaths.at_checkpoints + world.deaths.stopped_at_checkpoints;
    (struck, entries)
}

fn write(out: &Path, name: &str, what: &impl Serialize) -> Result<()> {
    let path = out.join(name);
    let text = serde_json::to_string_pretty(what)?;
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

fn as_ms(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
