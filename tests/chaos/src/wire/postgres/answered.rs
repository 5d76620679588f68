//! The server's side: answers are spoilt on their way back to the client.

use std::{future::pending, ops::ControlFlow, time::Duration};

use bytes::{Bytes, BytesMut};
use tokio::time::sleep;

use super::{
    Fault, Planned, Postgres, Refusal, Talk,
    frames::{self, Answers},
    refusal,
};
use crate::wire::{
    ends::{Intake, Outlet},
    line::Line,
};

/// So much of an answer is held back at most.
const HELD_MAX: usize = 64 * 1024;
/// So much of an answer comes in small pieces.
const TRICKLE: usize = 2 * 1024;
const TRICKLE_PIECE: usize = 3;
const TRICKLE_PAUSE: Duration = Duration::from_millis(1);

/// What a server answers over one connection.
#[derive(Debug)]
pub(super) struct Answered<'a> {
    line: &'a Line<Postgres>,
    talk: &'a Talk,
    to_client: Outlet,
    answers: Answers,
    /// The how-manieth answer this is.
    ready: u64,
    /// What is happening to it.
    spoilt: Option<Planned>,
    /// What was held back of it, or how much has trickled.
    held: BytesMut,
    /// Nothing arrives any more.
    swallows: bool,
}

impl<'a> Answered<'a> {
    pub(super) fn new(line: &'a Line<Postgres>, talk: &'a Talk, to_client: Outlet) -> Self {
        Self {
            line,
            talk,
            to_client,
            answers: Answers::default(),
            ready: 1,
            spoilt: None,
            held: BytesMut::new(),
            swallows: false,
        }
    }

    /// Carries what the server says. Returns when the connection is to be cut.
    pub(super) async fn carry(mut self, mut from: Intake<'_>) {
        let mut buffer = BytesMut::new();
        loop {
            match from.read(&mut buffer).await {
                Ok(true) => {
                    if self.take_in(buffer.split().freeze()).await.is_break() {
                        return;
                    }
                }
                Ok(false) => {
                    self.to_client.end().await;
                    pending::<()>().await;
                }
                Err(_reset) => return,
            }
        }
    }

    async fn take_in(&mut self, mut bytes: Bytes) -> ControlFlow<()> {
        // What is not spoilt goes out as it came in, in one piece.
        let mut sound = 0;
        while sound < bytes.len() {
            if self.spoilt.is_none() {
                self.spoilt = self.talk.planned_for(self.ready);
            }
            let (count, over) = self.answers.read(&bytes[sound..]);
            self.ready += u64::from(over);
            let Some(planned) = self.spoilt.take_if(|_| over).or(self.spoilt) else {
                sound += count;
                continue;
            };
            self.arrive(bytes.split_to(sound)).await;
            sound = 0;
            let answer = bytes.split_to(count);
            self.spoil(planned, answer, over).await?;
        }
        self.arrive(bytes).await;
        ControlFlow::Continue(())
    }

    /// A piece of an answer that is to be spoilt; `over`: the last one.
    async fn spoil(&mut self, planned: Planned, answer: Bytes, over: bool) -> ControlFlow<()> {
        match planned.fault {
            Fault::CutAfter => {
                if over {
                    self.strike(planned);
                    return ControlFlow::Break(());
                }
            }
            Fault::Outage(ms) => {
                if over {
                    self.strike(planned);
                    self.line.fail_for(Duration::from_millis(ms.into()));
                    return ControlFlow::Break(());
                }
            }
            Fault::CutWithin => {
                self.hold(&answer);
                if over {
                    let half = self.held.len() / 2;
                    let half = self.held.split_to(half).freeze();
                    self.strike(planned);
                    self.arrive(half).await;
                    self.to_client.end().await;
                    pending::<()>().await;
                }
            }
            Fault::SwallowAnswer => {
                if over {
                    self.strike(planned);
                    self.swallows = true;
                }
            }
            Fault::DelayAnswer(ms) => {
                if self.begins(&answer) {
                    self.strike(planned);
                    sleep(Duration::from_millis(ms.into())).await;
                }
                self.arrive(answer).await;
            }
            Fault::Trickle => {
                if self.begins(&answer) {
                    self.strike(planned);
                }
                self.trickle(answer).await;
            }
            Fault::Error(refusal) => {
                self.hold(&answer);
                if over {
                    self.refuse(planned, refusal).await;
                }
            }
            // Of questions.
            Fault::CutBefore | Fault::DelayQuestion(_) => self.arrive(answer).await,
        }
        if over {
            self.held.clear();
        }
        ControlFlow::Continue(())
    }

    /// The server has refused what it was sent instead: the client sees another reason.
    async fn refuse(&mut self, planned: Planned, refusal: Refusal) {
        let held = self.held.split().freeze();
        match disguise(&held, refusal, planned.simple) {
            Some(answer) => {
                self.strike(planned);
                self.arrive(answer).await;
            }
            None => self.arrive(held).await,
        }
    }

    async fn trickle(&self, mut answer: Bytes) {
        let mut late = Duration::ZERO;
        let mut left = TRICKLE;
        while left > 0 && !answer.is_empty() {
            let piece = answer.split_to(TRICKLE_PIECE.min(answer.len()));
            late += TRICKLE_PAUSE;
            left = left.saturating_sub(piece.len());
            self.to_client.send_late(piece, Some(late)).await;
        }
        self.arrive(answer).await;
    }

    /// Whether this is the first piece of an answer. Something is held until it is over.
    fn begins(&mut self, answer: &[u8]) -> bool {
        let begins = self.held.is_empty();
        if begins {
            self.hold(answer);
        }
        begins
    }

    fn hold(&mut self, answer: &[u8]) {
        let room = HELD_MAX.saturating_sub(self.held.len());
        self.held
            .extend_from_slice(&answer[..answer.len().min(room)]);
    }

    fn strike(
        &self,
        Planned {
            statement,
            nth,
            fault,
            ..
        }: Planned,
    ) {
        self.line.armed.strike(statement, nth, fault);
    }

    async fn arrive(&self, bytes: Bytes) {
        if !self.swallows {
            self.to_client.send(bytes).await;
        }
    }
}

/// The answer with another error in the place of its own. `None`: it has none.
///
/// Of the answer to a `Query` only the error is left: what was before it answers what was never asked.
fn disguise(mut answer: &[u8], refusal: Refusal, simple: bool) -> Option<Bytes> {
    let mut disguised = BytesMut::new();
    let mut refused = false;
    while let Some((kind, length)) = frames::header(answer) {
        let (message, rest) = answer.split_at_checked(length)?;
        match kind {
            b'E' => {
                disguised.extend_from_slice(&refusal::response(refusal));
                refused = true;
            }
            b'Z' => disguised.extend_from_slice(message),
            _before if simple => {}
            _before => disguised.extend_from_slice(message),
        }
        answer = rest;
    }
    refused.then(|| disguised.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_ours_takes_the_place_of_the_servers() {
        let answer = |error: &[u8]| {
            [
                &frames::message(b'2', b"")[..],
                error,
                &frames::message(b'Z', b"E")[..],
            ]
            .concat()
        };
        let theirs = answer(&frames::message(b'E', b"C34000\0\0"));
        let ours = disguise(&theirs, Refusal::Deadlock, false).unwrap();
        assert_eq!(ours, answer(&refusal::response(Refusal::Deadlock)));
        assert_eq!(disguise(&answer(b""), Refusal::Deadlock, false), None);
    }
}
