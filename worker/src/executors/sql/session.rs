//! One attempt's transaction, in two messages: `BEGIN` with its limits, what the tool may know and the statement; then what ends
//! the call and `COMMIT`.
//!
//! The caller awaits each method of a [`Session`] to its end or drops the session, which closes the connection: a transaction
//! that is not committed by [`Session::commit`] is rolled back by the server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering},
    },
    time::Duration,
};

use fleet::{
    ids::{AttemptId, CallId},
    manifest::RowBounds,
    store::{complete::Moved, transaction},
    wire::message::Message,
};
use tokio::time::timeout;

use super::{
    answer::SqlAnswer,
    database::{Database, Open},
    limits::Limits,
    not_committed::{NotCommitted, Phase},
    statement::Statement,
    tidy::{COMMIT, COMMITTED, Found, is_clean},
    wire::{CancelKey, Format, JSON, UUID, Wire, WireReply, columns},
};

/// How long a connection that was idle may take to show that it is alive.
const IDLE_ANSWER: Duration = Duration::from_secs(1);

/// So many statements come before the tool's: `BEGIN`, and what sets limits and facts.
const BEFORE: u32 = 2;

/// What is seen of an attempt from outside, while its future runs. Clones see the same attempt.
#[derive(Debug, Clone, Default)]
pub struct Watch(Arc<WatchState>);

#[derive(Debug, Default)]
struct WatchState {
    phase: AtomicU8,
    pid: AtomicI32,
    secret: AtomicI32,
    cut: AtomicBool,
}

impl Watch {
    /// How far it came.
    pub fn phase(&self) -> Phase {
        match self.0.phase.load(Ordering::SeqCst) {
            0 => Phase::Before,
            1 => Phase::Statement,
            _ => Phase::Commit,
        }
    }

    /// What ends its statement; `None` before one was sent.
    pub(super) fn key(&self) -> Option<CancelKey> {
        let pid = self.0.pid.load(Ordering::SeqCst);
        (pid != 0).then(|| CancelKey {
            pid,
            secret: self.0.secret.load(Ordering::SeqCst),
        })
    }

    /// Tells it to take no further step.
    pub fn cut(&self) {
        self.0.cut.store(true, Ordering::SeqCst);
    }

    /// Whether it was told so.
    pub fn is_cut(&self) -> bool {
        self.0.cut.load(Ordering::SeqCst)
    }

    fn enter(&self, phase: Phase) {
        self.0.phase.store(phase as u8, Ordering::SeqCst);
    }

    fn serve(&self, key: CancelKey) {
        self.0.secret.store(key.secret, Ordering::SeqCst);
        self.0.pid.store(key.pid, Ordering::SeqCst);
    }
}

/// How a call ends with its transaction.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    /// The call.
    pub call: CallId,
    /// The attempt that holds it.
    pub attempt: AttemptId,
    /// Its result, JSON text.
    pub result: &'a str,
}

/// What was committed.
pub struct Committed {
    /// How the call ended in it, where it was to.
    pub ended: Option<Moved>,
    /// Whether the connection is fit for another call.
    pub is_clean: bool,
}

/// An open transaction, or one whose `BEGIN` goes with its statement.
pub struct Session<'a> {
    database: &'a Database,
    facts: Vec<(String, String)>,
    open: Open,
    watch: Watch,
    limits: Limits,
    /// So many statements before the tool's are not answered yet.
    unanswered: u32,
    is_reused: bool,
}

impl<'a> Session<'a> {
    /// Takes a connection, an idle one if one is alive, and prepares a transaction with these facts on it.
    ///
    /// # Errors
    ///
    /// There is no connection, or the server refuses. Nothing of the tool was sent.
    pub async fn begin(
        database: &'a Database,
        limits: Limits,
        facts: Vec<(String, String)>,
        watch: &Watch,
    ) -> Result<Self, NotCommitted> {
        let begun = |open, facts, unanswered, is_reused| Self {
            database,
            facts,
            open,
            watch: watch.clone(),
            limits,
            unanswered,
            is_reused,
        };
        if let Some(mut open) = database.idle() {
            if open.wire.is_quiet().await {
                begin(&mut open.wire, &limits, &facts)?;
                if open.answered_lately() {
                    return Ok(begun(open, facts, BEFORE, true));
                }
                // Of a statement that went to a connection gone silent, nothing could tell whether it was run.
                let answered = timeout(IDLE_ANSWER, alone(&mut open.wire)).await;
                if matches!(answered, Ok(Ok(()))) {
                    return Ok(begun(open, facts, 0, true));
                }
            }
            // The others are as old: a server that was restarted closed them all.
            database.forget_idle();
        }
        let open = fresh(database, &limits, &facts).await?;
        Ok(begun(open, facts, BEFORE, false))
    }

    /// Runs a statement and reads its whole answer: an array of objects, or how many rows it touched.
    ///
    /// # Errors
    ///
    /// The server refuses, is gone, has more to say than it may, or other than `expected` many rows: then the transaction
    /// must not be committed.
    pub async fn run(
        &mut self,
        statement: &Statement,
        values: &[Option<String>],
        expected: Option<RowBounds>,
    ) -> Result<String, NotCommitted> {
        self.step()?;
        let is_new = match self.send(statement, values).await {
            // The server ended the idle connection just now. It has not come to the statement.
            Err(NotCommitted::Refused(refusal))
                if refusal.is_fatal && self.is_reused && self.watch.phase() == Phase::Before =>
            {
                self.database.forget_idle();
                self.open = fresh(self.database, &self.limits, &self.facts).await?;
                (self.unanswered, self.is_reused) = (BEFORE, false);
                self.send(statement, values).await?
            }
            sent => sent?,
        };
        let wire = &mut self.open.wire;
        wire.bound_rows(self.limits.output_limit);
        let mut answer = SqlAnswer::new(statement, self.limits.output_limit, expected);
        loop {
            match wire.reply().await? {
                WireReply::Columns(columns) if is_new => answer.check(columns.as_ref())?,
                WireReply::Columns(_) => {}
                WireReply::Row(row) => answer.push(&row)?,
                WireReply::Complete(tag) => answer.add_affected(affected(tag.tag())),
                WireReply::Ready => break,
            }
        }
        if let Some(expected) = expected
            && !expected.admit(answer.count())
        {
            return Err(NotCommitted::Unexpected {
                expected,
                rows: answer.count(),
            });
        }
        Ok(answer.json())
    }

    /// Sends the statement with all that goes before it, and reads the answers up to its own. `true`: the connection has it for
    /// the first time, and describes it.
    async fn send(
        &mut self,
        statement: &Statement,
        values: &[Option<String>],
    ) -> Result<bool, NotCommitted> {
        let wire = &mut self.open.wire;
        let (name, is_new) = wire.prepare(&statement.text)?;
        wire.execute(&name, Format::Text, values)?;
        wire.sync();
        self.watch.serve(wire.key());
        self.watch.enter(Phase::Statement);
        wire.flush().await?;
        while self.unanswered > 0 {
            match wire.reply().await {
                Ok(WireReply::Complete(_)) => self.unanswered -= 1,
                Ok(WireReply::Columns(_) | WireReply::Row(_)) => {}
                Ok(WireReply::Ready) => return Err(NotCommitted::Lost),
                Err(error) => {
                    // The server has skipped the statement.
                    if matches!(error, NotCommitted::Refused(_)) {
                        self.watch.enter(Phase::Before);
                    }
                    return Err(error);
                }
            }
        }
        Ok(is_new)
    }

    /// Ends the call, if it is to end with it, and commits.
    ///
    /// # Errors
    ///
    /// The server refuses: nothing was committed. Or it is gone, or going: then it is not known whether anything was.
    pub async fn commit(&mut self, ends: Option<Ends<'_>>) -> Result<Committed, NotCommitted> {
        self.step()?;
        let wire = &mut self.open.wire;
        wire.until_ready().await?;
        if let Some(Ends {
            call,
            attempt,
            result,
        }) = ends
        {
            // Sent whole each time: the statement could have put another in the place of what is prepared.
            wire.execute_once(
                transaction::SUCCEED,
                &[UUID, UUID, JSON],
                &[
                    Some(call.0.as_bytes()),
                    Some(attempt.0.as_bytes()),
                    Some(result.as_bytes()),
                ],
            )?;
            wire.sync();
        }
        wire.query(COMMIT)?;
        wire.bound_own();
        self.watch.enter(Phase::Commit);
        wire.flush().await?;
        let ended = match ends {
            None => None,
            Some(_) => Some(self.ended().await?),
        };
        let found = self.committed().await?;
        let is_clean = match found {
            Some(found) => is_clean(&mut self.open.wire, found).await,
            None => false,
        };
        Ok(Committed { ended, is_clean })
    }

    /// The answer to what ends the call. After an error `COMMIT` finds a transaction that has failed.
    async fn ended(&mut self) -> Result<Moved, NotCommitted> {
        let mut moved = None;
        loop {
            match self.open.wire.reply().await {
                Ok(WireReply::Row(row)) => {
                    let read = transaction::moved(columns(&row)?);
                    moved = Some(read.map_err(|_unreadable| NotCommitted::Lost)?);
                }
                Ok(WireReply::Ready) => return moved.ok_or(NotCommitted::Lost),
                Ok(WireReply::Columns(_) | WireReply::Complete(_)) => {}
                Err(error) => {
                    if matches!(error, NotCommitted::Refused(_)) {
                        self.watch.enter(Phase::Statement);
                    }
                    return Err(not_ended(error));
                }
            }
        }
    }

    /// The answer to [`COMMIT`], once that has committed; `None`: the connection broke afterwards.
    async fn committed(&mut self) -> Result<Option<Found>, NotCommitted> {
        let (mut answered, mut found) = (0, Found::default());
        loop {
            match self.open.wire.reply().await {
                Ok(WireReply::Complete(_)) => answered += 1,
                Ok(WireReply::Row(row)) if answered >= COMMITTED => {
                    found.add(columns(&row)?.next().flatten());
                }
                Ok(WireReply::Row(_) | WireReply::Columns(_)) => {}
                Ok(WireReply::Ready) if answered >= COMMITTED => return Ok(Some(found)),
                Ok(WireReply::Ready) => return Err(NotCommitted::Lost),
                // Once it said that it committed, it can take nothing back.
                Err(_gone_afterwards) if answered >= COMMITTED => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// The connection for [`Database::take_back`], once it is clean.
    pub fn into_open(self) -> Open {
        self.open
    }

    /// Ends a transaction that failed, and closes its connection.
    pub async fn abandon(self) {
        self.open.abandon().await;
    }

    /// Before every step: whether there is to be another.
    pub fn step(&self) -> Result<(), NotCommitted> {
        if self.watch.is_cut() {
            Err(NotCommitted::Cut)
        } else {
            Ok(())
        }
    }
}

/// A fresh connection, with the beginning of a transaction gathered.
async fn fresh(
    database: &Database,
    limits: &Limits,
    facts: &[(String, String)],
) -> Result<Open, NotCommitted> {
    let opening = database.open(limits.until).await;
    let mut open = opening.map_err(NotCommitted::NoConnection)?;
    begin(&mut open.wire, limits, facts)?;
    Ok(open)
}

/// Gathers `BEGIN`, the limits and the facts. If `BEGIN` fails, the server skips all that is sent with it.
fn begin(wire: &mut Wire, limits: &Limits, facts: &[(String, String)]) -> Result<(), NotCommitted> {
    wire.command(if limits.read_only {
        "BEGIN READ ONLY"
    } else {
        "BEGIN READ WRITE"
    })?;
    let settings = limits.settings();
    let settings = settings
        .iter()
        .map(|(name, value)| ("", *name, value.as_str()));
    let facts = facts
        .iter()
        .map(|(name, value)| ("toolfleet.", name.as_str(), value.as_str()));
    let (mut calls, mut values) = (String::new(), Vec::new());
    for (index, (prefix, name, value)) in settings.chain(facts).enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let place = index + 1;
        let call = format!("{comma}pg_catalog.set_config('{prefix}{name}', ${place}, true)");
        calls.push_str(&call);
        values.push(Some(value));
    }
    // One row that says next to nothing. Names are ours, and nothing is looked for along the role's `search_path`, where the role
    // may have put something else; the statement and what it calls read facts with `current_setting('toolfleet.NAME')`.
    let text: Arc<str> = format!("SELECT pg_catalog.num_nulls({calls})").into();
    let (name, _is_new) = wire.prepare(&text)?;
    wire.execute(&name, Format::Text, &values)
}

/// Sends what was gathered, by itself.
async fn alone(wire: &mut Wire) -> Result<(), NotCommitted> {
    wire.sync();
    wire.flush().await?;
    wire.until_ready().await
}

/// Why a call could not be ended.
fn not_ended(error: NotCommitted) -> NotCommitted {
    match error {
        NotCommitted::Refused(refusal) if refusal.sqlstate == transaction::NOT_OURS => {
            NotCommitted::Taken
        }
        NotCommitted::Refused(refusal) if refusal.sqlstate == transaction::BAD_RESULT => {
            let message = refusal.message;
            let chinese = format!("账本不接受这个结果：{message}");
            NotCommitted::Unusable(Message::new(message, chinese))
        }
        other => other,
    }
}

/// How many rows a statement says that it changed or returned.
fn affected(tag: std::io::Result<&str>) -> u64 {
    let count = tag.ok().and_then(|tag| tag.rsplit(' ').next());
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}
