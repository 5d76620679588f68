//! A ledger with its lanes, calls to put into it, and endings.

use std::sync::atomic::{AtomicU64, Ordering};

use fleet::{
    approval::ApprovalWanted,
    call::{CallOutcome, Effect, EffectKnown, Language, Priority, Source, State},
    ids::{AttemptId, CallId, DispatcherId, Label, WorkerId},
    manifest::ApprovedBy,
    modes::InterceptMode,
    outcome::OutcomeWord,
    store::{
        accept::{FirstWait, HandOver, NewCall, NewKey},
        approvals::{Approval, Ruling},
        claim::{ClaimRow, Claimed},
        complete::{Decision, EndedAttempt, Ending, EndingKind, Guard},
        lane::Reply,
        ledger::{Accepting, Claiming, Completing},
        limited::LimitedRow,
        read::{self, CallRow, CallState},
        session::Postgres,
        workers::{self, Evidence, Fence, Fenced, WorkerRow},
    },
};
use fleet_tests::{postgres::Database, wait};
use sqlx::PgConnection;
use tokio::task::JoinSet;

/// A database and the lanes of one process on it.
pub(crate) struct Ledger {
    pub(crate) accepting: Accepting,
    pub(crate) completing: Completing,
    pub(crate) lanes: JoinSet<()>,
    pub(crate) database: Database,
}

/// A registered worker and its lane.
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) claiming: Claiming,
}

impl Ledger {
    pub(crate) async fn fresh() -> Self {
        Self::on(Database::fresh().await)
    }

    pub(crate) fn on(database: Database) -> Self {
        let mut lanes = JoinSet::new();
        Self {
            accepting: Accepting::start(&database.postgres, &mut lanes),
            completing: Completing::start(&database.postgres, &mut lanes),
            lanes,
            database,
        }
    }

    pub(crate) async fn worker(&mut self) -> Worker {
        let postgres = self.database.postgres.clone();
        self.worker_through(&postgres).await
    }

    /// A worker whose lane takes another way to the database.
    pub(crate) async fn worker_through(&mut self, postgres: &Postgres) -> Worker {
        let row = worker_row();
        workers::register(&mut self.database.connect().await, &row)
            .await
            .unwrap();
        Worker {
            id: row.worker_id,
            claiming: Claiming::start(row.worker_id, postgres, &mut self.lanes),
        }
    }

    pub(crate) async fn queued(&self) -> CallId {
        self.accepted(new_call()).await
    }

    pub(crate) async fn accepted(&self, call: NewCall) -> CallId {
        let id = call.call_id;
        match self.accepting.accept(call).await {
            Reply::Done(_) => id,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn many_queued(&self, count: usize) -> Vec<CallId> {
        let calls = (0..count).map(|_| self.queued());
        futures_util::future::join_all(calls).await
    }

    pub(crate) async fn running(&self, worker: &Worker) -> (CallId, AttemptId) {
        let call = self.queued().await;
        (call, worker.claims(call).await)
    }

    pub(crate) async fn in_doubt(&self, worker: &Worker) -> (CallId, AttemptId) {
        let (call, attempt) = self.running(worker).await;
        self.ends(doubted(call, attempt)).await;
        (call, attempt)
    }

    /// Completes and expects that it moves.
    pub(crate) async fn ends(&self, ending: Ending) {
        let ended = self.completing.complete(&ending, wait::LONG).await.unwrap();
        assert!(ended.is_some(), "{ending:?} moved nothing");
    }

    pub(crate) async fn find(&self, call: CallId) -> CallRow {
        read::find(&self.database.pool, call)
            .await
            .unwrap()
            .expect("the call exists")
    }

    pub(crate) async fn is_held(&self, call: CallId) -> bool {
        matches!(
            self.find(call).await.state,
            CallState::Queued { held: true, .. }
        )
    }

    pub(crate) async fn state(&self, call: CallId) -> State {
        self.find(call).await.state()
    }

    /// Runs a statement behind the ledger's back, with one call's id as `$1`.
    pub(crate) async fn meddle(&self, call: CallId, sql: &'static str) {
        let done = sqlx::query(sql)
            .bind(call.0)
            .execute(&self.database.pool)
            .await
            .unwrap();
        assert_eq!(done.rows_affected(), 1, "{sql}");
    }
}

impl Worker {
    pub(crate) async fn tries(&self, call: CallId) -> Option<Claimed> {
        self.claiming.claim(claim_of(call)).await.unwrap()
    }

    pub(crate) async fn claims(&self, call: CallId) -> AttemptId {
        let row = claim_of(call);
        let attempt = row.attempt_id;
        assert!(self.claiming.claim(row).await.unwrap().is_some());
        attempt
    }
}

pub(crate) fn worker_row() -> WorkerRow {
    WorkerRow {
        worker_id: WorkerId::generate(),
        name: "worker".into(),
        host: "host".into(),
        pid: 1,
        queues: vec!["default".parse().unwrap()],
        concurrency: 4,
        sandbox: serde_json::json!({}),
        interceptors: Vec::new(),
    }
}

pub(crate) fn tenant() -> Label {
    "tenant".parse().unwrap()
}

pub(crate) fn new_call() -> NewCall {
    NewCall {
        call_id: CallId::generate(),
        tenant: tenant(),
        tool: "tool".parse().unwrap(),
        tool_version: 1,
        effect: Effect::Once,
        queue: "default".parse().unwrap(),
        priority: Priority::Normal,
        waits: None,
        line: "default".parse().unwrap(),
        rate_key: None,
        held: false,
        key: None,
        key_retention_ms: 24 * 3_600_000,
        args: "{}".into(),
        kept_args: None,
        original_args: None,
        files: Vec::new(),
        coercions: Vec::new(),
        args_hash: [1; 32],
        no_store: false,
        session: None,
        run: None,
        meta: None,
        language: Language::En,
        trace: Default::default(),
        dispatcher: DispatcherId::generate(),
        done_secret: fleet::wire::proof::DoneSecret::generate(),
        deadline_ms: 600_000,
        run_deadline: None,
        queue_wait_ms: None,
    }
}

/// A call that its caller's program is to run.
pub(crate) fn handed_call() -> NewCall {
    NewCall {
        waits: Some(FirstWait::Client(HandOver {
            attempt: AttemptId::generate(),
            timeout_ms: 60_000,
        })),
        ..new_call()
    }
}

/// A call that waits for a yes.
pub(crate) fn call_to_approve(wanted: ApprovalWanted) -> NewCall {
    NewCall {
        waits: Some(FirstWait::Approval {
            expires_ms: 60_000,
            wanted: Box::new(wanted),
        }),
        ..new_call()
    }
}

/// One operator's yes.
pub(crate) fn wanted() -> ApprovalWanted {
    ApprovalWanted {
        by: ApprovedBy::Operator,
        count: 1,
        reason: None,
        salt: None,
        deadline_ms: 600_000,
        run_deadline: None,
        queue_wait_ms: None,
        client_ms: None,
    }
}

/// Somebody's yes to a call with the arguments of [`new_call`].
pub(crate) fn approval(call: CallId, actor: &str) -> Approval<'_> {
    Approval {
        call,
        tenant: None,
        ruling: Ruling::Approve,
        args_hash: "0101010101010101010101010101010101010101010101010101010101010101",
        actor,
        note: "looked at it",
    }
}

pub(crate) fn keyed_call(key: [u8; 32]) -> NewCall {
    NewCall {
        key: Some(NewKey {
            hash: key,
            original_hash: [2; 32],
            replaces: None,
        }),
        ..new_call()
    }
}

/// A key that no other test and no other call uses.
pub(crate) fn new_key() -> [u8; 32] {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let mut key = [7; 32];
    key[..8].copy_from_slice(&LAST.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    key
}

/// The same claims of tools with a limit that holds.
pub(crate) fn enforced(rows: &[ClaimRow]) -> Vec<LimitedRow> {
    let limited = rows.iter().map(|claim| LimitedRow {
        claim: claim.clone(),
        rate_mode: InterceptMode::Enforce,
    });
    limited.collect()
}

pub(crate) fn claim_of(call: CallId) -> ClaimRow {
    ClaimRow {
        call_id: call,
        attempt_id: AttemptId::generate(),
        timeout_ms: 60_000,
    }
}

pub(crate) fn ending(call: CallId, guard: Guard, kind: EndingKind) -> Ending {
    let attempt = matches!(guard, Guard::Attempt(_)).then_some(EndedAttempt {
        outcome: match kind {
            EndingKind::End(_) => OutcomeWord::Applied,
            EndingKind::Again { .. } => OutcomeWord::NotStarted,
            EndingKind::Doubt(_) => OutcomeWord::Unknown,
        },
        effect: EffectKnown::Unknown,
        error: None,
        has_stopped: true,
    });
    Ending {
        call_id: call,
        guard,
        kind,
        attempt,
        actor: "test".into(),
        reason: "because".into(),
    }
}

pub(crate) fn end_in(state: State) -> EndingKind {
    EndingKind::End(Decision {
        state,
        outcome: match state {
            State::Succeeded => CallOutcome::Success,
            _ => CallOutcome::SystemError,
        },
        source: match state {
            State::Succeeded => Source::Live,
            _ => Source::Error,
        },
        effect: EffectKnown::Applied,
        result: (state == State::Succeeded).then(|| "{\"done\":true}".to_owned()),
        error: None,
        preview: None,
        degraded: None,
    })
}

pub(crate) fn again() -> EndingKind {
    EndingKind::Again {
        pause_ms: 0,
        cost: fleet::store::complete::AttemptCost::Spent,
    }
}

pub(crate) fn doubt() -> EndingKind {
    let error = "{\"code\":\"timeout\",\"message\":\"m\"}";
    EndingKind::Doubt(Decision::doubt(Some(error.into())))
}

/// A doubt of an attempt whose worker has not seen it end.
pub(crate) fn lost(call: CallId, attempt: AttemptId) -> Ending {
    let ending = doubted(call, attempt);
    Ending {
        attempt: ending.attempt.map(|attempt| EndedAttempt {
            has_stopped: false,
            ..attempt
        }),
        ..ending
    }
}

pub(crate) fn succeeded(call: CallId, attempt: AttemptId) -> Ending {
    ending(call, Guard::Attempt(attempt), end_in(State::Succeeded))
}

pub(crate) fn doubted(call: CallId, attempt: AttemptId) -> Ending {
    ending(call, Guard::Attempt(attempt), doubt())
}

pub(crate) fn repeated(call: CallId, attempt: AttemptId) -> Ending {
    ending(call, Guard::Attempt(attempt), again())
}

/// Fences a worker as one does who has taken its lock.
pub(crate) async fn proven_gone(connection: &mut PgConnection, worker: WorkerId) -> Fenced {
    let fence = Fence {
        worker,
        by: "test",
        note: "lock released",
        evidence: Evidence::Lock,
    };
    workers::fence(connection, fence).await.unwrap()
}

/// Waits until as many statements of this database wait for a lock.
pub(crate) async fn until_blocked(database: &Database, count: i64) {
    wait::until_so("a statement that waits for a lock", async || {
        let blocked: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity \
             WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
        .fetch_one(&database.pool)
        .await
        .unwrap();
        blocked >= count
    })
    .await;
}

/// Opens a transaction that holds the call's row.
pub(crate) async fn holding(database: &Database, call: CallId) -> PgConnection {
    let mut connection = database.connect().await;
    run(&mut connection, "BEGIN").await;
    sqlx::query("SELECT FROM toolfleet.open_calls WHERE call_id = $1 FOR UPDATE")
        .bind(call.0)
        .execute(&mut connection)
        .await
        .unwrap();
    connection
}

pub(crate) async fn run(connection: &mut PgConnection, sql: &'static str) {
    sqlx::query(sql).execute(connection).await.unwrap();
}
