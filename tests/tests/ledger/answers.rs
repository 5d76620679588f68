//! Kept answers: who fetches, who follows, who is answered; whatever comes at the same time.

use std::time::Duration;

use fleet::{
    call::{Effect, Language, State},
    ids::CallId,
    store::{
        accept::NewCall,
        answers::{self, LookRow, Looked, Looking},
        complete::{Decision, EndingKind, Guard},
        followers::{self, FetchedAnswer, FollowedCall},
        stand_ins,
    },
};
use futures_util::future::join_all;
use sqlx::PgPool;
use tokio::task::JoinSet;

use crate::support::{Ledger, Worker, end_in, ending, new_call};

const TTL: Duration = Duration::from_secs(60);

pub(crate) fn read(question: u8) -> NewCall {
    NewCall {
        effect: Effect::Read,
        args_hash: [question; 32],
        ..new_call()
    }
}

pub(crate) const fn row(call: CallId) -> LookRow {
    LookRow {
        call,
        ttl: TTL,
        observes: false,
        keep: Duration::ZERO,
    }
}

pub(crate) fn looking(ledger: &mut Ledger) -> Looking {
    let postgres = ledger.database.postgres.clone();
    Looking::start("worker".to_owned(), &postgres, &mut ledger.lanes)
}

pub(crate) async fn look(looking: &Looking, call: CallId) -> Looked {
    looking
        .look(row(call))
        .await
        .unwrap()
        .expect("it is queued")
}

/// The call runs and ends so.
pub(crate) async fn ends(ledger: &Ledger, worker: &Worker, call: CallId, kind: EndingKind) {
    let attempt = worker.claims(call).await;
    ledger
        .ends(ending(call, Guard::Attempt(attempt), kind))
        .await;
}

pub(crate) fn answered(result: &str) -> EndingKind {
    match end_in(State::Succeeded) {
        EndingKind::End(decision) => EndingKind::End(Decision {
            result: Some(result.to_owned()),
            error: None,
            ..decision
        }),
        other => panic!("{other:?}"),
    }
}

/// The tool of these calls, with a cache.
pub(crate) async fn apply(pool: &PgPool) {
    sqlx::query(
        "INSERT INTO toolfleet.tool_versions (tool, version, rev, manifest, manifest_hash, schema_hash, applied_by) \
         VALUES ('tool', 1, 1, '{\"cache\": {\"ttl\": \"1m\"}}', '', '', 'test')",
    )
    .execute(pool)
    .await
    .unwrap();
}

/// The call has ended with the answer of this one, which its caller is told as it is shown.
pub(crate) fn is_answer(looked: &Looked, shown: &str) -> bool {
    let Looked::Answered(answered) = looked else {
        return false;
    };
    answered.moved.state == State::Succeeded && answered.shown.as_deref() == Some(shown)
}

#[tokio::test]
async fn one_fetches_others_follow_and_later_ones_are_answered() {
    let mut ledger = Ledger::fresh().await;
    let (worker, looking) = (ledger.worker().await, looking(&mut ledger));
    let leader = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, leader).await, Looked::Leads));
    assert!(
        matches!(look(&looking, leader).await, Looked::Leads),
        "it asks again"
    );
    let follower = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, follower).await, Looked::Follows(of) if of == leader));
    // It is held, so no message claims it, and nothing is looked for.
    assert!(looking.look(row(follower)).await.unwrap().is_none());
    let pool = ledger.database.pool.clone();
    let lines = followers::lines_behind(&pool, None).await.unwrap();
    let asked = read(1);
    let fetches = Some(FetchedAnswer {
        tool: asked.tool,
        tenant: asked.tenant,
    });
    assert_eq!(lines, [FollowedCall { leader, fetches }]);
    ends(&ledger, &worker, leader, answered("{\"rate\":7}")).await;
    let lines = followers::lines_of(&pool, &[leader]).await.unwrap();
    assert_eq!(lines[0].fetches, None);
    let later = ledger.accepted(read(1)).await;
    let looked = look(&looking, later).await;
    assert!(is_answer(&looked, "{\"rate\":7}"), "{looked:?}");
    let row = ledger.find(later).await;
    let envelope = row.envelope(false).unwrap().unwrap();
    assert_eq!(envelope.result.unwrap().get(), "{\"rate\":7}");
    assert_eq!((envelope.source.as_str(), envelope.attempts), ("cache", 0));
    let details: String = sqlx::query_scalar(
        "SELECT details->>'from' FROM toolfleet.finished_calls WHERE call_id = $1",
    )
    .bind(later.0)
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(details, leader.to_string());
}

#[tokio::test]
async fn tenant_tool_version_language_and_arguments_make_a_key_and_no_store_has_none() {
    let mut ledger = Ledger::fresh().await;
    let looking = looking(&mut ledger);
    let others = [
        read(1),
        read(2),
        NewCall {
            tenant: "other".parse().unwrap(),
            ..read(1)
        },
        NewCall {
            tool: "other".parse().unwrap(),
            ..read(1)
        },
        NewCall {
            tool_version: 2,
            ..read(1)
        },
        NewCall {
            language: Language::Zh,
            ..read(1)
        },
    ];
    for other in others {
        let call = ledger.accepted(other).await;
        assert!(matches!(look(&looking, call).await, Looked::Leads));
    }
    let unkept = NewCall {
        no_store: true,
        ..read(1)
    };
    let write = NewCall {
        effect: Effect::Once,
        ..read(1)
    };
    for alone in [unkept, write] {
        let call = ledger.accepted(alone).await;
        assert!(matches!(look(&looking, call).await, Looked::Alone));
    }
    let probe = ledger.accepted(read(1)).await;
    let of_a_doubt =
        "UPDATE toolfleet.open_calls SET probe_of = gen_random_uuid() WHERE call_id = $1";
    ledger.meddle(probe, of_a_doubt).await;
    assert!(matches!(look(&looking, probe).await, Looked::Alone));
}

#[tokio::test]
async fn only_a_good_answer_of_its_own_that_is_not_too_old_or_large_counts() {
    let mut ledger = Ledger::fresh().await;
    let (worker, looking) = (ledger.worker().await, looking(&mut ledger));
    let flawed = match answered("7") {
        EndingKind::End(decision) => EndingKind::End(Decision {
            error: Some("{\"code\":\"output_invalid\"}".to_owned()),
            ..decision
        }),
        other => panic!("{other:?}"),
    };
    let large = answered(&format!("\"{}\"", "x".repeat(256 * 1024)));
    let largest = answered(&format!("\"{}\"", "x".repeat(256 * 1024 - 2)));
    for (question, kind, counts) in [
        (1, end_in(State::Failed), false),
        (2, flawed, false),
        (3, large, false),
        (4, largest, true),
    ] {
        let leader = ledger.accepted(read(question)).await;
        assert!(matches!(look(&looking, leader).await, Looked::Leads));
        ends(&ledger, &worker, leader, kind).await;
        let next = ledger.accepted(read(question)).await;
        let is_hit = matches!(look(&looking, next).await, Looked::Answered(_));
        assert_eq!(is_hit, counts, "{question}");
    }
    // What has counted for its time is fetched anew.
    let leader = ledger.accepted(read(5)).await;
    assert!(matches!(look(&looking, leader).await, Looked::Leads));
    ends(&ledger, &worker, leader, answered("7")).await;
    let short = LookRow {
        ttl: Duration::from_millis(1),
        ..row(ledger.accepted(read(5)).await)
    };
    tokio::time::sleep(Duration::from_millis(5)).await;
    let looked = looking.look(short).await.unwrap();
    assert!(matches!(looked, Some(Looked::Leads)));
}

#[tokio::test]
async fn what_callers_get_in_place_of_a_large_answer_is_copied_with_it() {
    let mut ledger = Ledger::fresh().await;
    let (worker, looking) = (ledger.worker().await, looking(&mut ledger));
    let leader = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, leader).await, Looked::Leads));
    let shortened = match answered("\"all of it\"") {
        EndingKind::End(decision) => EndingKind::End(Decision {
            preview: Some("{\"preview\":\"a part\"}".to_owned()),
            ..decision
        }),
        other => panic!("{other:?}"),
    };
    ends(&ledger, &worker, leader, shortened).await;
    let next = ledger.accepted(read(1)).await;
    let looked = look(&looking, next).await;
    assert!(is_answer(&looked, "{\"preview\":\"a part\"}"), "{looked:?}");
    let envelope = ledger.find(next).await.envelope(false).unwrap().unwrap();
    assert_eq!(envelope.result.unwrap().get(), "{\"preview\":\"a part\"}");
    let whole: String =
        sqlx::query_scalar("SELECT result::text FROM toolfleet.finished_calls WHERE call_id = $1")
            .bind(next.0)
            .fetch_one(&ledger.database.pool)
            .await
            .unwrap();
    assert_eq!(whole, "\"all of it\"");
}

#[tokio::test]
async fn an_answer_that_the_history_has_lost_ends_nothing() {
    let mut ledger = Ledger::fresh().await;
    let (worker, looking) = (ledger.worker().await, looking(&mut ledger));
    let leader = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, leader).await, Looked::Leads));
    ends(&ledger, &worker, leader, answered("7")).await;
    let next = ledger.accepted(read(1)).await;
    assert!(is_answer(&look(&looking, next).await, "7"));
    let lost =
        "UPDATE toolfleet.kept_answers SET call_id = gen_random_uuid(), leader = gen_random_uuid()";
    sqlx::query(lost)
        .execute(&ledger.database.pool)
        .await
        .unwrap();
    let call = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, call).await, Looked::Leads));
    assert_eq!(ledger.state(call).await, State::Queued);
}

/// Calls that come together are answered together, each once; what another statement has is left to it.
#[tokio::test]
async fn a_row_that_another_statement_has_is_not_waited_for() {
    let mut ledger = Ledger::fresh().await;
    let (worker, looking) = (ledger.worker().await, looking(&mut ledger));
    let leader = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, leader).await, Looked::Leads));
    ends(&ledger, &worker, leader, answered("7")).await;
    let first = ledger.accepted(read(1)).await;
    assert!(is_answer(&look(&looking, first).await, "7"));
    let [held, free] = [
        ledger.accepted(read(1)).await,
        ledger.accepted(read(1)).await,
    ];
    let mut other = ledger.database.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM toolfleet.open_calls WHERE call_id = $1 FOR UPDATE")
        .bind(held.0)
        .execute(&mut *other)
        .await
        .unwrap();
    let (of_held, of_free) = tokio::join!(looking.look(row(held)), looking.look(row(free)));
    assert!(of_held.unwrap().is_none());
    assert!(is_answer(&of_free.unwrap().unwrap(), "7"));
    other.rollback().await.unwrap();
    assert!(is_answer(&look(&looking, held).await, "7"));

    // Nor for the row of an answer that is new: whoever asks next remembers it.
    let leader = ledger.accepted(read(2)).await;
    assert!(matches!(look(&looking, leader).await, Looked::Leads));
    ends(&ledger, &worker, leader, answered("8")).await;
    let mut other = ledger.database.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM toolfleet.kept_answers WHERE leader = $1 FOR UPDATE")
        .bind(leader.0)
        .execute(&mut *other)
        .await
        .unwrap();
    let next = ledger.accepted(read(2)).await;
    assert!(is_answer(&look(&looking, next).await, "8"));
    let known = "SELECT count(*) FROM toolfleet.kept_answers WHERE call_id = leader";
    let count = async || -> i64 {
        let counting = sqlx::query_scalar(known).fetch_one(&ledger.database.pool);
        counting.await.unwrap()
    };
    assert_eq!(count().await, 1, "that of the first question");
    other.rollback().await.unwrap();
    let last = ledger.accepted(read(2)).await;
    assert!(is_answer(&look(&looking, last).await, "8"));
    assert_eq!(count().await, 2);
}

#[tokio::test]
async fn a_call_that_observes_or_has_begun_is_never_put_aside() {
    let mut ledger = Ledger::fresh().await;
    let looking = looking(&mut ledger);
    let leader = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, leader).await, Looked::Leads));
    let observing = LookRow {
        observes: true,
        ..row(ledger.accepted(read(1)).await)
    };
    for _ in 0..2 {
        let looked = looking.look(observing).await.unwrap();
        assert!(matches!(looked, Some(Looked::Follows(of)) if of == leader));
    }
    let begun = ledger.accepted(read(1)).await;
    let attempts = "UPDATE toolfleet.open_calls SET attempts = 1 WHERE call_id = $1";
    ledger.meddle(begun, attempts).await;
    assert!(matches!(look(&looking, begun).await, Looked::Alone));
}

/// As long as it takes for one to fail and for another one: after that each asks for itself, so that the last of many does not wait for
/// all the others to fail.
#[tokio::test]
async fn when_two_leaders_in_turn_have_failed_equal_calls_are_runs_of_their_own() {
    let mut ledger = Ledger::fresh().await;
    let (worker, looking) = (ledger.worker().await, looking(&mut ledger));
    let pool = ledger.database.pool.clone();
    let first = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, first).await, Looked::Leads));
    let follower = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, follower).await, Looked::Follows(of) if of == first));
    ends(&ledger, &worker, first, end_in(State::Failed)).await;
    let lines = followers::lines_of(&pool, &[first]).await.unwrap();
    assert_eq!(lines[0].fetches, None);
    let second = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, second).await, Looked::Leads));
    let other = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, other).await, Looked::Follows(of) if of == second));
    ends(&ledger, &worker, second, end_in(State::Failed)).await;
    let third = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, third).await, Looked::Leads));
    for _ in 0..3 {
        let apart = ledger.accepted(read(1)).await;
        assert!(matches!(look(&looking, apart).await, Looked::Alone));
    }
    let over = "UPDATE toolfleet.kept_answers SET apart_until = clock_timestamp()";
    sqlx::query(over).execute(&pool).await.unwrap();
    let later = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, later).await, Looked::Follows(of) if of == third));
}

/// An answer that cannot be kept: who follows asks for itself, and not one after the other.
#[tokio::test]
async fn behind_an_answer_that_is_too_large_equal_calls_are_runs_of_their_own() {
    let mut ledger = Ledger::fresh().await;
    let (worker, looking) = (ledger.worker().await, looking(&mut ledger));
    let leader = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, leader).await, Looked::Leads));
    let large = serde_json::to_string(&"x".repeat(300 * 1024)).unwrap();
    ends(&ledger, &worker, leader, answered(&large)).await;
    let next = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, next).await, Looked::Leads));
    for _ in 0..3 {
        let apart = ledger.accepted(read(1)).await;
        assert!(matches!(look(&looking, apart).await, Looked::Alone));
    }
}

#[tokio::test]
async fn rows_that_say_nothing_any_more_are_dropped() {
    let mut ledger = Ledger::fresh().await;
    let looking = looking(&mut ledger);
    for question in 1..=3 {
        let call = ledger.accepted(read(question)).await;
        assert!(matches!(look(&looking, call).await, Looked::Leads));
    }
    let pool = ledger.database.pool.clone();
    let mut connection = ledger.database.connect().await;
    // Whoever fetches the answer may bring it yet, as after an outage; or is gone.
    for (leader, left) in [("leader", 3), ("gen_random_uuid()", 1)] {
        let old = format!(
            "UPDATE toolfleet.kept_answers SET keep_until = now() - interval '1 second', leader = {leader} \
             WHERE key IN (SELECT key FROM toolfleet.kept_answers ORDER BY key LIMIT 2)"
        );
        sqlx::query(sqlx::AssertSqlSafe(old))
            .execute(&pool)
            .await
            .unwrap();
        assert!(!answers::drop_old(&mut connection).await.unwrap());
        let kept = "SELECT count(*) FROM toolfleet.kept_answers WHERE keep_until > now()";
        let kept: i64 = sqlx::query_scalar(kept).fetch_one(&pool).await.unwrap();
        assert_eq!(kept, left, "{leader}");
    }
}

/// 16 sessions, each with calls of all questions: one call of each question fetches, whatever comes at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_sessions_never_find_two_leaders_for_a_key() {
    const SESSIONS: usize = 16;
    const KEYS: u8 = 40;
    const CALLS: usize = 1_600;
    let mut ledger = Ledger::fresh().await;
    let calls = (0..CALLS).map(|n| read(u8::try_from(n % usize::from(KEYS)).unwrap()));
    let calls = join_all(calls.map(|call| ledger.accepted(call))).await;
    let sessions: Vec<_> = (0..SESSIONS).map(|_| looking(&mut ledger)).collect();
    let mut asking = JoinSet::new();
    for (n, call) in calls.iter().copied().enumerate() {
        // Neighbours have different questions, so each session gets all of them.
        let session = sessions[(n / usize::from(KEYS)) % SESSIONS].clone();
        asking.spawn(async move { session.look(row(call)).await.unwrap() });
    }
    let (mut leaders, mut followers) = (0, 0);
    for looked in asking.join_all().await {
        match looked {
            Some(Looked::Leads) => leaders += 1,
            Some(Looked::Follows(_)) => followers += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        (leaders, followers),
        (usize::from(KEYS), CALLS - usize::from(KEYS))
    );
    let lines = followers::lines_behind(&ledger.database.pool, None)
        .await
        .unwrap();
    assert_eq!(lines.len(), usize::from(KEYS));
}

/// What may stand in for an open call: the age in milliseconds and the answer.
async fn stale(ledger: &Ledger, call: CallId, max_age: Duration) -> Option<String> {
    let pool = &ledger.database.pool;
    let stale = stand_ins::stale(pool, call, max_age).await.unwrap()?;
    assert!(stale.age_ms.is_some_and(|age| age >= 0), "{stale:?}");
    Some(stale.result)
}

#[tokio::test]
async fn the_last_good_answer_may_stand_in_when_its_time_is_over() {
    let mut ledger = Ledger::fresh().await;
    let (worker, looking) = (ledger.worker().await, looking(&mut ledger));
    let hour = Duration::from_secs(3_600);
    let asked = |call| LookRow {
        ttl: Duration::from_millis(1),
        keep: hour,
        ..row(call)
    };
    let over = Duration::from_millis(5);
    let ask = async |kind| {
        let call = ledger.accepted(read(1)).await;
        let looked = looking.look(asked(call)).await.unwrap();
        assert!(matches!(looked, Some(Looked::Leads)));
        let stood_in = stale(&ledger, call, hour).await;
        ends(&ledger, &worker, call, kind).await;
        tokio::time::sleep(over).await;
        stood_in
    };
    assert_eq!(ask(end_in(State::Failed)).await, None);
    assert_eq!(ask(answered("1")).await, None);
    // Nobody looked while it counted, and it is remembered through leaders that fail.
    assert_eq!(ask(end_in(State::Failed)).await.as_deref(), Some("1"));
    assert_eq!(ask(end_in(State::Failed)).await.as_deref(), Some("1"));
    assert_eq!(ask(answered("2")).await.as_deref(), Some("1"));
    assert_eq!(ask(end_in(State::Failed)).await.as_deref(), Some("2"));
    let keeps = "SELECT count(*) FROM toolfleet.kept_answers WHERE keep_until > now() + interval '59 minutes'";
    let kept: i64 = sqlx::query_scalar(keeps)
        .fetch_one(&ledger.database.pool)
        .await
        .unwrap();
    assert_eq!(kept, 1);

    // The last leader has it, and no look has found that.
    let last = ledger.accepted(read(1)).await;
    assert!(matches!(
        looking.look(asked(last)).await.unwrap(),
        Some(Looked::Leads)
    ));
    ends(&ledger, &worker, last, answered("3")).await;
    let call = ledger.accepted(read(1)).await;
    assert_eq!(stale(&ledger, call, hour).await.as_deref(), Some("3"));
    tokio::time::sleep(over).await;
    assert_eq!(
        stale(&ledger, call, Duration::from_millis(1)).await,
        None,
        "too old"
    );
    for other in [
        NewCall {
            no_store: true,
            ..read(1)
        },
        NewCall {
            tenant: "acme".parse().unwrap(),
            ..read(1)
        },
        NewCall {
            tool_version: 2,
            ..read(1)
        },
        read(2),
    ] {
        let other = ledger.accepted(other).await;
        assert_eq!(stale(&ledger, other, hour).await, None);
    }
    let sql = "UPDATE toolfleet.open_calls SET probe_of = $2 WHERE call_id = $1";
    let probe = sqlx::query(sql).bind(call.0).bind(last.0);
    probe.execute(&ledger.database.pool).await.unwrap();
    for call in [call, last] {
        assert_eq!(
            stale(&ledger, call, hour).await,
            None,
            "a probe, and one that has ended"
        );
    }
}

#[tokio::test]
async fn only_a_question_with_an_answer_is_kept_for_as_long_as_that_may_be_old() {
    let mut ledger = Ledger::fresh().await;
    let (worker, looking) = (ledger.worker().await, looking(&mut ledger));
    let week = Duration::from_secs(7 * 24 * 3_600);
    for (question, kind) in [(1, end_in(State::Failed)), (2, answered("2"))] {
        let call = ledger.accepted(read(question)).await;
        let asked = LookRow {
            ttl: Duration::from_millis(1),
            keep: week,
            ..row(call)
        };
        assert!(matches!(
            looking.look(asked).await.unwrap(),
            Some(Looked::Leads)
        ));
        ends(&ledger, &worker, call, kind).await;
    }
    let pool = ledger.database.pool.clone();
    let count = async |sql: &'static str| -> i64 {
        sqlx::query_scalar(sql).fetch_one(&pool).await.unwrap()
    };
    let long =
        "SELECT count(*) FROM toolfleet.kept_answers WHERE keep_until > now() + interval '1 day'";
    assert_eq!(count(long).await, 0, "no answer is known yet");
    let over = "UPDATE toolfleet.kept_answers SET keep_until = now() - interval '1 second'";
    sqlx::query(over).execute(&pool).await.unwrap();
    let mut connection = ledger.database.connect().await;
    answers::drop_old(&mut connection).await.unwrap();
    let all = "SELECT count(*) FROM toolfleet.kept_answers";
    assert_eq!((count(all).await, count(long).await), (1, 1));
    let again = ledger.accepted(read(2)).await;
    assert_eq!(stale(&ledger, again, week).await.as_deref(), Some("2"));
}

#[tokio::test]
async fn an_answer_that_nothing_needs_later_is_kept_for_its_time() {
    let mut ledger = Ledger::fresh().await;
    let (worker, looking) = (ledger.worker().await, looking(&mut ledger));
    let asked = |call| LookRow {
        ttl: Duration::from_millis(1),
        ..row(call)
    };
    for _ in 0..2 {
        let call = ledger.accepted(read(1)).await;
        assert!(matches!(
            looking.look(asked(call)).await.unwrap(),
            Some(Looked::Leads)
        ));
        ends(&ledger, &worker, call, answered("1")).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let remembered: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM toolfleet.kept_answers WHERE call_id IS NOT NULL OR keep_until > now() + interval '1 hour'",
    )
    .fetch_one(&ledger.database.pool)
    .await
    .unwrap();
    assert_eq!(remembered, 0);
}
