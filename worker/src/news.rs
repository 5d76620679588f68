//! News: tells the followers of a session that an attempt has started, and how far its tool is.
//!
//! Bounded: at most ten events a second for each attempt, each of them small.

use std::{convert::Infallible, future::pending, time::Duration};

use fleet::{
    bus::events::Events,
    ids::{CallId, Label},
    wire::event::{Event, Happening},
};
use futures_util::future::BoxFuture;
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};

use crate::progress::{self, Progress, ProgressReport, ProgressReports};

/// The pause between two events of one attempt.
const PAUSE: Duration = Duration::from_millis(100);

/// Publishes events of one attempt; `None`: the call has no session, and nothing is published.
#[derive(Default)]
pub(crate) struct News(pub(crate) Option<Teller>);

/// Publishes events of one attempt to the followers of its session.
pub(crate) struct Teller {
    pub(crate) events: Events,
    pub(crate) tenant: Label,
    pub(crate) session: Label,
    pub(crate) call: CallId,
    /// The revision of the call that its claim made.
    pub(crate) rev: i32,
    pub(crate) attempt: u32,
    /// When it was claimed, by Postgres's clock and by ours.
    pub(crate) claimed_at: OffsetDateTime,
    pub(crate) claim_sent: Instant,
    /// How many reports of the tool were published.
    pub(crate) told: u32,
    /// Receives the tool's reports, once the attempt has started.
    pub(crate) heard: Option<ProgressReports>,
}

impl Teller {
    async fn tell_reports(&mut self) -> Infallible {
        loop {
            match &mut self.heard {
                Some(heard) => {
                    let report = heard.next().await;
                    self.tell_progress(report);
                    sleep(PAUSE).await;
                }
                None => pending().await,
            }
        }
    }

    fn tell_last(&mut self) {
        let last = self.heard.as_mut().and_then(ProgressReports::last);
        if let Some(report) = last {
            self.tell_progress(report);
        }
    }

    fn tell_progress(&mut self, report: ProgressReport) {
        let ProgressReport { fraction, message } = report;
        let attempt = self.attempt;
        self.told += 1;
        self.tell(
            self.told,
            Happening::Progress {
                attempt,
                fraction,
                message,
            },
        );
    }

    fn tell(&self, n: u32, what: Happening) {
        let event = || Event {
            call_id: self.call,
            sequence: Event::sequence(self.rev, n),
            at: self.claimed_at + self.claim_sent.elapsed(),
            what,
        };
        self.events.tell(&self.tenant, Some(&self.session), event);
    }
}

impl News {
    /// Tells that the attempt has started; what its tool reports from now on is told, too.
    pub(crate) fn begin(&mut self) -> Option<Progress> {
        let teller = self.0.as_mut()?;
        let attempt = teller.attempt;
        teller.tell(0, Happening::Started { attempt });
        let (progress, heard) = progress::channel();
        teller.heard = Some(heard);
        Some(progress)
    }

    /// Tells what the tool reports.
    pub(crate) fn tell_reports(&mut self) -> Option<BoxFuture<'_, Infallible>> {
        let teller = self.0.as_mut()?;
        Some(Box::pin(teller.tell_reports()))
    }

    /// Tells the last report, if it was not told.
    pub(crate) fn tell_last(&mut self) {
        self.0.iter_mut().for_each(Teller::tell_last);
    }
}
