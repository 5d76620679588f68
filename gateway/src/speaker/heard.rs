//! What one call has told, and what of it nobody has said yet.

use std::collections::VecDeque;

use fleet::{
    call::Awaiting,
    wire::{
        event::{Event, Happening},
        part::Part,
    },
};
use time::OffsetDateTime;

use super::{
    ending::{CallEnd, ToldEnd},
    input::FinalRow,
};

/// What a part weighs beside its text.
const PART_OVERHEAD: usize = 64;

/// One call, as its events tell.
#[derive(Debug, Default)]
pub(super) struct HeardCall {
    /// The highest `sequence` of its events.
    seen: Option<u64>,
    /// The attempt that was told of last; 0 before the first.
    attempt: u32,
    /// Attempts up to this one are over.
    over: u32,
    /// The number of the next part of the attempt.
    next_part: u32,
    /// Whether a part of the attempt is missing, so that no further one is told.
    is_broken: bool,
    /// Whether it says its end and nothing before it.
    is_mute: bool,
    parts: VecDeque<HeardPart>,
    weight: usize,
    pub(super) standing: Standing,
    /// When it last said something, in the stream's time.
    said_at: Option<OffsetDateTime>,
}

/// A part that was told and not yet said.
#[derive(Debug)]
pub(super) struct HeardPart {
    /// The place in the stream of the message that told it.
    seq: u64,
    /// The event's `sequence`.
    sequence: u64,
    weight: usize,
    /// Its number within the attempt.
    pub(super) number: u32,
    pub(super) part: Part,
}

/// Where a call stands.
#[derive(Debug, Default)]
pub(super) enum Standing {
    /// It runs, or will.
    #[default]
    GoesOn,
    /// It waits for somebody outside the fleet.
    Waits(WaitingFor),
    /// It is over.
    Ended {
        /// The place in the stream of the message that told it.
        seq: u64,
        end: CallEnd,
        /// Whether that was said.
        is_said: bool,
    },
}

/// For whom a call waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitingFor {
    /// The place in the stream of the message that told it.
    seq: u64,
    /// The event's `sequence`.
    sequence: u64,
    pub(super) whom: Awaiting,
    /// Whether it is the client who has to do something.
    pub(super) is_clients: bool,
    /// Whether that was said.
    pub(super) is_said: bool,
}

impl HeardCall {
    /// Hears an event. What is older than what was heard, of an attempt that is over, or of a call that is over, is not heard.
    pub(super) fn hear(
        &mut self,
        heard: (u64, OffsetDateTime),
        event: Event,
        row: Option<FinalRow>,
    ) {
        let (seq, at) = heard;
        let is_old = self.seen.is_some_and(|seen| event.sequence <= seen);
        if is_old || self.has_ended() {
            return;
        }
        self.seen = Some(event.sequence);
        match event.what {
            Happening::Accepted { .. } => {}
            Happening::Awaiting { whom, token, .. } => {
                self.forget_parts();
                self.standing = Standing::Waits(WaitingFor {
                    seq,
                    sequence: event.sequence,
                    whom,
                    is_clients: match whom {
                        // Without a token its operators decide.
                        Awaiting::Approval => token.is_some(),
                        Awaiting::Client | Awaiting::Input => true,
                        Awaiting::Completion => false,
                    },
                    is_said: false,
                });
            }
            Happening::Started { attempt } => {
                if self.is_of(attempt) {
                    self.said_at = Some(at);
                }
            }
            Happening::Progress { attempt, .. } | Happening::Running { attempt } => {
                self.is_of(attempt);
            }
            Happening::Output {
                attempt,
                part,
                output,
            } => {
                if self.is_of(attempt) {
                    self.take(seq, event.sequence, part, output);
                    self.said_at = Some(at);
                }
            }
            Happening::Retrying { attempt, .. } => {
                if attempt >= self.attempt && attempt > self.over {
                    self.attempt = attempt;
                    self.over = attempt;
                    self.forget_parts();
                }
            }
            Happening::Finished {
                state,
                outcome,
                code,
                ..
            } => {
                let told = ToldEnd {
                    state,
                    outcome,
                    code,
                };
                self.standing = Standing::Ended {
                    seq,
                    end: CallEnd::of(told, row),
                    is_said: false,
                };
            }
        }
    }

    /// A call that was refused.
    pub(super) fn refused(seq: u64, end: CallEnd) -> Self {
        let is_said = false;
        Self {
            standing: Standing::Ended { seq, end, is_said },
            ..Self::default()
        }
    }

    /// Whether an event of this attempt counts; a later attempt than the present one begins with it.
    fn is_of(&mut self, attempt: u32) -> bool {
        if attempt < self.attempt || attempt <= self.over {
            return false;
        }
        let goes_on = matches!(self.standing, Standing::GoesOn);
        if attempt > self.attempt || !goes_on {
            self.over = self.over.max(self.attempt.min(attempt - 1));
            self.attempt = attempt;
            self.next_part = 0;
            self.is_broken = self.is_mute;
            self.forget_parts();
            self.standing = Standing::GoesOn;
        }
        true
    }

    fn take(&mut self, seq: u64, sequence: u64, number: u32, part: Part) {
        if self.is_broken || number < self.next_part {
            return;
        }
        if number > self.next_part {
            self.is_broken = true;
            return;
        }
        self.next_part += 1;
        let weight = PART_OVERHEAD + part.size();
        self.weight += weight;
        self.parts.push_back(HeardPart {
            seq,
            sequence,
            weight,
            number,
            part,
        });
    }

    /// The next part that was not said.
    pub(super) fn next_part(&mut self) -> Option<HeardPart> {
        let part = self.parts.pop_front()?;
        self.weight -= part.weight;
        Some(part)
    }

    /// What its parts weigh, in bytes.
    pub(super) const fn weight(&self) -> usize {
        self.weight
    }

    /// The attempt that was told of last; 0 before the first.
    pub(super) const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether the attempt that was told of last is over, and no other has begun.
    pub(super) const fn is_between_attempts(&self) -> bool {
        self.attempt > 0 && self.over >= self.attempt
    }

    /// Whether a part of the attempt is missing.
    pub(super) const fn is_broken(&self) -> bool {
        self.is_broken
    }

    pub(super) const fn has_ended(&self) -> bool {
        matches!(self.standing, Standing::Ended { .. })
    }

    /// Whether the client was told that it has to do something for it, and has not done it.
    pub(super) const fn is_left_for_client(&self) -> bool {
        matches!(&self.standing, Standing::Waits(wait) if wait.is_clients && wait.is_said)
    }

    /// The highest `sequence` of its events.
    pub(super) const fn seen(&self) -> Option<u64> {
        self.seen
    }

    /// Where in the stream it told the first of what it has to say; `None` where it has nothing to say.
    pub(super) fn ready_at(&self) -> Option<u64> {
        let part = self.parts.front().map(|part| part.seq);
        part.or(match &self.standing {
            Standing::Ended {
                seq,
                is_said: false,
                ..
            } => Some(*seq),
            Standing::Waits(wait) if wait.is_clients && !wait.is_said => Some(wait.seq),
            Standing::GoesOn | Standing::Ended { .. } | Standing::Waits(_) => None,
        })
    }

    /// When it last said something.
    pub(super) fn said_at(&self) -> Option<OffsetDateTime> {
        self.said_at
    }

    /// From when on its silence counts, unless it says something later.
    pub(super) fn counts_from(&mut self, at: OffsetDateTime) {
        self.said_at = Some(self.said_at.map_or(at, |said| said.max(at)));
    }

    /// Leaves out what is not yet said of its present attempt, and all that the attempt still tells but its end.
    pub(super) fn break_off(&mut self) {
        self.is_broken = true;
        self.forget_parts();
    }

    /// Lets it say nothing but its end from now on.
    pub(super) fn mute(&mut self) {
        self.is_mute = true;
        self.break_off();
    }

    pub(super) const fn is_mute(&self) -> bool {
        self.is_mute
    }

    /// Forgets what belongs to a response before.
    pub(super) fn forget_until(&mut self, told_until: u64) {
        while self
            .parts
            .front()
            .is_some_and(|part| part.sequence <= told_until)
        {
            self.next_part();
        }
        if matches!(&self.standing, Standing::Waits(wait) if wait.sequence <= told_until) {
            self.standing = Standing::GoesOn;
        }
        self.seen = self.seen.max(Some(told_until));
    }

    fn forget_parts(&mut self) {
        self.parts.clear();
        self.weight = 0;
    }
}
