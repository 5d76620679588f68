//! Kept rows against the model's rules, in every case; and two looks of one call, between which answers are purged.

#[path = "../../model/flight/verdict.rs"]
mod rules;

use std::time::Duration;

use fleet::{
    call::{Source, State},
    ids::CallId,
    store::{
        answers::{LookRow, Looked},
        complete::{Decision, EndingKind, Guard},
        followers,
    },
};
use fleet_history::explain::{self, Explanation};
use serde_json::json;
use sqlx::PgPool;
use tokio::task::JoinSet;

use self::rules::{Leader, Seen, verdict};
use crate::{
    answers::{answered, apply, ends, look, looking, read, row},
    support::{Ledger, Worker, end_in, ending, run, until_blocked},
};

/// A leader, where it stands, and how long answers count.
struct Led {
    leader: CallId,
    stands: Leader,
    ttl_ms: i64,
}

/// Calls that have ended in every way, and some that have not.
async fn leaders(ledger: &Ledger, worker: &Worker) -> Vec<Led> {
    let mut all = Vec::new();
    let mut led = |leader, stands, ttl_ms| {
        all.push(Led {
            leader,
            stands,
            ttl_ms,
        });
    };
    let [queued, running, good, large, failed, copied] = [
        ledger.accepted(read(1)).await,
        ledger.accepted(read(1)).await,
        ledger.accepted(read(1)).await,
        ledger.accepted(read(1)).await,
        ledger.accepted(read(1)).await,
        ledger.accepted(read(1)).await,
    ];
    worker.claims(running).await;
    ends(ledger, worker, good, answered("7")).await;
    let text = serde_json::to_string(&"x".repeat(300 * 1024)).unwrap();
    ends(ledger, worker, large, answered(&text)).await;
    ends(ledger, worker, failed, end_in(State::Failed)).await;
    let of_another = match answered("7") {
        EndingKind::End(decision) => EndingKind::End(Decision {
            source: Source::Cache,
            ..decision
        }),
        other => panic!("{other:?}"),
    };
    ends(ledger, worker, copied, of_another).await;
    led(queued, Leader::Open, 60_000);
    led(running, Leader::Open, 60_000);
    led(good, Leader::Old, 0);
    led(large, Leader::OldLarge, 0);
    led(good, Leader::Good, 60_000);
    led(large, Leader::Large, 60_000);
    for bad in [failed, copied, CallId::generate()] {
        led(bad, Leader::Bad, 60_000);
    }
    all
}

#[tokio::test]
async fn a_kept_row_says_what_the_model_says() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let pool = ledger.database.pool.clone();
    let all = leaders(&ledger, &worker).await;
    let (kept, failed) = (all[4].leader, all[6].leader);
    let asker = ledger.accepted(read(9)).await;
    let mut said = std::collections::BTreeMap::new();
    for led in &all {
        for answer in [None, Some(led.leader), Some(kept), Some(CallId::generate())] {
            for flags in 0..8_u8 {
                let [is_fresh, is_mine, is_apart] = [1, 2, 4].map(|bit| flags & bit != 0);
                let seen = Seen {
                    is_fresh,
                    has_answer: answer.is_some_and(|answer| {
                        let mut ended = all.iter().filter(|led| led.leader == answer);
                        ended.any(|led| led.stands != Leader::Open && !is_unknown(&all, answer))
                    }),
                    is_of_leader: answer == Some(led.leader),
                    is_mine,
                    leader: led.stands,
                    is_apart,
                };
                let expected = verdict(Some(seen));
                let found = ask(&pool, led, answer, seen).await;
                assert_eq!(found, expected.as_str(), "{seen:?}");
                // Where a known answer is lost, the row is judged under its lock first.
                let answers = match expected {
                    // No row names a call that has failed.
                    rules::Verdict::Hit => answer != Some(failed),
                    rules::Verdict::Found => !is_fresh,
                    _ => false,
                };
                if !is_mine {
                    let ends = is_answered(&pool, asker, led, answer, seen).await;
                    assert_eq!(ends, answers, "{seen:?}");
                }
                *said.entry(found).or_insert(0) += 1;
            }
        }
    }
    println!("{said:?}");
    assert_eq!(said.len(), 9, "every verdict comes up");
}

/// The last of the leaders is one that the history does not have.
fn is_unknown(all: &[Led], call: CallId) -> bool {
    all.last().is_some_and(|led| led.leader == call)
}

/// The row of an answer, but for its key.
fn kept_row(led: &Led, answer: Option<CallId>, seen: Seen) -> serde_json::Value {
    let time = |is_later: bool| is_later.then_some("2200-01-01T00:00:00Z");
    json!({
        "key": "\\x00", "tenant": "tenant", "tool": "tool", "version": 1, "leader": led.leader, "call_id": answer, "bytes": 1,
        "fresh_until": time(seen.is_fresh), "failures": 0, "apart_until": time(seen.is_apart),
        "keep_until": "2200-01-01T00:00:00Z",
    })
}

/// Whether a queued call whose question has this row ends with the answer.
async fn is_answered(
    pool: &PgPool,
    asker: CallId,
    led: &Led,
    answer: Option<CallId>,
    seen: Seen,
) -> bool {
    let mut undone = pool.begin().await.unwrap();
    sqlx::query(
        "INSERT INTO toolfleet.kept_answers \
         SELECT r.* FROM toolfleet.open_calls o, jsonb_populate_record(NULL::toolfleet.kept_answers, $1 || jsonb_build_object( \
             'key', toolfleet.answer_key(o.tenant, o.tool, o.tool_version, o.language, o.args_hash)::text)) r \
         WHERE o.call_id = $2",
    )
    .bind(kept_row(led, answer, seen))
    .bind(asker.0)
    .execute(&mut *undone)
    .await
    .unwrap();
    let ended: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM toolfleet.answer_calls(ARRAY[$1], ARRAY[$2], ARRAY[0]::bigint[], 262144, 'test')",
    )
    .bind(asker.0)
    .bind(led.ttl_ms)
    .fetch_one(&mut *undone)
    .await
    .unwrap();
    undone.rollback().await.unwrap();
    ended == 1
}

async fn ask(pool: &PgPool, led: &Led, answer: Option<CallId>, seen: Seen) -> String {
    let kept = kept_row(led, answer, seen);
    let mine = if seen.is_mine {
        led.leader
    } else {
        CallId::generate()
    };
    sqlx::query_scalar(
        "SELECT verdict FROM toolfleet.answer_verdict(jsonb_populate_record(NULL::toolfleet.kept_answers, $1), $2, $3)",
    )
    .bind(kept)
    .bind(mine.0)
    .bind(led.ttl_ms)
    .fetch_one(pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_new_leader_counts_failures_as_the_model_does() {
    let mut ledger = Ledger::fresh().await;
    let (worker, looking) = (ledger.worker().await, looking(&mut ledger));
    let pool = ledger.database.pool.clone();
    let text = serde_json::to_string(&"x".repeat(300 * 1024)).unwrap();
    let mut question = 0;
    for said in [
        rules::Verdict::Free,
        rules::Verdict::Old,
        rules::Verdict::Large,
        rules::Verdict::Failed,
    ] {
        for (failed_before, is_apart) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            question += 1;
            let leader = ledger.accepted(read(question)).await;
            assert!(matches!(look(&looking, leader).await, Looked::Leads));
            let end = match said {
                rules::Verdict::Failed => end_in(State::Failed),
                rules::Verdict::Large | rules::Verdict::Free => answered(&text),
                _ => answered("7"),
            };
            ends(&ledger, &worker, leader, end).await;
            sqlx::query(
                "UPDATE toolfleet.kept_answers SET failures = $2::int, \
                 apart_until = CASE WHEN $3 THEN clock_timestamp() + interval '1 minute' END WHERE leader = $1",
            )
            .bind(leader.0)
            .bind(i32::from(failed_before))
            .bind(is_apart)
            .execute(&pool)
            .await
            .unwrap();
            let next = ledger.accepted(read(question)).await;
            let is_over = matches!(said, rules::Verdict::Free | rules::Verdict::Old);
            let ttl = if is_over {
                Duration::ZERO
            } else {
                Duration::from_secs(60)
            };
            let looked = looking.look(LookRow { ttl, ..row(next) }).await.unwrap();
            assert!(matches!(looked, Some(Looked::Leads)), "{said:?}");
            let (failures, apart): (i32, bool) = sqlx::query_as(
                "SELECT failures, coalesce(apart_until > clock_timestamp(), false) \
                 FROM toolfleet.kept_answers WHERE leader = $1",
            )
            .bind(next.0)
            .fetch_one(&pool)
            .await
            .unwrap();
            let expected = rules::leads(said, failed_before, is_apart);
            assert_eq!(
                (failures > 0, apart),
                expected,
                "{said:?} {failed_before} {is_apart}"
            );
        }
    }
}

/// Two messages of one call, and a purge between their looks: the first look has read that another call fetches, the second one that
/// this one has to. So each of the two calls follows the other one, and the one that leads by now is let go.
#[tokio::test]
async fn calls_that_follow_each_other_are_let_go() {
    let mut ledger = Ledger::fresh().await;
    let (worker, looking) = (ledger.worker().await, looking(&mut ledger));
    let pool = ledger.database.pool.clone();
    let (leader, twice, gate) = in_order_of_keys(&mut ledger).await;
    assert!(matches!(look(&looking, leader).await, Looked::Leads));
    // The row of the last call's question exists, and the test has it.
    assert!(matches!(look(&looking, gate[0]).await, Looked::Leads));
    let attempt = worker.claims(gate[0]).await;
    let failed = ending(gate[0], Guard::Attempt(attempt), end_in(State::Failed));
    ledger.ends(failed).await;
    let mut has_row = ledger.database.connect().await;
    run(&mut has_row, "BEGIN").await;
    sqlx::query("SELECT FROM toolfleet.kept_answers WHERE leader = $1 FOR UPDATE")
        .bind(gate[0].0)
        .execute(&mut has_row)
        .await
        .unwrap();

    // The first look has read the row of the first question, and waits for the other one.
    let mut first = JoinSet::new();
    first.spawn({
        let pool = pool.clone();
        async move {
            sqlx::query("SELECT FROM toolfleet.look($1, ARRAY[60000, 60000]::bigint[], ARRAY[false, false], ARRAY[0, 0]::bigint[])")
                .bind(vec![twice.0, gate[1].0])
                .execute(&pool)
                .await
                .unwrap();
        }
    });
    until_blocked(&ledger.database, 1).await;
    sqlx::query("DELETE FROM toolfleet.kept_answers WHERE leader = $1")
        .bind(leader.0)
        .execute(&pool)
        .await
        .unwrap();
    assert!(matches!(look(&looking, twice).await, Looked::Leads));
    run(&mut has_row, "COMMIT").await;
    first.join_all().await;
    assert!(matches!(look(&looking, leader).await, Looked::Follows(of) if of == twice));

    let lines = followers::lines_behind(&pool, None).await.unwrap();
    let mut waits_for: Vec<_> = lines
        .iter()
        .map(|line| (line.leader, line.fetches.is_some()))
        .collect();
    waits_for.sort_unstable_by_key(|(call, _)| *call);
    // Which of the two lets the other one go.
    let mut expected = [(leader, false), (twice, true)];
    expected.sort_unstable_by_key(|(call, _)| *call);
    assert_eq!(
        waits_for, expected,
        "nobody waits for a call that no row names"
    );
}

/// A purge while a call is followed: whoever followed waits for nothing, whoever comes after it follows the call that fetches anew, and
/// `explain` says which is which.
#[tokio::test]
async fn who_followed_before_a_purge_waits_for_nothing() {
    let mut ledger = Ledger::fresh().await;
    let looking = looking(&mut ledger);
    let pool = ledger.database.pool.clone();
    apply(&pool).await;
    let leader = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, leader).await, Looked::Leads));
    let before = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, before).await, Looked::Follows(of) if of == leader));
    let fetching = async || {
        let lines = followers::lines_behind(&pool, None).await.unwrap();
        let fetching = lines.iter().filter(|line| line.fetches.is_some());
        (
            lines.len(),
            fetching.map(|line| line.leader).collect::<Vec<_>>(),
        )
    };
    assert_eq!(fetching().await, (1, vec![leader]));
    assert_eq!(why(&pool, before).await.reason, "follows");
    sqlx::query("DELETE FROM toolfleet.kept_answers")
        .execute(&pool)
        .await
        .unwrap();
    assert_eq!(fetching().await, (1, vec![]));
    let goes_back = why(&pool, before).await;
    assert_eq!(goes_back.reason, "held", "{goes_back:?}");
    assert!(
        goes_back.because.contains("were purged"),
        "{}",
        goes_back.because
    );

    let anew = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, anew).await, Looked::Leads));
    let after = ledger.accepted(read(1)).await;
    assert!(matches!(look(&looking, after).await, Looked::Follows(of) if of == anew));
    assert_eq!(fetching().await, (2, vec![anew]));
    assert_eq!(why(&pool, before).await.reason, "held");
    assert_eq!(why(&pool, after).await.reason, "follows");
}

/// Where no answer is shared, `explain` does not say that a call waits for one, and says who has decided that. As `fleet::modes`
/// says: a tool says more than a tenant.
#[tokio::test]
async fn who_follows_where_the_cache_is_off_is_not_said_to_get_an_answer() {
    let mut ledger = Ledger::fresh().await;
    let looking = looking(&mut ledger);
    let pool = ledger.database.pool.clone();
    apply(&pool).await;
    for question in [1, 1] {
        let call = ledger.accepted(read(question)).await;
        look(&looking, call).await;
    }
    let line = "SELECT call_id FROM toolfleet.open_calls WHERE held";
    let follower: uuid::Uuid = sqlx::query_scalar(line).fetch_one(&pool).await.unwrap();
    let follower = CallId(follower);
    let asked = read(1);
    let (tool, tenant) = (asked.tool.as_str(), asked.tenant.as_str());
    let steps = [
        (None, Some("other"), "off", "follows"),
        (None, Some(tenant), "off", "held"),
        (Some(tool), None, "enforce", "follows"),
        (Some(tool), Some(tenant), "observe", "held"),
    ];
    for (id, (tool, tenant, mode, reason)) in (900_i64..).zip(steps) {
        sqlx::query(
            "INSERT INTO toolfleet.live_controls (control_id, kind, subject, tool, tenant, setting, actor, note, role, set_at) \
             VALUES ($1, 'mode', 'cache', $2, $3, to_json($4::text), 'ada', 'they are wrong', 'me', now())",
        )
        .bind(id)
        .bind(tool)
        .bind(tenant)
        .bind(mode)
        .execute(&pool)
        .await
        .unwrap();
        let found = why(&pool, follower).await;
        assert_eq!(
            found.reason, reason,
            "{tool:?} {tenant:?} {mode}: {found:?}"
        );
        if reason == "held" {
            let says = format!("to {mode} (control {id}: they are wrong)");
            assert!(found.because.contains(&says), "{}", found.because);
        }
    }
}

async fn why(pool: &PgPool, call: CallId) -> Explanation {
    let facts = explain::facts(pool, call).await.unwrap();
    explain::explain(&facts.expect("it is there").read().unwrap())
}

/// Two equal calls, and two of another question whose key comes later.
async fn in_order_of_keys(ledger: &mut Ledger) -> (CallId, CallId, [CallId; 2]) {
    let mut keyed = Vec::new();
    for question in [1, 2] {
        let calls = [
            ledger.accepted(read(question)).await,
            ledger.accepted(read(question)).await,
        ];
        let key: Vec<u8> = sqlx::query_scalar(
            "SELECT toolfleet.answer_key(tenant, tool, tool_version, language, args_hash) \
             FROM toolfleet.open_calls WHERE call_id = $1",
        )
        .bind(calls[0].0)
        .fetch_one(&ledger.database.pool)
        .await
        .unwrap();
        keyed.push((key, calls));
    }
    keyed.sort_by(|one, other| one.0.cmp(&other.0));
    let [leader, twice] = keyed[0].1;
    (leader, twice, keyed[1].1)
}
