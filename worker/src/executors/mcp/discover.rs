//! Looks at what a server offers, for the fleet's own tool `mcp_discover`.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use fleet::{
    ids::ServerName,
    outcome::ToolFailure,
    secrets::Secrets,
    wire::{code::Code, message::Message},
};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{
    McpExecutor,
    cut::AttemptEnd,
    definition::ToolDefinition,
    hear::Hear,
    list::KeptTools,
    peer::{Carrier, Peer},
    standing,
    stdio::ServerProcess,
    way::ServerWay,
};
use crate::{
    executors::{
        Stop,
        redact::{redact, veiled},
    },
    programs::ProgramSlot,
    waiting::Tenant,
};

/// The definitions of a server's tools, each as it writes what is pinned.
#[derive(Debug, Default)]
struct Definitions(Vec<Box<RawValue>>);

impl KeptTools for Definitions {
    fn keep(&mut self, definition: &ToolDefinition<'_>) {
        self.0.push(definition.written());
    }
}

impl McpExecutor {
    /// What a server says of its tools, now: over a connection, or with a process, of its own. The process takes a slot of this tenant.
    ///
    /// # Errors
    ///
    /// It cannot be reached, or does not say; no slot is free.
    pub(crate) async fn discover(
        &self,
        server: &ServerName,
        secrets: &Secrets,
        tenant: &Tenant,
        until: Instant,
    ) -> Result<Vec<Box<RawValue>>, ToolFailure> {
        let server = self.server(server)?;
        let (way, masked) = self.way(&server, secrets)?;
        let hear = Hear::default();
        let cut = AttemptEnd {
            until,
            stop: Stop::under(CancellationToken::new()),
        };
        let mut slot = None;
        let carrier = match way {
            ServerWay::Http(target) => Carrier::Http(target),
            ServerWay::Stdio(way) => {
                slot = self.slot(tenant, until).await?;
                let (stale, tasks) = (Arc::default(), &self.links.tasks);
                let process = ServerProcess::start(&server.name, &way, &stale, tasks)?;
                Carrier::Stdio(process)
            }
        };
        let peer = Peer {
            carrier: &carrier,
            ids: &AtomicU64::new(1),
            cut: &cut,
            hear: &hear,
        };
        let found = peer.connect::<Definitions>().await;
        // Somebody wants to know how it is now: so do the calls of this worker.
        self.links.of(&server).stale.store(true, Ordering::Release);
        carrier.end().await;
        drop(slot);
        // A pin of what is veiled would be no pin of what the server says.
        let without_secrets = |definition: Box<RawValue>| match veiled(definition.get(), &masked) {
            None => definition,
            Some(veiled) => ToolDefinition::with_a_secret(&veiled).written(),
        };
        let (_, Definitions(definitions)) = found.map_err(|failure| {
            let failure = carrier.instead_of_an_answer(failure);
            let failure = failure.reworded(|text| redact(text, &masked));
            standing::of_server(failure, &server.name)
        })?;
        Ok(definitions.into_iter().map(without_secrets).collect())
    }

    async fn slot(
        &self,
        tenant: &Tenant,
        until: Instant,
    ) -> Result<Option<ProgramSlot>, ToolFailure> {
        let Some(programs) = &self.programs else {
            return Ok(None);
        };
        let slot = timeout_at(until, programs.wait(tenant)).await;
        let slot = slot.ok().flatten().ok_or_else(|| {
            let what = Message::fixed(
                "every slot for programs of this worker is taken",
                "这个 worker 的程序槽位都被占用",
            );
            ToolFailure::new(Code::Unavailable, what)
        })?;
        Ok(Some(slot))
    }
}
