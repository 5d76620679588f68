//! Settles a call in doubt: looks for its effect, as a person would, and reports what it found.

use std::{sync::Arc, time::Duration};

use fleet::call::Effect;
use serde_json::{Value, json};

use super::{
    call::Call,
    desk::{Question, Request},
    marks::Marks,
    submit::{AT_ONCE, Client, code, id_of, is_refused, sent_away},
    summary::is_terminal,
};
use crate::{effects::Executor, history::Op};

/// How many of a hundred calls in doubt are left so.
const LEFT: u64 = 30;
/// How many of a hundred that have a probe are left to it.
const LEFT_TO_PROBE: u64 = 80;
/// How many of a hundred that a caller's program has in hand are left to its answer.
const LEFT_TO_PROGRAM: u64 = 55;
/// How many of a hundred that nobody looks into are abandoned.
const ABANDONED: u64 = 50;
/// How often one is looked at, or its settlement tried, before it is left after all.
const LOOKS: u32 = 4;
/// How long between two looks: what was on its way arrives within it.
const BETWEEN: Duration = Duration::from_secs(3);

impl Client {
    /// Settles a call if this answer says that it is in doubt. Most of the time; some are never settled.
    pub(super) async fn settle_doubt(&self, call: &Call, answer: &Value) {
        let Some(id) = id_of(answer).filter(|_| answer["state"] == "in_doubt") else {
            return;
        };
        let drawn = call.below(self.desk.seed, "left in doubt", 100);
        let left_to_others = match call.tool.name {
            "book" => LEFT_TO_PROBE,
            _ if call.tool.is_handed() => LEFT_TO_PROGRAM,
            _ => 0,
        };
        if drawn < left_to_others {
            return;
        }
        let left = drawn < LEFT;
        if left && call.below(self.desk.seed, "abandoned", 100) < ABANDONED {
            return self.abandon(call, &id).await;
        }
        let Some(marks) = self.marks.as_ref().filter(|_| !left && is_seen(call)) else {
            return;
        };
        let mut before = None;
        for _ in 0..LOOKS {
            let finding = self.look(marks, &id).await;
            // What was not there may have been on its way: it counts when it is missing again.
            if finding == Some("applied") || (finding.is_some() && finding == before) {
                let outcome = finding.expect("there is one, as was just asked");
                match self.settle(call, &id, outcome).await {
                    Some(answer) if may_be_settled_later(&answer) => {}
                    Some(_) => return,
                    None if self.desk.stop.is_cancelled() => return,
                    None => {}
                }
            }
            before = finding;
            self.desk.pause(BETWEEN).await;
        }
    }

    /// Says of a call in doubt that nobody will ever know.
    async fn abandon(&self, call: &Call, id: &str) {
        for _ in 0..LOOKS {
            match self.settle(call, id, "abandoned").await {
                Some(answer) if may_be_settled_later(&answer) => {}
                Some(_) => return,
                None if self.desk.stop.is_cancelled() => return,
                None => {}
            }
            self.desk.pause(BETWEEN).await;
        }
    }

    /// Says of a call that is over that it turned out the other way: that is a conflict, and changes nothing.
    pub(super) async fn settle_wrongly(&self, call: &Call, answer: &Value) {
        // Of a settled call the same may be said again.
        if !is_terminal(answer) || answer["source"] == "settled" {
            return self.settle_doubt(call, answer).await;
        }
        let Some(id) = id_of(answer) else { return };
        let outcome = match answer["state"].as_str() {
            Some("succeeded") => "not_applied",
            _ => "applied",
        };
        let Some(told) = self.settle(call, &id, outcome).await else {
            return;
        };
        if code(&told) != "conflict" && !sent_away(&told) {
            self.desk.surprised(format!(
                "call {id} was over, and to settle it as {outcome} was answered: {told}"
            ));
        }
        self.get(call, &id).await;
    }

    async fn settle(&self, call: &Call, id: &str, outcome: &str) -> Option<Value> {
        let mut body = json!({
            "call_id": id,
            "outcome": outcome,
            "actor": format!("client-{}", self.id),
            "note": "looked at the world",
        });
        // Nothing proves that a stranger's program is gone.
        if call.tool.is_handed() && outcome == "not_applied" {
            body["by_time_only"] = true.into();
        }
        let question = Question::about(Op::Settle, call, id);
        let request = Request::new("admin.settle", &body, AT_ONCE);
        self.desk.ask(self.id, &question, request).await
    }

    async fn look(&self, marks: &Arc<Marks>, id: &str) -> Option<&'static str> {
        let (marks, call) = (Arc::clone(marks), id.to_owned());
        let looking = tokio::task::spawn_blocking(move || marks.look(&call)).await;
        match looking.expect("reading does not panic") {
            Ok(standing) => standing.finding(),
            Err(error) => {
                let what = format!("the file of effects cannot be read: {error}");
                self.desk.surprised(what);
                None
            }
        }
    }
}

/// Whether its effects are in the file: those of statements are in tables.
fn is_seen(call: &Call) -> bool {
    !matches!(call.tool.executor, Executor::Sql) && call.tool.effect != Effect::Transaction
}

/// Whether something of the call may still be alive, or its time is not over.
fn may_be_settled_later(answer: &Value) -> bool {
    sent_away(answer)
        || (is_refused(answer)
            && (code(answer) == "worker_not_fenced" || answer["error"]["retryable"] == true))
}
