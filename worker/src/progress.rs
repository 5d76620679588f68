//! The progress of a tool. It reports at any time and never waits; a report replaces the one before.

use std::sync::Arc;

use tokio::sync::watch;

/// The most bytes of a message; longer ones are cut at a character boundary.
const MESSAGE_MAX: usize = 512;

/// Where a tool reports its progress. Clones report for the same attempt; the default one has no receiver.
#[derive(Debug, Clone, Default)]
pub struct Progress(Option<Arc<watch::Sender<ProgressReport>>>);

/// The latest report.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ProgressReport {
    pub(crate) fraction: Option<f64>,
    pub(crate) message: Option<String>,
}

impl Progress {
    /// Reports how much is done, from 0 to 1, where that is known, and a message. Never waits and never fails.
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

/// Receives the reports of one attempt's tool.
#[derive(Debug)]
pub(crate) struct ProgressReports {
    reports: watch::Receiver<ProgressReport>,
    /// Keeps the channel open when the tool drops its end.
    _open: Progress,
}

impl ProgressReports {
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

/// The sender and the receiver for the reports of one attempt's tool.
pub(crate) fn channel() -> (Progress, ProgressReports) {
    let (said, reports) = watch::channel(ProgressReport::default());
    let progress = Progress(Some(Arc::new(said)));
    let heard = ProgressReports {
        reports,
        _open: progress.clone(),
    };
    (progress, heard)
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
    fn a_report_that_is_not_heard_costs_nothing() {
        Progress::default().report(Some(0.5), "half");
    }
}
