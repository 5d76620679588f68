//! The endpoints of the door: a row for each verb with its handler. A new verb is a row here and a file of its own.

use std::pin::Pin;

use fleet::wire::subjects::Subjects;

use crate::{
    accept, answer::Answer, approve, batch, cancel, control, door::Door, examine, files, get,
    listing, output, preview, rates::Sender, refusal::Refusal, request::Request, settle,
    slots::RequestPermit,
};

/// A verb of the door, and its subject.
pub(crate) struct Endpoint {
    /// Its name in `$SRV.INFO` and `$SRV.STATS`.
    pub(crate) name: &'static str,
    /// Its subject, for all tenants.
    pub(crate) subject: fn(&Subjects) -> String,
    /// How many more of its requests are taken after one has come, before the other endpoints are looked at again.
    pub(crate) more_at_once: usize,
    /// Operators send it, too, in the name of any tenant.
    of_operators: bool,
    handler: Handler,
}

/// The handler of a request, and how many request slots it takes.
enum Handler {
    /// One slot. The path of every call: it runs in the caller's own future.
    Call,
    /// One slot.
    One(for<'a> fn(&'a Door, &'a Request<'a>) -> Answering<'a>),
    /// One slot, and more for what the handler finds in the body.
    Many(for<'a> fn(&'a Door, &'a Request<'a>, &'a mut RequestPermit) -> Answering<'a>),
}

/// Boxed: these verbs are rarer than calls, and without a box the future of every call would be as large as theirs.
type Answering<'a> = Pin<Box<dyn Future<Output = Result<Answer, Refusal>> + Send + 'a>>;

/// All of them.
pub(crate) static ENDPOINTS: [Endpoint; 14] = [
    Endpoint {
        name: "call",
        subject: Subjects::call_endpoint,
        // Requests that arrive together are taken together: a look at all endpoints costs as much as taking several calls.
        more_at_once: 64,
        of_operators: false,
        handler: Handler::Call,
    },
    Endpoint {
        name: "batch",
        subject: Subjects::batch_endpoint,
        more_at_once: 0,
        of_operators: false,
        handler: Handler::Many(|door, request, permit| {
            Box::pin(batch::batch(door, request, permit))
        }),
    },
    Endpoint {
        name: "get",
        subject: Subjects::get_endpoint,
        more_at_once: 0,
        of_operators: true,
        handler: Handler::One(|door, request| Box::pin(get::get(door, request))),
    },
    Endpoint {
        name: "check",
        subject: Subjects::check_endpoint,
        more_at_once: 0,
        of_operators: true,
        handler: Handler::One(|door, request| Box::pin(examine::examine(door, request))),
    },
    Endpoint {
        name: "file",
        subject: Subjects::file_endpoint,
        more_at_once: 0,
        of_operators: true,
        handler: Handler::One(|door, request| Box::pin(files::file(door, request))),
    },
    Endpoint {
        name: "tools",
        subject: Subjects::tools_endpoint,
        more_at_once: 0,
        of_operators: false,
        handler: Handler::One(|door, request| Box::pin(async { listing::tools(door, request) })),
    },
    Endpoint {
        name: "cancel",
        subject: Subjects::cancel_endpoint,
        more_at_once: 0,
        of_operators: true,
        handler: Handler::One(|door, request| Box::pin(cancel::cancel(door, request))),
    },
    Endpoint {
        name: "output",
        subject: Subjects::output_endpoint,
        more_at_once: 0,
        of_operators: true,
        handler: Handler::One(|door, request| Box::pin(output::output(door, request))),
    },
    Endpoint {
        name: "approve",
        subject: Subjects::approve_endpoint,
        more_at_once: 0,
        of_operators: false,
        handler: Handler::One(|door, request| Box::pin(approve::by_caller(door, request))),
    },
    Endpoint {
        name: "admin-approve",
        subject: Subjects::admin_approve_endpoint,
        more_at_once: 0,
        of_operators: true,
        handler: Handler::One(|door, request| Box::pin(approve::by_operator(door, request))),
    },
    Endpoint {
        name: "admin-preview",
        subject: Subjects::admin_preview_endpoint,
        more_at_once: 0,
        of_operators: true,
        handler: Handler::One(|door, request| Box::pin(preview::preview(door, request))),
    },
    Endpoint {
        name: "admin-settle",
        subject: Subjects::settle_endpoint,
        more_at_once: 0,
        of_operators: true,
        handler: Handler::One(|door, request| Box::pin(settle::settle(door, request))),
    },
    Endpoint {
        name: "admin-control",
        subject: Subjects::control_endpoint,
        more_at_once: 0,
        of_operators: true,
        handler: Handler::One(|door, request| Box::pin(control::of_tenant(door, request))),
    },
    Endpoint {
        name: "admin-control-all",
        subject: Subjects::control_of_all,
        more_at_once: 0,
        of_operators: true,
        handler: Handler::One(|door, request| Box::pin(control::of_all(door, request))),
    },
];

/// How the inboxes of operators begin, as `toolfleet nats-config` has it.
const OPERATORS: &str = "_INBOX_operator.";

impl Endpoint {
    /// Who sends a request that is to be answered there.
    pub(crate) fn sender(&self, reply: &str) -> Sender {
        if self.of_operators && reply.starts_with(OPERATORS) {
            Sender::Operator
        } else {
            Sender::Tenant
        }
    }

    /// Answers a request. Everything that is wrong with it is an answer too.
    pub(crate) async fn answer(
        &self,
        door: &Door,
        request: &Request<'_>,
        permit: &mut RequestPermit,
    ) -> Answer {
        let answered = match self.handler {
            Handler::Call => accept::accept(door, request).await,
            Handler::One(handler) => handler(door, request).await,
            Handler::Many(handler) => handler(door, request, permit).await,
        };
        answered.unwrap_or_else(|refusal| refused(door, request, &refusal))
    }
}

/// Counts a refusal and words it for its caller: the one place where refusals of whole requests become answers.
pub(crate) fn refused(door: &Door, request: &Request<'_>, refusal: &Refusal) -> Answer {
    refusal.count(&door.registry, request.name);
    Answer::refusal(&door.registry, request, refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operator_asks_is_not_the_tenants() {
        let operators = |reply: &str| {
            let of = |endpoint: &&Endpoint| endpoint.sender(reply) == Sender::Operator;
            let names = ENDPOINTS.iter().filter(of).map(|endpoint| endpoint.name);
            names.collect::<Vec<_>>()
        };
        assert_eq!(
            operators("_INBOX_operator.a.b"),
            [
                "get",
                "check",
                "file",
                "cancel",
                "output",
                "admin-approve",
                "admin-preview",
                "admin-settle",
                "admin-control",
                "admin-control-all"
            ]
        );
        assert_eq!(operators("_INBOX.acme.a.b"), [""; 0]);
        assert_eq!(operators("_INBOX_operators.a"), [""; 0]);
    }
}
