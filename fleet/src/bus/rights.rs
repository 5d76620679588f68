//! What each role needs on NATS: where it publishes and what it subscribes to, and nothing else.
//!
//! `toolfleet nats-config` writes these lists into the configuration of nats-server, and a process compares them with what the
//! server says that it may do ([`super::excess`]). `tests/tests/nats_users/matrix.txt` has every subject and every user, and a
//! test tries each cell.
//!
//! No role but the dispatcher and the operator may create or change anything in JetStream, but that a gateway makes consumers of
//! the stream of events, of one session each, which the server takes away again. The server itself publishes what a consumer
//! delivers and what its API answers, to any subject that the request names, and asks for no permission there: so a right in
//! `$JS.API` is a right to make the server speak, and an agent has none. A gateway speaks in the name of every tenant anyway. A
//! worker keeps two such rights, to pull its queue and to read the watermark: it could direct a pointer or that watermark to a
//! subject that it may not publish to. What gets such a message finds no call in it that Postgres does not confirm.

use crate::{
    ids::{Label, QueueName},
    wire::subjects::Subjects,
};

/// Who connects, and for whom.
#[derive(Debug, Clone, Copy)]
pub enum NatsRole<'a> {
    /// Every dispatcher. `None`: the tenants that it answers are not known here.
    Dispatcher {
        /// The tenants that are users of its account. Those of other accounts are answered under `_R_`.
        tenants: Option<&'a [Label]>,
    },
    /// The workers of these queues.
    Worker {
        /// The queues.
        queues: &'a [QueueName],
        /// The subjects of tools that are NATS services; patterns, where a program knows no more.
        services: &'a [String],
    },
    /// A person with the commands of this program.
    Operator,
    /// Every gateway: asks in the name of all tenants, as the tokens of its callers allow.
    Gateway,
    /// A program that serves tools over NATS.
    Service {
        /// The subjects of these tools.
        subjects: &'a [String],
    },
    /// The callers of a tenant.
    Agent {
        /// The tenant.
        tenant: &'a Label,
    },
}

/// The subjects, with wildcards, that a user may publish to and subscribe to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rights {
    /// Where it publishes.
    pub publish: Vec<String>,
    /// What it subscribes to.
    pub subscribe: Vec<String>,
    /// Whether it may answer each request once, wherever the request says.
    pub answers: bool,
}

impl Rights {
    /// Whether they are those of a worker, which also asks services at subjects that their manifests name.
    pub(super) fn is_of_worker(&self) -> bool {
        self.publish
            .iter()
            .any(|subject| subject.contains(".CONSUMER.MSG.NEXT."))
    }
}

/// Where services are answered that hand in what they answer later.
const SERVICE_INBOX: &str = "_INBOX_service";
/// Where the callers of other accounts are answered: the server's own names for their inboxes.
const IMPORTED: &str = "_R_.>";
/// Where the server says what a user may do.
pub const USER_INFO: &str = "$SYS.REQ.USER.INFO";

impl NatsRole<'_> {
    /// What its inboxes begin with, as `nats-config` tells its programs. That of a service is named by its subjects.
    pub fn inbox(&self) -> String {
        match self {
            Self::Dispatcher { .. } => "_INBOX_dispatcher".to_owned(),
            Self::Worker { queues, .. } => {
                let queues: Vec<&str> = queues.iter().map(QueueName::as_str).collect();
                format!("_INBOX_worker.{}", queues.join("+"))
            }
            Self::Operator => "_INBOX_operator".to_owned(),
            Self::Gateway => "_INBOX_gateway".to_owned(),
            Self::Service { subjects } => {
                let named: Vec<String> = subjects.iter().map(|one| one.replace('.', "-")).collect();
                format!("{SERVICE_INBOX}.{}", named.join("+"))
            }
            Self::Agent { tenant } => format!("_INBOX.{tenant}"),
        }
    }

    /// What it needs, with inboxes that begin like this.
    pub fn needs(&self, subjects: &Subjects, inbox: &str) -> Rights {
        let mut rights = match *self {
            Self::Dispatcher { tenants } => dispatcher(subjects, tenants),
            Self::Worker { queues, services } => worker(subjects, queues, services),
            Self::Operator => operator(subjects),
            Self::Gateway => gateway(subjects),
            Self::Service { subjects: served } => {
                let others = [subjects.every_tool_cancel(), "$SRV.>".to_owned()];
                Rights {
                    // What it answers later, with the token that it was given; and what it tells meanwhile.
                    publish: vec![subjects.output_endpoint(), subjects.every_tool_event()],
                    subscribe: [served, &others].concat(),
                    answers: true,
                }
            }
            Self::Agent { tenant } => Rights {
                publish: vec![
                    subjects.calls(tenant),
                    subjects.batch(tenant),
                    subjects.get(tenant),
                    subjects.checks(tenant),
                    subjects.file(tenant),
                    subjects.cancel(tenant),
                    subjects.output(tenant),
                    subjects.approve(tenant),
                    subjects.tools(tenant),
                ],
                subscribe: vec![subjects.events_of_tenant(tenant)],
                answers: false,
            },
        };
        let own = format!("{inbox}.>");
        // A process asks itself, to learn that the server has received what it sent before.
        if !matches!(self, Self::Agent { .. } | Self::Service { .. }) {
            rights.publish.push(own.clone());
            rights.publish.push(USER_INFO.to_owned());
        }
        rights.subscribe.push(own);
        rights
    }
}

/// It makes the streams and consumers that are missing. What it deletes is what no worker would ever get: orphaned messages, and
/// a consumer that is ahead of its stream.
fn dispatcher(subjects: &Subjects, tenants: Option<&[Label]>) -> Rights {
    let jobs = subjects.jobs_stream();
    let streams = [
        &jobs,
        &subjects.watermark_stream(),
        &subjects.events_stream(),
    ];
    let mut publish = vec![
        subjects.jobs(),
        subjects.every_done(),
        subjects.every_cancel(),
        subjects.events(),
        subjects.watermark(),
        // Controls that are over, and those that an operator changes over NATS.
        subjects.control_changed(),
        // A call that got its yes is in a line.
        subjects.room(),
        subjects.repeats(),
        subjects.counted(),
    ];
    for stream in streams {
        publish.push(api("STREAM.INFO", stream));
        publish.push(api("STREAM.CREATE", stream));
    }
    publish.extend([
        // One of an earlier release keeps fewer events of a call.
        api("STREAM.UPDATE", &subjects.events_stream()),
        api("STREAM.MSG.GET", &subjects.watermark_stream()),
        api("STREAM.MSG.GET", &jobs),
        api("STREAM.PURGE", &jobs),
        api("CONSUMER.INFO", &format!("{jobs}.*")),
        api("CONSUMER.DELETE", &format!("{jobs}.*")),
        api("CONSUMER.CREATE", &consumers(subjects)),
    ]);
    match tenants {
        Some(tenants) => publish.extend(tenants.iter().map(|tenant| format!("_INBOX.{tenant}.>"))),
        None => publish.push("_INBOX.>".to_owned()),
    }
    publish.extend(
        [
            "_INBOX_operator.>",
            "_INBOX_service.>",
            "_INBOX_gateway.>",
            IMPORTED,
        ]
        .map(str::to_owned),
    );
    let subscribe = vec![
        subjects.call_endpoint(),
        subjects.batch_endpoint(),
        subjects.get_endpoint(),
        subjects.check_endpoint(),
        subjects.file_endpoint(),
        subjects.tools_endpoint(),
        subjects.cancel_endpoint(),
        subjects.output_endpoint(),
        subjects.approve_endpoint(),
        subjects.admin_approve_endpoint(),
        subjects.admin_preview_endpoint(),
        subjects.settle_endpoint(),
        subjects.control_endpoint(),
        subjects.control_of_all(),
        subjects.every_done(),
        subjects.control_changed(),
        subjects.room(),
        subjects.repeats(),
        // As every NATS service shows itself.
        "$SRV.*".to_owned(),
        "$SRV.*.toolfleet".to_owned(),
        "$SRV.*.toolfleet.*".to_owned(),
    ];
    Rights {
        publish,
        subscribe,
        answers: false,
    }
}

/// It pulls its queues, tells dispatchers what came of calls, and asks services.
fn worker(subjects: &Subjects, queues: &[QueueName], services: &[String]) -> Rights {
    let jobs = subjects.jobs_stream();
    let mut publish = vec![
        subjects.every_done(),
        subjects.events(),
        subjects.room(),
        // A program with tools of its own applies them.
        subjects.control_changed(),
        subjects.every_tool_cancel(),
        subjects.watermark(),
        api("STREAM.INFO", &subjects.watermark_stream()),
        api("STREAM.MSG.GET", &subjects.watermark_stream()),
    ];
    for queue in queues {
        let consumer = Subjects::jobs_consumer(queue);
        publish.push(api("CONSUMER.MSG.NEXT", &format!("{jobs}.{consumer}")));
        publish.push(format!("$JS.ACK.{jobs}.{consumer}.>"));
    }
    publish.extend_from_slice(services);
    Rights {
        publish,
        subscribe: vec![
            subjects.every_cancel(),
            subjects.control_changed(),
            subjects.every_tool_event(),
        ],
        answers: false,
    }
}

/// Every tenant, the bell of `tools apply`, and what `doctor` looks at, makes anew and takes over.
fn operator(subjects: &Subjects) -> Rights {
    let jobs = subjects.jobs_stream();
    let ground = subjects.watermark_stream();
    Rights {
        publish: vec![
            subjects.call_endpoint(),
            subjects.batch_endpoint(),
            subjects.get_endpoint(),
            subjects.check_endpoint(),
            subjects.file_endpoint(),
            subjects.tools_endpoint(),
            subjects.cancel_endpoint(),
            subjects.output_endpoint(),
            subjects.admin_approve_endpoint(),
            subjects.admin_preview_endpoint(),
            subjects.settle_endpoint(),
            subjects.control_endpoint(),
            subjects.control_of_all(),
            subjects.control_changed(),
            subjects.watermark(),
            subjects.jobs(),
            "$SRV.>".to_owned(),
            "$JS.API.INFO".to_owned(),
            api("STREAM.INFO", &jobs),
            api("STREAM.INFO", &ground),
            api("STREAM.INFO", &subjects.events_stream()),
            api("STREAM.CREATE", &jobs),
            api("STREAM.CREATE", &ground),
            api("STREAM.DELETE", &jobs),
            api("STREAM.DELETE", &subjects.events_stream()),
            api("STREAM.PURGE", &ground),
            api("STREAM.MSG.GET", &jobs),
            api("STREAM.MSG.GET", &ground),
            api("CONSUMER.INFO", &format!("{jobs}.*")),
            api("CONSUMER.CREATE", &consumers(subjects)),
            api("CONSUMER.PAUSE", &format!("{jobs}.*")),
        ],
        subscribe: vec![subjects.events()],
        answers: false,
    }
}

/// Every tenant. It asks dispatchers, reads the events of sessions from their stream, and says there which calls a turn has.
fn gateway(subjects: &Subjects) -> Rights {
    let events = subjects.events_stream();
    Rights {
        publish: vec![
            subjects.call_endpoint(),
            subjects.batch_endpoint(),
            subjects.get_endpoint(),
            subjects.check_endpoint(),
            subjects.file_endpoint(),
            subjects.tools_endpoint(),
            subjects.cancel_endpoint(),
            subjects.output_endpoint(),
            subjects.approve_endpoint(),
            subjects.admin_approve_endpoint(),
            subjects.settle_endpoint(),
            subjects.control_endpoint(),
            subjects.control_of_all(),
            subjects.every_turn(),
            api("STREAM.INFO", &events),
            api("STREAM.MSG.GET", &events),
            api(
                "CONSUMER.CREATE",
                &format!("{events}.*.{}", subjects.events()),
            ),
            api("CONSUMER.DELETE", &format!("{events}.*")),
            // The answer to a consumer that waits until there is room.
            format!("$JS.FC.{events}.*.*"),
        ],
        subscribe: vec![subjects.control_changed()],
        answers: false,
    }
}

/// The consumers of queues, each with the filter of its queue.
fn consumers(subjects: &Subjects) -> String {
    format!(
        "{}.*.{}",
        subjects.jobs_stream(),
        subjects.jobs_of_every_queue()
    )
}

fn api(verb: &str, of: &str) -> String {
    format!("$JS.API.{verb}.{of}")
}
