//! `doctor --rebuild-stream`: makes the stream again from Postgres, which has every call.
//!
//! It is safe while dispatchers and workers run: the stream is a set, the claim refuses a call that is claimed already, and the
//! sweep publishes what is lost in between. So it asks no question, and after an interruption it can simply be started again.

use std::{process::ExitCode, time::Duration};

use fleet::{
    bus::{prefix::PrefixClaim, publish::publish_all, topology},
    config::{BusArgs, StoreArgs},
    ids::QueueName,
    registry::Registry,
    store::{session::within, walk},
};
use serde_json::json;

use super::check::count;
use crate::commands::{connect, output};

/// How long each read of Postgres may take.
const READ_MAX: Duration = Duration::from_secs(10);

pub(super) async fn run(store: &StoreArgs, bus: &BusArgs, json: bool) -> anyhow::Result<ExitCode> {
    let pool = connect::reader(store).await?;
    let bus = connect::bus(bus).await?;
    // Another ledger's stream is not deleted.
    let ours = connect::postgres(&store.database_url)?.name().await?;
    drop(PrefixClaim::new(bus.clone(), ours).recall().await?);
    let registry = Registry::default();
    within("read tools", READ_MAX, registry.refresh(&pool)).await?;
    let mut queues = registry.queues();
    queues.insert(
        "default"
            .parse()
            .expect("the default queue has a valid name"),
    );
    let queues: Vec<QueueName> = queues.into_iter().collect();
    topology::rebuild(&bus, &queues).await?;

    let stream = bus.subjects.jobs_stream();
    let (mut published, mut cursor) = (0, None);
    loop {
        let reading = walk::runnable(&pool, cursor);
        let (calls, next) = within("read what may run", READ_MAX, reading).await?;
        let calls = calls
            .into_iter()
            .map(|call| (call.queue, call.n, call.pointer));
        let done = publish_all(&bus, calls).await?;
        published += done.taken + done.there.len();
        cursor = next;
        if cursor.is_none() {
            break;
        }
        output::warn(&format!("{} published so far", count(published, "call")));
    }
    if json {
        let queues: Vec<&str> = queues.iter().map(QueueName::as_str).collect();
        output::print_json(&json!({ "stream": stream, "queues": queues, "published": published }))?;
    } else {
        output::print(&format!(
            "{stream} was made anew with {}; {} published",
            count(queues.len(), "consumer"),
            count(published, "call"),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
