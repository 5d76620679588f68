//! A call on its way into the ledger: what the ledger's reply means, and what a taken key means.

use std::sync::Arc;

use fleet::{
    ids::CallId,
    store::{
        StoreError,
        accept::{AcceptedAt, NewCall},
        keys::KeyRow,
        lane::Reply,
    },
    telemetry::report,
    wire::{code::Code, message::Message},
};

use crate::{admission::Admission, check::Submission, meter::Permit, refusal::Refusal};

/// A call on its way into the ledger, with its share of quota and room.
pub(crate) struct PendingAccept {
    pub(crate) submission: Submission,
    pub(crate) call: Arc<NewCall>,
    admission: Admission,
    /// An earlier try got no answer: the call may be in the ledger.
    silent: bool,
}

/// What the ledger's reply means.
pub(crate) enum Told {
    /// The call is in the ledger.
    Committed(AcceptedAt),
    /// Its key is taken: read the key in a new statement.
    Taken,
    /// The ledger may have it or not. Its key makes it safe to send it again.
    Again,
    /// It is not in the ledger, or that cannot be found out.
    Refused(Refusal),
}

/// What the taken key means.
pub(crate) enum Holder {
    /// An earlier try of this request was committed, although its answer never came.
    Ours(AcceptedAt),
    /// Another submission made the call.
    Other(KeyRow),
    /// It has lapsed, or a rival took it between the two statements: send the call again.
    Free,
}

impl PendingAccept {
    pub(crate) fn new(submission: Submission, call: NewCall, admission: Admission) -> Self {
        Self {
            submission,
            call: Arc::new(call),
            admission,
            silent: false,
        }
    }

    /// Takes the permit to publish the call.
    pub(crate) fn take_permit(&mut self) -> Option<Permit> {
        self.admission.take_permit()
    }

    /// It makes no new call: gives its quota and room back at once, however long its caller waits.
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
            // Sent again only with a key: without one, it cannot be told whether it was committed.
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

    /// Which call has the key. The next try takes over a lapsed one.
    pub(crate) fn holder(&mut self, found: Option<KeyRow>) -> Holder {
        match found {
            Some(found) if found.call_id == self.call.call_id => {
                self.admission.committed();
                // Without the call itself, its row was lost with the writes after its commit.
                let at = found
                    .accepted_at
                    .map(|accepted_at| AcceptedAt { accepted_at });
                at.map_or(Holder::Free, Holder::Ours)
            }
            Some(found) if found.lapsed => {
                let call = Arc::make_mut(&mut self.call);
                call.call_id = CallId::generate();
                if let Some(key) = call.key.as_mut() {
                    key.replaces = Some(found.call_id);
                }
                Holder::Free
            }
            Some(found) => Holder::Other(found),
            None => Holder::Free,
        }
    }

    /// The refusal after the last try.
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

#[cfg(test)]
pub(crate) mod tests {
    use fleet::{
        arguments::Limits,
        call::{Effect, Language, Priority},
        ids::DispatcherId,
        store::accept::NewKey,
        wire::{headers::RequestHeaders, trace::TraceContext},
    };

    use time::OffsetDateTime;

    use super::*;

    pub(crate) fn pending(has_key: bool) -> PendingAccept {
        let (tenant, tool) = ("acme", "charge");
        let headers = RequestHeaders::read(&[]).unwrap();
        let submission = Submission::read(
            tenant.parse().unwrap(),
            tool.parse().unwrap(),
            headers,
            b"{}",
            &Limits::DEFAULT,
        );
        let call = NewCall {
            call_id: CallId::generate(),
            tenant: tenant.parse().unwrap(),
            tool: tool.parse().unwrap(),
            tool_version: 1,
            effect: Effect::Once,
            queue: "default".parse().unwrap(),
            priority: Priority::Normal,
            waits: None,
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
            files: Vec::new(),
            original_args: None,
            no_store: false,
            rate_key: None,
            coercions: Vec::new(),
            session: None,
            run: None,
            meta: None,
            language: Language::En,
            trace: TraceContext::default(),
            dispatcher: DispatcherId::generate(),
            done_secret: fleet::wire::proof::DoneSecret::generate(),
            deadline_ms: 1,
            run_deadline: None,
            queue_wait_ms: None,
        };
        let admission = Admission::held(call.line.clone());
        PendingAccept::new(submission.ok().unwrap(), call, admission)
    }

    fn found(call_id: CallId, lapsed: bool) -> KeyRow {
        KeyRow {
            call_id,
            tool: "charge".to_owned(),
            tool_version: 1,
            args_hash: vec![3; 32],
            original_hash: vec![2; 32],
            lapsed,
            is_watched: false,
            accepted_at: Some(OffsetDateTime::UNIX_EPOCH),
        }
    }

    fn effect_of(refusal: &Refusal) -> String {
        refusal.envelope("charge", Language::En).effect.to_string()
    }

    #[test]
    fn silence_is_asked_about_through_the_key_and_else_admitted() {
        let mut keyed = pending(true);
        assert_eq!(effect_of(&keyed.given_up()), "none");
        assert!(matches!(keyed.told(Reply::Unknown), Told::Again));
        // From here on it may be in the ledger, whatever the next answer is.
        let Told::Refused(refusal) = keyed.told(Reply::NotSent) else {
            panic!("it is not sent a third time")
        };
        assert_eq!(effect_of(&refusal), "unknown");
        let Told::Refused(refusal) = pending(false).told(Reply::Unknown) else {
            panic!("without a key it is never sent again")
        };
        assert_eq!(effect_of(&refusal), "unknown");
    }

    #[test]
    fn a_taken_key_names_this_call_another_or_none_any_more() {
        let mut call = pending(true);
        let own = call.call.call_id;
        assert!(
            matches!(call.holder(Some(found(own, false))), Holder::Ours(at) if at.accepted_at == OffsetDateTime::UNIX_EPOCH)
        );
        let other = CallId::generate();
        assert!(matches!(
            call.holder(Some(found(other, false))),
            Holder::Other(_)
        ));
        assert!(matches!(call.holder(None), Holder::Free));
        assert_eq!(call.call.call_id, own);
        assert!(matches!(
            call.holder(Some(found(other, true))),
            Holder::Free
        ));
        assert_ne!(
            call.call.call_id, own,
            "a new try under a lapsed key is a new call"
        );
        let replaces = call.call.key.as_ref().and_then(|key| key.replaces);
        assert_eq!(replaces, Some(other));
    }
}
