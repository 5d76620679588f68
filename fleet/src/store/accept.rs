//! Commit a call: its row and its key, in one statement for many callers.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use futures_util::future::BoxFuture;
use sqlx::{PgConnection, Row as _};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{
    columns::sparse,
    lane::{Locks, Statement},
    statement::put_together,
};
use crate::{
    approval::ApprovalWanted,
    arguments::Coercion,
    call::{Awaiting, Effect, Language, Priority},
    checkpoint::Checkpoint,
    hold::Line,
    ids::{AttemptId, CallId, DispatcherId, FileId, Label, QueueName, ToolName},
    rate_key::RateKey,
    wire::{event::SessionCall, proof::DoneSecret, trace::TraceContext},
};

/// A call that passed the door.
#[derive(Debug, Clone)]
pub struct NewCall {
    /// Made by the dispatcher, so that a repeated accept is recognised.
    pub call_id: CallId,
    /// Who asks.
    pub tenant: Label,
    /// The tool.
    pub tool: ToolName,
    /// The version it is pinned to.
    pub tool_version: i32,
    /// What running it again would mean.
    pub effect: Effect,
    /// Which workers run it.
    pub queue: QueueName,
    /// Before or after the tenant's other calls.
    pub priority: Priority,
    /// For whom it waits as soon as it is accepted; `None`: for a worker.
    pub waits: Option<FirstWait>,
    /// Where it waits while it is held.
    pub line: Line,
    /// Which calls of its tool it shares start times with, where each value of an argument has its own.
    pub rate_key: Option<RateKey>,
    /// Whether it is not to be published yet.
    pub held: bool,
    /// The caller's key, hashed.
    pub key: Option<NewKey>,
    /// How long the key lives after the call is terminal.
    pub key_retention_ms: i64,
    /// The arguments in canonical form.
    pub args: String,
    /// What is left of them once the call is over, where the tool does not let them be kept.
    pub kept_args: Option<String>,
    /// SHA-256 of [`Self::args`], with the files where it names some ([`crate::files::hash`]).
    pub args_hash: [u8; 32],
    /// The files that it names.
    pub files: Vec<FileId>,
    /// The arguments as they were sent, where something was changed in them.
    pub original_args: Option<String>,
    /// What was changed.
    pub coercions: Vec<Coercion>,
    /// Whether its answer is no other call's, and no other call's is its answer.
    pub no_store: bool,
    /// The caller's session.
    pub session: Option<Label>,
    /// The caller's run.
    pub run: Option<Label>,
    /// The caller's meta, a JSON object.
    pub meta: Option<String>,
    /// The language of messages.
    pub language: Language,
    /// The trace the call belongs to.
    pub trace: TraceContext,
    /// Who accepts it.
    pub dispatcher: DispatcherId,
    /// With what the worker that claims it proves its answer.
    pub done_secret: DoneSecret,
    /// From acceptance.
    pub deadline_ms: i64,
    /// The caller's cap on every call of its run.
    pub run_deadline: Option<OffsetDateTime>,
    /// How long its first attempt may be waited for.
    pub queue_wait_ms: Option<i64>,
}

impl NewCall {
    /// The call, as far as it says who hears of it.
    pub fn followed(&self) -> SessionCall<'_> {
        SessionCall {
            tenant: &self.tenant,
            session: self.session.as_ref(),
            tool: self.tool.as_str(),
            tool_version: self.tool_version,
        }
    }

    /// For whom it waits as soon as it is accepted.
    pub fn awaits(&self) -> Option<Awaiting> {
        self.waits.as_ref().map(|wait| match wait {
            FirstWait::Client(_) => Awaiting::Client,
            FirstWait::Approval { .. } => Awaiting::Approval,
        })
    }

    fn hand_over(&self) -> Option<HandOver> {
        match self.waits.as_ref()? {
            FirstWait::Client(hand_over) => Some(*hand_over),
            FirstWait::Approval { .. } => None,
        }
    }

    /// How long after its acceptance a call expires unless a worker claims it. Its deadline goes on after the claim.
    pub fn lasts(&self, accepted: AcceptedAt) -> Duration {
        let millis = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        let of_run = self
            .run_deadline
            .map(|until| Duration::try_from(until - accepted.accepted_at).unwrap_or_default());
        let clocks = [self.queue_wait_ms.map(millis), of_run];
        let clocks = clocks.into_iter().flatten();
        clocks.fold(millis(self.deadline_ms), Duration::min)
    }
}

/// For whom a call waits as soon as it is accepted.
#[derive(Debug, Clone)]
pub enum FirstWait {
    /// For the program of its caller, which runs it.
    Client(HandOver),
    /// For a yes.
    Approval {
        /// How long that is waited for.
        expires_ms: i64,
        /// Whose, and what follows.
        wanted: Box<ApprovalWanted>,
    },
}

impl FirstWait {
    /// How long it waits at most, from acceptance.
    pub const fn wait_ms(&self) -> i64 {
        match self {
            Self::Client(hand_over) => hand_over.timeout_ms,
            Self::Approval { expires_ms, .. } => *expires_ms,
        }
    }

    fn wanted(&self) -> Option<String> {
        match self {
            Self::Client(_) => None,
            Self::Approval { wanted, .. } => {
                Some(serde_json::to_string(wanted).expect("it has texts and numbers alone"))
            }
        }
    }
}

/// A call is handed to its caller's program.
#[derive(Debug, Clone, Copy)]
pub struct HandOver {
    /// Its first and only attempt.
    pub attempt: AttemptId,
    /// How long that program has.
    pub timeout_ms: i64,
}

/// A key that a call takes.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// SHA-256 of the tenant and the key.
    pub hash: [u8; 32],
    /// SHA-256 of the arguments as they were sent.
    pub original_hash: [u8; 32],
    /// The lapsed call that had the key before.
    pub replaces: Option<CallId>,
}

/// The ledger's answer for a call that it stored.
#[derive(Debug, Clone, Copy)]
pub struct AcceptedAt {
    /// On Postgres's clock.
    pub accepted_at: OffsetDateTime,
}

/// The statement.
///
/// Own autocommit statement; guards: the primary key of the key, and that the tenant has the files that the call names. A row that does
/// not come back found its key taken, or a file gone: look the key up in a new statement, for this one may have waited and sees neither
/// call, and then look for the files. Safe to repeat only with a key.
#[derive(Debug)]
pub struct Accept;

/// The usual statement, which knows nothing of files.
static PLAIN: LazyLock<String> = LazyLock::new(|| accepting("", "", "input", ""));
/// The one for calls of which at least one names files.
static WITH_FILES: LazyLock<String> = LazyLock::new(|| {
    accepting(
        ", unnest($37::text[]) AS files",
        include_str!("sql/accept_fit.sql"),
        "fit",
        include_str!("sql/accept_files.sql"),
    )
});

fn accepting(files: &str, with_files: &str, fit: &str, named: &str) -> String {
    let parts = [
        ("files of input", files),
        ("with files", with_files),
        ("fit", fit),
        ("named by calls", named),
    ];
    put_together(include_str!("sql/accept.sql"), &parts)
}

impl Statement for Accept {
    /// Shared with the task that publishes the call after its commit.
    type Row = Arc<NewCall>;
    type Answer = AcceptedAt;
    /// The hash contains the tenant.
    type Key = Result<[u8; 32], CallId>;

    const NAME: &'static str = "accept";
    const SENT: Option<Checkpoint> = Some(Checkpoint::CommitSent);

    fn key(row: &Arc<NewCall>) -> Self::Key {
        row.key.as_ref().map(|key| key.hash).ok_or(row.call_id)
    }

    fn weight(row: &Arc<NewCall>) -> usize {
        let also = [&row.kept_args, &row.original_args, &row.meta];
        let also: usize = also.into_iter().flatten().map(String::len).sum();
        let changes = row.coercions.iter();
        let changes: usize = changes.map(|change| change.path.len() + 64).sum();
        row.args.len() + also + changes + 512
    }

    fn run<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        rows: &'a [Arc<NewCall>],
        _locks: Locks,
    ) -> BoxFuture<'a, Result<Vec<Option<AcceptedAt>>, sqlx::Error>> {
        Box::pin(async move {
            let text = |of: fn(&NewCall) -> &str| rows.iter().map(|r| of(r)).collect::<Vec<_>>();
            let maybe = |of: fn(&NewCall) -> Option<&str>| sparse(rows.iter().map(|r| of(r)));
            let ids: Vec<Uuid> = rows.iter().map(|r| r.call_id.0).collect();
            let keys = || rows.iter().map(|r| r.key.as_ref());
            let key_hashes = sparse(keys().map(|key| Some(&key?.hash[..])));
            let originals = sparse(keys().map(|key| Some(&key?.original_hash[..])));
            let replaces = sparse(keys().map(|key| Some(key?.replaces?.0)));
            let have_files = rows.iter().any(|row| !row.files.is_empty());
            let sql = if have_files { &WITH_FILES } else { &PLAIN };
            let accepting = sqlx::query(sql.as_str())
                .bind(&ids)
                .bind(text(|r| r.tenant.as_str()))
                .bind(text(|r| r.tool.as_str()))
                .bind(rows.iter().map(|r| r.tool_version).collect::<Vec<_>>())
                .bind(text(|r| r.effect.as_str()))
                .bind(text(|r| r.queue.as_str()))
                .bind(rows.iter().map(|r| r.priority as i16).collect::<Vec<_>>())
                .bind(key_hashes)
                .bind(originals)
                .bind(replaces)
                .bind(rows.iter().map(|r| r.key_retention_ms).collect::<Vec<_>>())
                .bind(rows.iter().map(|r| r.args.as_str()).collect::<Vec<_>>())
                .bind(rows.iter().map(|r| &r.args_hash[..]).collect::<Vec<_>>())
                .bind(maybe(|r| r.session.as_ref().map(Label::as_str)))
                .bind(maybe(|r| r.run.as_ref().map(Label::as_str)))
                .bind(maybe(|r| r.meta.as_deref()))
                .bind(text(|r| r.language.as_str()))
                .bind(maybe(|r| r.trace.traceparent.as_deref()))
                .bind(maybe(|r| r.trace.tracestate.as_deref()))
                .bind(maybe(|r| r.trace.baggage.as_deref()))
                .bind(rows.iter().map(|r| r.dispatcher.0).collect::<Vec<_>>())
                .bind(rows.iter().map(|r| r.deadline_ms).collect::<Vec<_>>())
                .bind(sparse(rows.iter().map(|r| r.run_deadline)))
                .bind(sparse(rows.iter().map(|r| r.queue_wait_ms)))
                .bind(maybe(|r| r.kept_args.as_deref()))
                .bind(maybe(|r| r.original_args.as_deref()))
                .bind(sparse(rows.iter().map(|r| changes(&r.coercions))))
                .bind(rows.iter().map(|r| r.line.to_string()).collect::<Vec<_>>())
                .bind(rows.iter().map(|r| r.held).collect::<Vec<_>>())
                .bind(rows.iter().map(|r| r.done_secret.0).collect::<Vec<_>>())
                .bind(sparse(rows.iter().map(|r| r.no_store.then_some(true))))
                .bind(sparse(
                    rows.iter().map(|r| r.awaits().map(Awaiting::as_str)),
                ))
                .bind(sparse(rows.iter().map(|r| Some(r.hand_over()?.attempt.0))))
                .bind(sparse(
                    rows.iter().map(|r| Some(r.waits.as_ref()?.wait_ms())),
                ))
                .bind(sparse(rows.iter().map(|r| Some(r.rate_key?.to_string()))))
                .bind(sparse(rows.iter().map(|r| r.waits.as_ref()?.wanted())));
            let accepting = if have_files {
                accepting.bind(sparse(rows.iter().map(|r| array(&r.files))))
            } else {
                accepting
            };
            let decided = accepting.fetch_all(connection).await?;
            let mut accepted = std::collections::HashMap::with_capacity(decided.len());
            for row in decided {
                accepted.insert(
                    row.try_get::<Uuid, _>(0)?,
                    AcceptedAt {
                        accepted_at: row.try_get(1)?,
                    },
                );
            }
            Ok(ids.iter().map(|id| accepted.remove(id)).collect())
        })
    }
}

/// The files of one call as the text of an array: an array of arrays would have rows of one length.
fn array(files: &[FileId]) -> Option<String> {
    let ids: Vec<String> = files.iter().map(FileId::to_string).collect();
    (!ids.is_empty()).then(|| format!("{{{}}}", ids.join(",")))
}

/// The changes as they are stored; `None` where there are none.
pub(super) fn changes(coercions: &[Coercion]) -> Option<String> {
    let text = || serde_json::to_string(coercions).expect("a coercion has only string keys");
    (!coercions.is_empty()).then(text)
}
