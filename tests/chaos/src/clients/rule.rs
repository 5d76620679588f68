//! Says yes or no to a call that waits for it, as people do: in time or not, twice, two of them at once.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    call::Call,
    desk::Question,
    submit::{AT_ONCE, Client, code, is_refused},
    waited::Waited,
};
use crate::{history::Op, seed::weighted};

/// What comes of a call that waits for a yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// As many say yes as have to.
    Approved,
    /// The same, and the first says it twice.
    ApprovedTwice,
    /// Somebody says no.
    Denied,
    /// One says yes and one says no at the same moment.
    Disputed,
    /// Somebody decides about other arguments first.
    Mistaken,
    /// One says yes too few.
    HalfApproved,
    /// Nobody decides before its time is over.
    TooLate,
    /// Nobody decides.
    Forgotten,
}

const FATES: &[(Fate, u64)] = &[
    (Fate::Approved, 52),
    (Fate::ApprovedTwice, 9),
    (Fate::Denied, 12),
    (Fate::Disputed, 8),
    (Fate::Mistaken, 7),
    (Fate::HalfApproved, 3),
    (Fate::TooLate, 4),
    (Fate::Forgotten, 5),
];
const PEOPLE: [&str; 3] = ["ann", "bob", "cyd"];
/// How long somebody thinks at most, in milliseconds.
const THINKS_MS: u64 = 700;
/// Longer than a call waits for a yes.
const WAITED: Duration = Duration::from_millis(7_500);

/// What somebody says.
#[derive(Debug, Clone, Copy)]
struct Says<'a> {
    op: Op,
    person: &'a str,
    args_hash: &'a str,
}

impl Client {
    /// Deals with a call that waits for a yes.
    pub(super) async fn rule(&self, call: &Call, waited: &Waited) {
        let seed = self.desk.seed;
        let thinks = call.below(seed, "thinks", THINKS_MS);
        self.desk.pause(Duration::from_millis(thinks)).await;
        let needed = usize::try_from(call.tool.yeses().unwrap_or(1)).unwrap_or(PEOPLE.len());
        let people = &PEOPLE[..needed.min(PEOPLE.len())];
        let fate = weighted(seed, call.n, "fate", FATES);
        match fate {
            Fate::Approved => self.all_approve(call, waited, people).await,
            Fate::ApprovedTwice => {
                let first = self.approve(call, waited, people[0]).await;
                let again = self.approve(call, waited, people[0]).await;
                if first.is_some_and(|first| !is_refused(&first)) {
                    self.must_be_a_conflict(waited, "the same person said yes again", again);
                }
                self.all_approve(call, waited, &people[1..]).await;
            }
            Fate::Denied => {
                let denied = self.deny(call, waited, PEOPLE[0]).await;
                if denied.is_some_and(|denied| !is_refused(&denied)) {
                    let after = self.approve(call, waited, PEOPLE[1]).await;
                    self.must_be_a_conflict(waited, "somebody said yes after a no", after);
                }
            }
            Fate::Disputed => self.dispute(call, waited, people).await,
            Fate::Mistaken => {
                let hash = other_hash(&waited.args_hash);
                let says = Says {
                    op: Op::OtherArguments,
                    person: PEOPLE[2],
                    args_hash: &hash,
                };
                let told = self.say(call, waited, says).await;
                self.must_be_a_conflict(waited, "it was decided about other arguments", told);
                self.all_approve(call, waited, people).await;
            }
            Fate::HalfApproved => {
                self.all_approve(call, waited, &people[1..]).await;
            }
            Fate::TooLate => {
                self.desk.pause(WAITED).await;
                self.approve(call, waited, PEOPLE[0]).await;
            }
            Fate::Forgotten => {}
        }
    }

    async fn all_approve(&self, call: &Call, waited: &Waited, people: &[&str]) {
        for person in people {
            self.approve(call, waited, person).await;
        }
        // Who says yes does not get what the program that runs it gets.
        if call.tool.is_handed() {
            self.get(call, &waited.call_id).await;
        }
    }

    /// All but one have said yes; then one says yes and another one no.
    async fn dispute(&self, call: &Call, waited: &Waited, people: &[&str]) {
        let (last, before) = people.split_last().expect("somebody decides");
        for person in before {
            self.approve(call, waited, person).await;
        }
        let other = self.neighbour();
        let (yes, no) = tokio::join!(
            self.approve(call, waited, last),
            other.deny(call, waited, PEOPLE[2])
        );
        let decided = |told: &Option<Value>| told.as_ref().is_some_and(|told| !is_refused(told));
        if decided(&yes) && decided(&no) {
            let id = &waited.call_id;
            let what = format!("call {id} was approved, and denied: {yes:?}, {no:?}");
            self.desk.surprised(what);
        }
        if call.tool.is_handed() {
            self.get(call, &waited.call_id).await;
        }
    }

    async fn approve(&self, call: &Call, waited: &Waited, person: &str) -> Option<Value> {
        let says = Says {
            op: Op::Approve,
            person,
            args_hash: &waited.args_hash,
        };
        self.say(call, waited, says).await
    }

    async fn deny(&self, call: &Call, waited: &Waited, person: &str) -> Option<Value> {
        let says = Says {
            op: Op::Deny,
            person,
            args_hash: &waited.args_hash,
        };
        self.say(call, waited, says).await
    }

    /// The caller's program with its token where it may decide, and else an operator.
    async fn say(&self, call: &Call, waited: &Waited, says: Says<'_>) -> Option<Value> {
        let is_no = match says.op {
            Op::OtherArguments => call.below(self.desk.seed, "mistaken", 2) == 0,
            op => op == Op::Deny,
        };
        let mut body = json!({
            "call_id": waited.call_id,
            "decision": if is_no { "deny" } else { "approve" },
            "args_hash": says.args_hash,
            "actor": says.person,
            "note": "looked at the arguments",
        });
        let endpoint = match &waited.token {
            Some(token) => {
                body["token"] = token.as_str().into();
                "approve"
            }
            None => "admin.approve",
        };
        let question = Question::about(says.op, call, &waited.call_id);
        self.ask(call, question, endpoint, &body, AT_ONCE).await
    }

    fn must_be_a_conflict(&self, waited: &Waited, what: &str, told: Option<Value>) {
        // What a yes would hand out waits for the end of a pause before anything else is looked at.
        let is_told = |told: &Value| matches!(code(told), "conflict" | "tool_paused");
        if let Some(told) = told.filter(|told| !is_told(told)) {
            let id = &waited.call_id;
            self.desk
                .surprised(format!("{what} of call {id}, and was answered: {told}"));
        }
    }
}

/// The hash of other arguments.
fn other_hash(hash: &str) -> String {
    let turned = |digit| if digit == '0' { '1' } else { '0' };
    let mut digits = hash.chars();
    let first = digits.next().map(turned);
    first.into_iter().chain(digits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_hash_is_as_long_and_another() {
        assert_eq!(other_hash("0abc"), "1abc");
        assert_eq!(other_hash("fabc"), "0abc");
    }
}
