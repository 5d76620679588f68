//! The pause that covers a new call, as a fact of its admission.

use std::{sync::Arc, time::Duration};

use fleet::{
    controls::{ControlId, Controls, LazyArguments, PauseMode, PausedBy},
    ids::Label,
    registry::Tool,
    said,
    wire::code::Code,
};
use tokio::time::Instant;

use crate::{
    arguments::{SHORT, aside},
    check::Checked,
    door::Door,
    refusal::Refusal,
};

/// When a refused caller is told to come again where the pause has no end.
const COME_AGAIN: Duration = Duration::from_secs(60);

/// A pause that covers the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Paused {
    pub(super) id: ControlId,
    mode: PauseMode,
    /// What a refused caller is told.
    told: Option<String>,
    /// How long it lasts still, where it has an end.
    left: Option<Duration>,
}

impl Paused {
    /// The pause of a new call, if there is one. Where none holds, this costs a look at the snapshot.
    pub(super) async fn of(
        door: &Door,
        tenant: &Label,
        checked: &Checked,
    ) -> Result<Option<Self>, Refusal> {
        let controls = door.registry.controls();
        if controls.are_none() {
            return Ok(None);
        }
        let (tool, arguments) = (&checked.tool, &checked.arguments);
        // What is parsed already is only looked into.
        if arguments.text.len() <= SHORT || arguments.whole.is_some() {
            let seen = arguments.seen();
            return Ok(Self::find(&controls, tool, tenant, &seen));
        }
        let (tool, tenant, text) = (Arc::clone(tool), tenant.clone(), arguments.text.clone());
        let finding = move || {
            let seen = LazyArguments::new(&text);
            Ok(Self::find(&controls, &tool, &tenant, &seen))
        };
        Box::pin(aside(finding)).await
    }

    fn find(
        controls: &Controls,
        tool: &Tool,
        tenant: &Label,
        arguments: &LazyArguments<'_>,
    ) -> Option<Self> {
        let call = PausedBy {
            tool: &tool.manifest.name,
            queue: &tool.manifest.queue,
            tenant,
            arguments,
        };
        let now = Instant::now();
        let pause = controls.pause_of_new(&call, now)?;
        Some(Self {
            id: pause.id,
            // What no worker runs cannot be held: it is handed out when it is accepted.
            mode: match tool.manifest.is_run_by_client() {
                true => PauseMode::Refuse,
                false => pause.mode,
            },
            told: pause.told.clone(),
            left: pause
                .until
                .map(|until| until.saturating_duration_since(now)),
        })
    }

    /// The refusal, where the pause refuses.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        let what = match (self.mode, &self.told) {
            (PauseMode::Wait, _) => return None,
            (PauseMode::Refuse, Some(told)) => said!(
                "calls like this one are paused for the moment: {told}",
                "这类调用目前已暂停：{told}"
            ),
            (PauseMode::Refuse, None) => said!(
                "calls like this one are paused for the moment",
                "这类调用目前已暂停"
            ),
        };
        let wait = self.left.unwrap_or(COME_AGAIN).as_millis();
        let wait_ms = u64::try_from(wait).unwrap_or(u64::MAX).max(1);
        Some(Refusal::too_early(Code::ToolPaused, what, wait_ms))
    }
}

#[cfg(test)]
impl Paused {
    /// A pause of this mode, with what a refused caller is told and how long it lasts.
    pub(super) fn with(mode: PauseMode, told: Option<&str>, left: Option<Duration>) -> Self {
        Self {
            id: ControlId(7),
            mode,
            told: told.map(str::to_owned),
            left,
        }
    }
}
