//! How long a tool may take that says that it answers later, and how it says so.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{duration, executor::ExecutorSpec, problem::Problems};

/// What a tool says instead of an answer, and how long its answer is waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletionSpec {
    /// HTTP statuses that say that the answer comes later. A nats service says so in a header, a native tool in its error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statuses: Vec<u16>,
    /// How long its answer is waited for, from when it said so; at most the deadline.
    #[serde(with = "duration")]
    pub wait: Duration,
}

impl CompletionSpec {
    const WAIT_MIN: Duration = Duration::from_secs(1);

    /// `others`: fields that are written beside it.
    pub(super) fn check(
        &self,
        executor: &ExecutorSpec,
        deadline: Duration,
        others: &[(&str, bool)],
        problems: &mut Problems,
    ) {
        let is_http = match executor {
            ExecutorSpec::Http(_) => true,
            ExecutorSpec::Nats(_) | ExecutorSpec::Native(_) | ExecutorSpec::Own(_) => false,
            ExecutorSpec::Process(_)
            | ExecutorSpec::Sql(_)
            | ExecutorSpec::Mcp(_)
            | ExecutorSpec::Chat(_)
            | ExecutorSpec::Client(_) => {
                let kind = executor.kind();
                problems.add(
                    "/completion",
                    format!("a {kind} tool answers when it ends and cannot answer later; leave completion out"),
                );
                return;
            }
        };
        match (is_http, self.statuses.as_slice()) {
            (true, []) => problems.add(
                "/completion/statuses",
                "say with which status the tool says that it answers later, such as [202]",
            ),
            (true, statuses) if statuses.iter().any(|status| !(200..300).contains(status)) => {
                problems.add(
                    "/completion/statuses",
                    "a tool that answers later has taken the call, so its status is one of success; write statuses from 200 to 299",
                );
            }
            (false, [_, ..]) => problems.add(
                "/completion/statuses",
                "only an http tool has statuses; leave them out",
            ),
            (_, _) => {}
        }
        if !(Self::WAIT_MIN..=deadline).contains(&self.wait) {
            problems.add(
                "/completion/wait",
                "the wait is part of the call's time; write 1s to the deadline, and raise the deadline where the tool takes longer",
            );
        }
        for (field, is_written) in others {
            if *is_written {
                problems.add(
                    format!("/{field}"),
                    format!("{field} is about answers that come at once, and completion about those that come later; leave one of them out"),
                );
            }
        }
    }
}
