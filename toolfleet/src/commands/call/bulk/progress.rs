//! Progress on standard error: a bar on a terminal, else a line every few seconds; nothing for programs.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::summary::BulkSummary;
use crate::commands::output;

/// The pause between two lines where there is no terminal.
const EVERY: Duration = Duration::from_secs(5);

pub(super) struct BulkProgress(Shown);

enum Shown {
    Bar(ProgressBar),
    Lines(Instant),
    Nothing,
}

impl BulkProgress {
    /// For a file of this size, where that is known.
    pub(super) fn new(bytes: Option<u64>, for_a_program: bool, on_a_terminal: bool) -> Self {
        Self(match (for_a_program, on_a_terminal) {
            (true, _) => Shown::Nothing,
            (false, false) => Shown::Lines(Instant::now()),
            (false, true) => {
                let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::stderr());
                bar.set_style(style(if bytes.is_some() { SIZED } else { ENDLESS }));
                Shown::Bar(bar)
            }
        })
    }

    /// Adds bytes of the file that were read.
    pub(super) fn read(&self, bytes: u64) {
        if let Shown::Bar(bar) = &self.0 {
            bar.set_position(bytes);
        }
    }

    /// A batch was answered.
    pub(super) fn sent(&mut self, summary: &BulkSummary) {
        self.say(&summary.to_string());
    }

    /// Everything was sent; now the calls are waited for.
    pub(super) fn waits_for(&mut self, calls: usize) {
        if let Shown::Bar(bar) = &self.0 {
            bar.set_style(style(WAITING));
            bar.set_length(calls as u64);
            bar.set_position(0);
        }
    }

    /// One of them is over.
    pub(super) fn ended(&mut self, summary: &BulkSummary) {
        if let Shown::Bar(bar) = &self.0 {
            bar.set_position(summary.over());
        }
        self.say(&summary.to_string());
    }

    /// Prints without the bar in between.
    pub(super) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.0 {
            Shown::Bar(bar) => bar.suspend(print),
            Shown::Lines(_) | Shown::Nothing => print(),
        }
    }

    /// Removes the bar.
    pub(super) fn end(&self) {
        if let Shown::Bar(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }

    fn say(&mut self, text: &str) {
        match &mut self.0 {
            Shown::Bar(bar) => bar.set_message(text.to_owned()),
            Shown::Lines(last) if last.elapsed() >= EVERY => {
                *last = Instant::now();
                output::warn(text);
            }
            Shown::Lines(_) | Shown::Nothing => {}
        }
    }
}

const SIZED: &str = "[{bar:30}] {percent:>3}% {msg}";
const ENDLESS: &str = "{spinner} {msg}";
const WAITING: &str = "[{bar:30}] {pos}/{len} over; {msg}";

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("the templates are good");
    style.progress_chars("=> ")
}
