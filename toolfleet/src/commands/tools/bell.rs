//! Tells the fleet that its tools or controls changed, and waits until a dispatcher offers a version.

use std::time::Duration;

use bytes::Bytes;
use fleet::{
    bus::connect::Bus,
    config::BusArgs,
    definitions::Format,
    ids::{Label, ToolName},
    telemetry,
};
use fleet_client::FleetClient;
use serde::Deserialize;
use tokio::time::{sleep, timeout};

use crate::commands::{connect, output};

/// How long ringing the bell may take. Without it dispatchers look by themselves every second.
const BELL_MAX: Duration = Duration::from_secs(3);
/// How long a dispatcher may take to offer what was applied.
const OFFERED_MAX: Duration = Duration::from_secs(5);
/// The pause between two looks at what is offered: no event says that a dispatcher has read the tools anew.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Tells the fleet to look now, within [`BELL_MAX`]. On failure says so: dispatchers look by themselves.
pub(crate) async fn ring(args: &BusArgs) {
    let rung = timeout(BELL_MAX, async {
        let bus = connect::bus(args).await?;
        publish(&bus).await
    });
    let why = match rung.await {
        Ok(Ok(())) => return,
        Ok(Err(problem)) => telemetry::report(problem.as_ref()),
        Err(_elapsed) => "NATS did not answer".to_owned(),
    };
    output::warn(&format!(
        "the fleet could not be told, it will see it within a few seconds: {why}"
    ));
}

/// Rings, and waits until a dispatcher offers this version of the tool, or a newer one; false when that takes too long.
pub(crate) async fn ring_until_offered(args: &BusArgs, tool: &ToolName, version: i32) -> bool {
    let offered = timeout(OFFERED_MAX, async {
        let bus = connect::bus(args).await?;
        publish(&bus).await?;
        let client = FleetClient::of(&bus).await?;
        // A missing answer or a refusal is asked for again: a dispatcher may be starting.
        while !is_offered(&client, tool, version).await.unwrap_or(false) {
            sleep(LOOK_EVERY).await;
        }
        anyhow::Ok(())
    });
    matches!(offered.await, Ok(Ok(())))
}

async fn publish(bus: &Bus) -> anyhow::Result<()> {
    let subject = bus.subjects.control_changed();
    bus.client.publish(subject, Bytes::new()).await?;
    bus.client.flush().await?;
    Ok(())
}

/// The part of the answer of the endpoint `tools` that is read.
#[derive(Deserialize)]
struct Listing {
    tools: Vec<Offered>,
}

#[derive(Deserialize)]
struct Offered {
    name: String,
    version: i32,
}

async fn is_offered(client: &FleetClient, tool: &ToolName, version: i32) -> anyhow::Result<bool> {
    let tenant: Label = "default".parse()?;
    let answer = client.tools(&tenant, Format::Full).await?;
    let listing: Listing = answer.read()?;
    let of_tool = |one: &&Offered| one.name == tool.as_str();
    let offered = listing.tools.iter().find(of_tool);
    Ok(offered.is_some_and(|one| one.version >= version))
}
