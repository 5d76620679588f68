//! Why a call waits for somebody outside the fleet, until when, and who can end that.

use fleet::call::Awaiting;

use super::{
    explanation::{Explanation, because},
    facts::{ApprovalFacts, Facts, PauseFacts, WaitFacts},
};
use crate::instant::instant;

/// Whom it waits for.
pub(super) fn awaiting(facts: &Facts) -> Explanation {
    match (&facts.approval, &facts.wait) {
        (Some(wanted), _) => approval(facts, wanted),
        (None, Some(wait)) if wait.whom == Awaiting::Input => input(facts, wait),
        (None, Some(wait)) => completion(facts, wait),
        (None, None) => client(facts),
    }
}

/// Its tool has said that it answers later.
fn completion(facts: &Facts, wait: &WaitFacts) -> Explanation {
    let (since, until) = (instant(wait.since), instant(wait.until));
    if wait.until <= facts.now {
        return because(
            "completion_silent",
            format!(
                "its tool said at {since} that it would answer later, and should have answered by {until}"
            ),
            "the sweep of a dispatcher ends it within seconds: it is tried again, a read expires, a write is in doubt; if it stays, no \
             dispatcher runs",
        );
    }
    because(
        "awaiting_completion",
        format!(
            "its tool said at {since} that it answers later, and has until {until}; no worker runs it meanwhile"
        ),
        format!(
            "look in the remote system whether {tool} works on it; it hands in its answer with the token that it was given \
             (docs/completion.md). Who has that token can hand it in, and who does not want the call any more can take it back",
            tool = facts.tool
        ),
    )
    .with_commands([
        hand_in(facts, "--result JSON"),
        format!("toolfleet calls cancel {}{}", facts.call_id, whose(facts)),
    ])
}

/// The command that hands something in for it.
fn hand_in(facts: &Facts, what: &str) -> String {
    format!(
        "toolfleet calls output {}{} --token TOKEN {what}",
        facts.call_id,
        whose(facts)
    )
}

/// Its tool wants to know something.
fn input(facts: &Facts, wait: &WaitFacts) -> Explanation {
    let (since, until) = (instant(wait.since), instant(wait.until));
    if wait.until <= facts.now {
        return because(
            "not_told",
            format!("its tool asked for something at {since}, and nobody had told it by {until}"),
            "the sweep of a dispatcher ends it within seconds, and nothing of it was done; if it stays, no dispatcher runs",
        );
    }
    because(
        "awaiting_input",
        format!(
            "its tool asked for something at {since} and goes on when it is told; at {until} the call expires, and nothing of it has been done"
        ),
        format!(
            "its caller answers: what is asked is in requests of the view waiting, and the answer goes in with {} (docs/asking.md)",
            hand_in(facts, "--input JSON")
        ),
    )
}

/// Somebody has to say yes.
fn approval(facts: &Facts, wanted: &ApprovalFacts) -> Explanation {
    let (since, until) = (instant(wanted.since), instant(wanted.until));
    if wanted.until <= facts.now {
        return because(
            "undecided",
            format!("it needed a yes by {until}, and nobody has decided"),
            "the sweep of a dispatcher ends it within seconds, and nothing of it was done; if it stays, no dispatcher runs",
        );
    }
    let whose = match wanted.by.as_str() {
        "caller" => "the program of its caller, or an operator,",
        _ => "an operator",
    };
    let given = match (&wanted.approved_by, wanted.needed) {
        (_, 1) => String::new(),
        (Some(names), needed) => format!(
            "; {} of {needed} have said yes: {}",
            wanted.given,
            names.join(", ")
        ),
        (None, needed) => format!("; it needs the yes of {needed} people, and has none"),
    };
    let reason = wanted.reason.as_ref();
    let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    because(
        "awaiting_approval",
        format!(
            "it waits since {since} until {whose} has said that it may run{reason}{given}; at {until} it expires, and nothing of it has been done{}",
            paused(facts, wanted.run_by_client)
        ),
        "look at it and decide: both commands show it, and change nothing without --hash (docs/approvals.md)",
    )
    .with_commands(deciding(facts))
}

/// The pauses that hold it up, and what that means for a yes.
fn paused(facts: &Facts, run_by_client: bool) -> String {
    let pauses = facts.other_pauses.iter().map(|pause| {
        let PauseFacts {
            control_id,
            actor,
            note,
            set_at,
            ..
        } = pause;
        let since = instant(*set_at);
        format!("; it is paused since {since} by {actor} (control {control_id}): {note}")
    });
    let mut told: String = pauses.collect();
    if !told.is_empty() {
        told.push_str(match run_by_client {
            true => "; until the pause is over a yes is refused, for it would hand the call out, and a no counts",
            false => "; after the yes it waits for the end of the pause",
        });
    }
    told
}

/// The commands that show it to who decides, and before them those that end a pause.
fn deciding(facts: &Facts) -> Vec<String> {
    let resume = facts.other_pauses.iter().map(|pause| {
        let id = pause.control_id;
        format!("toolfleet control resume {id} --note WHY")
    });
    let (call, tenant) = (facts.call_id, whose(facts));
    let decide =
        ["approve", "deny"].map(|ruling| format!("toolfleet calls {ruling} {call}{tenant}"));
    resume.chain(decide).collect()
}

/// The program of its caller has it.
fn client(facts: &Facts) -> Explanation {
    let hand_in = hand_in(facts, "--result JSON");
    let Some(attempt) = &facts.attempt else {
        return because(
            "awaiting_client",
            "the program of its caller runs it, and has not handed in what came of it",
            format!("wait, or hand it in: {hand_in} (docs/client-tools.md)"),
        );
    };
    let (since, until) = (instant(attempt.started_at), instant(attempt.until));
    if attempt.until <= facts.now {
        return because(
            "client_silent",
            format!(
                "the program of its caller has it since {since}, and should have answered by {until}"
            ),
            "the sweep of a dispatcher ends it within seconds: a write is in doubt, a read expires; if it stays, no dispatcher runs",
        );
    }
    because(
        "awaiting_client",
        format!(
            "the program of its caller has it since {since} and has until {until} to answer; no worker runs it"
        ),
        format!(
            "see whether that program runs; it hands in what came of the call with the token that it was given: {hand_in} \
             (docs/client-tools.md)"
        ),
    )
}

/// The option for the tenant, where the command would take another one.
pub(super) fn whose(facts: &Facts) -> String {
    match facts.tenant.as_str() {
        "default" => String::new(),
        tenant => format!(" --tenant {tenant}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{attempt, doubt, found};

    #[test]
    fn a_call_that_waits_for_its_caller_is_told_until_when_and_how_to_answer() {
        let mut waiting = attempt(&json!({"worker": null, "worker_state": null}));
        waiting["state"] = json!("awaiting_client");
        let told = found(&waiting);
        assert_eq!(told.reason, "awaiting_client");
        let until = "since 2026-11-20T12:00:01.000Z and has until 2026-11-20T12:00:31.000Z";
        assert!(told.because.contains(until), "{told:?}");
        let command = "toolfleet calls output 01936c2e-0000-7000-8000-00000000000c --token TOKEN";
        assert!(told.next.contains(command), "{told:?}");
        waiting["attempt"]["until"] = json!("2026-11-20T12:00:09Z");
        assert_eq!(found(&waiting).reason, "client_silent");
        waiting["tenant"] = json!("acme");
        waiting["attempt"]["until"] = json!("2026-11-20T12:00:31Z");
        assert!(found(&waiting).next.contains("--tenant acme"));
    }

    #[test]
    fn a_call_that_waits_for_a_yes_is_told_whose_until_when_and_how_to_decide() {
        let mut waiting = attempt(&json!({"worker": null, "worker_state": null}));
        waiting["state"] = json!("awaiting_client");
        waiting["attempt"] = json!(null);
        waiting["approval"] = json!({
            "since": "2026-11-20T12:00:00Z", "until": "2026-11-20T13:00:00Z", "by": "operator", "given": 1, "needed": 2,
            "reason": "Charges over 100 need the yes of two people.", "approved_by": ["ann"]});
        let told = found(&waiting);
        assert_eq!(told.reason, "awaiting_approval");
        assert_eq!(
            told.because,
            "it waits since 2026-11-20T12:00:00.000Z until an operator has said that it may run (Charges over 100 need the yes of two \
             people.); 1 of 2 have said yes: ann; at 2026-11-20T13:00:00.000Z it expires, and nothing of it has been done"
        );
        let both = ["approve", "deny"]
            .map(|ruling| format!("toolfleet calls {ruling} 01936c2e-0000-7000-8000-00000000000c"));
        assert_eq!(told.commands, both);
        waiting["approval"]["until"] = json!("2026-11-20T12:00:01Z");
        assert_eq!(found(&waiting).reason, "undecided");
    }

    #[test]
    fn a_call_that_waits_for_a_yes_while_its_tool_is_paused_names_the_pause_and_what_ends_it() {
        let mut waiting = attempt(&json!({"worker": null, "worker_state": null}));
        waiting["state"] = json!("awaiting_client");
        waiting["attempt"] = json!(null);
        waiting["approval"] = json!({
            "since": "2026-11-20T12:00:00Z", "until": "2026-11-20T13:00:00Z", "by": "operator", "given": 0, "needed": 1,
            "reason": null, "run_by_client": true});
        waiting["other_pauses"] = json!([{"control_id": 7, "actor": "ada", "note": "the bank migrates",
            "set_at": "2026-11-20T11:00:00Z", "expires_at": null}]);
        let told = found(&waiting);
        for part in ["by ada (control 7): the bank migrates", "a yes is refused"] {
            assert!(told.because.contains(part), "{told:?}");
        }
        assert_eq!(
            told.commands[0], "toolfleet control resume 7 --note WHY",
            "{told:?}"
        );
        waiting["approval"]["run_by_client"] = json!(false);
        let told = found(&waiting).because;
        assert!(told.ends_with("waits for the end of the pause"), "{told}");
    }

    #[test]
    fn a_call_that_waits_for_its_tool_or_for_what_that_asked_is_told_so() {
        let mut waiting = attempt(&json!({}));
        waiting["state"] = json!("awaiting_client");
        for (whom, reason, over) in [
            ("completion", "awaiting_completion", "completion_silent"),
            ("input", "awaiting_input", "not_told"),
        ] {
            waiting["wait"] = json!({
                "whom": whom, "since": "2026-11-20T12:00:01Z", "until": "2026-11-20T13:00:00Z"});
            let told = found(&waiting);
            assert_eq!(told.reason, reason, "{told:?}");
            assert!(
                told.because.contains("2026-11-20T13:00:00.000Z"),
                "{told:?}"
            );
            waiting["wait"]["until"] = json!("2026-11-20T12:00:01Z");
            assert_eq!(found(&waiting).reason, over);
        }
        let silent = json!({"worker_fenced": true, "by_tool": true, "why": "completion_silent"});
        let told = found(&doubt(&silent));
        assert_eq!(told.reason, "in_doubt_completion");
        assert!(told.next.contains("settles it, too"), "{told:?}");
        // At once, too, after a cancel.
        let early =
            json!({"by_tool": true, "why": "cancelled", "attempt_until": "2026-11-20T12:05:00Z"});
        let told = found(&doubt(&early));
        assert_eq!(told.reason, "in_doubt_early");
        assert!(told.next.contains("settles it, too"), "{told:?}");
    }

    #[test]
    fn a_doubt_about_what_its_caller_has_says_that_its_answer_settles_it() {
        let silent = json!({"worker_fenced": false, "by_client": true, "why": "client_silent"});
        let told = found(&doubt(&silent));
        assert_eq!(told.reason, "in_doubt_client");
        assert!(told.next.contains("settles it, too"), "{told:?}");
        assert!(told.next.contains("--by-time-only"), "{told:?}");
        let mut early = doubt(&silent);
        early["doubt"]["attempt_until"] = json!("2026-11-20T12:05:00Z");
        early["doubt"]["why"] = json!("cancelled");
        early["last"] = json!({"actor": "ann (_INBOX_operator)", "reason": "cancelled", "note": "wrong account"});
        let told = found(&early);
        assert_eq!(told.reason, "in_doubt_early");
        for part in ["settles it, too", "--by-time-only"] {
            assert!(told.next.contains(part), "{part}: {told:?}");
        }
        let who = "cancelled by ann (_INBOX_operator): wrong account";
        assert!(told.because.contains(who), "{told:?}");
        assert!(told.commands[1].contains("--by-time-only"), "{told:?}");
    }
}
