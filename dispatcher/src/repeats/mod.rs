//! The repeat cap: a call that fails again and again in a run, with the same arguments, is refused.
//!
//! A model in a loop sends the same call until something stops it. Dispatchers count in memory how often the same tool failed
//! with the same arguments in a run, or without one in a session, and tell each other; a success ends the count. It is a
//! courtesy and no promise: exact to a call per race, and forgotten by a restart. Calls whose caller does not wait are not
//! counted, for no dispatcher is told how they end. `repetition` states what is counted.

mod table;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use fleet::{
    bus::{BusError, connect::Bus},
    ids::{DispatcherId, Label, ToolName},
    manifest::Manifest,
    modes::{Brake, InterceptMode},
    registry::Registry,
    telemetry::metrics,
    wire::code::Code,
};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use self::table::RepeatKey;
use self::table::{FailureTable, Failures};
use crate::check::{Checked, Submission};

/// What this dispatcher has counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Repeats(Arc<Mutex<FailureTable>>);

/// A call that has failed as often as its tool allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Repeated {
    /// How often.
    pub(crate) failures: u32,
    /// The last one's code.
    pub(crate) last: Code,
}

/// What dispatchers tell each other.
#[derive(Debug, Serialize, Deserialize)]
struct Repetition {
    /// Who says so: it has counted it already.
    by: DispatcherId,
    key: String,
    /// Why the call failed; without it, it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<Code>,
}

impl Repeats {
    /// Whether a call has failed too often already to come in.
    pub(crate) fn of(
        &self,
        registry: &Registry,
        submission: &Submission,
        checked: &Checked,
    ) -> Option<Repeated> {
        let within = Within::of_submission(submission)?;
        let key = within.key(&submission.tool, &checked.arguments.hash);
        self.at_cap(registry, &submission.tenant, &checked.newest.manifest, &key)
    }

    /// Whether the call of this key has failed as often as its tool's cap allows, and operators let that count.
    pub(crate) fn at_cap(
        &self,
        registry: &Registry,
        tenant: &Label,
        tool: &Manifest,
        key: &RepeatKey,
    ) -> Option<Repeated> {
        let now = Instant::now();
        let Failures { count, last, .. } = self.lock(|table| table.get(key, now))?;
        if tool.repeat_cap == 0 || count < tool.repeat_cap {
            return None;
        }
        let controls = registry.controls();
        let modes = controls.modes();
        match modes.of_brake(Brake::RepeatCap, &tool.name, Some(tenant), now) {
            InterceptMode::Enforce => Some(Repeated {
                failures: count,
                last,
            }),
            InterceptMode::Observe => {
                metrics().observed(&tool.name, Brake::RepeatCap);
                None
            }
            InterceptMode::Off => None,
        }
    }

    /// Counts a failure. Returns what the other dispatchers are to be told.
    pub(crate) fn failed(&self, own: DispatcherId, key: RepeatKey, code: Code) -> Bytes {
        self.lock(|table| table.failed(key, code, Instant::now()));
        Repetition::told(own, key, Some(code))
    }

    /// A success ends the count. Returns what the other dispatchers are to be told, if there was one.
    pub(crate) fn succeeded(&self, own: DispatcherId, key: RepeatKey) -> Option<Bytes> {
        let had_failed = self.lock(|table| table.succeeded(&key));
        had_failed.then(|| Repetition::told(own, key, None))
    }

    fn lock<T>(&self, look: impl FnOnce(&mut FailureTable) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts what another dispatcher says.
    fn hear(&self, own: DispatcherId, body: &[u8]) {
        let Ok(told) = serde_json::from_slice::<Repetition>(body) else {
            return;
        };
        let mut key = RepeatKey::default();
        if told.by == own || hex::decode_to_slice(&told.key, &mut key).is_err() {
            return;
        }
        self.lock(|table| match told.code {
            Some(code) => table.failed(key, code, Instant::now()),
            None => drop(table.succeeded(&key)),
        });
    }

    /// Listens to the other dispatchers until it is told to stop. Subscribed when this returns.
    ///
    /// # Errors
    ///
    /// NATS does not take the subscription.
    pub(crate) async fn listen(
        self,
        bus: &Bus,
        own: DispatcherId,
        stop: CancellationToken,
    ) -> Result<impl Future<Output = ()> + Send + use<>, BusError> {
        let subscribing = bus.client.subscribe(bus.subjects.repeats()).await;
        let mut said = subscribing.map_err(|error| BusError::Unavailable {
            doing: "listen for repetitions",
            source: Some(Box::new(error)),
        })?;
        Ok(async move {
            let hearing = async {
                while let Some(message) = said.next().await {
                    self.hear(own, &message.payload);
                }
            };
            stop.run_until_cancelled(hearing).await;
        })
    }
}

impl Repetition {
    fn told(by: DispatcherId, key: RepeatKey, code: Option<Code>) -> Bytes {
        let told = Self {
            by,
            key: hex::encode(key),
            code,
        };
        let told = serde_json::to_vec(&told).expect("it has only texts");
        told.into()
    }
}

/// The run of a call, or its session: within one of them repetitions count.
pub(crate) struct Within<'a> {
    tenant: &'a Label,
    kind: &'static str,
    name: &'a Label,
}

impl<'a> Within<'a> {
    /// The run, or else the session; `None`: there is neither.
    pub(crate) fn of(
        tenant: &'a Label,
        run: Option<&'a Label>,
        session: Option<&'a Label>,
    ) -> Option<Self> {
        let (kind, name) = match (run, session) {
            (Some(run), _) => ("run", run),
            (None, Some(session)) => ("session", session),
            (None, None) => return None,
        };
        Some(Self { tenant, kind, name })
    }

    /// That of a submission.
    pub(crate) fn of_submission(submission: &'a Submission) -> Option<Self> {
        let headers = &submission.headers;
        Self::of(
            &submission.tenant,
            headers.run.as_ref(),
            headers.session.as_ref(),
        )
    }

    /// The same tool with the same arguments has the same key.
    pub(crate) fn key(&self, tool: &ToolName, args_hash: &[u8; 32]) -> RepeatKey {
        let mut hash = Sha256::new();
        // No label and no tool has a space in its name.
        hash.update(format!(
            "{} {} {} {tool} ",
            self.tenant, self.kind, self.name
        ));
        hash.update(args_hash);
        let digest: [u8; 32] = hash.finalize().into();
        let mut key = RepeatKey::default();
        key.copy_from_slice(&digest[..16]);
        key
    }
}
