//! Progress on standard error: a bar on a terminal, else a line every few seconds; nothing for programs.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::output;

/// The pause between two lines where there is no terminal.
const EVERY: Duration = Duration::from_secs(5);

pub(super) struct Progress(Shown);

enum Shown {
    Bar(ProgressBar),
    Lines(Instant),
    Nothing,
}

impl Progress {
    /// For so many bytes or calls, where that is known.
    pub(super) fn new(size: Option<u64>, for_a_program: bool, on_a_terminal: bool) -> Self {
        Self(match (for_a_program, on_a_terminal) {
            (true, _) => Shown::Nothing,
            (false, false) => Shown::Lines(Instant::now()),
            (false, true) => {
                let bar = ProgressBar::with_draw_target(size, ProgressDrawTarget::stderr());
                bar.set_style(style(if size.is_some() { SIZED } else { ENDLESS }));
                Shown::Bar(bar)
            }
        })
    }

    /// So much of it is done.
    pub(super) fn at(&self, position: u64) {
        if let Shown::Bar(bar) = &self.0 {
            bar.set_position(position);
        }
    }

    /// Everything was sent; now the calls are waited for.
    pub(super) fn waits_for(&mut self, calls: usize) {
        if let Shown::Bar(bar) = &self.0 {
            bar.set_style(style(WAITING));
            bar.set_length(calls as u64);
            bar.set_position(0);
        }
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

    /// Says how far it is.
    pub(super) fn say(&mut self, text: &str) {
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
