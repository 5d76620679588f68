//! Accept → validate → commit → publish, and what a caller is told.
//!
//! The order of the door: names, headers, the body itself, then the key, then tool and arguments. A known key is answered
//! with its call whatever has become of its tool since. The common case needs no look-up: a call that passes everything is
//! committed at once, and only when its key turns out to be taken is the key read, in a new statement, for the one that
//! waited for a rival's commit sees neither place.

use std::{sync::Arc, time::Duration};

use async_nats::HeaderMap;
use fleet::{
    arguments::{self, Limits, Violations},
    bus::{connect::Bus, publish::Publisher},
    call::State,
    canonical,
    checkpoint::{Checkpoint, reached},
    ids::{CallId, DispatcherId, Label, ToolName},
    manifest::{KeyPolicy, Sensitive},
    registry::{Registry, Tool},
    store::{
        PgPool, StoreError,
        accept::{AcceptedAt, NewCall, NewKey},
        lane::Reply,
        ledger::Accepting,
    },
    telemetry::{
        metrics, report,
        spans::{self, Step},
        trace,
    },
    wire::{
        code::Code,
        envelope::Accepted,
        error::ErrorBody,
        headers::{Prefer, RequestHeaders},
        pointer::Pointer,
        subjects::Subjects,
        trace::TraceContext,
    },
};
use serde_json::{Value, value::RawValue};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use tracing::Instrument;

use crate::{
    answer::{Answer, Refusal},
    key,
    service::tool_of,
    waiters::{Waiters, Waiting},
};

/// What every request needs.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    pub(crate) bus: Bus,
    pub(crate) pool: PgPool,
    pub(crate) registry: Registry,
    pub(crate) accepting: Accepting,
    pub(crate) publisher: Publisher,
    pub(crate) waiters: Waiters,
    pub(crate) dispatcher: DispatcherId,
}

/// A submission that is well formed; whether it is acceptable is still open.
pub(crate) struct Submission {
    pub(crate) tenant: Label,
    pub(crate) tool: ToolName,
    pub(crate) headers: RequestHeaders,
    args: Value,
    args_text: String,
    pub(crate) args_hash: [u8; 32],
    pub(crate) original_hash: [u8; 32],
}

/// How often an accept whose answer is missing is sent again, through its key.
const ACCEPTS_MAX: u32 = 3;

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
        let original_hash = Sha256::digest(body).into();
        Ok(Submission {
            tenant,
            tool,
            headers,
            args,
            args_text,
            args_hash,
            original_hash,
        })
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
    fn check(&self, submission: &Submission) -> Result<Arc<Tool>, Refusal> {
        if submission.headers.run_deadline.is_some_and(has_passed) {
            return Err(Refusal::new(
                Code::DeadlineInvalid,
                "header Toolfleet-Run-Deadline must be in the future",
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
                "the tool {name} needs the header Idempotency-Key, so that it is never run twice by mistake"
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

    async fn commit(&self, submission: Submission, tool: &Tool) -> Result<Answer, Refusal> {
        let mut call = self.new_call(&submission, tool, CallId::generate());
        reached(Checkpoint::Validated);
        let mut silent = false;
        for _ in 0..ACCEPTS_MAX {
            // Before the commit, so that no decision is missed.
            let waiting = match submission.headers.prefer {
                Prefer::Wait(wait) => Some((self.waiters.register(call.call_id), wait)),
                Prefer::RespondAsync => None,
            };
            let accepting = self.accepting.accept(call.clone());
            match accepting.instrument(spans::step(Step::Commit)).await {
                Reply::Done(at) => return Ok(self.committed(&call, at, waiting).await),
                Reply::Undecided => match self.find_taken_key(&call).await? {
                    Some(found) if found.call_id == call.call_id => {
                        // An earlier try of ours was committed although its answer never came.
                        self.publish(&call).await;
                        return self.attach(&submission, found.call_id, false).await;
                    }
                    Some(found) if found.lapsed => {
                        call = NewCall {
                            call_id: CallId::generate(),
                            ..call
                        };
                        if let Some(key) = call.key.as_mut() {
                            key.replaces = Some(found.call_id);
                        }
                    }
                    Some(found) => return self.replay(&submission, &found).await,
                    // Its key was taken over by a rival between the two statements; look again.
                    None => {}
                },
                // Repeated only through its key: without one, nobody could tell whether it was committed.
                Reply::Unknown if call.key.is_some() => silent = true,
                Reply::Unknown => return Err(Refusal::unconfirmed(false)),
                Reply::NotSent => break,
                Reply::Refused(source) => {
                    let error = StoreError::Refused {
                        doing: "accept a call",
                        source,
                    };
                    tracing::error!(error = report(&error), "the ledger refused a call");
                    break;
                }
            }
        }
        if silent {
            return Err(Refusal::unconfirmed(true));
        }
        let what = "the ledger cannot take calls at the moment";
        Err(Refusal::new(Code::StoreUnavailable, what))
    }

    /// From here on the call exists: whatever fails now, the caller is told its id.
    async fn committed(
        &self,
        call: &NewCall,
        at: AcceptedAt,
        waiting: Option<(Waiting, Duration)>,
    ) -> Answer {
        reached(Checkpoint::Committed);
        metrics().accepted(&call.tool);
        self.publish(call).await;
        reached(Checkpoint::Published);
        if let Some((mut waiting, wait)) = waiting {
            if let Some(envelope) = waiting.decided(wait, None).await {
                reached(Checkpoint::Decided);
                return self.result(Arc::unwrap_or_clone(envelope));
            }
            if let Ok(answer) = self.as_it_stands(call.call_id, &call.tenant, false).await {
                return answer;
            }
        }
        Answer::accepted(&Accepted {
            call_id: call.call_id,
            tool: call.tool.to_string(),
            state: State::Queued,
            replayed: false,
            accepted_at: at.accepted_at,
        })
    }

    fn new_call(&self, submission: &Submission, tool: &Tool, call_id: CallId) -> NewCall {
        let (manifest, headers) = (&tool.manifest, &submission.headers);
        let key = key::hash_for_call(
            &submission.tenant,
            &submission.tool,
            manifest.key_policy(),
            headers.key.as_ref(),
            &submission.args_hash,
        );
        let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        NewCall {
            call_id,
            tenant: submission.tenant.clone(),
            tool: submission.tool.clone(),
            tool_version: manifest.version,
            effect: manifest.effect,
            queue: manifest.queue.clone(),
            priority: headers.priority,
            key: key.map(|hash| NewKey {
                hash,
                original_hash: submission.original_hash,
                replaces: None,
            }),
            key_retention_ms: millis(manifest.key_retention),
            args: submission.args_text.clone(),
            args_hash: submission.args_hash,
            session: headers.session.clone(),
            run: headers.run.clone(),
            meta: headers.meta.as_ref().map(|meta| meta.get().to_owned()),
            language: headers.language.unwrap_or(manifest.language),
            trace: trace::current_context(&headers.trace),
            dispatcher: self.dispatcher,
            deadline_ms: millis(headers.deadline.unwrap_or(manifest.deadline)),
            run_deadline: headers.run_deadline,
            queue_wait_ms: manifest.max_queue_wait.map(millis),
        }
    }

    async fn publish(&self, call: &NewCall) {
        // What is sensitive stays in the ledger.
        let tool = self.registry.version(&call.tool, call.tool_version);
        let harmless = tool.is_some_and(|tool| tool.manifest.sensitive.is_none());
        let inline = harmless && call.args.len() <= Pointer::ARGS_INLINE_MAX;
        let pointer = Pointer {
            call_id: call.call_id,
            tool: call.tool.clone(),
            tool_version: call.tool_version,
            args_hash: hex::encode(call.args_hash),
            args: inline
                .then(|| RawValue::from_string(call.args.clone()).ok())
                .flatten(),
            trace: TraceContext {
                baggage: None,
                ..call.trace.clone()
            },
            attempts: 0,
        };
        let step = spans::step(Step::Publish);
        let destination = self.bus.subjects.jobs_of_queue(&call.queue);
        let sending = step.in_scope(|| spans::publish(destination.trim_end_matches(".>")));
        self.publisher
            .publish(&call.queue, 1, &pointer)
            .instrument(sending)
            .instrument(step)
            .await;
    }
}

fn read_headers(headers: Option<&HeaderMap>) -> Result<RequestHeaders, Refusal> {
    let lines: Vec<(&str, &str)> = headers
        .into_iter()
        .flat_map(HeaderMap::iter)
        .flat_map(|(name, values)| {
            values
                .iter()
                .map(move |value| (name.as_ref(), value.as_str()))
        })
        .collect();
    RequestHeaders::read(&lines).map_err(|bad| Refusal::new(bad.code, &bad.message))
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
