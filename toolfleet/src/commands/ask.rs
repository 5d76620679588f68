//! One request to a dispatcher and its one answer, as any client in any language would send it.

use std::time::Duration;

use anyhow::{Context, bail};
use async_nats::{HeaderMap, StatusCode};
use fleet::bus::{BusError, connect::Bus};
use futures_util::StreamExt;
use serde::Deserialize;

use super::exit::NoResponders;

/// How long an answer may come after the wait that was asked for.
pub(super) const SLACK: Duration = Duration::from_secs(5);
/// How long a decision may take: the ledger's own limits, and a little.
pub(super) const DECISION_MAX: Duration = Duration::from_secs(15);

/// What is asked.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) subject: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    pub(super) wait: Duration,
    /// What to do when no answer comes.
    pub(super) advice: &'static str,
}

/// Sends the question with an inbox of its own and waits for the answer: a JSON object.
pub(super) async fn ask(bus: &Bus, question: Question) -> anyhow::Result<String> {
    let Question {
        subject,
        headers,
        body,
        wait,
        advice,
    } = question;
    let client = &bus.client;
    let inbox = client.new_inbox();
    let asked = tokio::time::timeout(wait, async {
        let mut answers = client.subscribe(inbox.clone()).await?;
        client
            .publish_with_reply_and_headers(subject.clone(), inbox, headers, body.into())
            .await?;
        client.flush().await?;
        anyhow::Ok(answers.next().await)
    });
    let denied = || {
        let doing = "send this request";
        bus.denied().map(|what| BusError::Denied { doing, what })
    };
    let Ok(answer) = asked.await else {
        if let Some(denied) = denied() {
            return Err(denied.into());
        }
        bail!("no answer within {} s; {advice}", wait.as_secs());
    };
    match answer.context("send the request")? {
        Some(message) if message.status == Some(StatusCode::NO_RESPONDERS) => {
            Err(NoResponders(subject).into())
        }
        Some(message) => {
            let text = std::str::from_utf8(&message.payload).context("read the answer")?;
            Ok(text.to_owned())
        }
        None => bail!("the connection was closed before the answer; {advice}"),
    }
}

/// What every answer says of itself: the fields that are absent say nothing.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Verdict {
    /// Whether a model would have to treat it as an error. An accepted envelope says nothing of it.
    #[serde(default)]
    pub(super) is_error: bool,
    /// Where the call stands, or `refused`.
    #[serde(default)]
    pub(super) state: String,
    /// Whether an earlier request made the call.
    #[serde(default)]
    pub(super) replayed: bool,
}

impl Verdict {
    /// Reads an answer.
    pub(super) fn of(answer: &str) -> anyhow::Result<Self> {
        serde_json::from_str(answer).context("read the answer")
    }

    /// The request itself was turned away.
    pub(super) fn is_refused(&self) -> bool {
        self.state == "refused"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accepted_envelope_is_no_error_and_an_answer_that_is_no_envelope_is() {
        let is_error = |answer| Verdict::of(answer).map(|verdict| verdict.is_error);
        assert!(!is_error(r#"{"call_id":"x","state":"queued"}"#).unwrap());
        assert!(!is_error(r#"{"is_error":false}"#).unwrap());
        assert!(is_error(r#"{"is_error":true}"#).unwrap());
        assert!(is_error("pong").is_err());
    }
}
