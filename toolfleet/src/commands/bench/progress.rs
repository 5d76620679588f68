//! How far it is, on standard error: a bar on a terminal, else a line for each step; nothing for programs.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::commands::output;

/// What is shown of a run.
pub(super) struct Progress {
    shown: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new(for_a_program: bool) -> Self {
        Self {
            shown: !for_a_program,
            bar: None,
        }
    }

    /// A step without an end that is known.
    pub(super) fn step(&mut self, what: &str) {
        self.end();
        if self.shown {
            output::warn(what);
        }
    }

    /// A step of so many seconds.
    pub(super) fn timed(&mut self, what: &str, lasts: Duration) -> Ticker {
        self.end();
        if !self.shown {
            return Ticker::default();
        }
        if !std::io::stderr().is_terminal() {
            output::warn(what);
            return Ticker::default();
        }
        let millis = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
        let bar = ProgressBar::with_draw_target(Some(millis), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{prefix} [{bar:30}] {percent:>3}% {msg}");
        bar.set_style(style.expect("the template is good").progress_chars("=> "));
        bar.set_prefix(what.to_owned());
        self.bar = Some(bar.clone());
        Ticker(Some((bar, Instant::now())))
    }

    /// Takes the bar away.
    pub(super) fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// Moves the bar of a step.
#[derive(Default)]
pub(super) struct Ticker(Option<(ProgressBar, Instant)>);

impl Ticker {
    /// So many calls were answered.
    pub(super) fn answered(&self, calls: u64) {
        if let Self(Some((bar, began))) = self {
            let elapsed = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            bar.set_position(elapsed);
            bar.set_message(format!("{calls} calls"));
        }
    }
}
