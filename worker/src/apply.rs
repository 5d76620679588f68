//! The tools of the worker's own program are applied when it starts, as an operator applies others.

use std::time::Duration;

use bytes::Bytes;
use fleet::{
    bus::connect::Bus,
    config::ConfigError,
    manifest::Manifest,
    store::{
        PgConnection, StoreError,
        tools::{self, Applied},
        unknown_tools::unknown_tools,
    },
};

use crate::{built_in::built_in_of, error::RunError};

/// How long ringing the bell may take. Without it dispatchers find new versions within a second.
const BELL_MAX: Duration = Duration::from_secs(2);

/// Applies them, and tells the fleet if any is new. Several workers may do so at once.
///
/// # Errors
///
/// The ledger does not answer, or has one of these versions with other content: a call could then mean either of the two. Or one
/// is not there, and the worker's role may not apply it.
pub(crate) async fn apply(
    connection: &mut PgConnection,
    bus: &Bus,
    manifests: &[Manifest],
    by: &str,
) -> Result<(), RunError> {
    let built_in = built_in_of(manifests);
    let mut manifests: Vec<&Manifest> = manifests.iter().chain(&built_in).collect();
    manifests.sort_by_key(|manifest| manifest.turn());
    let (mut wrong, mut created) = (Vec::new(), false);
    for manifest in manifests {
        let (tool, version) = (&manifest.name, manifest.version);
        let applied = match tools::apply(&mut *connection, manifest, by).await {
            Err(StoreError::Refused { source, .. }) if is_denied(&source) => {
                wrong.push(format!(
                    "tool {tool}: version {version} is not applied, and the role of DATABASE_URL may not apply it; apply its \
                     manifest as an operator first"
                ));
                continue;
            }
            applied => applied?,
        };
        match applied {
            Applied::Created => {
                created = true;
                tracing::info!(%tool, version, "applied a tool of this program");
                for unknown in unknown_tools(&mut *connection, manifest).await? {
                    // Another program may bring it.
                    tracing::warn!("{}", unknown.sentence(manifest));
                }
            }
            Applied::Unchanged => {}
            Applied::Conflict => wrong.push(format!(
                "tool {tool}: version {version} is there with other content; raise its VERSION"
            )),
            Applied::ProbeUnfit => {
                let why = tools::probe_unfit(manifest);
                wrong.push(format!("tool {tool}: {why}"));
            }
            Applied::PreviewUnfit(unfit) => {
                let why = tools::preview_unfit(manifest, unfit);
                wrong.push(format!("tool {tool}: {why}"));
            }
            Applied::LimitNamedTwice => {
                let why = tools::named_twice(manifest);
                wrong.push(format!("tool {tool}: {why}"));
            }
            Applied::BreakerForced => {
                let why = tools::breaker_forced(manifest);
                wrong.push(format!("tool {tool}: {why}"));
            }
            Applied::FallbackUnfit(unfit) => {
                let why = tools::fallback_unfit(manifest, unfit);
                wrong.push(format!("tool {tool}: {why}"));
            }
        }
    }
    if created {
        let ringing = bus
            .client
            .publish(bus.subjects.control_changed(), Bytes::new());
        if !matches!(tokio::time::timeout(BELL_MAX, ringing).await, Ok(Ok(()))) {
            tracing::debug!("the bell was not rung; the fleet looks by itself");
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(ConfigError(wrong).into())
    }
}

/// Whether the role lacks the right (SQLSTATE 42501).
fn is_denied(source: &sqlx::Error) -> bool {
    let answer = source.as_database_error().and_then(|error| error.code());
    answer.is_some_and(|code| code == "42501")
}
