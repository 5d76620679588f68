//! What `/healthz`, `/readyz` and `/metrics` of a process say.

use std::time::Duration;

use tokio::{net::TcpListener, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    bus::connect::Bus,
    http::{self, HttpState, Readiness},
    store::{PgPool, session::Postgres, sweep},
    telemetry::report,
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
pub async fn watch_servers(
    bus: Bus,
    postgres: Postgres,
    pool: PgPool,
    readiness: Readiness,
    stop: CancellationToken,
) {
    while !stop.is_cancelled() {
        let asked = timeout(ANSWER_MAX, sweep::answers(&pool));
        let (nats, answered) = tokio::join!(bus.answers(), asked);
        readiness.set("nats", nats);
        readiness.set("postgres", answered.unwrap_or(false) && !postgres.refuses());
        stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY))
            .await;
    }
}
