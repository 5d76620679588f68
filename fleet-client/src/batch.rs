//! Many calls in one request: how many fit, the body, and the answer for each.

use async_nats::HeaderMap;
use bytes::Bytes;
use fleet::ids::Label;
use serde::Deserialize;

use crate::{
    answer::Answer,
    client::FleetClient,
    error::AskError,
    question::{DECISION_MAX, Question},
};

/// The most calls in one batch.
const CALLS_MAX: usize = 1_000;
/// The most bytes in which a dispatcher answers one call, whatever its outcome.
const ANSWER_BYTES: usize = 1_100;
/// The most bytes of a message's headers.
const HEADERS_BYTES: usize = 20 * 1024;
/// The most bytes that a dispatcher takes in one batch, whatever its server carries.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// How much fits into one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Calls.
    pub calls: usize,
    /// Bytes of their texts together, a byte between two of them included.
    pub bytes: usize,
}

impl BatchLimits {
    /// For a server that carries messages of this size: calls and their answers both have to fit into one.
    pub fn of(payload_max: usize) -> Self {
        Self {
            calls: (payload_max / ANSWER_BYTES).clamp(1, CALLS_MAX),
            bytes: payload_max.min(BATCH_BYTES).saturating_sub(HEADERS_BYTES),
        }
    }
}

/// The body of a batch of these calls, each an object with `tool`, `args` and the other fields in docs/batches.md.
pub fn body<'a>(calls: impl Iterator<Item = &'a str>) -> Bytes {
    let mut body = "{\"calls\":[".to_owned();
    for (place, call) in calls.enumerate() {
        if place > 0 {
            body.push(',');
        }
        body.push_str(call);
    }
    body.push_str("]}");
    body.into()
}

/// The answer for each call of a batch, in the order of the calls; `None` where the whole batch is refused.
///
/// # Errors
///
/// It is not the answer to a batch.
pub fn items<'a, T: Deserialize<'a>>(
    answer: &'a [u8],
) -> Result<Option<Vec<T>>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Items<T> {
        items: Option<Vec<T>>,
    }

    let answer: Items<T> = serde_json::from_slice(answer)?;
    Ok(answer.items)
}

impl FleetClient {
    /// Sends a batch once. The headers hold for calls that do not set their own.
    ///
    /// # Errors
    ///
    /// [`FleetClient::ask`]: then each of its calls may have been accepted.
    pub async fn batch(
        &self,
        tenant: &Label,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, AskError> {
        self.ask(Question {
            subject: self.subjects().batch(tenant),
            headers,
            body,
            // Committing this many takes time.
            patience: 2 * DECISION_MAX,
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Head;

    #[test]
    fn a_batch_and_its_answer_fit_into_what_the_server_carries() {
        let usual = BatchLimits::of(8 * 1024 * 1024);
        assert_eq!((usual.calls, usual.bytes), (1_000, 8_368_128));
        let small = BatchLimits::of(64 * 1024);
        assert_eq!((small.calls, small.bytes), (59, 45_056));
        assert_eq!(BatchLimits::of(100), BatchLimits { calls: 1, bytes: 0 });
        assert_eq!(BatchLimits::of(usize::MAX).bytes, usual.bytes);
    }

    #[test]
    fn an_answer_has_an_item_for_each_call_or_refuses_all() {
        assert_eq!(
            body(["{}", "{\"a\":1}"].into_iter()),
            "{\"calls\":[{},{\"a\":1}]}"
        );
        let heads = |answer: &str| {
            items::<Head>(answer.as_bytes()).map(|heads| {
                heads.map(|heads| heads.into_iter().map(|head| head.state).collect::<Vec<_>>())
            })
        };
        let each = heads(r#"{"items":[{"state":"queued"},{"state":"refused"}]}"#).unwrap();
        assert_eq!(each.unwrap(), ["queued", "refused"]);
        assert_eq!(heads(r#"{"state":"refused"}"#).unwrap(), None);
        assert!(heads("pong").is_err());
    }
}
