//! When a server that a process needs stops to answer, and when it answers again: a line for each, and not one for each try.

use std::time::Duration;

use tokio::time::Instant;

/// A server that a process needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NeededServer {
    Nats,
    Postgres,
}

impl NeededServer {
    /// Its condition in `/readyz`, and its label in metrics.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Nats => "nats",
            Self::Postgres => "postgres",
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nats => "NATS",
            Self::Postgres => "Postgres",
        }
    }
}

/// Since when a server has not answered.
#[derive(Debug, Default)]
pub(super) struct Outage(Option<Instant>);

/// What a look changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Changed {
    Began,
    /// After this long.
    Ended(Duration),
    Nothing,
}

impl Outage {
    /// A look that began at this moment found whether the server answers.
    pub(super) fn seen(&mut self, answers: bool, at: Instant) -> Changed {
        match (answers, self.0) {
            (false, None) => {
                self.0 = Some(at);
                Changed::Began
            }
            (true, Some(since)) => {
                self.0 = None;
                Changed::Ended(at.saturating_duration_since(since))
            }
            (true, None) | (false, Some(_)) => Changed::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_begins_once_and_ends_once_with_its_length() {
        let (mut outage, start) = (Outage::default(), Instant::now());
        let mut look = |answers, seconds| {
            let at = start + Duration::from_secs(seconds);
            outage.seen(answers, at)
        };
        assert_eq!(look(true, 0), Changed::Nothing);
        assert_eq!(look(false, 1), Changed::Began);
        assert_eq!(look(false, 2), Changed::Nothing);
        assert_eq!(look(false, 90), Changed::Nothing);
        assert_eq!(look(true, 91), Changed::Ended(Duration::from_secs(90)));
        assert_eq!(look(true, 92), Changed::Nothing);
        assert_eq!(look(false, 93), Changed::Began);
    }
}
