//! Rings when the tools that models are told of have changed: for whoever listens, and for nobody else.
//!
//! The fleet's own bell rings at every change of a tool, a control or a token, and says nothing of which. So the tools are looked
//! at then, once for all who listen, and some times, for a dispatcher may know of a change up to a second later than another.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fleet::{bus::connect::Bus, definitions::Format, ids::Label};
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::definition::McpTool;
use crate::{
    ask::Dispatchers,
    auth::principal::Principal,
    body::aside,
    listed::{listed, tools},
    refusal::Refused,
};

/// How long after the bell the tools are looked at: several changes at once are one, and dispatchers hear the same bell.
const LOOKS_AFTER: [Duration; 3] = [
    Duration::from_millis(50),
    Duration::from_millis(400),
    Duration::from_millis(1_300),
];
/// How often they are looked at without a bell: one may be lost.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// How long somebody waits for the first look who begins to listen.
const READY_MAX: Duration = Duration::from_secs(2);

/// The tools as they were last seen.
#[derive(Debug)]
pub(crate) struct ToolBell {
    bus: Bus,
    seen: watch::Sender<Option<SeenTools>>,
    is_watching: AtomicBool,
    /// Rung where somebody begins to listen.
    begun: Notify,
    tasks: TaskTracker,
    stopping: CancellationToken,
}

/// The tools that models are told of, by name, each with a hash of what they are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenTools(Arc<Vec<(String, u64)>>);

/// Somebody who listens.
#[derive(Debug)]
pub(super) struct ToolListener {
    seen: watch::Receiver<Option<SeenTools>>,
    principal: Principal,
    /// What of the tools is its own, when that was last looked at.
    own: Option<u64>,
}

impl ToolBell {
    /// Over this connection. `tasks` gets what watches, until `stopping`.
    pub(crate) fn new(bus: Bus, tasks: TaskTracker, stopping: CancellationToken) -> Self {
        Self {
            bus,
            seen: watch::Sender::new(None),
            is_watching: AtomicBool::new(false),
            begun: Notify::new(),
            tasks,
            stopping,
        }
    }

    /// Listens for changes of the tools that are for this principal.
    pub(super) fn listen(
        self: &Arc<Self>,
        dispatchers: &Dispatchers,
        by: &Principal,
    ) -> ToolListener {
        let seen = self.seen.subscribe();
        if !self.is_watching.swap(true, Ordering::AcqRel) {
            let (bell, dispatchers) = (Arc::clone(self), dispatchers.clone());
            let stopping = self.stopping.clone();
            let watching = async move { bell.watch(&dispatchers).await };
            self.tasks
                .spawn(stopping.run_until_cancelled_owned(watching));
        }
        self.begun.notify_one();
        ToolListener {
            seen,
            principal: by.clone(),
            own: None,
        }
    }

    /// Watches until the future is dropped; asks nobody while nobody listens.
    async fn watch(&self, dispatchers: &Dispatchers) {
        let subject = self.bus.subjects.control_changed();
        let mut bell = match self.bus.client.subscribe(subject).await {
            Ok(bell) => Some(bell),
            Err(error) => {
                tracing::warn!(%error, "cannot listen for changed tools; looking every {LOOK_EVERY:?} instead");
                None
            }
        };
        let tenant = "default".parse().expect("a tenant's name");
        loop {
            let rung = async {
                let rung = match bell.as_mut() {
                    Some(bell) => bell.next().await.is_some(),
                    None => false,
                };
                // The bell is gone; the looks go on without it.
                if !rung {
                    std::future::pending::<()>().await;
                }
            };
            let is_rung = tokio::select! {
                () = rung => true,
                () = self.begun.notified() => false,
                () = sleep(LOOK_EVERY) => false,
            };
            if self.seen.receiver_count() == 0 {
                // Whoever listens next begins with the tools of then.
                self.seen.send_replace(None);
                continue;
            }
            if !is_rung {
                self.look(dispatchers, &tenant).await;
                continue;
            }
            // What has rung meanwhile is looked at with this.
            while let Some(bell) = bell.as_mut()
                && matches!(bell.next().now_or_never(), Some(Some(_)))
            {}
            let mut waited = Duration::ZERO;
            for after in LOOKS_AFTER {
                sleep(after - waited).await;
                waited = after;
                self.look(dispatchers, &tenant).await;
            }
        }
    }

    /// Looks at the tools, and tells who listens where they have changed.
    async fn look(&self, dispatchers: &Dispatchers, tenant: &Label) {
        match look(dispatchers, tenant).await {
            Ok(seen) => {
                self.seen.send_if_modified(|known| {
                    let is_new = known.as_ref() != Some(&seen);
                    *known = Some(seen);
                    is_new
                });
            }
            Err(_refused) => tracing::debug!("the tools cannot be looked at for who listens"),
        }
    }
}

async fn look(dispatchers: &Dispatchers, tenant: &Label) -> Result<SeenTools, Refused> {
    let bytes = listed(dispatchers, tenant, Format::Mcp).await?;
    aside(bytes.len(), move || read(&bytes)).await?
}

fn read(listing: &[u8]) -> Result<SeenTools, Refused> {
    let definitions = tools(listing)?;
    let seen = definitions.iter().filter_map(|one| {
        let tool = McpTool::of(one)?;
        Some((tool.name, hash(one.get())))
    });
    let mut seen: Vec<(String, u64)> = seen.collect();
    seen.sort_unstable();
    Ok(SeenTools(Arc::new(seen)))
}

fn hash(of: &(impl Hash + ?Sized)) -> u64 {
    // The same in the whole process, and nowhere else.
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl SeenTools {
    /// What of them this principal can call.
    fn own(&self, principal: &Principal) -> u64 {
        let all = self.0.iter();
        let own = all.filter(|(name, _)| principal.makes_calls_of(name));
        hash(&own.collect::<Vec<_>>())
    }
}

impl ToolListener {
    /// Waits until it is known from which tools on changes are told, but not for long. Cancel-safe.
    pub(super) async fn ready(&mut self) {
        let known = self.seen.wait_for(Option::is_some);
        let known = timeout(READY_MAX, known).await;
        if let Ok(Ok(seen)) = known {
            self.own = seen.as_ref().map(|seen| seen.own(&self.principal));
        }
    }

    /// Waits until the tools have changed that are for who listens. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        loop {
            let own = self
                .seen
                .borrow_and_update()
                .as_ref()
                .map(|seen| seen.own(&self.principal));
            match (self.own, own) {
                (Some(known), Some(own)) if known != own => {
                    self.own = Some(own);
                    return;
                }
                (None, Some(own)) => self.own = Some(own),
                (_, _) => {}
            }
            if self.seen.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seen(tools: &[(&str, &str)]) -> SeenTools {
        let tools: Vec<Value> = tools
            .iter()
            .map(|(name, description)| {
                json!({"name": name, "description": description, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}})
            })
            .collect();
        read(json!({ "tools": tools }).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn tools_have_changed_where_what_is_told_of_them_has() {
        let first = seen(&[("a", "one"), ("b", "two")]);
        assert_eq!(first, seen(&[("b", "two"), ("a", "one")]));
        assert_ne!(first, seen(&[("a", "one")]));
        assert_ne!(first, seen(&[("a", "one"), ("b", "three")]));
        let (anyone, other) = (Principal::Anyone, seen(&[("a", "one"), ("b", "x")]));
        assert_ne!(first.own(&anyone), other.own(&anyone));
    }
}
