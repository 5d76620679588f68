//! Learns the timeouts of tools that leave them to the fleet. One dispatcher looks at a tool every ten minutes.

use std::time::Duration;

use bytes::Bytes;
use fleet::{
    learn::{self, Lesson},
    manifest::LearnedTimeout,
    registry::Tool,
    store::{
        StoreError,
        timeouts::{self, DueLook},
    },
    telemetry::metrics,
};

use super::{Sweep, every};

/// How often it asks which tools are due. Nothing is asked where no tool has a timeout that is learned.
const ASK: Duration = Duration::from_secs(5);
/// The most tools of one question.
const ASKED_MAX: usize = 1_000;

impl Sweep {
    /// Learns timeouts. Cancel-safe: a look that is lost comes again ten minutes later.
    pub(super) async fn learn_timeouts(self) {
        let mut ticks = every(ASK);
        loop {
            ticks.tick().await;
            self.warn("timeouts", self.learn().await);
        }
    }

    async fn learn(&self) -> Result<(), StoreError> {
        let tools = self.registry.all_offered().into_iter();
        let tools = tools.filter_map(|tool| Some((*tool.manifest.timeout.learned()?, tool)));
        let tools: Vec<_> = tools.collect();
        for tools in tools.chunks(ASKED_MAX) {
            let versions = tools.iter().map(|(bounds, tool)| {
                let (name, version) = (&tool.manifest.name, tool.manifest.version);
                let learned = self.registry.learned_timeout(name, version);
                metrics().learned_timeout(name, learned.unwrap_or(bounds.initial));
                (name.clone(), version)
            });
            let versions: Vec<_> = versions.collect();
            for DueLook { index, learned } in timeouts::take_due(&self.pool, &versions).await? {
                if let Some((bounds, tool)) = tools.get(index) {
                    self.look_at_times(bounds, tool, learned).await?;
                }
            }
        }
        Ok(())
    }

    async fn look_at_times(
        &self,
        bounds: &LearnedTimeout,
        tool: &Tool,
        learned: Option<Duration>,
    ) -> Result<(), StoreError> {
        let (name, version) = (&tool.manifest.name, tool.manifest.version);
        let now = bounds.within(learned.unwrap_or(bounds.initial));
        let times = timeouts::of_a_day(&self.pool, name, version).await?;
        let lesson = learn::lesson(bounds, now, times);
        let is_kept = timeouts::keep(&self.pool, name, version, learned, now, &lesson).await?;
        let Lesson { samples, next, .. } = lesson;
        if let Some((timeout, why)) = next.filter(|_| is_kept) {
            tracing::info!(tool = %name, version, ?timeout, %why, samples, "the timeout was learned anew");
            let lost = "that a timeout was learned was not told; processes find out by themselves";
            let subject = self.bus.subjects.control_changed();
            self.bus.tell(subject, Bytes::new(), lost).await;
        }
        Ok(())
    }
}
