//! Tells the fleet to look at its tools now.

use std::time::Duration;

use bytes::Bytes;
use fleet::{config::BusArgs, telemetry};

use crate::commands::{connect, output};

/// How long ringing the bell may take; without it the fleet looks by itself every second.
const BELL_MAX: Duration = Duration::from_secs(3);

/// Rings it. Where that cannot be done, says so: the fleet looks by itself.
pub(super) async fn ring(args: &BusArgs) {
    let rung = tokio::time::timeout(BELL_MAX, async {
        let bus = connect::bus(args).await?;
        let subject = bus.subjects.control_changed();
        bus.client.publish(subject, Bytes::new()).await?;
        bus.client.flush().await?;
        anyhow::Ok(())
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
