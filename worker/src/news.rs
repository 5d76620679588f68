//! News: tells the followers of a session that an attempt has started, how far its tool is, the parts of its answer, and now
//! and then that it still runs.
//!
//! Bounded for each attempt: ten reports a second, each of them small, and the parts as `parts` lets them pass.

use std::{convert::Infallible, time::Duration};

use fleet::{
    bus::events::Events,
    ids::{CallId, Label},
    wire::{
        event::{Event, Happening, SessionCall},
        part::Part,
    },
};
use futures_util::future::BoxFuture;
use time::OffsetDateTime;
use tokio::time::{Instant, interval_at, sleep_until};

use crate::{
    executors::{AttemptContext, redact::of_token},
    progress::{self, ProgressReport, ProgressReports},
};

/// The pause between two reports of one attempt.
const PAUSE: Duration = Duration::from_millis(100);
/// How often an attempt says that it still runs.
const BEAT: Duration = Duration::from_secs(5);

/// Publishes events of one attempt.
#[derive(Default)]
pub(crate) struct News {
    /// `None`: the call has no session, or its tool is hidden, and nothing is published.
    teller: Option<Teller>,
    /// Receives what the tool tells, once the attempt has started.
    heard: Option<ProgressReports>,
}

/// Publishes events of one attempt to the followers of its session.
pub(crate) struct Teller {
    pub(crate) events: Events,
    pub(crate) tenant: Label,
    pub(crate) session: Label,
    pub(crate) tool: String,
    pub(crate) tool_version: i32,
    pub(crate) call: CallId,
    /// The revision of the call that its claim made.
    pub(crate) rev: i32,
    pub(crate) attempt: u32,
    /// When it was claimed, by Postgres's clock and by ours.
    pub(crate) claimed_at: OffsetDateTime,
    pub(crate) claim_sent: Instant,
    /// Whether parts of the answer are told. Not those of a tool with sensitive values: where they stand in a part is not known.
    pub(crate) tells_parts: bool,
    /// How many events were published.
    pub(crate) told: u32,
}

impl Teller {
    /// Tells what is heard, and that the attempt still runs. Cancel-safe: what was not told stays where it is.
    async fn tell_all(&mut self, heard: &mut ProgressReports) -> Infallible {
        let ProgressReports { reports, parts } = heard;
        let attempt = self.attempt;
        let mut next_report = Instant::now();
        let mut beats = interval_at(next_report + BEAT, BEAT);
        loop {
            let report = async {
                sleep_until(next_report).await;
                reports.next().await
            };
            tokio::select! {
                report = report => {
                    self.tell_progress(report);
                    next_report = Instant::now() + PAUSE;
                }
                (number, part) = parts.next() => self.tell_part(number, part),
                _beat = beats.tick() => self.tell(Happening::Running { attempt }),
            }
        }
    }

    fn tell_last(&mut self, heard: &mut ProgressReports) {
        let ProgressReports { reports, parts } = heard;
        if let Some(report) = reports.last() {
            self.tell_progress(report);
        }
        for (number, part) in parts.rest() {
            self.tell_part(number, part);
        }
    }

    fn tell_progress(&mut self, report: ProgressReport) {
        let ProgressReport { fraction, message } = report;
        let attempt = self.attempt;
        self.tell(Happening::Progress {
            attempt,
            fraction,
            message,
        });
    }

    fn tell_part(&mut self, part: u32, output: Part) {
        let attempt = self.attempt;
        self.tell(Happening::Output {
            attempt,
            part,
            output,
        });
    }

    fn tell(&mut self, what: Happening) {
        let event = || Event {
            call_id: self.call,
            sequence: Event::sequence(self.rev, self.told),
            at: self.claimed_at + self.claim_sent.elapsed(),
            what,
        };
        let followed = SessionCall {
            tenant: &self.tenant,
            session: Some(&self.session),
            tool: &self.tool,
            tool_version: self.tool_version,
        };
        self.events.tell(followed, event);
        self.told += 1;
    }
}

impl News {
    /// Of an attempt; `None`: nothing is told of it.
    pub(crate) const fn of(teller: Option<Teller>) -> Self {
        Self {
            teller,
            heard: None,
        }
    }

    /// Tells that the attempt has started; what its tool tells from now on is told, too.
    pub(crate) fn begin(&mut self, context: &mut AttemptContext) {
        let Some(teller) = &mut self.teller else {
            return;
        };
        let attempt = teller.attempt;
        teller.tell(Happening::Started { attempt });
        let (progress, heard) = progress::channel();
        if !teller.tells_parts {
            heard.parts.refuse();
        }
        if let Some(token) = &context.completion_token {
            progress.hide(&of_token(token));
        }
        context.progress = progress;
        self.heard = Some(heard);
    }

    /// Tells what the tool tells.
    pub(crate) fn tell_all(&mut self) -> Option<BoxFuture<'_, Infallible>> {
        let (teller, heard) = (self.teller.as_mut()?, self.heard.as_mut()?);
        Some(Box::pin(teller.tell_all(heard)))
    }

    /// Tells what was not told.
    pub(crate) fn tell_last(&mut self) {
        if let (Some(teller), Some(heard)) = (&mut self.teller, &mut self.heard) {
            teller.tell_last(heard);
        }
    }

    /// The attempt is over: nothing more is told of it.
    pub(crate) fn end(&mut self) {
        self.tell_last();
        self.heard = None;
    }
}
