//! Asks for the clients: writes down each question before it is sent, and its answer afterwards.

use std::{
    io,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use async_nats::HeaderMap;
use bytes::Bytes;
use serde_json::Value;
use tokio::{
    sync::{mpsc, watch},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    call::Call,
    summary::{Summary, Tally, excerpt},
    waited::Waited,
};
use crate::{
    effects::{self, Mode},
    history::{Entry, Op, Phase, Writer},
};

/// What all clients share.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) seed: u64,
    pub(super) stop: CancellationToken,
    history: Writer,
    asked: watch::Sender<u64>,
    next_op: AtomicU64,
    tally: Mutex<Tally>,
    connections: Vec<async_nats::Client>,
    /// Of the other tenant.
    others: Vec<async_nats::Client>,
    /// Of the one who settles.
    operator: async_nats::Client,
    /// Who hears of calls that wait for somebody.
    waited: Option<mpsc::UnboundedSender<Waited>>,
    lost: Mutex<Option<io::Error>>,
}

/// What a question is about.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) op: Op,
    pub(super) n: u64,
    pub(super) tool: String,
    pub(super) mode: Mode,
    pub(super) key: Option<String>,
    pub(super) call_id: Option<String>,
}

impl Question {
    /// About a call whose id is not known yet.
    pub(super) fn new(op: Op, call: &Call) -> Self {
        Self {
            op,
            n: call.n,
            tool: call.tool.name.to_owned(),
            mode: call.mode,
            key: Some(call.key.clone()),
            call_id: None,
        }
    }

    /// About a call whose id was told.
    pub(super) fn about(op: Op, call: &Call, id: &str) -> Self {
        Self {
            call_id: Some(id.to_owned()),
            ..Self::new(op, call)
        }
    }
}

/// What is sent.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) endpoint: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// How long an answer is waited for.
    pub(super) patience: Duration,
}

impl Request {
    pub(super) fn new(endpoint: &str, body: &Value, patience: Duration) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            headers: HeaderMap::new(),
            body: body.to_string().into(),
            patience,
        }
    }
}

impl Desk {
    pub(super) fn new(
        seed: u64,
        history: Writer,
        first_op: u64,
        asked: watch::Sender<u64>,
        stop: CancellationToken,
        (connections, others): (Vec<async_nats::Client>, Vec<async_nats::Client>),
        operator: async_nats::Client,
    ) -> Self {
        Self {
            seed,
            stop,
            history,
            asked,
            next_op: AtomicU64::new(first_op),
            tally: Mutex::default(),
            connections,
            others,
            operator,
            waited: None,
            lost: Mutex::default(),
        }
    }

    /// The same, and this one hears of calls that wait for somebody.
    pub(super) fn telling(self, waited: mpsc::UnboundedSender<Waited>) -> Self {
        Self {
            waited: Some(waited),
            ..self
        }
    }

    /// Asks once. There is no answer when none came in time, and when clients are to stop; then nothing was asked.
    pub(super) async fn ask(
        &self,
        client: u32,
        question: &Question,
        request: Request,
    ) -> Option<Value> {
        let questions = std::slice::from_ref(question);
        let answers = self.ask_all(client, questions, request, |answer| vec![answer]);
        answers.await?.pop()
    }

    /// Asks several things with one request; `split` finds the answer to each.
    pub(super) async fn ask_all(
        &self,
        client: u32,
        questions: &[Question],
        request: Request,
        split: impl FnOnce(Value) -> Vec<Value>,
    ) -> Option<Vec<Value>> {
        if self.stop.is_cancelled() {
            return None;
        }
        let many = u64::try_from(questions.len()).expect("a batch is small");
        let first = self.next_op.fetch_add(many, Ordering::Relaxed);
        for (op_id, question) in (first..).zip(questions) {
            self.write(client, op_id, question, Phase::Asked, None);
            self.asked.send_modify(|asked| *asked += 1);
        }
        let asked = questions.first();
        let tenant = asked.map_or(effects::TENANT, |asked| {
            effects::tenant(&asked.tool, asked.n)
        });
        let answers = self.send(client, tenant, request).await.map(split);
        for (index, (op_id, question)) in (first..).zip(questions).enumerate() {
            let answer = answers.as_ref().and_then(|answers| answers.get(index));
            let phase = answer.map_or(Phase::Unknown, |_| Phase::Answered);
            self.write(client, op_id, question, phase, answer);
            let waited = answer.and_then(|answer| Waited::of(question, answer));
            if let (Some(hears), Some(waited)) = (&self.waited, waited)
                && hears.send(waited).is_err()
            {
                // Nobody is waited for any more: the run is over.
            }
        }
        answers.filter(|answers| answers.len() == questions.len())
    }

    async fn send(&self, client: u32, tenant: &str, request: Request) -> Option<Value> {
        let connection = if request.endpoint.starts_with("admin.") {
            &self.operator
        } else {
            let of_tenant = if tenant == effects::TENANT {
                &self.connections
            } else {
                &self.others
            };
            &of_tenant[usize::try_from(client).unwrap_or(0) % of_tenant.len()]
        };
        let sent = async_nats::Request::new()
            .headers(request.headers)
            .payload(request.body)
            .timeout(None);
        let subject = format!("toolfleet.v1.{tenant}.{}", request.endpoint);
        // Around all of it: a broken connection takes a bounded number of messages and then blocks.
        let asking = connection.send_request(subject, sent);
        let message = timeout(request.patience, asking).await.ok()?.ok()?;
        let answer = serde_json::from_slice::<Value>(&message.payload).ok();
        let Some(answer) = answer.filter(Value::is_object) else {
            let text = excerpt(&message.payload);
            self.surprised(format!("an answer is no JSON object: {text:?}"));
            return None;
        };
        self.tally(|tally| tally.observed(&answer, &message.payload));
        Some(answer)
    }

    fn write(
        &self,
        client: u32,
        op_id: u64,
        question: &Question,
        phase: Phase,
        answer: Option<&Value>,
    ) {
        let told = answer.and_then(|answer| answer["call_id"].as_str());
        if let (Some(told), Some(known)) = (told, question.call_id.as_deref())
            && told != known
        {
            let op = question.op;
            self.surprised(format!(
                "{op:?} about call {known} was answered about call {told}"
            ));
        }
        self.tally(|tally| match (phase, answer) {
            (Phase::Asked, _) => tally.summary.operations += 1,
            (_, Some(answer)) => tally.answered(answer),
            (_, None) => tally.summary.unknown += 1,
        });
        let entry = Entry {
            at_ms: 0,
            client,
            op_id,
            op: question.op,
            phase,
            n: question.n,
            tool: question.tool.clone(),
            key: question.key.clone(),
            mode: question.mode,
            call_id: told.map_or_else(|| question.call_id.clone(), |told| Some(told.to_owned())),
            answer: answer.cloned(),
        };
        if let Err(error) = self.history.append(entry) {
            self.lost(error);
        }
    }

    /// How many connections there are.
    pub(super) fn clients(&self) -> u32 {
        u32::try_from(self.connections.len()).expect("clients are few")
    }

    /// Notes an answer that no fault explains.
    pub(super) fn surprised(&self, what: String) {
        self.tally(|tally| tally.surprised(what));
    }

    /// Notes that a call was begun.
    pub(super) fn begun(&self) {
        self.tally(|tally| tally.summary.calls += 1);
    }

    /// Waits so long, or until clients are to stop.
    pub(super) async fn pause(&self, long: Duration) {
        tokio::select! {
            () = sleep(long) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Writes out what was kept back, for its readers.
    pub(super) fn flush(&self) {
        if let Err(error) = self.history.flush() {
            self.lost(error);
        }
    }

    fn lost(&self, error: io::Error) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.get_or_insert(error);
        // A line that cannot be read proves nothing.
        self.stop.cancel();
    }

    /// Writes out what was kept back, and says what came of it all.
    pub(super) fn close(&self, history: &Path) -> anyhow::Result<Summary> {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let flushed = lost.take().map_or_else(|| self.history.flush(), Err);
        flushed.with_context(|| format!("the history {} is not whole", history.display()))?;
        Ok(self.tally(|tally| tally.summary.clone()))
    }

    fn tally<T>(&self, look: impl FnOnce(&mut Tally) -> T) -> T {
        look(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
