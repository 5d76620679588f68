//! Commit → publish: a call that passed the door gets its row, and what a taken key or a silent ledger means for it.

use std::{sync::Arc, time::Duration};

use fleet::{
    call::State,
    checkpoint::{Checkpoint, reached},
    ids::CallId,
    store::{
        StoreError,
        accept::{AcceptedAt, NewCall, NewKey},
        lane::Reply,
        read::KeyRow,
    },
    telemetry::{
        metrics, report,
        spans::{self, Step},
        trace,
    },
    wire::{
        code::Code,
        envelope::Accepted,
        event::{Event, Happening},
        headers::Prefer,
        message::Message,
        pointer::Pointer,
        trace::TraceContext,
    },
};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::Instrument;

use crate::{
    accept::Door,
    admission::Admission,
    answer::{Answer, Refusal},
    check::{Checked, Submission},
    key,
    meter::Permit,
    waiters::Waiting,
};

/// How often an accept whose answer is missing is sent again, through its key.
pub(crate) const ACCEPTS_MAX: u32 = 3;

/// A call on its way into the ledger.
pub(crate) struct Attempted {
    pub(crate) submission: Submission,
    pub(crate) call: Arc<NewCall>,
    admission: Admission,
    /// The ledger was silent about an earlier try: it may be there.
    silent: bool,
}

/// What the ledger's reply means.
pub(crate) enum Told {
    /// The call is there.
    Committed(AcceptedAt),
    /// Its key is taken: read it in a new statement.
    Taken,
    /// Nobody knows; its key makes it safe to send it again.
    Again,
    /// It is not there, or nobody can find out.
    Refused(Refusal),
}

/// What the taken key means.
pub(crate) enum Holder {
    /// An earlier try of ours was committed although its answer never came.
    Ours(CallId),
    /// Another submission made the call.
    Other(KeyRow),
    /// It lapsed, or was taken over by a rival between the two statements: send the call again.
    Nobody,
}

impl Attempted {
    pub(crate) fn new(submission: Submission, call: NewCall, admission: Admission) -> Self {
        Self {
            submission,
            call: Arc::new(call),
            admission,
            silent: false,
        }
    }

    /// Leave to publish the call, once.
    pub(crate) fn take_permit(&mut self) -> Option<Permit> {
        self.admission.take_permit()
    }

    /// It is no new call: what it had taken of quota and room is given back at once, however long its caller waits.
    pub(crate) fn into_submission(self) -> Submission {
        self.submission
    }

    /// The next thing to do after this reply.
    pub(crate) fn told(&mut self, reply: Reply<AcceptedAt>) -> Told {
        match reply {
            Reply::Done(at) => {
                self.admission.committed();
                Told::Committed(at)
            }
            Reply::Undecided => Told::Taken,
            // Repeated only through its key: without one, nobody could tell whether it was committed.
            Reply::Unknown if self.call.key.is_some() => {
                self.silent = true;
                Told::Again
            }
            Reply::Unknown => Told::Refused(Refusal::unconfirmed(false)),
            Reply::NotSent => Told::Refused(self.given_up()),
            Reply::Refused(source) => {
                let error = StoreError::Refused {
                    doing: "accept a call",
                    source,
                };
                tracing::error!(error = report(&error), "the ledger refused a call");
                Told::Refused(self.given_up())
            }
        }
    }

    /// Whose key it is. A lapsed one is taken over by the next try.
    pub(crate) fn holder(&mut self, found: Option<KeyRow>) -> Holder {
        match found {
            Some(found) if found.call_id == self.call.call_id => {
                self.admission.committed();
                Holder::Ours(found.call_id)
            }
            Some(found) if found.lapsed => {
                let call = Arc::make_mut(&mut self.call);
                call.call_id = CallId::generate();
                if let Some(key) = call.key.as_mut() {
                    key.replaces = Some(found.call_id);
                }
                Holder::Nobody
            }
            Some(found) => Holder::Other(found),
            None => Holder::Nobody,
        }
    }

    /// The refusal when it was tried often enough.
    pub(crate) fn given_up(&self) -> Refusal {
        if self.silent {
            return Refusal::unconfirmed(true);
        }
        let what = Message::fixed(
            "the ledger cannot take calls at the moment",
            "账本目前不能接受调用",
        );
        Refusal::new(Code::StoreUnavailable, what)
    }
}

impl Door {
    /// Commits one call and answers its caller.
    pub(crate) async fn commit(
        &self,
        submission: Submission,
        checked: &Checked,
    ) -> Result<Answer, Refusal> {
        let (id, manifest) = (CallId::generate(), &checked.tool.manifest);
        let admission = match self.admit(&submission.tenant, manifest, id).await {
            Ok(admission) => admission,
            Err(refusal) => {
                let key = key_of(&submission, checked);
                return Box::pin(self.known_or(&submission, key, refusal)).await;
            }
        };
        let call = self.new_call(&submission, checked, id, &admission);
        let mut attempted = Attempted::new(submission, call, admission);
        reached(Checkpoint::Validated);
        for _ in 0..ACCEPTS_MAX {
            let call = &attempted.call;
            // Before the commit, so that no decision is missed.
            let waiting = match attempted.submission.headers.prefer {
                Prefer::Wait(wait) => Some((self.waiters.register(call.call_id), wait)),
                Prefer::RespondAsync => None,
            };
            let accepting = self.accepting.accept(Arc::clone(call));
            let reply = accepting.instrument(spans::step(Step::Commit)).await;
            match attempted.told(reply) {
                Told::Committed(at) => {
                    let permit = attempted.take_permit();
                    return Ok(self.committed(&attempted.call, permit, at, waiting).await);
                }
                Told::Taken => {
                    let found = Box::pin(self.find_taken_key(&attempted.call)).await?;
                    match attempted.holder(found) {
                        Holder::Ours(call) => {
                            let permit = attempted.take_permit();
                            Box::pin(self.publish(&attempted.call, permit)).await;
                            let attaching = self.attach(&attempted.submission, call, false);
                            return Box::pin(attaching).await;
                        }
                        Holder::Other(found) => {
                            let submission = attempted.into_submission();
                            return Box::pin(self.replay(&submission, &found)).await;
                        }
                        Holder::Nobody => {}
                    }
                }
                Told::Again => {}
                Told::Refused(refusal) => return Err(refusal),
            }
        }
        Err(attempted.given_up())
    }

    /// From here on the call exists: whatever fails now, the caller is told its id.
    async fn committed(
        &self,
        call: &NewCall,
        permit: Option<Permit>,
        at: AcceptedAt,
        waiting: Option<(Waiting, Duration)>,
    ) -> Answer {
        reached(Checkpoint::Committed);
        self.tell_accepted(call, &at);
        let (left, committed) = (call.lasts(at), Instant::now());
        // Who waits so long has a timer.
        if waiting.as_ref().is_none_or(|(_, wait)| left >= *wait) {
            self.expiry.remember(call.call_id, left);
        }
        self.publish(call, permit).await;
        reached(Checkpoint::Published);
        if let Some((mut waiting, wait)) = waiting {
            let left = left.saturating_sub(committed.elapsed());
            if let Some(envelope) = waiting.decided(wait, left, None).await {
                reached(Checkpoint::Decided);
                return Answer::told(envelope, self.payload_max(), call.language);
            }
            let standing = Box::pin(self.as_it_stands(call.call_id, &call.tenant, false));
            if let Ok(answer) = standing.await {
                return answer;
            }
        }
        Answer::accepted(&accepted(call, at))
    }

    /// Counts it, and tells those who follow its session.
    pub(crate) fn tell_accepted(&self, call: &NewCall, at: &AcceptedAt) {
        metrics().accepted(&call.tool);
        for coercion in &call.coercions {
            metrics().coerced(&call.tool, coercion.rule);
        }
        let event = || Event {
            call_id: call.call_id,
            // A row starts with revision 0.
            sequence: Event::sequence(0, 0),
            at: at.accepted_at,
            what: Happening::Accepted {
                tool: call.tool.to_string(),
                tool_version: call.tool_version,
            },
        };
        self.events.tell(&call.tenant, call.session.as_ref(), event);
    }

    /// The row of an admitted call.
    pub(crate) fn new_call(
        &self,
        submission: &Submission,
        checked: &Checked,
        call_id: CallId,
        admission: &Admission,
    ) -> NewCall {
        let Checked { tool, arguments } = checked;
        let (manifest, headers) = (&tool.manifest, &submission.headers);
        let key = key_of(submission, checked);
        let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        NewCall {
            call_id,
            tenant: submission.tenant.clone(),
            tool: submission.tool.clone(),
            tool_version: manifest.version,
            effect: manifest.effect,
            queue: manifest.queue.clone(),
            priority: headers.priority,
            held: admission.is_held(),
            line: admission.line.clone(),
            key: key.map(|hash| NewKey {
                hash,
                original_hash: submission.original_hash,
                replaces: None,
            }),
            key_retention_ms: millis(manifest.key_retention),
            args: arguments.text.clone(),
            kept_args: manifest
                .sensitive
                .as_ref()
                .and_then(|sensitive| sensitive.kept(&arguments.text)),
            args_hash: arguments.hash,
            original_args: (!arguments.coercions.is_empty()).then(|| submission.sent.clone()),
            coercions: arguments.coercions.clone(),
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

    /// Rings the bell for a call that is there; when it is not heard the sweep finds the call. A held one waits for its turn.
    pub(crate) async fn publish(&self, call: &NewCall, permit: Option<Permit>) {
        let Some(permit) = permit else {
            return self.meter.call_is_held(&call.line);
        };
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
            tenant: Some(call.tenant.clone()),
            language: Some(call.language),
            priority: Some(call.priority),
            rev: Some(0),
            trace: TraceContext {
                baggage: None,
                ..call.trace.clone()
            },
            attempts: 0,
        };
        let step = spans::step(Step::Publish);
        let destination = || self.bus.subjects.jobs_of_queue(&call.queue);
        let sending = step.in_scope(|| spans::publish(destination));
        self.publisher
            .publish(&call.queue, 1, &pointer)
            .instrument(sending)
            .instrument(step)
            .await;
        permit.used();
    }
}

/// The key under which a call is looked up, hashed, if it has one.
pub(crate) fn key_of(submission: &Submission, checked: &Checked) -> Option<[u8; 32]> {
    key::hash_for_call(
        &submission.tenant,
        &submission.tool,
        checked.tool.manifest.key_policy(),
        submission.headers.key.as_ref(),
        &checked.arguments.hash,
    )
}

/// The answer to a new call that nobody has waited for.
pub(crate) fn accepted(call: &NewCall, at: AcceptedAt) -> Accepted {
    Accepted {
        call_id: call.call_id,
        tool: call.tool.to_string(),
        state: State::Queued,
        replayed: false,
        accepted_at: at.accepted_at,
    }
}

#[cfg(test)]
mod tests {
    use fleet::{
        call::{Effect, Language, Priority},
        wire::headers::RequestHeaders,
    };

    use super::*;

    fn attempted(has_key: bool) -> Attempted {
        let (tenant, tool) = ("acme", "charge");
        let headers = RequestHeaders::read(&[]).unwrap();
        let submission = Submission::read(
            tenant.parse().unwrap(),
            tool.parse().unwrap(),
            headers,
            b"{}",
        );
        let call = NewCall {
            call_id: CallId::generate(),
            tenant: tenant.parse().unwrap(),
            tool: tool.parse().unwrap(),
            tool_version: 1,
            effect: Effect::Once,
            queue: "default".parse().unwrap(),
            priority: Priority::Normal,
            line: "default".parse().unwrap(),
            held: true,
            key: has_key.then_some(NewKey {
                hash: [1; 32],
                original_hash: [2; 32],
                replaces: None,
            }),
            key_retention_ms: 0,
            args: "{}".to_owned(),
            kept_args: None,
            args_hash: [3; 32],
            original_args: None,
            coercions: Vec::new(),
            session: None,
            run: None,
            meta: None,
            language: Language::En,
            trace: TraceContext::default(),
            dispatcher: fleet::ids::DispatcherId::generate(),
            deadline_ms: 1,
            run_deadline: None,
            queue_wait_ms: None,
        };
        let admission = Admission::held(call.line.clone());
        Attempted::new(submission.ok().unwrap(), call, admission)
    }

    fn found(call_id: CallId, lapsed: bool) -> KeyRow {
        KeyRow {
            call_id,
            tool: "charge".to_owned(),
            tool_version: 1,
            args_hash: vec![3; 32],
            original_hash: vec![2; 32],
            lapsed,
        }
    }

    fn effect_of(refusal: &Refusal) -> String {
        refusal.envelope("charge", Language::En).effect.to_string()
    }

    #[test]
    fn silence_is_asked_about_through_the_key_and_else_admitted() {
        let mut keyed = attempted(true);
        assert_eq!(effect_of(&keyed.given_up()), "none");
        assert!(matches!(keyed.told(Reply::Unknown), Told::Again));
        // From here on it may be there, whatever the ledger says next.
        let Told::Refused(refusal) = keyed.told(Reply::NotSent) else {
            panic!("it is not sent a third time")
        };
        assert_eq!(effect_of(&refusal), "unknown");
        let Told::Refused(refusal) = attempted(false).told(Reply::Unknown) else {
            panic!("without a key it is never sent again")
        };
        assert_eq!(effect_of(&refusal), "unknown");
    }

    #[test]
    fn a_taken_key_names_this_call_another_or_nobody_any_more() {
        let mut call = attempted(true);
        let own = call.call.call_id;
        assert!(matches!(call.holder(Some(found(own, false))), Holder::Ours(id) if id == own));
        let other = CallId::generate();
        assert!(matches!(
            call.holder(Some(found(other, false))),
            Holder::Other(_)
        ));
        assert!(matches!(call.holder(None), Holder::Nobody));
        assert_eq!(call.call.call_id, own);
        assert!(matches!(
            call.holder(Some(found(other, true))),
            Holder::Nobody
        ));
        assert_ne!(
            call.call.call_id, own,
            "a new try under a lapsed key is a new call"
        );
        let replaces = call.call.key.as_ref().and_then(|key| key.replaces);
        assert_eq!(replaces, Some(other));
    }
}
