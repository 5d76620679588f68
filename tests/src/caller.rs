//! A caller, with whatever headers and bodies a test wants: what any language can send.

use std::{
    collections::BTreeSet,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_nats::HeaderMap;
use bytes::Bytes;
use fleet::ids::CallId;
use fleet_client::{AskError, FleetClient, Question};
use serde_json::Value;

/// A call to be made.
#[derive(Debug, Clone)]
pub struct Submission {
    client: FleetClient,
    tool: String,
    tenant: String,
    headers: HeaderMap,
    body: Bytes,
    patience: Duration,
    accepted: Arc<Mutex<BTreeSet<CallId>>>,
}

/// Longer than a dispatcher waits when it is not told otherwise.
const PATIENCE: Duration = Duration::from_secs(40);

impl Submission {
    pub(crate) fn new(
        client: FleetClient,
        tool: &str,
        body: Bytes,
        accepted: Arc<Mutex<BTreeSet<CallId>>>,
    ) -> Self {
        Self {
            client,
            tool: tool.to_owned(),
            tenant: "default".to_owned(),
            headers: HeaderMap::new(),
            body,
            patience: PATIENCE,
            accepted,
        }
    }

    /// With this idempotency key.
    #[must_use]
    pub fn key(self, key: &str) -> Self {
        self.header("Idempotency-Key", key)
    }

    /// For this tenant.
    #[must_use]
    pub fn tenant(mut self, tenant: &str) -> Self {
        tenant.clone_into(&mut self.tenant);
        self
    }

    /// With this header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// With this header beside those that it has, of the same name too.
    #[must_use]
    pub fn one_more_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.append(name, value);
        self
    }

    /// With this much time for the whole call.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.header("Toolfleet-Deadline-Ms", &deadline.as_millis().to_string())
    }

    /// Hung up after this much time without an answer.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Makes the call and waits until it is decided.
    ///
    /// # Panics
    ///
    /// No dispatcher answers.
    pub async fn wait(self) -> Answer {
        self.send().await.expect("a dispatcher answers")
    }

    /// The same by a caller who may be let down: `None` when no answer comes.
    pub async fn try_wait(self) -> Option<Answer> {
        self.send().await.ok()
    }

    async fn send(self) -> Result<Answer, AskError> {
        let question = Question {
            // The name of the tenant or of the tool may be none.
            subject: format!("toolfleet.v1.{}.call.{}", self.tenant, self.tool),
            headers: self.headers,
            body: self.body,
            patience: self.patience,
        };
        let answer = Answer::read(&self.client.ask(question).await?);
        if let Some(call) = answer["call_id"].as_str() {
            let call = call.parse().expect("a call id is a UUIDv7");
            let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
            accepted.insert(call);
        }
        Ok(answer)
    }

    /// Makes the call and returns as soon as it is accepted.
    ///
    /// # Panics
    ///
    /// No dispatcher answers.
    pub async fn asynchronous(self) -> Answer {
        self.header("Prefer", "respond-async").wait().await
    }
}

/// An answer: its bytes, and what they say.
#[derive(Debug, Clone)]
pub struct Answer {
    /// As they came.
    pub bytes: Bytes,
    /// As they came.
    pub headers: Option<HeaderMap>,
    value: Value,
}

impl Answer {
    pub(crate) fn read(answer: &fleet_client::Answer) -> Self {
        Self {
            bytes: answer.bytes().clone(),
            headers: answer.headers().cloned(),
            value: answer.read().expect("an answer is JSON"),
        }
    }

    /// The call it is about.
    ///
    /// # Panics
    ///
    /// It is about none.
    pub fn call_id(&self) -> CallId {
        let id = self["call_id"].as_str();
        let id = id.unwrap_or_else(|| panic!("no call in {}", self.value));
        id.parse().expect("a call id is a UUIDv7")
    }

    /// The error's code, or nothing.
    pub fn code(&self) -> &str {
        self["error"]["code"].as_str().unwrap_or_default()
    }

    /// The bytes of the same answer if it had not been a replay.
    pub fn first_bytes(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        text.replacen("\"replayed\":true", "\"replayed\":false", 1)
    }
}

impl Deref for Answer {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}
