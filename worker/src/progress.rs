//! How far a tool is, told to the followers of the session.
//!
//! A tool reports whenever it likes and never waits; the last thing it said is what counts. What leaves is bounded: a few
//! events a second for each attempt, each of them small.

use std::{sync::Arc, time::Duration};

use fleet::{
    bus::events::Events,
    ids::{CallId, Label},
    wire::event::{Event, Happening},
};
use time::OffsetDateTime;
use tokio::{sync::watch, time::Instant};

/// The most bytes of a message; longer ones are cut at a character boundary.
const MESSAGE_MAX: usize = 512;
/// The pause between two events of one attempt.
const PAUSE: Duration = Duration::from_millis(100);

/// Where a tool says how far it is. Clones say it for the same attempt; the default one has no listener.
#[derive(Debug, Clone, Default)]
pub struct Progress(Option<Arc<watch::Sender<ProgressReport>>>);

/// What was said last.
#[derive(Debug, Clone, Default, PartialEq)]
struct ProgressReport {
    fraction: Option<f64>,
    message: Option<String>,
}

impl Progress {
    /// Says how much is done, from 0 to 1, where that is known, and a word about it. Never waits and never fails.
    pub fn report(&self, fraction: Option<f64>, message: &str) {
        let Some(heard) = &self.0 else {
            return;
        };
        let fraction = fraction.filter(|fraction| !fraction.is_nan());
        let message = (!message.is_empty()).then(|| bounded(message));
        heard.send_replace(ProgressReport {
            fraction: fraction.map(|fraction| fraction.clamp(0.0, 1.0)),
            message,
        });
    }
}

fn bounded(message: &str) -> String {
    let end = message.floor_char_boundary(MESSAGE_MAX);
    message[..end].replace('\0', "\u{fffd}")
}

/// Tells of one attempt.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) events: Events,
    pub(crate) tenant: Label,
    pub(crate) session: Option<Label>,
    pub(crate) call: CallId,
    /// Which revision of the call its claim is.
    pub(crate) rev: i32,
    pub(crate) attempt: u32,
    /// When it was claimed, on Postgres's clock and on ours.
    pub(crate) claimed_at: OffsetDateTime,
    pub(crate) claim_sent: Instant,
}

impl News {
    /// Tells that the attempt has begun; a call without a session tells nothing.
    pub(crate) fn started(&self) {
        let attempt = self.attempt;
        self.tell(0, Happening::Started { attempt });
    }

    /// Runs `work`, and tells meanwhile what it reports. What it says last is told before this returns.
    pub(crate) async fn tell_of<T>(&self, work: impl AsyncFnOnce(Progress) -> T) -> T {
        if self.session.is_none() {
            return work(Progress::default()).await;
        }
        let (said, mut heard) = watch::channel(ProgressReport::default());
        let mut told = 0;
        let progress = Progress(Some(Arc::new(said)));
        // Held here as well, so that the channel does not close when the tool lets go of it.
        let kept = progress.clone();
        let worked = {
            let listening = async {
                while heard.changed().await.is_ok() {
                    told += 1;
                    self.tell_progress(told, &heard.borrow_and_update());
                    tokio::time::sleep(PAUSE).await;
                }
            };
            tokio::select! {
                worked = work(progress) => worked,
                () = listening => unreachable!("one end of the channel is held here"),
            }
        };
        if heard.has_changed().unwrap_or(false) {
            self.tell_progress(told + 1, &heard.borrow_and_update());
        }
        drop(kept);
        worked
    }

    fn tell_progress(&self, n: u32, report: &ProgressReport) {
        let ProgressReport { fraction, message } = report.clone();
        let attempt = self.attempt;
        self.tell(
            n,
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
        self.events.tell(&self.tenant, self.session.as_ref(), event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_bounded() {
        let (said, heard) = watch::channel(ProgressReport::default());
        let progress = Progress(Some(Arc::new(said)));
        progress.report(Some(7.0), &"é".repeat(1_000));
        let report = heard.borrow().clone();
        assert_eq!(report.fraction, Some(1.0));
        assert_eq!(report.message.unwrap().len(), MESSAGE_MAX);
        progress.report(Some(f64::NAN), "");
        assert_eq!(*heard.borrow(), ProgressReport::default());
        progress.report(None, "a\0b");
        assert_eq!(heard.borrow().message.as_deref(), Some("a\u{fffd}b"));
    }

    #[test]
    fn nobody_has_to_listen() {
        Progress::default().report(Some(0.5), "half");
    }
}
