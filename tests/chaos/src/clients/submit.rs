//! One client: how it submits, asks again and waits, as any careful program does.

use std::{sync::Arc, time::Duration};

use async_nats::HeaderMap;
use serde_json::{Value, json};

use super::{
    call::Call,
    desk::{Desk, Question, Request},
    marks::Marks,
    summary::is_terminal,
};
use crate::history::Op;

/// A client. It goes on whatever happens to its connection.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) id: u32,
    pub(super) desk: Arc<Desk>,
    /// Where it sees what happened at the tools, if it does.
    pub(super) marks: Option<Arc<Marks>>,
}

/// How long a client waits longer than it asked the fleet to.
pub(super) const SLACK: Duration = Duration::from_secs(3);
/// How long it waits for what the fleet answers at once.
pub(super) const AT_ONCE: Duration = Duration::from_secs(4);
/// How often it tries, before it leaves a question open.
pub(super) const TRIES: u32 = 5;
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// Whether a client waits on the line.
#[derive(Debug, Clone, Copy)]
pub(super) enum Line {
    /// Until it is decided, or so long.
    Wait(Duration),
    /// Until it is accepted.
    Async,
}

impl Client {
    /// The client beside this one.
    pub(super) fn neighbour(&self) -> Self {
        Self {
            id: (self.id + 1) % self.desk.clients(),
            ..self.clone()
        }
    }

    /// Submits a call: again with its key when no answer comes, and when the fleet says that it may.
    pub(super) async fn submit(&self, op: Op, call: &Call, line: Line) -> Option<Value> {
        self.send(op, call, submission(call, line)).await
    }

    /// The same with a request that differs from the call's own.
    pub(super) async fn send(&self, op: Op, call: &Call, request: Request) -> Option<Value> {
        let mut question = Question::new(op, call);
        for attempt in 0..TRIES {
            match self.desk.ask(self.id, &question, request.clone()).await {
                Some(answer) if !sent_away(&answer) => return Some(answer),
                Some(_) => {}
                // It may have been accepted: what follows is a repetition.
                None if matches!(op, Op::Submit | Op::SubmitAsync) => question.op = Op::Replay,
                None => {}
            }
            if self.desk.stop.is_cancelled() {
                return None;
            }
            self.pause(call, attempt).await;
        }
        None
    }

    /// Asks something about a call until there is an answer.
    pub(super) async fn ask(
        &self,
        call: &Call,
        question: Question,
        endpoint: &str,
        body: &Value,
        patience: Duration,
    ) -> Option<Value> {
        for attempt in 0..TRIES {
            let request = Request::new(endpoint, body, patience);
            match self.desk.ask(self.id, &question, request).await {
                Some(answer) if !sent_away(&answer) => return Some(answer),
                _ if self.desk.stop.is_cancelled() => return None,
                _ => self.pause(call, attempt).await,
            }
        }
        None
    }

    /// How a call stands, asked by its id.
    pub(super) async fn get(&self, call: &Call, id: &str) -> Option<Value> {
        let question = Question::about(Op::Get, call, id);
        let body = json!({ "call_id": id });
        self.ask(call, question, "get", &body, AT_ONCE).await
    }

    /// Waits until a call is decided: once more when the time for it was too short.
    pub(super) async fn attach(&self, call: &Call, id: &str) -> Option<Value> {
        let wait_ms = u64::try_from(call.wait.as_millis()).expect("a wait is short");
        let body = json!({ "call_id": id, "wait_ms": wait_ms });
        let mut last = None;
        for _ in 0..2 {
            let question = Question::about(Op::Attach, call, id);
            let patience = call.wait + SLACK;
            last = self.ask(call, question, "get", &body, patience).await;
            if last.as_ref().is_none_or(is_decided) {
                break;
            }
        }
        last
    }

    /// Submits a call and waits until it is decided, first on the line and then by `get`.
    pub(super) async fn decide(&self, call: &Call) -> Option<Value> {
        let answer = self.submit(Op::Submit, call, Line::Wait(call.wait)).await?;
        match id_of(&answer) {
            Some(id) if !is_decided(&answer) => self.attach(call, &id).await,
            _ => Some(answer),
        }
    }

    /// Longer after each try, and not at the same moment as other clients.
    pub(super) async fn pause(&self, call: &Call, attempt: u32) {
        let jitter = call.below(self.desk.seed, &format!("pause {attempt}"), 50);
        let pause = PAUSE_MIN * 2_u32.pow(attempt) + Duration::from_millis(jitter);
        self.desk.pause(pause).await;
    }
}

/// The request that a call is.
pub(super) fn submission(call: &Call, line: Line) -> Request {
    let (prefer, patience) = match line {
        Line::Wait(wait) => (format!("wait={}", wait.as_secs()), wait + SLACK),
        Line::Async => ("respond-async".to_owned(), AT_ONCE),
    };
    let mut headers = HeaderMap::new();
    headers.insert("Idempotency-Key", call.key.as_str());
    headers.insert("Prefer", prefer.as_str());
    for (name, value) in &call.headers {
        headers.insert(*name, value.as_str());
    }
    Request {
        headers,
        ..Request::new(&format!("call.{}", call.tool.name), &call.args, patience)
    }
}

/// The call that an answer is about.
pub(super) fn id_of(answer: &Value) -> Option<String> {
    answer["call_id"].as_str().map(str::to_owned)
}

/// Whether nothing more comes of a call by itself.
pub(super) fn is_decided(answer: &Value) -> bool {
    is_terminal(answer) || answer["state"] == "in_doubt" || is_refused(answer)
}

/// Whether a question was refused.
pub(super) fn is_refused(answer: &Value) -> bool {
    answer["state"] == "refused"
}

/// The code of an answer's error.
pub(super) fn code(answer: &Value) -> &str {
    answer["error"]["code"].as_str().unwrap_or_default()
}

/// Whether the fleet could not just now: the same question may be asked again.
pub(super) fn sent_away(answer: &Value) -> bool {
    is_refused(answer)
        && matches!(
            code(answer),
            "overloaded" | "store_unavailable" | "tool_paused"
        )
}
