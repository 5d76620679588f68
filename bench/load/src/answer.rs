//! Reads an answer as cheaply as possible: of a success only the state.

use fleet_client::{Head, batch};

/// The state of a call, as its caller knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Told {
    /// No answer yet.
    #[default]
    Nothing,
    /// It succeeded.
    Succeeded,
    /// It is over and did not succeed.
    Failed,
    /// It was refused, and there is no call.
    Refused,
    /// It was accepted, and was not over when it was answered.
    Open,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) told: Told,
    /// Why it did not succeed.
    pub(crate) code: Option<String>,
    /// After a refusal, how long to wait before the next request.
    pub(crate) retry_after_ms: Option<u64>,
}

const STATE: &[u8] = b"\"state\":\"";
const SUCCEEDED: &[u8] = b"succeeded\"";
/// The state comes after the names of the call and its tool, and neither contains a quote.
const HEAD: usize = 256;

impl Answer {
    /// For one call.
    pub(crate) fn of(body: &[u8]) -> Self {
        if is_success(body) {
            return Self {
                told: Told::Succeeded,
                code: None,
                retry_after_ms: None,
            };
        }
        match Head::of(body) {
            Ok(head) => head.into(),
            Err(_not_an_envelope) => Self::unreadable(),
        }
    }

    /// For each call of a batch; one answer for all of them where the whole batch was refused.
    pub(crate) fn of_batch(body: &[u8], calls: usize) -> Vec<Self> {
        match batch::items::<Head>(body) {
            Ok(Some(heads)) if heads.len() == calls => heads.into_iter().map(Self::from).collect(),
            Ok(Some(_too_few)) => (0..calls).map(|_| Self::unreadable()).collect(),
            Ok(None) | Err(_) => (0..calls).map(|_| Self::of(body)).collect(),
        }
    }

    /// The connection broke: nobody knows what became of it.
    pub(crate) fn broken() -> Self {
        Self {
            told: Told::Nothing,
            code: Some("broken_connection".to_owned()),
            retry_after_ms: None,
        }
    }

    /// No dispatcher answered.
    pub(crate) fn no_dispatcher() -> Self {
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

impl From<Head> for Answer {
    fn from(head: Head) -> Self {
        let told = match head.state.as_str() {
            "succeeded" => Told::Succeeded,
            "failed" | "cancelled" | "expired" => Told::Failed,
            "refused" => Told::Refused,
            "queued" | "running" | "in_doubt" | "awaiting_client" => Told::Open,
            _other => Told::Nothing,
        };
        let (code, retry_after_ms) = match head.error {
            Some(error) => (Some(error.code), error.retry_after_ms),
            None if told == Told::Failed => (Some(head.state), None),
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
