//! Accepting: a key names one call, and what was accepted is there as it was sent.

use fleet::{
    ids::CallId,
    store::{
        accept::{NewCall, NewKey},
        arguments,
        keys::find_key,
        lane::Reply,
        ledger::Accepting,
        read::find,
    },
};
use futures_util::future::join_all;
use tokio::task::JoinSet;

use crate::support::{Ledger, doubted, keyed_call, new_call, new_key, succeeded, tenant};

#[tokio::test]
async fn five_hundred_calls_at_once_are_all_there() {
    let ledger = Ledger::fresh().await;
    let calls = ledger.many_queued(500).await;
    for call in &calls {
        assert_eq!(ledger.find(*call).await.rev, 0);
    }
    let (stored, commits): (i64, i64) =
        sqlx::query_as("SELECT count(*), count(DISTINCT xmin::text) FROM toolfleet.open_calls")
            .fetch_one(&ledger.database.pool)
            .await
            .unwrap();
    assert_eq!(stored, 500);
    assert!(
        commits <= 3,
        "{commits} commits for calls that came together"
    );
}

#[tokio::test]
async fn the_same_key_twice_in_one_batch_makes_one_call() {
    let ledger = Ledger::fresh().await;
    let key = new_key();
    let calls: Vec<NewCall> = (0..20).map(|_| keyed_call(key)).collect();
    let replies = join_all(calls.iter().map(|c| ledger.accepting.accept(c.clone()))).await;
    assert_eq!(
        the_one_accepted(&calls, &replies),
        named(&ledger, key).await
    );
}

#[tokio::test]
async fn the_same_key_through_two_dispatchers_makes_one_call() {
    let mut ledger = Ledger::fresh().await;
    let other = Accepting::start(&ledger.database.postgres, &mut ledger.lanes);
    for _ in 0..20 {
        let key = new_key();
        let calls: Vec<NewCall> = (0..64).map(|_| keyed_call(key)).collect();
        let replies = race(&ledger.accepting, &other, &calls).await;
        assert_eq!(
            the_one_accepted(&calls, &replies),
            named(&ledger, key).await
        );
    }
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM toolfleet.open_calls")
        .fetch_one(&ledger.database.pool)
        .await
        .unwrap();
    assert_eq!(stored, 20, "a call that lost the key is not stored");
}

#[tokio::test]
async fn many_keys_in_any_order_through_two_dispatchers_do_not_deadlock() {
    let mut ledger = Ledger::fresh().await;
    let other = Accepting::start(&ledger.database.postgres, &mut ledger.lanes);
    let keys: Vec<_> = (0..200).map(|_| new_key()).collect();
    let forward: Vec<_> = keys.iter().map(|key| keyed_call(*key)).collect();
    let backward: Vec<_> = keys.iter().rev().map(|key| keyed_call(*key)).collect();
    let (one, two) = tokio::join!(
        join_all(forward.iter().map(|c| ledger.accepting.accept(c.clone()))),
        join_all(backward.iter().map(|c| other.accept(c.clone()))),
    );
    for reply in one.iter().chain(&two) {
        assert!(
            matches!(reply, Reply::Done(_) | Reply::Undecided),
            "{reply:?}"
        );
    }
    let accepted = one.iter().chain(&two).filter(|r| is_done(r)).count();
    assert_eq!(accepted, keys.len());
}

#[tokio::test]
async fn a_lapsed_key_is_taken_over_once() {
    let mut ledger = Ledger::fresh().await;
    let other = Accepting::start(&ledger.database.postgres, &mut ledger.lanes);
    let key = new_key();
    let old = finished(&mut ledger, key, 0).await;
    fleet_tests::wait::until_so("the key to lapse", async || lapsed(&ledger, key).await).await;
    let calls: Vec<NewCall> = (0..32).map(|_| replacing(key, old)).collect();
    let replies = race(&ledger.accepting, &other, &calls).await;
    let new = the_one_accepted(&calls, &replies);
    assert_eq!(new, named(&ledger, key).await);
    assert!(!lapsed(&ledger, key).await, "the new call is not over");
    let replaced: uuid::Uuid =
        sqlx::query_scalar("SELECT replaced FROM toolfleet.idempotency_keys WHERE call_id = $1")
            .bind(new.0)
            .fetch_one(&ledger.database.pool)
            .await
            .unwrap();
    assert_eq!(CallId(replaced), old);
}

#[tokio::test]
async fn a_key_lives_as_long_after_its_call_as_it_was_told() {
    let mut ledger = Ledger::fresh().await;
    let key = new_key();
    finished(&mut ledger, key, 24 * 3_600_000).await;
    assert!(!lapsed(&ledger, key).await);
}

#[tokio::test]
async fn a_key_whose_call_is_in_doubt_never_lapses() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let key = new_key();
    let call = ledger
        .accepted(NewCall {
            key_retention_ms: 0,
            ..keyed_call(key)
        })
        .await;
    let attempt = worker.claims(call).await;
    ledger.ends(doubted(call, attempt)).await;
    ledger
        .meddle(
            call,
            "UPDATE toolfleet.open_calls SET accepted_at = accepted_at - interval '1 year', \
             doubt_since = doubt_since - interval '1 year' WHERE call_id = $1",
        )
        .await;
    assert!(!lapsed(&ledger, key).await);
}

#[tokio::test]
async fn a_key_whose_call_is_nowhere_is_not_new() {
    let ledger = Ledger::fresh().await;
    let key = new_key();
    let lost = CallId::generate();
    sqlx::query(
        "INSERT INTO toolfleet.idempotency_keys VALUES ($1, $2, $3, NULL, 'tool', 1, '', '')",
    )
    .bind(tenant().as_str())
    .bind(&key[..])
    .bind(lost.0)
    .execute(&ledger.database.pool)
    .await
    .unwrap();
    assert!(!lapsed(&ledger, key).await);
    let reply = ledger.accepting.accept(keyed_call(key)).await;
    assert!(matches!(reply, Reply::Undecided), "{reply:?}");
    assert_eq!(named(&ledger, key).await, lost);
}

#[tokio::test]
async fn the_same_key_of_another_tenant_is_another_key() {
    let ledger = Ledger::fresh().await;
    let key = new_key();
    let mine = ledger.accepted(keyed_call(key)).await;
    let theirs = ledger
        .accepted(NewCall {
            tenant: "other".parse().unwrap(),
            ..keyed_call(key)
        })
        .await;
    assert_ne!(mine, theirs);
    assert_eq!(named(&ledger, key).await, mine);
}

#[tokio::test]
async fn a_row_that_the_server_refuses_fails_alone() {
    let ledger = Ledger::fresh().await;
    let mut calls: Vec<NewCall> = (0..500).map(|_| keyed_call(new_key())).collect();
    calls[123].args = "{\"half\":".into();
    calls[321].meta = Some("\0".into());
    let replies = join_all(calls.iter().map(|c| ledger.accepting.accept(c.clone()))).await;
    for (index, (call, reply)) in calls.iter().zip(&replies).enumerate() {
        let stored = find(&ledger.database.pool, call.call_id).await.unwrap();
        let key = call.key.as_ref().unwrap();
        let taken = find_key(&ledger.database.pool, &tenant(), &key.hash)
            .await
            .unwrap();
        if index == 123 || index == 321 {
            assert!(matches!(reply, Reply::Refused(_)), "{index}: {reply:?}");
            assert!(stored.is_none() && taken.is_none(), "{index} left a trace");
        } else {
            assert!(is_done(reply), "{index}: {reply:?}");
            assert!(stored.is_some() && taken.is_some(), "{index} is not there");
        }
    }
}

#[tokio::test]
async fn arguments_come_back_byte_for_byte() {
    let ledger = Ledger::fresh().await;
    let large = format!("{{\"text\":\"{}\"}}", "ä€😀\\n".repeat(24_000));
    assert!(large.len() > 256 * 1024);
    for args in [
        r#"{"big":123456789012345678901234567890.000000000000000000010e400,"small":1e-999}"#,
        r#"{"b":1,"a":2,"b2":1.0,"neg":-0,"exp":1E5}"#,
        r#"{"escaped":"\u0000\u001f\ud83d\ude00\/\"\\","raw":"é漢😀"}"#,
        "{ \"spaces\" : [ 1 ,\t2 ] }",
        large.as_str(),
    ] {
        let call = ledger
            .accepted(NewCall {
                args: args.into(),
                meta: Some(args.into()),
                ..new_call()
            })
            .await;
        let stored = arguments::of_open(&ledger.database.pool, call)
            .await
            .unwrap();
        assert_eq!(stored.as_deref(), Some(args));
    }
}

#[tokio::test]
async fn a_call_cannot_outlive_its_run() {
    let ledger = Ledger::fresh().await;
    let soon = time::OffsetDateTime::UNIX_EPOCH + time::Duration::days(30_000);
    let capped = ledger
        .accepted(NewCall {
            run_deadline: Some(soon),
            deadline_ms: i64::from(i32::MAX) * 1_000,
            ..new_call()
        })
        .await;
    let deadline: time::OffsetDateTime =
        sqlx::query_scalar("SELECT deadline_at FROM toolfleet.open_calls WHERE call_id = $1")
            .bind(capped.0)
            .fetch_one(&ledger.database.pool)
            .await
            .unwrap();
    assert_eq!(deadline, soon);
}

/// A call with this key that is over, whose key lives as long as told.
async fn finished(ledger: &mut Ledger, key: [u8; 32], key_retention_ms: i64) -> CallId {
    let worker = ledger.worker().await;
    let call = ledger
        .accepted(NewCall {
            key_retention_ms,
            ..keyed_call(key)
        })
        .await;
    let attempt = worker.claims(call).await;
    ledger.ends(succeeded(call, attempt)).await;
    call
}

fn replacing(key: [u8; 32], old: CallId) -> NewCall {
    NewCall {
        key: Some(NewKey {
            hash: key,
            original_hash: [2; 32],
            replaces: Some(old),
        }),
        ..new_call()
    }
}

/// Each call from a task of its own, alternately through either.
async fn race(one: &Accepting, other: &Accepting, calls: &[NewCall]) -> Vec<Reply<()>> {
    let mut racers = JoinSet::new();
    for (index, call) in calls.iter().cloned().enumerate() {
        let through = if index % 2 == 0 { one } else { other }.clone();
        racers.spawn(async move { (index, through.accept(call).await) });
    }
    let mut replies: Vec<_> = racers.join_all().await;
    replies.sort_by_key(|(index, _)| *index);
    let word = |reply| match reply {
        Reply::Done(_) => Reply::Done(()),
        Reply::Undecided => Reply::Undecided,
        Reply::Refused(error) => Reply::Refused(error),
        Reply::Unknown => Reply::Unknown,
        Reply::NotSent => Reply::NotSent,
    };
    replies.into_iter().map(|(_, reply)| word(reply)).collect()
}

fn the_one_accepted<A: std::fmt::Debug>(calls: &[NewCall], replies: &[Reply<A>]) -> CallId {
    let accepted: Vec<_> = calls
        .iter()
        .zip(replies)
        .filter(|(_, r)| is_done(r))
        .collect();
    assert_eq!(accepted.len(), 1, "{replies:?}");
    let others = replies.iter().filter(|r| matches!(r, Reply::Undecided));
    assert_eq!(others.count(), replies.len() - 1, "{replies:?}");
    accepted[0].0.call_id
}

fn is_done<A>(reply: &Reply<A>) -> bool {
    matches!(reply, Reply::Done(_))
}

async fn named(ledger: &Ledger, key: [u8; 32]) -> CallId {
    let row = find_key(&ledger.database.pool, &tenant(), &key)
        .await
        .unwrap();
    row.expect("the key names a call").call_id
}

async fn lapsed(ledger: &Ledger, key: [u8; 32]) -> bool {
    let row = find_key(&ledger.database.pool, &tenant(), &key)
        .await
        .unwrap();
    row.expect("the key names a call").lapsed
}
