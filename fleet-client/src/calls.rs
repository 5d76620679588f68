//! The endpoints for one call, one method each.

use std::time::Duration;

use bytes::Bytes;
use fleet::{
    definitions::Format,
    delay::Reconnect,
    ids::{CallId, Label, ToolName},
    store::{approvals::Ruling, settle::SettledAs},
};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::{
    answer::{Answer, Head},
    client::FleetClient,
    error::AskError,
    options::Options,
    question::{DECISION_MAX, Question},
};

/// How long one look at an awaited call may take; a dispatcher allows 300 s at most.
const GLANCE: Duration = Duration::from_secs(20);

/// A call to be made.
#[derive(Debug, Clone)]
pub struct Submission {
    /// The caller's tenant.
    pub tenant: Label,
    /// The tool.
    pub tool: ToolName,
    /// The arguments, a JSON object, sent byte for byte.
    pub args: Bytes,
    /// Its headers.
    pub options: Options,
}

/// What a call in doubt turned out to be.
#[derive(Debug, Clone, Serialize)]
pub struct Settling<'a> {
    /// The call.
    pub call_id: CallId,
    /// The finding.
    pub outcome: SettledAs,
    /// The author.
    pub actor: &'a str,
    /// How the author knows.
    pub note: &'a str,
    /// The tool's answer, if it was found too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// Accept "not applied" although something of its attempts may still be alive.
    pub by_time_only: bool,
}

/// A decision about a call that waits for a yes.
#[derive(Debug, Clone, Serialize)]
pub struct Approving<'a> {
    /// The call.
    pub call_id: CallId,
    /// The token that came with it, where its caller's program decides; a secret. `None`: an operator decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<&'a str>,
    /// What is decided.
    pub decision: Ruling,
    /// The `args_hash` that was shown with the arguments.
    pub args_hash: &'a str,
    /// The author.
    pub actor: &'a str,
    /// Why, for the history.
    pub note: &'a str,
}

/// What the program of a caller says of a call that it was handed.
#[derive(Debug, Clone, Serialize)]
pub struct HandedIn<'a> {
    /// The call.
    pub call_id: CallId,
    /// The token that came with it; a secret.
    pub token: &'a str,
    /// What came of it.
    #[serde(flatten)]
    pub answer: ClientOutput<'a>,
}

/// What came of a call that the program of a caller ran.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum ClientOutput<'a> {
    /// It did what was asked.
    Did {
        /// The result, any JSON.
        result: Box<RawValue>,
    },
    /// What its tool has asked for.
    Told {
        /// A JSON object.
        input: Box<RawValue>,
    },
    /// It failed.
    Failed {
        /// What went wrong.
        error: ClientFailure<'a>,
        /// Whether it is certain that nothing was done.
        not_done: bool,
    },
}

/// What went wrong, in the words of the caller's program.
#[derive(Debug, Clone, Serialize)]
pub struct ClientFailure<'a> {
    /// For a model; not empty.
    pub message: &'a str,
    /// A word for programs, of 1 to 64 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'a str>,
}

#[derive(Serialize)]
struct Look {
    call_id: CallId,
    wait_ms: u64,
}

/// A call that is to be cancelled.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Cancelling<'a> {
    /// The call.
    pub call_id: CallId,
    /// Why, for the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
    /// The author, for the history. `None`: the caller. A dispatcher of a release that does not know it refuses the request as
    /// `invalid_arguments`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<&'a str>,
}

#[derive(Serialize)]
struct Looking {
    call_id: CallId,
}

#[derive(Serialize)]
struct Asked {
    format: Format,
}

impl FleetClient {
    /// Makes a call, and waits for its acceptance or its result, as the options ask.
    ///
    /// # Errors
    ///
    /// [`FleetClient::ask`]. With a key in its options it is safe to submit it again.
    pub async fn submit(&self, submission: Submission) -> Result<Answer, AskError> {
        let Submission {
            tenant,
            tool,
            args,
            options,
        } = submission;
        self.ask(Question {
            subject: self.subjects().call(&tenant, tool.as_str()),
            headers: options.headers(),
            body: args,
            patience: options.patience(),
        })
        .await
    }

    /// What the door would say of the arguments of this call, of which nothing is stored; of its options only version and language count.
    ///
    /// The answer has a `verdict`, or is a refusal. Safe to repeat.
    ///
    /// # Errors
    ///
    /// [`FleetClient::ask`].
    pub async fn check(&self, submission: Submission) -> Result<Answer, AskError> {
        let Submission {
            tenant,
            tool,
            args,
            options,
        } = submission;
        let subject = self.subjects().check(&tenant, tool.as_str());
        let question = Question {
            headers: options.headers(),
            ..Question::new(subject, args)
        };
        self.ask(question).await
    }

    /// The state of a call: at once, or when it is decided, or when this wait of at most 300 s is over.
    ///
    /// # Errors
    ///
    /// [`FleetClient::ask`].
    pub async fn get(
        &self,
        tenant: &Label,
        call: CallId,
        wait: Duration,
    ) -> Result<Answer, AskError> {
        let look = Look {
            call_id: call,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        };
        let question = Question::new(self.subjects().get(tenant), body(&look));
        self.ask(Question {
            patience: wait + DECISION_MAX,
            ..question
        })
        .await
    }

    /// Waits until a call is over or in doubt, and looks again where no answer comes. `None` when the time is over and the call
    /// is not. Cancel-safe: it only reads.
    ///
    /// # Errors
    ///
    /// The time is over, and the last look had no answer.
    pub async fn wait(
        &self,
        tenant: &Label,
        call: CallId,
        until: Instant,
    ) -> Result<Option<Head>, AskError> {
        let mut pauses = Reconnect::default();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let looked = self.get(tenant, call, left.min(GLANCE)).await;
            let looked = looked.and_then(|answer| answer.head());
            match looked {
                Ok(head) if head.is_decided() => return Ok(Some(head)),
                Ok(_undecided) if left.is_zero() => return Ok(None),
                Err(problem) if left.is_zero() => return Err(problem),
                // A refusal came at once, without waiting.
                Ok(head) if head.is_refused() => pauses.pause().await,
                Err(_no_answer) => pauses.pause().await,
                Ok(_undecided) => {}
            }
        }
    }

    /// Cancels a call; the answer is a [`fleet::wire::cancel::CancelAnswer`] or a refusal. Safe to repeat.
    ///
    /// # Errors
    ///
    /// [`FleetClient::ask`].
    pub async fn cancel(
        &self,
        tenant: &Label,
        cancelling: &Cancelling<'_>,
    ) -> Result<Answer, AskError> {
        let subject = self.subjects().cancel(tenant);
        self.ask(Question::new(subject, body(cancelling))).await
    }

    /// Hands in what came of a call that the caller's own program runs; the answer is the envelope of the call, or a refusal. Safe to
    /// repeat: the same answer is recognised.
    ///
    /// # Errors
    ///
    /// [`FleetClient::ask`].
    pub async fn output(
        &self,
        tenant: &Label,
        handed_in: &HandedIn<'_>,
    ) -> Result<Answer, AskError> {
        let subject = self.subjects().output(tenant);
        self.ask(Question::new(subject, body(handed_in))).await
    }

    /// Says yes or no to a call that waits for it; the answer is the envelope of the call as it stands, or a refusal. Said again, it is
    /// refused as a `conflict` that names the decision that counts.
    ///
    /// # Errors
    ///
    /// [`FleetClient::ask`].
    pub async fn approve(
        &self,
        tenant: &Label,
        approving: &Approving<'_>,
    ) -> Result<Answer, AskError> {
        let subject = match approving.token {
            Some(_) => self.subjects().approve(tenant),
            None => self.subjects().admin_approve(tenant),
        };
        self.ask(Question::new(subject, body(approving))).await
    }

    /// Has the tool asked that is to be seen before somebody decides about a call.
    ///
    /// The answer is `{"call_id", "preview"}`, or a refusal. Safe to repeat: it is asked once within a minute, and nothing else of
    /// the call moves.
    ///
    /// # Errors
    ///
    /// [`FleetClient::ask`].
    pub async fn preview(&self, tenant: &Label, call: CallId) -> Result<Answer, AskError> {
        let subject = self.subjects().admin_preview(tenant);
        self.ask(Question::new(subject, body(&Looking { call_id: call })))
            .await
    }

    /// Records what a call in doubt turned out to be. Safe to repeat: the same finding is recognised.
    ///
    /// # Errors
    ///
    /// [`FleetClient::ask`].
    pub async fn settle(
        &self,
        tenant: &Label,
        settling: &Settling<'_>,
    ) -> Result<Answer, AskError> {
        let subject = self.subjects().settle(tenant);
        self.ask(Question::new(subject, body(settling))).await
    }

    /// The definitions of the tools that are offered.
    ///
    /// # Errors
    ///
    /// [`FleetClient::ask`].
    pub async fn tools(&self, tenant: &Label, format: Format) -> Result<Answer, AskError> {
        let subject = self.subjects().tools(tenant);
        self.ask(Question::new(subject, body(&Asked { format })))
            .await
    }
}

fn body(asked: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(asked).expect("a question has only string keys")
}
