//! Session events of calls that the ledger itself has decided: cancelled, or settled.

use fleet::{
    bus::events::Events,
    ids::CallId,
    store::{PgPool, read},
    telemetry::report,
};

/// Tells that a call is decided, as its row says.
pub(crate) async fn tell_decided(events: &Events, pool: &PgPool, call: CallId) {
    match read::find(pool, call).await {
        Ok(Some(row)) => events.tell(&row.tenant, row.session.as_ref(), || row.finished()),
        Ok(None) => {}
        Err(error) => tracing::debug!(error = report(&error), "an event was left out"),
    }
}
