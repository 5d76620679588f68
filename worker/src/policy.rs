//! Policies at the gate: what a caller is told of the rule that its call breaks. Which one that is the ledger says, by what it
//! knows of the run and the session; that a policy is mandatory is why no mode is asked.

use fleet::{
    ids::{CallId, ToolName},
    manifest::{AtMostPer, Manifest},
    outcome::ToolFailure,
    said,
    store::policies::{self, BrokenRule},
    telemetry::{metrics, report},
    wire::{code::Code, message::Message},
};
use serde_json::json;

use crate::{dispose::Skip, worker::WorkerProcess};

/// Whether the tool has a policy, or had one when the call was accepted. Of which version the rules are that hold, the ledger says.
pub(crate) fn is_there(manifest: &Manifest, newest: Option<&Manifest>) -> bool {
    manifest.policy.is_some() || newest.is_some_and(|newest| newest.policy.is_some())
}

/// Why this call of the tool must not run; `None`: it breaks no rule.
pub(crate) async fn refusal(
    worker: &WorkerProcess,
    call: CallId,
    tool: &ToolName,
) -> Result<Option<ToolFailure>, Skip> {
    match policies::broken(&worker.pool, call).await {
        Ok(Some(rule)) => {
            metrics().intercepted("policy", "refuse");
            Ok(Some(told(&rule, tool)))
        }
        Ok(None) => Ok(None),
        Err(error) => {
            tracing::debug!(error = report(&error), "the policy was not asked");
            Err(Skip::StoreSilent)
        }
    }
}

/// As the caller and the history are told.
fn told(rule: &BrokenRule, tool: &ToolName) -> ToolFailure {
    let (what, details) = match rule {
        BrokenRule::AtMost { calls, per } => {
            let (scope, times) = (scope(*per), times(*calls));
            let what = said!(
                "{tool} may be called at most {times} in a {scope}, and it has been, or may have been",
                "在同一个{scope}中，工具 {tool} 最多只能调用 {times}，现在已经达到或可能已经达到这个次数",
                scope,
                times
            );
            (what, json!({"rule": "at_most", "calls": calls, "per": per}))
        }
        BrokenRule::After { tool: first, per } => {
            let scope = scope(*per);
            let what = said!(
                "{tool} may be called only after {first} has succeeded in the same {scope}, and it has not",
                "只有在同一个{scope}中工具 {first} 成功之后才能调用 {tool}，而它还没有成功",
                scope
            );
            (what, json!({"rule": "after", "tool": first, "per": per}))
        }
        BrokenRule::NeverAfter { tool: before } => {
            let what = said!(
                "{tool} may not be called any more once {before} has been called in the same run or session, and it has been, or may have been",
                "在同一个 run 或 session 中，一旦调用过工具 {before} 就不能再调用 {tool}，而它已经或可能已经被调用",
            );
            (what, json!({"rule": "never_after", "tool": before}))
        }
        BrokenRule::Unlabelled(per) => {
            let (scope, header) = (scope(*per), header(*per));
            let what = said!(
                "calls of {tool} are counted by {scope}, and this one does not say of which it is; send the header {header}",
                "工具 {tool} 的调用按{scope}计数，而这次调用没有说明属于哪一个；请发送请求头 {header}",
                scope
            );
            (what, json!({"rule": "at_most", "per": per}))
        }
        BrokenRule::WithoutLabels => {
            let what = said!(
                "whether {tool} may be called depends on its run or session, and this call does not say of which it is; \
                 send the header Toolfleet-Run or Toolfleet-Session",
                "能否调用工具 {tool} 取决于它所属的 run 或 session，而这次调用没有说明；请发送请求头 Toolfleet-Run 或 Toolfleet-Session",
            );
            (what, json!({"rule": "label"}))
        }
    };
    let failure = ToolFailure::new(Code::Forbidden, what).with_details(details);
    match rule {
        BrokenRule::After { .. } => failure.early(),
        BrokenRule::AtMost { .. }
        | BrokenRule::NeverAfter { .. }
        | BrokenRule::Unlabelled(_)
        | BrokenRule::WithoutLabels => failure,
    }
}

const fn scope(per: AtMostPer) -> Message {
    match per {
        AtMostPer::Run => Message::fixed("run", " run "),
        AtMostPer::Session => Message::fixed("session", " session "),
    }
}

fn times(calls: u64) -> Message {
    if calls == 1 {
        Message::fixed("once", "1 次")
    } else {
        said!("{calls} times", "{calls} 次")
    }
}

const fn header(per: AtMostPer) -> &'static str {
    match per {
        AtMostPer::Run => "Toolfleet-Run",
        AtMostPer::Session => "Toolfleet-Session",
    }
}

#[cfg(test)]
mod tests {
    use fleet::call::Language;

    use super::*;

    #[test]
    fn a_refusal_names_the_rule_in_both_languages() {
        let of = |name: &str| name.parse::<ToolName>().unwrap();
        let (run, session) = (AtMostPer::Run, AtMostPer::Session);
        for (rule, english, chinese, details) in [
            (
                BrokenRule::AtMost { calls: 5, per: run },
                "mail may be called at most 5 times in a run, and it has been, or may have been",
                "在同一个 run 中，工具 mail 最多只能调用 5 次，现在已经达到或可能已经达到这个次数",
                json!({"rule": "at_most", "calls": 5, "per": "run"}),
            ),
            (
                BrokenRule::AtMost {
                    calls: 1,
                    per: session,
                },
                "mail may be called at most once in a session, and it has been, or may have been",
                "在同一个 session 中，工具 mail 最多只能调用 1 次，现在已经达到或可能已经达到这个次数",
                json!({"rule": "at_most", "calls": 1, "per": "session"}),
            ),
            (
                BrokenRule::After {
                    tool: of("confirm"),
                    per: run,
                },
                "mail may be called only after confirm has succeeded in the same run, and it has not",
                "只有在同一个 run 中工具 confirm 成功之后才能调用 mail，而它还没有成功",
                json!({"rule": "after", "tool": "confirm", "per": "run"}),
            ),
            (
                BrokenRule::NeverAfter {
                    tool: of("secrets"),
                },
                "mail may not be called any more once secrets has been called in the same run or session, and it has been, or may have \
                 been",
                "在同一个 run 或 session 中，一旦调用过工具 secrets 就不能再调用 mail，而它已经或可能已经被调用",
                json!({"rule": "never_after", "tool": "secrets"}),
            ),
            (
                BrokenRule::Unlabelled(session),
                "calls of mail are counted by session, and this one does not say of which it is; send the header Toolfleet-Session",
                "工具 mail 的调用按 session 计数，而这次调用没有说明属于哪一个；请发送请求头 Toolfleet-Session",
                json!({"rule": "at_most", "per": "session"}),
            ),
            (
                BrokenRule::WithoutLabels,
                "whether mail may be called depends on its run or session, and this call does not say of which it is; send the header \
                 Toolfleet-Run or Toolfleet-Session",
                "能否调用工具 mail 取决于它所属的 run 或 session，而这次调用没有说明；请发送请求头 Toolfleet-Run 或 Toolfleet-Session",
                json!({"rule": "label"}),
            ),
        ] {
            let failure = told(&rule, &of("mail"));
            assert_eq!(failure.code, Code::Forbidden);
            assert_eq!(failure.message.english(), english);
            assert_eq!(failure.message.told(Language::Zh), chinese);
            assert_eq!(failure.details, Some(details));
        }
    }
}
