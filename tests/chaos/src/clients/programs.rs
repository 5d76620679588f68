//! The steps of a client with a call, one function for each program.

use std::time::Duration;

use fleet::ids::CallId;
use serde_json::{Value, json};

use super::{
    call::{Call, Program, nobodys_id},
    desk::{Question, Request},
    hostile::Hostile,
    submit::{AT_ONCE, Client, Line, code, id_of, is_decided, is_refused, sent_away, submission},
    summary::is_terminal,
};
use crate::{
    history::Op,
    seed::{happens, weighted},
};

/// How often a client that hung up asks again for a decided answer.
const INSISTS: u32 = 8;

impl Client {
    /// Does what is to be done with this call.
    pub(super) async fn run(&self, call: &Call) {
        let last = match call.program {
            Program::Wait => self.decide(call).await,
            Program::Attach => self.submit_and_attach(call).await,
            Program::Look => self.look_often(call).await,
            Program::Replay => self.replay(call).await,
            Program::Twice => self.twice(call).await,
            Program::HangUp => self.hang_up(call).await,
            Program::Misuse => self.misuse(call).await,
            Program::Cancel => self.cancel(call).await,
            Program::WrongSettle => {
                if let Some(answer) = self.decide(call).await {
                    self.settle_wrongly(call, &answer).await;
                }
                return;
            }
            Program::Batch(more) => return Box::pin(self.batch(call, more)).await,
            Program::Nothing => return self.ask_for_nothing(call).await,
            Program::Hostile => return self.hostile(call).await,
        };
        if let Some(answer) = last {
            self.settle_doubt(call, &answer).await;
        }
    }

    async fn submit_and_attach(&self, call: &Call) -> Option<Value> {
        let accepted = self.submit(Op::SubmitAsync, call, Line::Async).await?;
        self.attach(call, &id_of(&accepted)?).await
    }

    async fn look_often(&self, call: &Call) -> Option<Value> {
        let accepted = self.submit(Op::SubmitAsync, call, Line::Async).await?;
        let id = id_of(&accepted)?;
        let mut last = None;
        for look in 0..1 + call.below(self.desk.seed, "looks", 4) {
            let pause = call.below(self.desk.seed, &format!("look {look}"), 400);
            self.desk.pause(Duration::from_millis(pause)).await;
            let by_key = happens(self.desk.seed, call.n, &format!("by key {look}"), 300);
            let body = if by_key {
                json!({ "tool": call.tool.name, "idempotency_key": call.key })
            } else {
                json!({ "call_id": id })
            };
            let question = Question::about(Op::Get, call, &id);
            last = self.ask(call, question, "get", &body, AT_ONCE).await;
        }
        last
    }

    async fn replay(&self, call: &Call) -> Option<Value> {
        let mut last = self.decide(call).await?;
        for _ in 0..1 + call.below(self.desk.seed, "replays", 2) {
            let again = self.submit(Op::Replay, call, Line::Wait(call.wait)).await?;
            if is_terminal(&last) && !is_terminal(&again) {
                self.desk.surprised(format!(
                    "call {} was over, and its key was answered with {again}",
                    last["call_id"]
                ));
            }
            last = again;
        }
        Some(last)
    }

    async fn twice(&self, call: &Call) -> Option<Value> {
        let other = self.neighbour();
        let line = Line::Wait(call.wait);
        let (one, two) = tokio::join!(
            self.submit(Op::Submit, call, line),
            other.submit(Op::Submit, call, line)
        );
        let ids = (one.as_ref().and_then(id_of), two.as_ref().and_then(id_of));
        if let (Some(first), Some(second)) = &ids
            && first != second
        {
            self.desk.surprised(format!(
                "key {} has two calls, {first} and {second}",
                call.key
            ));
        }
        one.or(two)
    }

    async fn hang_up(&self, call: &Call) -> Option<Value> {
        let line = Line::Wait(call.wait);
        let mut request = submission(call, line);
        let patience = weighted(
            self.desk.seed,
            call.n,
            "patience",
            &[(1, 2), (5, 3), (30, 3), (300, 2)],
        );
        request.patience = Duration::from_millis(patience);
        let question = Question::new(Op::Submit, call);
        let mut last = self.desk.ask(self.id, &question, request).await;
        for _ in 0..INSISTS {
            let decided = |answer: &Value| is_decided(answer) && !sent_away(answer);
            if self.desk.stop.is_cancelled() || last.as_ref().is_some_and(decided) {
                break;
            }
            last = self.submit(Op::Replay, call, line).await;
        }
        last
    }

    async fn misuse(&self, call: &Call) -> Option<Value> {
        let answer = self.submit(Op::Submit, call, Line::Wait(call.wait)).await?;
        // A key that was refused is still free: it would not be a misuse.
        let id = id_of(&answer)?;
        let mut request = submission(call, Line::Async);
        request.body = call.other_args(self.desk.seed).to_string().into();
        if let Some(told) = self.send(Op::Misuse, call, request).await
            && code(&told) != "idempotency_key_reused"
        {
            self.desk.surprised(format!(
                "the key of call {id} was sent with other arguments, and answered with {told}"
            ));
        }
        self.attach(call, &id).await
    }

    async fn cancel(&self, call: &Call) -> Option<Value> {
        let accepted = self.submit(Op::SubmitAsync, call, Line::Async).await?;
        let id = id_of(&accepted)?;
        let seed = self.desk.seed;
        let moment = weighted(seed, call.n, "moment", &[(1, 4), (50, 3), (1_500, 3)]);
        let pause = call.below(seed, "cancelled after", moment);
        self.desk.pause(Duration::from_millis(pause)).await;
        let mut body = json!({ "call_id": id });
        if happens(seed, call.n, "with reason", 500) {
            body["reason"] = "not needed any more".into();
        }
        let question = Question::about(Op::Cancel, call, &id);
        self.ask(call, question, "cancel", &body, AT_ONCE).await;
        self.attach(call, &id).await
    }

    /// Asks for calls that do not exist.
    async fn ask_for_nothing(&self, call: &Call) {
        let id = nobodys_id(self.desk.seed, call.n);
        debug_assert!(id.parse::<CallId>().is_ok(), "{id}");
        let (op, endpoint, body, expected) = match call.below(self.desk.seed, "nothing", 4) {
            0 => (Op::Get, "get", json!({ "call_id": id }), "not_found"),
            1 => {
                let body = json!({ "tool": call.tool.name, "idempotency_key": call.key });
                (Op::Get, "get", body, "not_found")
            }
            2 => (Op::Cancel, "cancel", json!({ "call_id": id }), "not_found"),
            _ => (Op::Get, "get", json!({ "call_id": "call" }), "invalid_id"),
        };
        // Its key is not taken by this: nothing was submitted.
        let question = Question {
            key: None,
            ..Question::new(op, call)
        };
        if let Some(told) = self.ask(call, question, endpoint, &body, AT_ONCE).await
            && code(&told) != expected
        {
            self.desk
                .surprised(format!("{endpoint} of {body} was answered with {told}"));
        }
    }

    async fn hostile(&self, call: &Call) {
        let hostile = Hostile::drawn(self.desk.seed, call.n);
        let request = Request {
            body: hostile.text(call.n).into(),
            ..submission(call, Line::Async)
        };
        if let Some(told) = self.send(Op::Submit, call, request).await {
            self.held_off(hostile.code(), &told);
        }
    }

    /// Whether what must be refused was refused, and for its own reason.
    pub(super) fn held_off(&self, expected: &str, told: &Value) {
        if !is_refused(told) || !(code(told) == expected || sent_away(told)) {
            self.desk
                .surprised(format!("what is {expected} was answered with {told}"));
        }
    }
}
