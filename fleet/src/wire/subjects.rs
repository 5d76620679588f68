//! Subjects. The part before the first variable token is a promise to permission lists.

use crate::ids::{CallId, DispatcherId, Label, Prefix, QueueName, WorkerId};

/// The subjects of one fleet.
#[derive(Debug, Clone)]
pub struct Subjects {
    prefix: Prefix,
}

/// What of a fleet's subjects is for all tenants.
const ADMIN: &str = ".admin.";
/// In the place of a call's id.
const TOGETHER: &str = "together";

impl Subjects {
    /// In the place of a tenant in a request that is for all of them. No tenant has this name.
    pub const EVERY_TENANT: &'static str = "*";

    /// The subjects under this prefix.
    pub const fn new(prefix: Prefix) -> Self {
        Self { prefix }
    }

    /// The first token of them all.
    pub const fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// Where callers submit: `<prefix>.v1.<tenant>.call.<tool>`. The tail is open so that a bad name gets an answer.
    pub fn call_endpoint(&self) -> String {
        format!("{}.v1.*.call.>", self.prefix)
    }

    /// Where callers submit many calls at once.
    pub fn batch_endpoint(&self) -> String {
        format!("{}.v1.*.batch", self.prefix)
    }

    /// Where one tenant submits many calls at once.
    pub fn batch(&self, tenant: &Label) -> String {
        format!("{}.v1.{tenant}.batch", self.prefix)
    }

    /// Where callers ask for a call.
    pub fn get_endpoint(&self) -> String {
        format!("{}.v1.*.get", self.prefix)
    }

    /// Where one tenant's calls are asked for.
    pub fn get(&self, tenant: &Label) -> String {
        format!("{}.v1.{tenant}.get", self.prefix)
    }

    /// Where callers have arguments looked at: `<prefix>.v1.<tenant>.check.<tool>`. The tail is open so that a bad name gets an answer.
    pub fn check_endpoint(&self) -> String {
        format!("{}.v1.*.check.>", self.prefix)
    }

    /// Where one tenant has arguments of this tool looked at.
    pub fn check(&self, tenant: &Label, tool: &str) -> String {
        format!("{}.v1.{tenant}.check.{tool}", self.prefix)
    }

    /// Where one tenant has arguments looked at, whatever the tool.
    pub fn checks(&self, tenant: &Label) -> String {
        format!("{}.v1.{tenant}.check.>", self.prefix)
    }

    /// Where callers hand in files, and read and delete them.
    pub fn file_endpoint(&self) -> String {
        format!("{}.v1.*.file", self.prefix)
    }

    /// Where one tenant's files are handed in.
    pub fn file(&self, tenant: &Label) -> String {
        format!("{}.v1.{tenant}.file", self.prefix)
    }

    /// Where callers ask for definitions.
    pub fn tools_endpoint(&self) -> String {
        format!("{}.v1.*.tools", self.prefix)
    }

    /// Where one tenant asks for definitions.
    pub fn tools(&self, tenant: &Label) -> String {
        format!("{}.v1.{tenant}.tools", self.prefix)
    }

    /// Where callers cancel calls.
    pub fn cancel_endpoint(&self) -> String {
        format!("{}.v1.*.cancel", self.prefix)
    }

    /// Where callers' programs hand in the answers of calls that they run.
    pub fn output_endpoint(&self) -> String {
        format!("{}.v1.*.output", self.prefix)
    }

    /// Where one tenant's programs hand them in.
    pub fn output(&self, tenant: &Label) -> String {
        format!("{}.v1.{tenant}.output", self.prefix)
    }

    /// Where the programs of callers decide about their calls.
    pub fn approve_endpoint(&self) -> String {
        format!("{}.v1.*.approve", self.prefix)
    }

    /// Where the program of one tenant decides.
    pub fn approve(&self, tenant: &Label) -> String {
        format!("{}.v1.{tenant}.approve", self.prefix)
    }

    /// Where operators decide about calls. Under `admin`, so that an agent's permissions leave it out.
    pub fn admin_approve_endpoint(&self) -> String {
        format!("{}.v1.*.admin.approve", self.prefix)
    }

    /// Where operators decide about one tenant's calls.
    pub fn admin_approve(&self, tenant: &Label) -> String {
        format!("{}.v1.{tenant}.admin.approve", self.prefix)
    }

    /// Where operators have the tool asked that is to be seen before they decide about a call.
    pub fn admin_preview_endpoint(&self) -> String {
        format!("{}.v1.*.admin.preview", self.prefix)
    }

    /// Where operators have it asked about one tenant's calls.
    pub fn admin_preview(&self, tenant: &Label) -> String {
        format!("{}.v1.{tenant}.admin.preview", self.prefix)
    }

    /// Where people settle calls in doubt. Under `admin`, so that an agent's permissions leave it out.
    pub fn settle_endpoint(&self) -> String {
        format!("{}.v1.*.admin.settle", self.prefix)
    }

    /// Where operators change what may run of a tenant.
    pub fn control_endpoint(&self) -> String {
        format!("{}.v1.*.admin.control", self.prefix)
    }

    /// Where operators change what may run of one tenant.
    pub fn control(&self, tenant: &Label) -> String {
        format!("{}.v1.{tenant}.admin.control", self.prefix)
    }

    /// Where operators change what may run, of all tenants. No tenant's subject: whoever may publish there reaches everybody.
    pub fn control_of_all(&self) -> String {
        format!("{}.admin.control", self.prefix)
    }

    /// Where one tenant's calls are cancelled.
    pub fn cancel(&self, tenant: &Label) -> String {
        format!("{}.v1.{tenant}.cancel", self.prefix)
    }

    /// Where one tenant's calls are settled.
    pub fn settle(&self, tenant: &Label) -> String {
        format!("{}.v1.{tenant}.admin.settle", self.prefix)
    }

    /// One submission's subject.
    pub fn call(&self, tenant: &Label, tool: &str) -> String {
        format!("{}.v1.{tenant}.call.{tool}", self.prefix)
    }

    /// Where one tenant submits, whatever the tool.
    pub fn calls(&self, tenant: &Label) -> String {
        format!("{}.v1.{tenant}.call.>", self.prefix)
    }

    /// The tenant that a request's subject names, and the object of its verb: the tool of a submission or a check, empty for others.
    ///
    /// Both as the subject has them. `None`: no request comes on such a subject.
    pub fn request<'a>(&self, subject: &'a str) -> Option<(&'a str, &'a str)> {
        let rest = subject.strip_prefix(self.prefix.as_str())?;
        if rest.starts_with(ADMIN) {
            return Some((Self::EVERY_TENANT, ""));
        }
        let rest = rest.strip_prefix(".v1.")?;
        let (tenant, verb) = rest.split_once('.')?;
        let tool = verb
            .strip_prefix("call.")
            .or_else(|| verb.strip_prefix("check."));
        Some((tenant, tool.unwrap_or_default()))
    }

    /// A pointer's subject. `n` changes only with a new attempt or a repair, so the stream refuses a second publication.
    pub fn job(&self, queue: &QueueName, call: CallId, n: i32) -> String {
        format!("{}.jobs.{queue}.{call}.{n}", self.prefix)
    }

    /// Every pointer of one queue.
    pub fn jobs_of_queue(&self, queue: &QueueName) -> String {
        format!("{}.jobs.{queue}.>", self.prefix)
    }

    /// The pointers of any one queue, as its consumer filters them.
    pub fn jobs_of_every_queue(&self) -> String {
        format!("{}.jobs.*.>", self.prefix)
    }

    /// Every pointer.
    pub fn jobs(&self) -> String {
        format!("{}.jobs.>", self.prefix)
    }

    /// The stream of pointers.
    pub fn jobs_stream(&self) -> String {
        self.stream("JOBS")
    }

    /// Where the events of one call are published: `<prefix>.v1.<tenant>.event.<session>.<call_id>`.
    pub fn event(&self, tenant: &Label, session: &Label, call: CallId) -> String {
        format!("{}.v1.{tenant}.event.{session}.{call}", self.prefix)
    }

    /// Where the events of every call of a session are published.
    pub fn events_of_session(&self, tenant: &Label, session: &Label) -> String {
        format!("{}.v1.{tenant}.event.{session}.*", self.prefix)
    }

    /// Where the header of a turn is published, beside the events of its calls: `turn` in the place of a call.
    pub fn turn(&self, tenant: &Label, session: &Label) -> String {
        format!("{}.v1.{tenant}.event.{session}.turn", self.prefix)
    }

    /// Where the headers of all turns are published.
    pub fn every_turn(&self) -> String {
        format!("{}.v1.*.event.*.turn", self.prefix)
    }

    /// The events of every session of one tenant.
    pub fn events_of_tenant(&self, tenant: &Label) -> String {
        format!("{}.v1.{tenant}.event.>", self.prefix)
    }

    /// Every event of every call.
    pub fn events(&self) -> String {
        format!("{}.v1.*.event.*.*", self.prefix)
    }

    /// The stream that keeps events for a while.
    pub fn events_stream(&self) -> String {
        self.stream("EVENTS")
    }

    fn stream(&self, name: &str) -> String {
        let prefix = self.prefix.as_str().to_ascii_uppercase();
        format!("{}_{name}", prefix.replace('-', "_"))
    }

    /// The ledger's watermark, for processes that start later.
    pub fn watermark(&self) -> String {
        format!("{}.ground", self.prefix)
    }

    /// The stream that keeps it.
    pub fn watermark_stream(&self) -> String {
        self.stream("GROUND")
    }

    /// The consumer of one queue.
    pub fn jobs_consumer(queue: &QueueName) -> String {
        format!("q_{queue}")
    }

    /// Where a worker tells a dispatcher that a call is decided.
    pub fn done(&self, dispatcher: DispatcherId, call: CallId) -> String {
        format!("{}.done.{dispatcher}.{call}", self.prefix)
    }

    /// The same for several calls at once.
    pub fn done_together(&self, dispatcher: DispatcherId) -> String {
        format!("{}.done.{dispatcher}.{TOGETHER}", self.prefix)
    }

    /// Where a dispatcher passes on an envelope for which it has no waiters: another may have some.
    pub fn done_elsewhere(&self, call: CallId) -> String {
        format!("{}.done.elsewhere.{call}", self.prefix)
    }

    /// Whether a message on this subject is about several calls.
    pub fn is_together(subject: &str) -> bool {
        subject.ends_with(TOGETHER)
    }

    /// Every message to one dispatcher.
    pub fn done_of_dispatcher(&self, dispatcher: DispatcherId) -> String {
        format!("{}.done.{dispatcher}.*", self.prefix)
    }

    /// Every message about one call, to any dispatcher.
    pub fn done_of_call(&self, call: CallId) -> String {
        format!("{}.done.*.{call}", self.prefix)
    }

    /// Every message about every call, to any dispatcher.
    pub fn every_done(&self) -> String {
        format!("{}.done.*.*", self.prefix)
    }

    /// The call that a done subject is about.
    pub fn call_of_done(subject: &str) -> Option<CallId> {
        subject.rsplit('.').next()?.parse().ok()
    }

    /// Where dispatchers of every fleet identify themselves, as NATS services do.
    pub const fn info_of_dispatchers() -> &'static str {
        "$SRV.INFO.toolfleet"
    }

    /// The bell of one worker: a call that it runs was cancelled. The message is the call's id.
    pub fn cancel_of_worker(&self, worker: WorkerId) -> String {
        format!("{}.cancel.{worker}", self.prefix)
    }

    /// The bells of all workers.
    pub fn every_cancel(&self) -> String {
        format!("{}.cancel.*", self.prefix)
    }

    /// Where the services of tools hear that answers are no longer needed.
    pub fn every_tool_cancel(&self) -> String {
        format!("{}.tool.cancel.*", self.prefix)
    }

    /// Where a worker tells a tool's service that the answer for this call is no longer needed.
    pub fn tool_cancel(&self, call: CallId) -> String {
        format!("{}.tool.cancel.{call}", self.prefix)
    }

    /// Where the services of tools tell what they do while they are at work.
    pub fn every_tool_event(&self) -> String {
        format!("{}.tool.event.*", self.prefix)
    }

    /// Where a tool's service tells the worker what it does for this call.
    pub fn tool_event(&self, call: CallId) -> String {
        format!("{}.tool.event.{call}", self.prefix)
    }

    /// The bell: tools or controls changed, read them again.
    pub fn control_changed(&self) -> String {
        format!("{}.control.changed", self.prefix)
    }

    /// The bell: an attempt of a tool with a limit has ended, so its line may have room.
    pub fn room(&self) -> String {
        format!("{}.control.room", self.prefix)
    }

    /// Where dispatchers tell each other which calls fail again and again.
    pub fn repeats(&self) -> String {
        format!("{}.control.repeats", self.prefix)
    }

    /// No subscriber listens here: the dispatcher's `service` publishes answers that must only be counted.
    pub fn counted(&self) -> String {
        format!("{}.control.counted", self.prefix)
    }

    /// Whether the fleet itself publishes there: no subject that a caller or a manifest names may be one of these.
    pub fn is_own(&self, subject: &str) -> bool {
        subject
            .strip_prefix(self.prefix.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    /// Whether the subjects of this pattern may be those of tools: its first token is a word of its own, and not the fleet's, the
    /// server's, or one of inboxes.
    pub fn may_be_a_tools(&self, pattern: &str) -> bool {
        let first = pattern.split('.').next().unwrap_or_default();
        let others = first.starts_with(['$', '_']) || matches!(first, "*" | ">");
        !others && first != self.prefix.as_str()
    }

    /// Whether a tool may have this subject: a single one, and not the fleet's, the server's or an inbox.
    pub fn is_for_tools(&self, subject: &str) -> bool {
        !is_of_server_or_inbox(subject) && !self.is_own(subject) && is_literal(subject)
    }
}

/// Whether the server has this subject, or it is an inbox. Those of the shipped configuration begin with `_INBOX`, and what the
/// server makes of replies between accounts with `_R_`.
pub fn is_of_server_or_inbox(subject: &str) -> bool {
    let first = subject.split('.').next().unwrap_or_default();
    first.starts_with('$') || first.starts_with("_INBOX") || first == "_R_"
}

/// Whether it is one subject: tokens of printable ASCII, none of them empty or a wildcard.
pub fn is_literal(subject: &str) -> bool {
    let token = |token: &str| {
        let printable = token.bytes().all(|byte| byte.is_ascii_graphic());
        printable && !token.is_empty() && token != "*" && token != ">"
    };
    subject.split('.').all(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subjects() -> Subjects {
        Subjects::new("toolfleet".parse().unwrap())
    }

    #[test]
    fn a_request_names_its_tenant_and_a_submission_its_tool_as_they_stand_there() {
        for (subject, named) in [
            (
                "toolfleet.v1.acme.call.get_weather",
                Some(("acme", "get_weather")),
            ),
            (
                "toolfleet.v1.a b.call.Get.Weather",
                Some(("a b", "Get.Weather")),
            ),
            ("toolfleet.v1.acme.check.look", Some(("acme", "look"))),
            ("toolfleet.v1.acme.batch", Some(("acme", ""))),
            ("toolfleet.v1.acme.admin.settle", Some(("acme", ""))),
            ("toolfleet.v1.acme.admin.control", Some(("acme", ""))),
            ("toolfleet.admin.control", Some(("*", ""))),
            ("toolfleet.v1.acme", None),
            ("toolfleet2.v1.acme.get", None),
        ] {
            assert_eq!(subjects().request(subject), named, "{subject}");
        }
    }

    #[test]
    fn a_tool_is_asked_at_one_subject_of_its_own() {
        for refused in [
            "toolfleet.v1.acme.admin.settle",
            "toolfleet",
            "$JS.API.STREAM.DELETE.TOOLFLEET_JOBS",
            "_INBOX.abc.1",
            "_INBOX_operator.abc.1",
            "_R_.abc.1",
            "tools.*",
            "tools.>",
            "tools..translate",
            "",
            "tools.a b",
            "tools.a\r\nPUB toolfleet.control.changed 0",
        ] {
            assert!(!subjects().is_for_tools(refused), "{refused:?}");
        }
        assert!(subjects().is_for_tools("tools.translate"));
        assert!(subjects().is_for_tools("toolfleet2.translate"));
    }
}
