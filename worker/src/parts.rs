//! The parts of an answer on their way from a tool to its followers: text and chunks are joined, what leaves is paced, all of it is
//! bounded. Pure: it is told the time.
//!
//! Beyond a bound parts stop for the rest of the attempt, and the result alone speaks. Parts that had left are a beginning of
//! the answer without gaps, which is worth more than a selection of all.

mod chunk_veil;
mod chunks;

use std::{collections::VecDeque, time::Duration};

use fleet::wire::part::{A_SECOND_MAX, ATTEMPT_MAX, Part, TEXT_MAX, UnfitPart};
use secrecy::SecretString;
use tokio::time::Instant;

use self::chunk_veil::ChunkVeil;
use crate::executors::redact::{begun, redact, veiled};

/// How long a text waits for more of it.
const JOIN: Duration = Duration::from_millis(50);
/// The pause between two parts.
const PACE: Duration = Duration::from_millis(1_000 / A_SECOND_MAX as u64);
/// The most parts that wait: as many full texts as an attempt may tell.
const WAITING_MAX: usize = ATTEMPT_MAX / TEXT_MAX;

/// The parts of one attempt.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    waiting: VecDeque<WaitingPart>,
    /// Masked in all of them.
    hidden: Vec<SecretString>,
    /// The bytes of all parts so far.
    spent: usize,
    /// The number of the next part that leaves.
    number: u32,
    left_at: Option<Instant>,
    is_over: bool,
    /// Chunks that may have the beginning of a secret.
    veil: ChunkVeil,
    /// The route whose chunks came last, since a restart.
    route: Option<String>,
}

#[derive(Debug)]
struct WaitingPart {
    part: Part,
    since: Instant,
    /// Whether it is the end of a text that may be the beginning of a secret.
    is_held: bool,
    /// Whether it waits for nothing that could be joined to it.
    is_urgent: bool,
}

/// What became of a part.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// It waits.
    Taken,
    /// It is left out.
    Unfit(UnfitPart),
    /// It was one too many: it is left out, and so are all that follow.
    TooMany,
    /// It comes too late, or after one too many.
    Over,
}

/// Which part leaves next.
#[derive(Debug, PartialEq)]
pub(crate) enum NextPart {
    /// This one, with its number, now.
    Now(u32, Part),
    /// One that is there, not before this moment.
    At(Instant),
    /// None that is there.
    None,
}

impl Parts {
    /// Masks these secrets from now on.
    pub(crate) fn hide(&mut self, secrets: &[SecretString]) {
        self.hidden.extend_from_slice(secrets);
    }

    /// The secrets that it masks.
    pub(crate) fn hidden(&self) -> &[SecretString] {
        &self.hidden
    }

    /// Takes no more parts, and forgets those that wait.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
        self.waiting.clear();
    }

    /// Adds a part. A text of any length is cut into parts and joined with the text before it, and so are chunks; a step replaces one
    /// that waits.
    pub(crate) fn put(&mut self, part: Part, now: Instant) -> Put {
        if self.is_over {
            return Put::Over;
        }
        let taken = match part {
            Part::Text(text) => self.put_text(&text, now),
            Part::Chunks(chunks) => self.put_chunks(chunks, now),
            other => match other.check() {
                Ok(()) => self.put_whole(other, now),
                Err(unfit) => return Put::Unfit(unfit),
            },
        };
        if taken {
            Put::Taken
        } else {
            self.is_over = true;
            Put::TooMany
        }
    }

    /// Which part leaves now, if one does. Call it again with every part that was put.
    pub(crate) fn next(&mut self, now: Instant) -> NextPart {
        loop {
            let Some(front) = self.waiting.front() else {
                return NextPart::None;
            };
            let may_grow =
                self.waiting.len() == 1 && matches!(front.part, Part::Text(_) | Part::Chunks(_));
            if may_grow && front.is_held {
                return NextPart::None;
            }
            let paced = self.left_at.map(|left| left + PACE);
            let joined = (may_grow && !front.is_urgent).then(|| front.since + JOIN);
            if let Some(at) = paced.max(joined).filter(|at| *at > now) {
                return NextPart::At(at);
            }
            if let Some((number, part)) = self.leave(false, now) {
                self.left_at = Some(now);
                return NextPart::Now(number, part);
            }
        }
    }

    /// All that waits, for the tool has ended.
    pub(crate) fn rest(&mut self, now: Instant) -> Vec<(u32, Part)> {
        self.put_held_chunks(now);
        let mut rest = Vec::new();
        while !self.waiting.is_empty() {
            rest.extend(self.leave(true, now));
        }
        rest
    }

    fn put_text(&mut self, text: &str, now: Instant) -> bool {
        if !self.spend(text.len(), ATTEMPT_MAX) {
            return false;
        }
        let mut rest = text;
        while !rest.is_empty() {
            let mut taken = 0;
            if let Some(WaitingPart {
                part: Part::Text(last),
                since,
                is_held,
                ..
            }) = self.waiting.back_mut()
            {
                let room = TEXT_MAX.saturating_sub(last.len());
                taken = rest.floor_char_boundary(room);
                last.push_str(&rest[..taken]);
                if *is_held && taken > 0 {
                    (*since, *is_held) = (now, false);
                }
            }
            rest = &rest[taken..];
            if taken == 0 && !self.push(Part::Text(String::new()), now) {
                return false;
            }
        }
        true
    }

    fn put_whole(&mut self, part: Part, now: Instant) -> bool {
        if !self.spend(part.size(), ATTEMPT_MAX) {
            return false;
        }
        if let (Part::Step(_), Some(last)) = (&part, self.waiting.back_mut())
            && matches!(last.part, Part::Step(_))
        {
            last.part = part;
            return true;
        }
        self.push(part, now)
    }

    fn spend(&mut self, bytes: usize, most: usize) -> bool {
        let spent = self.spent.saturating_add(bytes);
        let fits = spent <= most;
        if fits {
            self.spent = spent;
        }
        fits
    }

    fn push(&mut self, part: Part, since: Instant) -> bool {
        let fits = self.waiting.len() < WAITING_MAX;
        if fits {
            self.waiting.push_back(WaitingPart {
                part,
                since,
                is_held: false,
                is_urgent: false,
            });
        }
        fits
    }

    /// Takes the first part that waits, masked. `None`: all of it is held back. `is_last`: nothing follows.
    fn leave(&mut self, is_last: bool, now: Instant) -> Option<(u32, Part)> {
        let WaitingPart { part, .. } = self.waiting.pop_front()?;
        let part = match part {
            Part::Text(text) => Part::Text(self.text(text, is_last, now)?),
            Part::Step(step) => Part::Step(redact(&step, &self.hidden).unwrap_or(step)),
            Part::Value(value) => {
                let masked = veiled(&value.to_string(), &self.hidden);
                let masked = masked.and_then(|masked| serde_json::from_str(&masked).ok());
                Part::Value(masked.unwrap_or(value))
            }
            // Chunks were masked before they were joined.
            other @ (Part::Image(_) | Part::Chunks(_)) => other,
        };
        let number = self.number;
        self.number += 1;
        Some((number, part))
    }

    /// The text masked, as far as it may leave: an end that may begin a secret waits for what follows, and so does what masking
    /// has made too long.
    fn text(&mut self, text: String, is_last: bool, now: Instant) -> Option<String> {
        if self.hidden.is_empty() {
            return Some(text);
        }
        let mut text = redact(&text, &self.hidden).unwrap_or(text);
        let next = self.waiting.front_mut().map(|next| &mut next.part);
        let more = match next {
            Some(Part::Text(next)) => Some(Some(next)),
            Some(Part::Step(_) | Part::Image(_) | Part::Value(_) | Part::Chunks(_)) => None,
            None => (!is_last).then_some(None),
        };
        if let Some(next) = more {
            let held = text.split_off(text.len() - begun(&text, &self.hidden));
            match next {
                Some(next) => next.insert_str(0, &held),
                None if held.is_empty() => {}
                None => self.put_back(held, true, now),
            }
        }
        if text.len() > TEXT_MAX {
            let beyond = text.split_off(text.floor_char_boundary(TEXT_MAX));
            self.put_back(beyond, false, now);
        }
        (!text.is_empty()).then_some(text)
    }

    fn put_back(&mut self, text: String, is_held: bool, since: Instant) {
        self.waiting.push_front(WaitingPart {
            part: Part::Text(text),
            since,
            is_held,
            is_urgent: false,
        });
    }
}

#[cfg(test)]
mod tests;
