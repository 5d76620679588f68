//! What a tool tells while it runs: how far it is, and parts of its answer. It tells at any time and never waits.
//!
//! A report of how far it is replaces the one before. Parts are kept in order and bounded, see `parts`.

use std::sync::{Arc, Mutex, MutexGuard};

use fleet::wire::part::Part;
use secrecy::SecretString;
use serde::Deserialize;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};

use crate::{
    executors::redact::redact,
    parts::{NextPart, Parts, Put},
};

/// The most bytes of a message; longer ones are cut at a character boundary.
const MESSAGE_MAX: usize = 512;

/// Where a tool reports its progress and tells parts of its answer. Clones report for the same attempt; the default one has no
/// receiver.
#[derive(Debug, Clone, Default)]
pub struct Progress(Option<Arc<ProgressSink>>);

/// Both ways of one attempt.
#[derive(Debug)]
struct ProgressSink {
    report: watch::Sender<ProgressReport>,
    parts: Mutex<Parts>,
    /// Rings with every part.
    more: Notify,
}

/// The latest report.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ProgressReport {
    pub(crate) fraction: Option<f64>,
    pub(crate) message: Option<String>,
}

impl Progress {
    /// One that is heard, and what hears it: for tests of executors.
    pub fn heard() -> (Self, ToldParts) {
        let (progress, heard) = channel();
        (progress, ToldParts(heard))
    }

    /// Whether anybody may hear it: the caller named a session, and followers of that are told. Where nobody does, nothing needs
    /// to be prepared.
    pub fn is_heard(&self) -> bool {
        self.0.is_some()
    }

    /// Reports how much is done, from 0 to 1, where that is known, and a message. Never waits and never fails.
    pub fn report(&self, fraction: Option<f64>, message: &str) {
        let Some(heard) = &self.0 else {
            return;
        };
        let fraction = fraction.filter(|fraction| !fraction.is_nan());
        let message = (!message.is_empty()).then(|| bounded(message));
        heard.report.send_replace(ProgressReport {
            fraction: fraction.map(|fraction| fraction.clamp(0.0, 1.0)),
            message,
        });
    }

    /// Tells a part of the answer. Never waits and never fails: a part that is [unfit](Part::check) is left out, and beyond 4 MiB
    /// or 128 parts that wait to be sent all further ones are. A text may have any length.
    pub fn output(&self, part: impl Into<Part>) {
        let Some(heard) = &self.0 else {
            return;
        };
        let put = heard.parts().put(part.into(), Instant::now());
        match put {
            Put::Taken => heard.more.notify_one(),
            Put::Unfit(unfit) => tracing::debug!(%unfit, "a part of an answer was left out"),
            Put::TooMany => {
                tracing::debug!(
                    "a tool told too many parts of its answer; its result alone speaks"
                );
            }
            Put::Over => {}
        }
    }

    /// Tells what a tool elsewhere wrote: [a part](Part::read), or `{"progress": {"fraction": 0.5, "message": "half"}}`. Never
    /// waits and never fails: what is neither is left out.
    pub fn relay(&self, json: &[u8]) {
        let Some(heard) = &self.0 else {
            return;
        };
        let unfit = match Part::read(json) {
            Ok(part) => return self.output(part),
            Err(unfit) => unfit,
        };
        let Ok(ReportLine { progress }) = serde_json::from_slice(json) else {
            tracing::debug!(%unfit, "what a tool wrote is no part of an answer");
            return;
        };
        let ForeignReport { fraction, message } = progress;
        let masked = redact(&message, heard.parts().hidden());
        self.report(fraction, &masked.unwrap_or(message));
    }

    /// Masks these secrets in parts, and in reports that are relayed: a tool may repeat what it was given.
    pub fn hide(&self, secrets: &[SecretString]) {
        if let Some(heard) = &self.0 {
            heard.parts().hide(secrets);
        }
    }
}

/// What a tool has told in a test. Nothing leaves it before it is asked for, so that as many parts wait as may.
#[derive(Debug)]
pub struct ToldParts(ProgressReports);

impl ToldParts {
    /// The parts since it was asked last, with their numbers.
    pub fn take(&self) -> Vec<(u32, Part)> {
        self.0.parts.rest()
    }
}

/// How a tool elsewhere writes a report.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportLine {
    progress: ForeignReport,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForeignReport {
    fraction: Option<f64>,
    #[serde(default)]
    message: String,
}

impl ProgressSink {
    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts
            .lock()
            .expect("no thread panics while holding the parts")
    }
}

fn bounded(message: &str) -> String {
    let end = message.floor_char_boundary(MESSAGE_MAX);
    message[..end].replace('\0', "\u{fffd}")
}

/// Receives what one attempt's tool tells. Dropping it lets the tool tell no more.
#[derive(Debug)]
pub(crate) struct ProgressReports {
    pub(crate) reports: ReportsHeard,
    pub(crate) parts: PartsHeard,
}

impl Drop for ProgressReports {
    fn drop(&mut self) {
        self.parts.refuse();
    }
}

/// Receives the reports.
#[derive(Debug)]
pub(crate) struct ReportsHeard {
    reports: watch::Receiver<ProgressReport>,
    /// Keeps the channel open when the tool drops its end.
    _open: Arc<ProgressSink>,
}

impl ReportsHeard {
    /// The next report. A report that is not read yet is replaced by a later one. Cancel-safe.
    pub(crate) async fn next(&mut self) -> ProgressReport {
        match self.reports.changed().await {
            Ok(()) => self.reports.borrow_and_update().clone(),
            Err(_closed) => unreachable!("one end of the channel is held here"),
        }
    }

    /// The last report, if it was not read.
    pub(crate) fn last(&mut self) -> Option<ProgressReport> {
        let unheard = self.reports.has_changed().unwrap_or(false);
        unheard.then(|| self.reports.borrow_and_update().clone())
    }
}

/// Receives the parts.
#[derive(Debug)]
pub(crate) struct PartsHeard(Arc<ProgressSink>);

impl PartsHeard {
    /// Takes no more, and forgets those that wait.
    pub(crate) fn refuse(&self) {
        self.0.parts().end();
    }

    /// The next part and its number, as soon as it may leave. Cancel-safe.
    pub(crate) async fn next(&self) -> (u32, Part) {
        loop {
            let next = self.0.parts().next(Instant::now());
            match next {
                NextPart::Now(number, part) => return (number, part),
                NextPart::None => self.0.more.notified().await,
                NextPart::At(at) => {
                    // What is put meanwhile may be a reason not to wait for more of a text.
                    tokio::select! {
                        () = sleep_until(at) => {}
                        () = self.0.more.notified() => {}
                    }
                }
            }
        }
    }

    /// All that wait.
    pub(crate) fn rest(&self) -> Vec<(u32, Part)> {
        self.0.parts().rest(Instant::now())
    }
}

/// The sender and the receiver of what one attempt's tool tells.
pub(crate) fn channel() -> (Progress, ProgressReports) {
    let (report, reports) = watch::channel(ProgressReport::default());
    let heard = Arc::new(ProgressSink {
        report,
        parts: Mutex::default(),
        more: Notify::new(),
    });
    let reports = ReportsHeard {
        reports,
        _open: Arc::clone(&heard),
    };
    let parts = PartsHeard(Arc::clone(&heard));
    (Progress(Some(heard)), ProgressReports { reports, parts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_bounded() {
        let (progress, mut heard) = channel();
        progress.report(Some(7.0), &"é".repeat(1_000));
        let report = heard.reports.last().unwrap();
        assert_eq!(report.fraction, Some(1.0));
        assert_eq!(report.message.unwrap().len(), MESSAGE_MAX);
        progress.report(Some(f64::NAN), "");
        assert_eq!(heard.reports.last(), Some(ProgressReport::default()));
        progress.report(None, "a\0b");
        let report = heard.reports.last().unwrap();
        assert_eq!(report.message.as_deref(), Some("a\u{fffd}b"));
    }

    #[test]
    fn a_report_that_is_not_heard_costs_nothing() {
        let deaf = Progress::default();
        deaf.report(Some(0.5), "half");
        deaf.output("half");
        deaf.relay(b"{}");
        assert!(!deaf.is_heard());
    }

    #[test]
    fn what_a_tool_elsewhere_wrote_is_a_part_or_a_report_or_nothing() {
        let (progress, mut heard) = channel();
        progress.hide(&["hunter/2".into()]);
        for line in [
            &br#"{"text":"a"}"#[..],
            br#"{"progress":{"fraction":0.5,"message":"hunter/2"}}"#,
            br#"{"progress":{"fraction":"half"}}"#,
            br#"{"progress":0.5}"#,
            b"\xff\0",
            b"",
            br#"{"text":"b"}"#,
        ] {
            progress.relay(line);
        }
        let report = heard.reports.last().unwrap();
        assert_eq!(report.fraction, Some(0.5));
        assert_eq!(report.message.as_deref(), Some("[secret]"));
        assert_eq!(heard.parts.rest(), [(0, Part::from("ab"))]);
    }

    #[tokio::test(start_paused = true)]
    async fn parts_come_in_order_while_the_tool_goes_on() {
        let (progress, heard) = channel();
        progress.output("once ");
        let (first, ()) = tokio::join!(heard.parts.next(), async {
            progress.output("upon");
            progress.output(Part::Step("searching".to_owned()));
        });
        assert_eq!(first, (0, Part::from("once upon")));
        assert_eq!(heard.parts.next().await.0, 1);
        drop(heard);
        progress.output("late");
        let Progress(Some(kept)) = progress else {
            panic!("it had a receiver")
        };
        assert_eq!(kept.parts().rest(Instant::now()), []);
    }
}
