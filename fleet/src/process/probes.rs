//! What `/healthz`, `/readyz` and `/metrics` of a process say, and its log about servers that do not answer.

use std::time::Duration;

use tokio::{
    net::TcpListener,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::outage::{Changed, NeededServer, Outage};
use crate::{
    bus::connect::Bus,
    http::{self, HttpState, Readiness},
    store::{PgPool, session::Postgres, sweep},
    telemetry::{metrics, report},
};

/// How long a server may take to answer before the process is not ready.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// How long `readyz` may say what is not true any more, beside [`ANSWER_MAX`].
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Answers probes until `stop`.
pub async fn serve(listener: TcpListener, state: HttpState, stop: CancellationToken) {
    if let Err(error) = http::serve(listener, state, stop.cancelled_owned()).await {
        tracing::error!(error = report(&error), "probes are not answered any more");
    }
}

/// Sets `nats` and `postgres` in `readiness` until `stop`: whether both servers answer, and whether Postgres is safe to write to.
///
/// The same is the metric `toolfleet_ready`, and a line in the log when it changes.
pub async fn watch_servers(
    bus: Bus,
    postgres: Postgres,
    pool: PgPool,
    readiness: Readiness,
    stop: CancellationToken,
) {
    let mut epoch = bus.epoch();
    let (mut nats_outage, mut postgres_outage) = (Outage::default(), Outage::default());
    while !stop.is_cancelled() {
        let at = Instant::now();
        let asked = timeout(ANSWER_MAX, sweep::answers(&pool));
        let (nats, answered) = tokio::join!(bus.answers(), asked);
        let postgres_ready = answered.unwrap_or(false) && !postgres.refuses();
        for (server, is_ready) in [
            (NeededServer::Nats, nats),
            (NeededServer::Postgres, postgres_ready),
        ] {
            readiness.set(server.word(), is_ready);
            metrics().ready(server.word(), is_ready);
        }
        // Set first: who finds Postgres away from now on need not say so.
        postgres.set_away(!postgres_ready);
        match nats_outage.seen(nats, at) {
            Changed::Began => began(NeededServer::Nats, &bus.trouble()),
            Changed::Ended(lasted) => ended(NeededServer::Nats, lasted),
            Changed::Nothing if nats && epoch.has_changed().unwrap_or(false) => {
                tracing::info!("the connection to NATS was cut and is there again");
            }
            Changed::Nothing => {}
        }
        epoch.mark_unchanged();
        match postgres_outage.seen(postgres_ready, at) {
            Changed::Began => began(NeededServer::Postgres, &trouble(&postgres).await),
            Changed::Ended(lasted) => ended(NeededServer::Postgres, lasted),
            Changed::Nothing => {}
        }
        stop.run_until_cancelled(sleep(LOOK_EVERY)).await;
    }
}

fn began(server: NeededServer, cause: &str) {
    let name = server.name();
    tracing::error!(
        server = server.word(),
        cause,
        "{name} does not answer; this process goes on by itself when it does"
    );
}

fn ended(server: NeededServer, lasted: Duration) {
    let (name, seconds) = (server.name(), lasted.as_secs_f64());
    tracing::info!(
        server = server.word(),
        "{name} answers again, after {seconds:.1} s"
    );
}

/// Why Postgres cannot be used: a connection of its own is told more than a pool, which tries again until its time is over.
async fn trouble(postgres: &Postgres) -> String {
    if postgres.refuses() {
        return "nothing is written to it, for the reason in the log".to_owned();
    }
    match timeout(ANSWER_MAX, postgres.connect_to_look()).await {
        Ok(Err(error)) => report(&error),
        Ok(Ok(_answers)) => format!("no answer on an open connection within {ANSWER_MAX:?}"),
        Err(_elapsed) => format!("no connection within {ANSWER_MAX:?}"),
    }
}
