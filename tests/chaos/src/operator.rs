//! An operator who pauses calls while clients are at work, and resumes them: which, when and for how long depends on the seed and
//! on how often clients have asked.
//!
//! What holds when is read from the fleet's own log of controls. A request without an answer needs no second one: a pause ends by
//! itself after eight seconds.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use async_nats::Client;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    effects::TOOLS,
    login::Login,
    seed::{below, weighted},
};

/// Every tenant's controls.
const SUBJECT: &str = "toolfleet.admin.control";
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(4);
/// The longest pause, shorter than the deadlines of calls that nothing disturbs.
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// How often clients ask between two pauses, and while one holds: from and to.
const BETWEEN: (u64, u64) = (200, 700);
const LASTS: (u64, u64) = (150, 400);
/// How long it may take to end what is left of them after the run, when nothing is broken any more.
const END_MAX: Duration = Duration::from_secs(30);
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What a pause covers.
#[derive(Debug, Clone, Copy)]
enum Scope {
    Tool,
    /// Calls of a tool whose tool is told to behave.
    Value,
    Queue,
}

/// Pauses and resumes until the run is over.
///
/// # Errors
///
/// There is no such address.
pub async fn work(
    seed: u64,
    login: Login,
    mut asked: watch::Receiver<u64>,
    stop: CancellationToken,
) -> Result<()> {
    let connection = login.connect().await?;
    let mut due = 0;
    for round in 0.. {
        due += drawn(seed, round, "questions between two pauses", BETWEEN);
        if !until(&mut asked, due, &stop).await {
            break;
        }
        let pause = pause(seed, round);
        let answer = ask(&connection, &pause).await;
        due = *asked.borrow() + drawn(seed, round, "questions while it holds", LASTS);
        let goes_on = until(&mut asked, due, &stop).await;
        if let Some(id) = answer.as_ref().and_then(id_of) {
            ask(&connection, &resume(id)).await;
        }
        if !goes_on {
            break;
        }
    }
    Ok(())
}

/// Ends every pause that is left.
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
                    ask(&connection, &resume(id)).await;
                }
            }
            None => {}
        }
        ensure!(
            Instant::now() < until,
            "pauses were not ended within {END_MAX:?}: {listed:?}"
        );
        sleep(AGAIN_AFTER).await;
    }
}

/// The request for the pause of this round.
fn pause(seed: u64, round: u64) -> Value {
    let index = below(seed, round, "paused tool", TOOLS.len() as u64);
    let tool = &TOOLS[usize::try_from(index).expect("tools are few")];
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
        "for_ms": u64::try_from(PAUSE_MAX.as_millis()).expect("it is short"),
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

fn resume(id: i64) -> Value {
    json!({"do": "resume", "control_id": id, "actor": "operator", "note": "end of the round"})
}

fn id_of(answer: &Value) -> Option<i64> {
    answer["control"]["control_id"].as_i64()
}

fn drawn(seed: u64, round: u64, salt: &str, (from, to): (u64, u64)) -> u64 {
    from + below(seed, round, salt, to - from)
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
}
