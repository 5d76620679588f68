//! Progress on standard error: a bar on a terminal, else a line for each step; nothing for programs.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The progress of a run.
#[derive(Debug)]
pub struct Progress {
    /// Prints a line; `None`: nothing is shown.
    say: Option<fn(&str)>,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Shown by bars and by lines that `say` prints; not at all without it.
    pub fn new(say: Option<fn(&str)>) -> Self {
        Self { say, bar: None }
    }

    /// A step of unknown length.
    pub fn step(&mut self, what: &str) {
        self.end();
        if let Some(say) = self.say {
            say(what);
        }
    }

    /// A step of so many seconds.
    pub(crate) fn timed(&mut self, what: &str, lasts: Duration) -> Ticker {
        self.end();
        let Some(say) = self.say else {
            return Ticker::default();
        };
        if !std::io::stderr().is_terminal() {
            say(what);
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

    /// Removes the bar.
    pub fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// Moves the bar of a step.
#[derive(Default)]
pub(crate) struct Ticker(Option<(ProgressBar, Instant)>);

impl Ticker {
    /// So many calls were answered.
    pub(crate) fn answered(&self, calls: u64) {
        if let Self(Some((bar, began))) = self {
            let elapsed = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            bar.set_position(elapsed);
            bar.set_message(format!("{calls} calls"));
        }
    }
}
