//! What an answer says, read as cheaply as can be: of a success only the state.

use serde::Deserialize;

/// What is known of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Told {
    /// Nothing yet.
    #[default]
    Nothing,
    /// It succeeded.
    Succeeded,
    /// It is over and did not succeed.
    Failed,
    /// It was turned away, and there is no call.
    Refused,
    /// It was accepted and was not over when it was answered.
    Open,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) told: Told,
    /// Why it did not succeed.
    pub(super) code: Option<String>,
    /// How long to wait before the next one, where it was turned away.
    pub(super) retry_after_ms: Option<u64>,
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    state: String,
    #[serde(default)]
    error: Option<Reason>,
}

#[derive(Deserialize)]
struct Reason {
    code: String,
    #[serde(default)]
    retry_after_ms: Option<u64>,
}

#[derive(Deserialize)]
struct Items {
    items: Vec<Body>,
}

const STATE: &[u8] = b"\"state\":\"";
const SUCCEEDED: &[u8] = b"succeeded\"";
/// The state stands after the names of the call and its tool, of which neither can hold a quote.
const HEAD: usize = 256;

impl Answer {
    /// Of one call.
    pub(super) fn of(body: &[u8]) -> Self {
        if is_success(body) {
            return Self {
                told: Told::Succeeded,
                code: None,
                retry_after_ms: None,
            };
        }
        match serde_json::from_slice::<Body>(body) {
            Ok(body) => body.into(),
            Err(_not_an_envelope) => Self::unreadable(),
        }
    }

    /// Of each call of a batch; one answer for all of them where all of it was turned away.
    pub(super) fn of_batch(body: &[u8], calls: usize) -> Vec<Self> {
        match serde_json::from_slice::<Items>(body) {
            Ok(Items { items }) if items.len() == calls => {
                items.into_iter().map(Self::from).collect()
            }
            Ok(_too_few) => (0..calls).map(|_| Self::unreadable()).collect(),
            Err(_not_items) => (0..calls).map(|_| Self::of(body)).collect(),
        }
    }

    /// Of nobody: there is no dispatcher.
    pub(super) fn no_dispatcher() -> Self {
        Self {
            told: Told::Refused,
            code: Some("no_dispatcher".to_owned()),
            retry_after_ms: None,
        }
    }

    fn unreadable() -> Self {
        Self {
            told: Told::Nothing,
            code: Some("unreadable_answer".to_owned()),
            retry_after_ms: None,
        }
    }
}

impl From<Body> for Answer {
    fn from(body: Body) -> Self {
        let told = match body.state.as_str() {
            "succeeded" => Told::Succeeded,
            "failed" | "cancelled" | "expired" => Told::Failed,
            "refused" => Told::Refused,
            "queued" | "running" | "in_doubt" | "awaiting_client" => Told::Open,
            _other => Told::Nothing,
        };
        let (code, retry_after_ms) = match body.error {
            Some(reason) => (Some(reason.code), reason.retry_after_ms),
            None if told == Told::Failed => (Some(body.state), None),
            None => (None, None),
        };
        Self {
            told,
            code,
            retry_after_ms,
        }
    }
}

fn is_success(body: &[u8]) -> bool {
    let head = &body[..body.len().min(HEAD)];
    let found = head.windows(STATE.len()).position(|text| text == STATE);
    found.is_some_and(|at| head[at + STATE.len()..].starts_with(SUCCEEDED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_decides_and_the_code_says_why() {
        let told = |body: &str| {
            let answer = Answer::of(body.as_bytes());
            (answer.told, answer.code, answer.retry_after_ms)
        };
        let success = r#"{"call_id":"x","tool":"bench_read","tool_version":1,"state":"succeeded"}"#;
        assert_eq!(told(success), (Told::Succeeded, None, None));
        let refused = r#"{"call_id":null,"state":"refused","error":{"code":"overloaded","retry_after_ms":250}}"#;
        let overloaded = Some("overloaded".to_owned());
        assert_eq!(told(refused), (Told::Refused, overloaded, Some(250)));
        let failed = r#"{"state":"failed","result":"\"state\":\"succeeded\"","error":{"code":"tool_error"}}"#;
        assert_eq!(told(failed).0, Told::Failed);
        assert_eq!(told(r#"{"state":"queued"}"#), (Told::Open, None, None));
        assert_eq!(told("nonsense").0, Told::Nothing);
    }

    #[test]
    fn a_batch_is_answered_call_by_call_or_as_a_whole() {
        let body =
            br#"{"items":[{"state":"queued"},{"state":"refused","error":{"code":"overloaded"}}]}"#;
        let told: Vec<Told> = Answer::of_batch(body, 2)
            .iter()
            .map(|one| one.told)
            .collect();
        assert_eq!(told, [Told::Open, Told::Refused]);
        let all = br#"{"state":"refused","error":{"code":"overloaded"}}"#;
        assert!(
            Answer::of_batch(all, 2)
                .iter()
                .all(|one| one.told == Told::Refused)
        );
        assert!(
            Answer::of_batch(body, 3)
                .iter()
                .all(|one| one.told == Told::Nothing)
        );
    }
}
