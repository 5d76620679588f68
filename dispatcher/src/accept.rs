//! Accept → validate → commit → publish, and what a caller is told.
//!
//! The order of the door: names, headers, the body itself, then the key, then tool and arguments. A known key is answered
//! with its call whatever has become of its tool since. The common case needs no look-up: a call that passes everything is
//! committed at once, and only when its key turns out to be taken is the key read, in a new statement, for the one that
//! waited for a rival's commit sees neither place.

use std::sync::Arc;

use async_nats::HeaderMap;
use fleet::{
    arguments::{self, Limits, Violations},
    bus::{connect::Bus, events::Events, publish::Publisher},
    canonical,
    ids::{DispatcherId, Label, ToolName},
    manifest::{KeyPolicy, Sensitive},
    registry::{Registry, Tool},
    store::{PgPool, ledger::Accepting},
    telemetry::{
        metrics,
        spans::{self, Step},
        trace,
    },
    wire::{code::Code, error::ErrorBody, headers::RequestHeaders, subjects::Subjects},
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use tracing::Instrument;

use crate::{
    answer::{Answer, Refusal},
    key,
    service::tool_of,
    waiters::Waiters,
};

/// What every request needs.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    pub(crate) bus: Bus,
    pub(crate) pool: PgPool,
    pub(crate) registry: Registry,
    pub(crate) accepting: Accepting,
    pub(crate) publisher: Publisher,
    pub(crate) events: Events,
    pub(crate) waiters: Waiters,
    pub(crate) dispatcher: DispatcherId,
}

/// A submission that is well formed; whether it is acceptable is still open.
pub(crate) struct Submission {
    pub(crate) tenant: Label,
    pub(crate) tool: ToolName,
    pub(crate) headers: RequestHeaders,
    args: Value,
    pub(crate) args_text: String,
    pub(crate) args_hash: [u8; 32],
    pub(crate) original_hash: [u8; 32],
}

impl Submission {
    /// With these arguments, as far as that can be said without knowing the tool.
    pub(crate) fn read(
        tenant: Label,
        tool: ToolName,
        headers: RequestHeaders,
        body: &[u8],
    ) -> Result<Self, Refusal> {
        let args = arguments::parse(body, &Limits::DEFAULT).map_err(|error| {
            let refused = ErrorBody::refused(error.code, &error.message);
            Refusal::from(if error.path.is_empty() {
                refused
            } else {
                refused.at(error.path)
            })
        })?;
        let args_text = canonical::to_text(&args);
        let args_hash = canonical::hash_text(&args_text);
        Ok(Self {
            tenant,
            tool,
            headers,
            args,
            args_text,
            args_hash,
            original_hash: Sha256::digest(body).into(),
        })
    }
}

impl Door {
    /// Answers one submission.
    pub(crate) async fn submit(
        &self,
        subject: &str,
        headers: Option<&HeaderMap>,
        body: &[u8],
    ) -> Answer {
        let span = spans::step(Step::Accept);
        let named = tool_of(subject);
        let answered = async {
            let submission = self.read(subject, headers, body)?;
            trace::set_parent(&tracing::Span::current(), &submission.headers.trace);
            self.answer(submission).await
        };
        match answered.instrument(span.clone()).await {
            Ok(answer) => {
                if let Some(call) = answer.call {
                    spans::identify(&span, call);
                }
                answer
            }
            Err(refusal) => {
                spans::failed(&span, refusal.error.code);
                metrics().rejected(refusal.error.code);
                Answer::refusal(named, refusal)
            }
        }
    }

    fn read(
        &self,
        subject: &str,
        headers: Option<&HeaderMap>,
        body: &[u8],
    ) -> Result<Submission, Refusal> {
        let (tenant, rest) = self.bus.subjects.tenant_of(subject).map_err(|code| {
            Refusal::new(
                code,
                "a tenant has 1 to 64 characters of A-Z, a-z, 0-9, _ and -",
            )
        })?;
        let tool = Subjects::tool_of(rest).map_err(|code| {
            Refusal::new(code, "a tool name has 1 to 64 characters of a-z, 0-9 and _")
        })?;
        let headers = read_headers(headers)?;
        Submission::read(tenant, tool, headers, body)
    }

    async fn answer(&self, submission: Submission) -> Result<Answer, Refusal> {
        let checked = {
            let _validating = spans::step(Step::Validate).entered();
            self.check(&submission)
        };
        let tool = match (checked, &submission.headers.key) {
            (Ok(tool), _) => tool,
            (Err(refusal), None) => return Err(refusal),
            // The key comes first: what it names is answered even where a new call would be refused.
            (Err(refusal), Some(key)) => {
                let key = key::hash_of_callers(&submission.tenant, key);
                return match self.find_key(&submission.tenant, &key).await? {
                    Some(found) if !found.lapsed => self.replay(&submission, &found).await,
                    Some(_) | None => Err(refusal),
                };
            }
        };
        self.commit(submission, &tool).await
    }

    /// Everything about a new call that needs no ledger.
    pub(crate) fn check(&self, submission: &Submission) -> Result<Arc<Tool>, Refusal> {
        if submission.headers.run_deadline.is_some_and(has_passed) {
            return Err(Refusal::new(
                Code::DeadlineInvalid,
                "the deadline of the run (Toolfleet-Run-Deadline) must be in the future",
            ));
        }
        let name = &submission.tool;
        let tool = match submission.headers.tool_version {
            None => self.registry.current(name),
            Some(version) => self.registry.version(name, version),
        };
        let tool = tool.ok_or_else(|| {
            match (self.registry.knows(name), submission.headers.tool_version) {
                (true, Some(version)) => Refusal::new(
                    Code::UnknownToolVersion,
                    &format!("the tool {name} has no version {version}"),
                ),
                (true | false, _) => {
                    Refusal::new(Code::UnknownTool, &format!("there is no tool named {name}"))
                }
            }
        })?;
        if tool.manifest.key_policy() == KeyPolicy::Required && submission.headers.key.is_none() {
            let what = format!(
                "the tool {name} needs an idempotency key (Idempotency-Key), so that it is never run twice by mistake"
            );
            return Err(Refusal::new(Code::MissingIdempotencyKey, &what));
        }
        let violations = tool.schema.validate(&submission.args);
        if violations.is_empty() {
            Ok(tool)
        } else {
            Err(violated(violations, tool.manifest.sensitive.as_ref()))
        }
    }
}

fn read_headers(headers: Option<&HeaderMap>) -> Result<RequestHeaders, Refusal> {
    let lines = lines(headers);
    RequestHeaders::read(&lines).map_err(|bad| Refusal::new(bad.code, &bad.message()))
}

/// The header lines of a request.
pub(crate) fn lines(headers: Option<&HeaderMap>) -> Vec<(&str, &str)> {
    headers
        .into_iter()
        .flat_map(HeaderMap::iter)
        .flat_map(|(name, values)| {
            values
                .iter()
                .map(move |value| (name.as_ref(), value.as_str().trim()))
        })
        .collect()
}

/// By this process's clock, so only a courtesy: the claim decides by Postgres's.
#[expect(
    clippy::disallowed_methods,
    reason = "spares a call that would expire at once, decides nothing"
)]
fn has_passed(deadline: OffsetDateTime) -> bool {
    deadline <= OffsetDateTime::now_utc()
}

fn violated(mut violations: Violations, sensitive: Option<&Sensitive>) -> Refusal {
    if let Some(sensitive) = sensitive {
        violations = violations.without_values(|path| sensitive.touches(path));
    }
    let error = ErrorBody::refused(Code::InvalidArguments, &violations.summary());
    let first = violations
        .items()
        .first()
        .map(|violation| violation.path.clone());
    let error = match first {
        Some(path) if violations.total() == 1 && !path.is_empty() => error.at(path),
        Some(_) | None => error,
    };
    let details = serde_json::to_value(&violations).expect("violations have only string keys");
    error.with_details(details).into()
}
