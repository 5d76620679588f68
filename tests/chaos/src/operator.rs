//! An operator who pauses calls, forces breakers and takes it back, and purges answers, while clients are at work.
//!
//! Which, when and for how long depends on the seed and on how often clients have asked.
//! Pauses are asked for over NATS. Breakers are forced as people do it at the command line, in Postgres, and without the bell:
//! processes find out by themselves. What holds when is read from the fleet's own log of controls. A request without an answer
//! needs no second one: a pause and a forced breaker end by themselves after eight seconds.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use async_nats::Client;
use fleet::store::controls::{self, ControlKind, ControlScope, ControlSet, NewControl};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    effects::{OTHER_TENANT, TOOLS, Tool},
    login::Login,
    seed::{below, weighted},
};

/// Every tenant's controls.
const SUBJECT: &str = "toolfleet.admin.control";
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(4);
/// The longest time for which a control holds, shorter than the deadlines of calls that nothing disturbs.
const LASTS_MAX_MS: i64 = 8_000;
const PAUSES: Pace = Pace {
    does: Does::Pause,
    between: (200, 700),
    lasts: (150, 400),
};
const FORCES: Pace = Pace {
    does: Does::Force,
    between: (250, 800),
    lasts: (100, 350),
};
const PURGES: Pace = Pace {
    does: Does::Purge,
    between: (200, 900),
    lasts: (0, 1),
};
/// How long it may take to end what is left of them after the run, when nothing is broken any more.
const END_MAX: Duration = Duration::from_secs(30);
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// How often something is done: how often clients ask between two of them, and while one holds; from and to.
#[derive(Debug, Clone, Copy)]
struct Pace {
    does: Does,
    between: (u64, u64),
    lasts: (u64, u64),
}

#[derive(Debug, Clone, Copy)]
enum Does {
    Pause,
    Force,
    /// Takes away what is kept of the tool with a cache; that has no end.
    Purge,
}

/// What a pause covers.
#[derive(Debug, Clone, Copy)]
enum Scope {
    Tool,
    /// Calls of a tool whose tool is told to behave.
    Value,
    Queue,
}

/// Who operates the fleet of a run.
#[derive(Debug, Clone)]
pub struct Operator {
    /// What is done depends on it.
    pub seed: u64,
    /// As whom at NATS.
    pub login: Login,
    /// As whom in Postgres, past every wire.
    pub ledger: String,
}

/// Pauses and forces until the run is over, the one beside the other.
///
/// # Errors
///
/// There is no such address.
pub async fn work(
    operator: Operator,
    asked: watch::Receiver<u64>,
    stop: CancellationToken,
) -> Result<()> {
    let connection = operator.login.connect().await?;
    let pausing = operator.rounds("pauses", PAUSES, &connection, asked.clone(), &stop);
    let forcing = operator.rounds("forced breakers", FORCES, &connection, asked.clone(), &stop);
    let purging = operator.rounds("purges", PURGES, &connection, asked, &stop);
    tokio::join!(pausing, forcing, purging);
    Ok(())
}

impl Operator {
    /// Sets one control after the other, and takes each back.
    async fn rounds(
        &self,
        of: &str,
        pace: Pace,
        connection: &Client,
        mut asked: watch::Receiver<u64>,
        stop: &CancellationToken,
    ) {
        let drawn = |round, what, (from, to): (u64, u64)| {
            from + below(self.seed, round, &format!("{what} {of}"), to - from)
        };
        let mut due = 0;
        for round in 0.. {
            due += drawn(round, "questions between two", pace.between);
            if !until(&mut asked, due, stop).await {
                return;
            }
            let answer = match pace.does {
                Does::Pause => ask(connection, &pause(self.seed, round)).await,
                Does::Force => self.force(round).await,
                Does::Purge => ask(connection, &purge(self.seed, round)).await,
            };
            due = *asked.borrow() + drawn(round, "questions during", pace.lasts);
            let goes_on = until(&mut asked, due, stop).await;
            if let Some(id) = answer.as_ref().and_then(id_of) {
                let verb = match pace.does {
                    Does::Pause => "resume",
                    Does::Force | Does::Purge => "unset",
                };
                ask(connection, &taken_back(verb, id)).await;
            }
            if !goes_on {
                return;
            }
        }
    }

    /// Forces the breaker of this round. The answer has the control as a pause's has it.
    async fn force(&self, round: u64) -> Option<Value> {
        let (tool, setting) = forced(self.seed, round);
        let control = NewControl {
            kind: ControlKind::Breaker,
            scope: ControlScope {
                tool: Some(tool),
                ..ControlScope::default()
            },
            setting: &format!("\"{setting}\""),
            told: None,
            actor: "operator",
            note: "round of the chaos run",
            for_ms: Some(LASTS_MAX_MS),
            in_tenant: None,
        };
        let forcing = async {
            let mut ledger = PgConnection::connect(&self.ledger).await.ok()?;
            controls::set(&mut ledger, &control).await.ok()
        };
        let (ControlSet::Set(row)
        | ControlSet::Changed(row)
        | ControlSet::Already(row)
        | ControlSet::Conflict(row)) = timeout(PATIENCE, forcing).await.ok()??;
        let row: Value = serde_json::from_str(&row).ok()?;
        Some(json!({ "control": row }))
    }
}

/// Ends every pause and every forced breaker that is left.
///
/// # Errors
///
/// The fleet, which is whole again, does not do it in time.
pub async fn end_all(login: &Login) -> Result<()> {
    let connection = login.connect().await?;
    let until = Instant::now() + END_MAX;
    loop {
        let listed = ask(&connection, &json!({"do": "list"})).await;
        let left = listed.as_ref().and_then(|told| told["controls"].as_array());
        match left {
            Some(left) if left.is_empty() => return Ok(()),
            Some(left) => {
                for id in left.iter().filter_map(|one| one["control_id"].as_i64()) {
                    ask(&connection, &taken_back("unset", id)).await;
                }
            }
            None => {}
        }
        ensure!(
            Instant::now() < until,
            "controls were not ended within {END_MAX:?}: {listed:?}"
        );
        sleep(AGAIN_AFTER).await;
    }
}

/// The request for the pause of this round.
fn pause(seed: u64, round: u64) -> Value {
    let tools: Vec<(&Tool, u64)> = TOOLS.iter().map(|tool| (tool, tool.often)).collect();
    let tool = weighted(seed, round, "paused tool", &tools);
    let scope = weighted(
        seed,
        round,
        "scope of a pause",
        &[(Scope::Tool, 6), (Scope::Value, 2), (Scope::Queue, 2)],
    );
    let setting = weighted(
        seed,
        round,
        "setting of a pause",
        &[("wait", 7), ("refuse", 3)],
    );
    let mut request = json!({
        "do": "pause",
        "setting": setting,
        "actor": "operator",
        "note": "round of the chaos run",
        "for_ms": LASTS_MAX_MS,
    });
    match scope {
        Scope::Tool => request["tool"] = tool.name.into(),
        Scope::Value => {
            request["tool"] = tool.name.into();
            request["pointer"] = "/mode".into();
            request["value"] = "ok".into();
        }
        Scope::Queue => request["queue"] = "default".into(),
    }
    request
}

/// The request for the purge of this round: of all tenants, or of one.
fn purge(seed: u64, round: u64) -> Value {
    let mut request = json!({
        "do": "purge",
        "tool": "cached_look",
        "actor": "operator",
        "note": "round of the chaos run",
    });
    if below(seed, round, "tenant of a purge", 2) == 1 {
        request["tenant"] = OTHER_TENANT.into();
    }
    request
}

/// The tool whose breaker is forced in this round, and how.
fn forced(seed: u64, round: u64) -> (&'static str, &'static str) {
    let guarded: Vec<(&str, u64)> = TOOLS
        .iter()
        .filter(|tool| tool.is_guarded())
        .map(|tool| (tool.name, 1))
        .collect();
    let tool = weighted(seed, round, "forced tool", &guarded);
    let setting = weighted(seed, round, "forced", &[("open", 6), ("closed", 4)]);
    (tool, setting)
}

/// `resume` ends a pause and nothing else, `unset` any control.
fn taken_back(verb: &str, id: i64) -> Value {
    json!({"do": verb, "control_id": id, "actor": "operator", "note": "end of the round"})
}

fn id_of(answer: &Value) -> Option<i64> {
    answer["control"]["control_id"].as_i64()
}

/// Waits until clients have asked so often. Returns false when the run is over before.
async fn until(asked: &mut watch::Receiver<u64>, due: u64, stop: &CancellationToken) -> bool {
    tokio::select! {
        () = stop.cancelled() => false,
        reached = asked.wait_for(|asked| *asked >= due) => reached.is_ok(),
    }
}

async fn ask(connection: &Client, request: &Value) -> Option<Value> {
    let sent = async_nats::Request::new()
        .payload(request.to_string().into())
        .timeout(None);
    // Around all of it: a broken connection takes a bounded number of messages and then blocks.
    let asking = connection.send_request(SUBJECT, sent);
    let message = timeout(PATIENCE, asking).await.ok()?.ok()?;
    serde_json::from_slice(&message.payload)
        .context("an answer about controls")
        .ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_pauses_the_same_in_every_run_and_everything_in_time() {
        let requests = |seed| -> Vec<Value> { (0..60).map(|round| pause(seed, round)).collect() };
        assert_eq!(requests(3), requests(3));
        assert_ne!(requests(3), requests(4));
        let scopes: BTreeSet<_> = requests(3)
            .iter()
            .map(|one| {
                (
                    one["tool"].is_string(),
                    one["pointer"].is_string(),
                    one["setting"].to_string(),
                )
            })
            .collect();
        assert_eq!(scopes.len(), 6, "{scopes:?}");
    }

    #[test]
    fn a_seed_forces_the_same_in_every_run_and_every_breaker_both_ways_in_time() {
        let all = |seed| -> Vec<_> { (0..60).map(|round| forced(seed, round)).collect() };
        assert_eq!(all(3), all(3));
        assert_ne!(all(3), all(4));
        let both: BTreeSet<_> = all(3).into_iter().collect();
        assert_eq!(both.len(), 6, "{both:?}");
    }
}
