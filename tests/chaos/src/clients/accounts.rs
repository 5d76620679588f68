//! After all faults are undone: asks once more for every call that a client knows, and for every key without an answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use futures_util::{StreamExt as _, stream};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    call::{Call, HOSTILE_KEY},
    desk::{Desk, Question},
    submit::{AT_ONCE, Client, Line, SLACK, code, sent_away},
    summary::Summary,
};
use crate::{
    history::{self, Entry, Op, Phase, Writer},
    login::Login,
};

/// What accounts are settled of.
#[derive(Debug, Clone)]
pub struct Accounts {
    /// What the run's calls were made of.
    pub seed: u64,
    /// Where the fleet is reached, as whom.
    pub agent: Login,
    /// The same for calls of the other tenant.
    pub other_agent: Login,
    /// As whom calls are settled.
    pub operator: Login,
    /// The history of the run, which is gone on with.
    pub history: PathBuf,
}

/// How many questions there are at a time.
const ABREAST: usize = 16;
/// How long a call that is still open is waited for.
const WAIT: Duration = Duration::from_secs(5);

/// Goes through the history, asks what is left to be asked, and writes it down.
///
/// Every key of which a submission had no answer is sent once more: the ledger has it now if it had not before. Then every
/// call id that was ever told is asked for.
///
/// # Errors
///
/// The history cannot be read or gone on with, or there is no such address.
pub async fn settle_accounts(accounts: Accounts) -> anyhow::Result<Summary> {
    let reading = || format!("read the history {}", accounts.history.display());
    let mut entries = history::read(&accounts.history).with_context(reading)?;
    let first_op = entries.iter().map(|entry| entry.op_id + 1).max();
    let last = entries.last().map_or(0, |entry| entry.at_ms);
    let writer = Writer::resume(&accounts.history, Duration::from_millis(last))?;
    let connection = accounts.agent.connect().await?;
    let desk = Arc::new(Desk::new(
        accounts.seed,
        writer,
        first_op.unwrap_or(0),
        watch::Sender::new(0),
        CancellationToken::new(),
        (
            vec![connection],
            vec![accounts.other_agent.connect().await?],
        ),
        accounts.operator.connect().await?,
    ));
    let client = Client {
        id: entries
            .iter()
            .map(|entry| entry.client + 1)
            .max()
            .unwrap_or(0),
        desk: Arc::clone(&desk),
        marks: None,
    };
    let open = stream::iter(unanswered_keys(&entries));
    open.for_each_concurrent(ABREAST, |(key, n)| client.ask_for_key(key, n))
        .await;
    // What was told just now counts as well.
    desk.flush();
    entries = history::read(&accounts.history).with_context(reading)?;
    let told = stream::iter(told_calls(entries));
    told.for_each_concurrent(ABREAST, |(id, question)| client.ask_for_end(id, question))
        .await;
    desk.close(&accounts.history)
}

impl Client {
    async fn ask_for_key(&self, key: String, n: u64) {
        let call = Call::as_item(self.desk.seed, n);
        if !key.starts_with(HOSTILE_KEY) {
            self.submit(Op::Replay, &call, Line::Wait(WAIT)).await;
            return;
        }
        let body = json!({ "tool": call.tool.name, "idempotency_key": key });
        let question = Question {
            key: Some(key),
            ..Question::new(Op::Get, &call)
        };
        if let Some(told) = self.ask(&call, question, "get", &body, AT_ONCE).await
            && code(&told) != "not_found"
            && !sent_away(&told)
        {
            self.desk
                .surprised(format!("what must be refused has left a call: {told}"));
        }
    }

    async fn ask_for_end(&self, id: String, question: Question) {
        let wait_ms = u64::try_from(WAIT.as_millis()).expect("it is short");
        let body = json!({ "call_id": id, "wait_ms": wait_ms });
        let call = Call::as_item(self.desk.seed, question.n);
        self.ask(&call, question, "get", &body, WAIT + SLACK).await;
    }
}

/// Keys of which a submission was left without an answer, with the number of their call.
fn unanswered_keys(entries: &[Entry]) -> BTreeMap<String, u64> {
    let answered: BTreeSet<_> = entries
        .iter()
        .filter(|entry| entry.phase == Phase::Answered)
        .map(|entry| entry.op_id)
        .collect();
    let submits = |op| matches!(op, Op::Submit | Op::SubmitAsync | Op::Batch | Op::Replay);
    let open = entries.iter().filter(|entry| {
        entry.phase == Phase::Asked && submits(entry.op) && !answered.contains(&entry.op_id)
    });
    open.filter_map(|entry| Some((entry.key.clone()?, entry.n)))
        .collect()
}

/// Every call id that an answer told, with what it is about.
fn told_calls(entries: Vec<Entry>) -> BTreeMap<String, Question> {
    let told = entries.into_iter().filter_map(|entry| {
        let id = entry.answer.as_ref()?["call_id"].as_str()?.to_owned();
        let question = Question {
            op: Op::Get,
            n: entry.n,
            tool: entry.tool,
            mode: entry.mode,
            key: entry.key,
            call_id: Some(id.clone()),
        };
        Some((id, question))
    });
    told.collect()
}
