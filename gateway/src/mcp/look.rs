//! A call that is looked at by its id: what the fleet says of it, and what is known of its tool. `toolfleet_get` and tasks read it alike.

use std::{sync::Arc, time::Duration};

use fleet::ids::{CallId, ToolName};
use fleet_client::Answer;
use tokio::time::Instant;

use super::{catalogue::ToolFacts, client::McpClient};
use crate::{
    answer::Glimpse,
    asked::meant,
    desk::CallDesk,
    refusal::Refused,
    wait::{WaitUntil, wait},
};

/// What is known of a call.
#[derive(Debug)]
pub(super) struct LookedCall {
    pub(super) answer: Answer,
    /// Of its tool, where there still is one.
    pub(super) facts: Option<Arc<ToolFacts>>,
}

impl LookedCall {
    /// The call as it stands after this wait, or earlier when `until` is so. One of a tool that the token is not for, or of another
    /// tenant, is answered as one that does not exist. Dropping the future gives up the answer.
    ///
    /// # Errors
    ///
    /// No dispatcher answers.
    pub(super) async fn at(
        desk: &CallDesk,
        client: &McpClient,
        call: CallId,
        longest: Duration,
        until: WaitUntil,
    ) -> Result<Self, Refused> {
        let end = Instant::now() + longest;
        let McpClient {
            principal, tenant, ..
        } = client;
        let call = meant(&desk.dispatchers, principal, tenant, call).await?;
        let answer = wait(desk, tenant, call, end, until).await?;
        let tool: Option<ToolName> = Glimpse::of(answer.bytes()).tool.parse().ok();
        let facts = match tool {
            Some(tool) => {
                let facts = desk.catalogue.facts(&desk.dispatchers, tenant, &tool);
                facts.await.ok().flatten()
            }
            None => None,
        };
        Ok(Self { answer, facts })
    }

    /// Whether a probe looks into its doubt.
    pub(super) fn has_probe(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.has_probe)
    }

    /// Whether its tool answers with blocks.
    pub(super) fn is_content(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.is_content)
    }
}
