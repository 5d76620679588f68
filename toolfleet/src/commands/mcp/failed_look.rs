//! **Why was a server not looked at, and what can the person at the terminal do?** Pure.
//!
//! The error of an envelope is written for an agent: what it advises, such as another idempotency key, is nothing for a person.

use fleet::{
    call::EffectKnown,
    ids::CallId,
    manifest::{Manifest, McpServer, McpTransport},
    mcp::discover_name,
    wire::{code::Code, error::what_happened},
};
use fleet_history::mcp_servers::LookFailure;

use crate::commands::not_looked_at::NotLookedAt;

/// A look that has found nothing.
pub(super) struct FailedLook<'a> {
    pub(super) server: &'a McpServer,
    /// The call; none where it was refused.
    pub(super) call: Option<CallId>,
    /// The state of the call.
    pub(super) state: &'a str,
    /// The code with which it has ended or was refused.
    pub(super) code: Option<Code>,
    /// What its last attempt came to, where one has failed.
    pub(super) attempt: Option<LookFailure>,
}

impl FailedLook<'_> {
    pub(super) fn told(self) -> NotLookedAt {
        let (why, advice) = match (&self.attempt, self.call) {
            (Some(attempt), _) => self.after(attempt),
            (None, Some(call)) => self.without_an_attempt(call),
            (None, None) => self.refused(),
        };
        NotLookedAt {
            server: self.server.name.clone(),
            why,
            advice,
        }
    }

    fn after(&self, attempt: &LookFailure) -> (String, String) {
        let (server, queue) = (&self.server.name, &self.server.queue);
        let code: Option<Code> = attempt.code.parse().ok();
        // Of an attempt that ended the call the history has the message for its caller.
        let happened = code.map(|code| what_happened(code, EffectKnown::None, &attempt.message));
        let mut why = happened.unwrap_or(&attempt.message).to_owned();
        let show = format!("toolfleet mcp show {server}");
        let mut advice = match (code, &self.server.transport) {
            // It says itself what has to be looked at.
            (Some(Code::ToolError), _) => format!("{show} has its manifest"),
            (Some(Code::OutputTooLarge), _) => {
                let most = Manifest::OUTPUT_LIMIT_MAX / (1024 * 1024);
                why = format!("what it says of its tools is larger than the {most} MiB of a look");
                "have the server list less".to_owned()
            }
            (_, McpTransport::Http { .. }) => format!(
                "see whether it answers at its address ({show}) from the machines of the workers of the queue {queue}"
            ),
            (_, McpTransport::Stdio { .. }) => format!(
                "see whether its program ({show}) runs on the machines of the workers of the queue {queue}"
            ),
        };
        if let Some(call) = self.call {
            advice = format!("{advice}; toolfleet calls show {call} has each attempt");
        }
        (why, advice)
    }

    fn without_an_attempt(&self, call: CallId) -> (String, String) {
        let queue = &self.server.queue;
        match self.state {
            "queued" | "expired" => (
                format!("no worker of the queue {queue} has taken the call"),
                format!(
                    "start one with toolfleet worker --queues {queue} if there is none; toolfleet calls explain {call} says what keeps it"
                ),
            ),
            "running" => (
                "a worker still looks".to_owned(),
                format!("toolfleet calls show {call} says what comes of it"),
            ),
            state => {
                let code = self.code.map(|code| format!(" with {code}"));
                (
                    format!("the call is {state}{}", code.unwrap_or_default()),
                    format!("toolfleet calls explain {call} says why"),
                )
            }
        }
    }

    fn refused(&self) -> (String, String) {
        let tool = discover_name(&self.server.queue);
        match self.code {
            Some(Code::UnknownTool) => (
                format!("the dispatchers do not know the tool {tool}, which looks"),
                "ask again in a moment, or apply the server's manifest again: toolfleet tools apply brings it".to_owned(),
            ),
            Some(code @ Code::ToolPaused) => (
                format!("its calls are paused ({code})"),
                "toolfleet control list says by whom and why".to_owned(),
            ),
            Some(code) => (
                format!("the call of {tool} was refused with {code}"),
                format!("docs/errors/{code}.md says what an operator can do"),
            ),
            None => (
                format!("the call of {tool} was refused"),
                "look into the log of the dispatchers".to_owned(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use fleet::manifest::{AnyManifest, parse_any};

    use super::*;

    const CALL: &str = "01936c2e-0000-7000-8000-00000000000c";

    fn server(transport: &str) -> McpServer {
        let text =
            format!("{{kind: mcp_server, name: s, version: 1, queue: eu, transport: {transport}}}");
        match parse_any(&text) {
            Ok(AnyManifest::McpServer(server)) => *server,
            other => panic!("{other:?}"),
        }
    }

    fn told(look: FailedLook<'_>) -> String {
        let told = look.told().to_string();
        for of_agents in ["idempotency key", "Tell the user", "may work later"] {
            assert!(!told.contains(of_agents), "{told}");
        }
        told
    }

    #[test]
    fn a_look_that_failed_says_what_a_person_can_do() {
        let http = server("{http: {url: 'https://x.example.com/mcp'}}");
        let stdio = server("{stdio: {command: [x]}}");
        let failed = |server, code: &str, message: &str| {
            told(FailedLook {
                server,
                call: CALL.parse().ok(),
                state: "failed",
                code: Some(Code::RetriesExhausted),
                attempt: Some(LookFailure {
                    code: code.to_owned(),
                    message: message.to_owned(),
                }),
            })
        };
        let each = format!("; toolfleet calls show {CALL} has each attempt");
        for (said, expected) in [
            (
                failed(&http, "unavailable", "connection refused"),
                "connection refused; see whether it answers at its address (toolfleet mcp show s) from the machines of the workers of the queue eu",
            ),
            (
                failed(&stdio, "timeout", "no answer"),
                "no answer; see whether its program (toolfleet mcp show s) runs on the machines of the workers of the queue eu",
            ),
            (
                failed(
                    &http,
                    "unavailable",
                    "It is away. Nothing was changed. It may work later, with a new idempotency key if there was one: the same one repeats this answer.",
                ),
                "It is away; see whether it answers at its address (toolfleet mcp show s) from the machines of the workers of the queue eu",
            ),
            (
                failed(&http, "tool_error", "look at Authorization"),
                "look at Authorization; toolfleet mcp show s has its manifest",
            ),
            (
                failed(&http, "output_too_large", "x"),
                "what it says of its tools is larger than the 8 MiB of a look; have the server list less",
            ),
        ] {
            assert_eq!(said, format!("s was not looked at: {expected}{each}"));
        }
    }

    #[test]
    fn a_look_that_did_not_begin_says_what_it_waits_for() {
        let server = server("{stdio: {command: [x]}}");
        let without = |call: Option<&str>, state, code| {
            told(FailedLook {
                server: &server,
                call: call.and_then(|call| call.parse().ok()),
                state,
                code,
                attempt: None,
            })
        };
        let queued = without(Some(CALL), "queued", None);
        assert!(queued.contains("no worker of the queue eu") && queued.contains("--queues eu"));
        let expired = without(Some(CALL), "expired", Some(Code::DeadlineExceeded));
        assert_eq!(queued, expired);
        let gone = without(Some(CALL), "failed", Some(Code::ToolGone));
        assert!(gone.contains("failed with tool_gone"), "{gone}");
        let unknown = without(None, "refused", Some(Code::UnknownTool));
        assert!(
            unknown.contains("do not know the tool mcp_discover_eu"),
            "{unknown}"
        );
        let other = without(None, "refused", Some(Code::Overloaded));
        assert!(other.contains("docs/errors/overloaded.md"), "{other}");
    }
}
