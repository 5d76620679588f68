//! Sends a batch again until every call of it has its answer.
//!
//! A call with a key may be sent any number of times. A call without a key is not sent again after a batch without an answer,
//! for it may have been accepted.

use async_nats::HeaderMap;
use fleet::{delay::Reconnect, ids::Label};
use serde_json::value::RawValue;

use crate::{
    answer::{Answer, Head},
    batch,
    client::FleetClient,
    error::AskError,
};

/// How often a batch is sent: for about a minute.
const ROUNDS_MAX: u32 = 16;

/// A call of a batch.
#[derive(Debug, Clone)]
pub struct BatchCall {
    /// The JSON object.
    pub text: String,
    /// Whether it has an idempotency key.
    pub has_key: bool,
}

/// The answer for one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Its place in the batch, from 0.
    pub place: usize,
    /// Its envelope; `None` where it has no key and its batch was not answered.
    pub answer: Option<String>,
}

/// Why a batch cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// The last round was not answered either.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The whole batch was refused.
    #[error("the batch was refused: {}", head.message())]
    Refused {
        /// The answer.
        head: Box<Head>,
        /// The place of the first call without an answer.
        first: usize,
    },
    /// The answer is not about these calls.
    #[error("{answers} answers came for {calls} calls")]
    Miscounted {
        /// How many answers came.
        answers: usize,
        /// How many calls were sent.
        calls: usize,
    },
}

/// A batch that is being sent.
#[derive(Debug)]
pub struct Rounds<'a> {
    client: &'a FleetClient,
    tenant: &'a Label,
    headers: &'a HeaderMap,
    /// Calls without an answer, with their places.
    left: Vec<(usize, BatchCall)>,
    round: u32,
    /// A round was begun, and its answer was not processed.
    is_open: bool,
    /// A round may have had its effect without saying so.
    is_unsure: bool,
    pauses: Reconnect,
}

impl FleetClient {
    /// Sends these calls, at most as many as [`batch::BatchLimits`] allows, round by round. The headers hold for calls that do
    /// not set their own.
    pub fn rounds<'a>(
        &'a self,
        tenant: &'a Label,
        headers: &'a HeaderMap,
        calls: Vec<BatchCall>,
    ) -> Rounds<'a> {
        Rounds {
            client: self,
            tenant,
            headers,
            left: calls.into_iter().enumerate().collect(),
            round: 0,
            is_open: false,
            is_unsure: false,
            pauses: Reconnect::default(),
        }
    }
}

impl Rounds<'_> {
    /// Whether calls that were refused in the end may have been accepted by a round before, which did not say so.
    pub const fn is_unsure(&self) -> bool {
        self.is_unsure
    }

    /// Sends the calls without an answer, after a pause if they were sent before; returns the final answers. `None` when every
    /// call has its answer.
    ///
    /// Cancel-safe: a round that is dropped counts as one without an answer.
    ///
    /// # Errors
    ///
    /// The last round was not answered, or its answer is invalid. Calls without an answer may have been accepted.
    pub async fn next(&mut self) -> Result<Option<Vec<Told>>, BatchError> {
        if self.is_open {
            return Ok(Some(self.silence()));
        }
        if self.left.is_empty() {
            return Ok(None);
        }
        if self.round > 0 {
            self.pauses.pause().await;
        }
        self.round += 1;
        self.is_open = true;
        let body = batch::body(self.left.iter().map(|(_, call)| call.text.as_str()));
        let asking = self.client.batch(self.tenant, self.headers.clone(), body);
        let is_last = self.round >= ROUNDS_MAX;
        match asking.await {
            Ok(answer) => self.hear(&answer, is_last).map(Some),
            Err(problem) if is_last => Err(problem.into()),
            Err(_no_answer) => Ok(Some(self.silence())),
        }
    }

    /// Gives up the calls without a key.
    fn silence(&mut self) -> Vec<Told> {
        self.is_open = false;
        self.is_unsure = true;
        let (keyed, unkeyed): (Vec<_>, Vec<_>) = std::mem::take(&mut self.left)
            .into_iter()
            .partition(|(_, call)| call.has_key);
        self.left = keyed;
        let told = unkeyed.into_iter().map(|(place, _)| Told {
            place,
            answer: None,
        });
        told.collect()
    }

    /// Takes an answer; keeps the calls that are to be sent again.
    fn hear(&mut self, answer: &Answer, is_last: bool) -> Result<Vec<Told>, BatchError> {
        self.is_open = false;
        let unreadable = |wrong: serde_json::Error| AskError::Unreadable(wrong.into());
        let items = batch::items::<&RawValue>(answer.bytes()).map_err(unreadable)?;
        let Some(items) = items else {
            let head = answer.head()?;
            self.is_unsure |= !head.nothing_happened();
            if head.may_pass() && !is_last {
                return Ok(Vec::new());
            }
            let first = self.left.first().map_or(0, |(place, _)| *place);
            let head = Box::new(head);
            return Err(BatchError::Refused { head, first });
        };
        if items.len() != self.left.len() {
            return Err(BatchError::Miscounted {
                answers: items.len(),
                calls: self.left.len(),
            });
        }
        let (mut told, mut again) = (Vec::new(), Vec::new());
        for ((place, call), item) in std::mem::take(&mut self.left).into_iter().zip(items) {
            let head = Head::of(item.get().as_bytes()).map_err(unreadable)?;
            self.is_unsure |= head.is_refused() && !head.nothing_happened();
            if !is_last && is_sent_again(&head, call.has_key) {
                again.push((place, call));
            } else {
                let answer = Some(item.get().to_owned());
                told.push(Told { place, answer });
            }
        }
        self.left = again;
        Ok(told)
    }
}

/// Whether a call goes into the next round: the reason for its refusal passes, and sending it cannot make a second call.
fn is_sent_again(head: &Head, has_key: bool) -> bool {
    head.may_pass() && (has_key || head.nothing_happened())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_passes_and_cannot_be_doubled_is_sent_again() {
        let head = |text: &str| Head::of(text.as_bytes()).unwrap();
        let refused = |code: &str, effect: &str| {
            let error = format!(r#"{{"code":"{code}"}}"#);
            head(&format!(
                r#"{{"state":"refused","effect":"{effect}","error":{error}}}"#
            ))
        };
        let cases = [
            (refused("overloaded", "none"), true, true),
            (refused("store_unavailable", "unknown"), true, false),
            (refused("invalid_arguments", "none"), false, false),
            (head(r#"{"state":"queued"}"#), false, false),
        ];
        for (head, with_key, without) in cases {
            assert_eq!(is_sent_again(&head, true), with_key, "{head:?}");
            assert_eq!(is_sent_again(&head, false), without, "{head:?}");
        }
    }
}
