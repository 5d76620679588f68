//! Puts held calls aside that a pause covers, and hands them back when it is over.
//!
//! The door puts new calls aside, and the gate those that were published. What was held by then is found here, by one walk over
//! the held calls when the controls have changed, and a second one when every process knows of the change. So paused calls are
//! in the way of none that may run. What a walk misses is released in its turn, and the gate puts it aside.
//!
//! The way back is looked for all the time, by the lines that hold calls (`release.rs`), so no call waits for a pause that is
//! over, however it came there.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fleet::{
    checkpoint::{Checkpoint, reached},
    controls::{ControlId, Controls, LazyArguments, PausedBy},
    hold::Line,
    ids::ToolName,
    store::{
        StoreError, controls,
        pauses::{self, HeldCall, LineMove, STEP},
        session::within,
    },
    telemetry::metrics,
};
use tokio::time::Instant;

use super::{Sweep, every};
use crate::{admission::line_of, news};

/// How soon a change of the controls is noticed, once this process has read it.
const NOTICE: Duration = Duration::from_millis(100);
/// When every process knows of a change: they look each second, and a commit may have been on its way.
const KNOWN_EVERYWHERE: Duration = Duration::from_secs(3);
/// How long a statement may take.
const STATEMENT_MAX: Duration = Duration::from_secs(10);
/// How many steps all pauses together get in one round of the release, so that the lines of others are not kept waiting.
const STEPS_AT_ONCE: usize = 10;

/// What was done about the controls as they stand.
#[derive(Default)]
struct Walked {
    controls: Arc<Controls>,
    /// When the walk is due.
    next: Option<Instant>,
    /// Whether it is the last one until they change.
    is_last: bool,
}

impl Sweep {
    /// Follows the controls. Cancel-safe: a call is in one line or in the other.
    pub(super) async fn keep_pauses(self) {
        let mut ticks = every(NOTICE);
        let mut walked = Walked::default();
        loop {
            ticks.tick().await;
            self.warn("pauses", self.pauses(&mut walked).await);
        }
    }

    async fn pauses(&self, walked: &mut Walked) -> Result<(), StoreError> {
        let now = Instant::now();
        let controls = self.registry.controls();
        if !Arc::ptr_eq(&controls, &walked.controls) {
            let expired = controls.have_expired() && controls::expire(&self.pool).await? > 0;
            if expired && self.bus.is_connected() {
                // Their going is a change, of which every process hears.
                let bell = self.bus.subjects.control_changed();
                news::ring(&self.bus, bell, Bytes::new()).await;
            }
            *walked = Walked {
                controls,
                next: Some(now),
                is_last: false,
            };
            // Lines of pauses that are over are handed back by the release.
            self.meter.look_at_lines();
        }
        if walked.controls.are_none() || walked.next.is_none_or(|next| next > now) {
            return Ok(());
        }
        self.put_aside(&walked.controls).await?;
        let again = (!walked.is_last).then_some(now + KNOWN_EVERYWHERE);
        (walked.next, walked.is_last) = (again, true);
        Ok(())
    }

    /// Walks over the held calls and puts those aside that a pause covers.
    async fn put_aside(&self, controls: &Controls) -> Result<(), StoreError> {
        let looked_into: Vec<&str> = controls.look_into().map(ToolName::as_str).collect();
        let mut cursor = None;
        loop {
            let step = pauses::held_behind(&self.pool, cursor, &looked_into).await?;
            let moves: Vec<LineMove> = step
                .iter()
                .filter_map(|held| moved(held, Line::Pause(pause_of(controls, held)?)))
                .collect();
            if !moves.is_empty() {
                let moving = pauses::move_held(&self.pool, &moves);
                let moved = within("put held calls aside", STATEMENT_MAX, moving).await?;
                metrics().swept("put_aside", moved);
                reached(Checkpoint::PauseMoved);
            }
            cursor = step.last().map(|held| held.call);
            if step.len() < STEP {
                return Ok(());
            }
        }
    }

    /// Hands back calls that wait for these pauses where they are over, beginning after the pause `last`; the next round goes on.
    pub(super) async fn hand_back(&self, pauses: &[ControlId], last: &mut Option<ControlId>) {
        let (controls, now) = (self.registry.controls(), Instant::now());
        let over = pauses.iter().filter(|pause| !controls.has(**pause, now));
        let is_next = |pause: &&ControlId| last.is_none_or(|last| **pause > last);
        let (behind, before): (Vec<&ControlId>, Vec<&ControlId>) = over.partition(is_next);
        let mut steps = STEPS_AT_ONCE;
        for pause in behind.into_iter().chain(before) {
            if steps == 0 {
                return;
            }
            *last = Some(*pause);
            let handed_back = self.hand_back_of(&Line::Pause(*pause), &mut steps).await;
            if handed_back.is_err() {
                // The lines of others do not wait for it.
                return self.warn("handed_back", handed_back);
            }
        }
    }

    /// Calls that wait in the line of a pause that is over, or of a breaker that is closed, go to the line where they would wait
    /// without it, or to that of another pause. They stay held, and are released in turn.
    pub(super) async fn hand_back_of(
        &self,
        waits_in: &Line,
        steps: &mut usize,
    ) -> Result<(), StoreError> {
        let controls = &*self.registry.controls();
        let looked_into: Vec<&str> = controls.look_into().map(ToolName::as_str).collect();
        while *steps > 0 {
            *steps -= 1;
            let looking = pauses::left_behind(&self.pool, waits_in, &looked_into);
            let doing = "look who waits for a pause that is over";
            let step = within(doing, STATEMENT_MAX, looking).await?;
            let line = |held: &HeldCall| match pause_of(controls, held) {
                Some(other) => Line::Pause(other),
                None => self.own_line(held),
            };
            let moves: Vec<LineMove> = step
                .iter()
                .filter_map(|held| moved(held, line(held)))
                .collect();
            if moves.is_empty() {
                return Ok(());
            }
            let moving = pauses::move_held(&self.pool, &moves);
            let moved = within("hand calls back", STATEMENT_MAX, moving).await?;
            metrics().swept("handed_back", moved);
            reached(Checkpoint::PauseMoved);
            self.meter.look_at_lines();
            if step.len() < STEP {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Where a call waits that no pause covers.
    fn own_line(&self, held: &HeldCall) -> Line {
        let shares_slots = self.running.most().is_some();
        match self.registry.current(&held.tool) {
            Some(newest) => line_of(&newest.manifest, &held.queue, held.rate_key, shares_slots),
            None => Line::Queue(held.queue.clone()),
        }
    }
}

fn pause_of(controls: &Controls, held: &HeldCall) -> Option<ControlId> {
    let call = PausedBy {
        tool: &held.tool,
        queue: &held.queue,
        tenant: &held.tenant,
        arguments: &LazyArguments::new(held.args.as_deref().unwrap_or("{}")),
    };
    let pause = controls.pause_of_accepted(&call, Instant::now());
    pause.map(|pause| pause.id)
}

/// The move to this line; `None` where the call waits there.
fn moved(held: &HeldCall, to: Line) -> Option<LineMove> {
    (held.line != to.to_string()).then(|| LineMove {
        call: held.call,
        from: held.line.clone(),
        to,
    })
}
