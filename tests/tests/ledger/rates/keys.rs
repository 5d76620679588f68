//! A limit of starts for each value of an argument: which bucket a call has, and where it waits.

use std::{collections::BTreeMap, time::Duration};

use fleet::{
    controls::LazyArguments,
    hold::Line,
    ids::CallId,
    rate_key::RateKey,
    store::{
        accept::NewCall,
        complete::Guard,
        limited::Limited,
        release::{lines, release_of_lines},
        starts::{self, Wanted, free_by_key},
    },
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::{
    Scene, applied, call_of,
    model::{Numbers, keeps},
    numbers, try_apply,
};
use crate::{
    differential::{Dice, seed},
    support::{again, claim_of, ending, new_call},
};

const POINTER: &str = "/account/id";

/// A limit for each account, as a manifest has it.
fn by_account(calls: u32, per: &str, burst: u32) -> Value {
    json!({
        "rate_limit": {"calls": calls, "per": per, "burst": burst, "by": POINTER},
        "input_schema": {"type": "object", "required": ["account"], "properties": {"account": {
            "type": "object", "required": ["id"], "properties": {"id": {"type": ["string", "integer"]}}}}},
    })
}

async fn scene(calls: u32, per: &str, burst: u32) -> Scene {
    let mut scene = Scene::with(json!({"calls": 1, "per": "1h"})).await;
    let limit = by_account(calls, per, burst);
    applied(
        &mut scene.ledger.database.connect().await,
        "tool",
        2,
        &limit,
    )
    .await;
    scene.worker = scene.ledger.worker().await;
    scene
}

fn key_of(tenant: &str, account: &Value) -> RateKey {
    let arguments = json!({"account": {"id": account}}).to_string();
    let arguments = LazyArguments::new(&arguments);
    RateKey::of(&tenant.parse().unwrap(), POINTER, &arguments)
}

/// As the door makes it.
fn call_with(tenant: &str, account: impl Into<Value>) -> NewCall {
    let key = key_of(tenant, &account.into());
    let tool = "tool".parse().unwrap();
    NewCall {
        line: Line::Key(tool, key),
        rate_key: Some(key),
        ..call_of("tool", tenant)
    }
}

async fn accepted(scene: &Scene, tenant: &str, account: impl Into<Value>) -> CallId {
    scene.ledger.accepted(call_with(tenant, account)).await
}

async fn says(scene: &Scene, call: CallId) -> &'static str {
    match scene.claim(call).await {
        Some(Limited::Claimed { .. }) => "starts",
        Some(Limited::StartsIn(_)) => "later",
        Some(Limited::NoStart) => "no_start",
        Some(Limited::NoSlot) => "no_place",
        Some(Limited::Busy) => "busy",
        Some(Limited::Forbidden) => "forbidden",
        None => "not_ours",
    }
}

async fn line_of(scene: &Scene, call: CallId) -> String {
    sqlx::query_scalar("SELECT line FROM toolfleet.open_calls WHERE call_id = $1")
        .bind(call.0)
        .fetch_one(&scene.ledger.database.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn each_value_of_each_tenant_has_its_own_and_waits_in_its_own_line() {
    let scene = scene(1, "1h", 1).await;
    for (tenant, account) in [
        ("acme", json!("a")),
        ("acme", json!("b")),
        ("beta", json!("a")),
        ("acme", json!(7)),
        ("acme", json!("7")),
    ] {
        let first = accepted(&scene, tenant, account.clone()).await;
        assert_eq!(says(&scene, first).await, "starts", "{tenant} {account}");
        let second = accepted(&scene, tenant, account.clone()).await;
        assert_eq!(says(&scene, second).await, "no_start", "{tenant} {account}");
        assert!(scene.ledger.is_held(second).await);
        let key = key_of(tenant, &account);
        assert_eq!(line_of(&scene, second).await, format!("tool/tool/{key}"));
    }
    // A number is one value, however it is written.
    let call = accepted(&scene, "acme", json!(7.0)).await;
    assert_eq!(says(&scene, call).await, "no_start");
    let buckets: Vec<(String, Option<String>)> = sqlx::query_as(
        "SELECT tenant, key FROM toolfleet.limits WHERE name = 'tool' ORDER BY tenant, key",
    )
    .fetch_all(&scene.ledger.database.pool)
    .await
    .unwrap();
    let mut expected = ["a".into(), "b".into(), json!(7), "7".into()]
        .map(|account: Value| ("acme", key_of("acme", &account)))
        .to_vec();
    expected.push(("beta", key_of("beta", &"a".into())));
    let mut expected: Vec<_> = expected
        .into_iter()
        .map(|(tenant, key)| (tenant.to_owned(), Some(key.to_string())))
        .collect();
    expected.sort();
    assert_eq!(buckets, expected);
}

#[tokio::test]
async fn a_retry_takes_from_the_bucket_of_its_value_and_calls_of_before_share_one_of_their_tenant()
{
    let scene = scene(1, "1h", 2).await;
    let call = accepted(&scene, "acme", "a").await;
    let row = claim_of(call);
    let attempt = row.attempt_id;
    let mode = fleet::modes::InterceptMode::Enforce;
    let claimed = scene
        .worker
        .claiming
        .claim_limited(row, mode)
        .await
        .unwrap();
    assert!(
        matches!(claimed, Some(Limited::Claimed { .. })),
        "{claimed:?}"
    );
    let end = ending(call, Guard::Attempt(attempt), again());
    scene.ledger.ends(end).await;
    scene
        .does("UPDATE toolfleet.open_calls SET due_at = NULL, not_before = now()")
        .await;
    assert_eq!(says(&scene, call).await, "starts", "the second of two");
    let other = accepted(&scene, "acme", "a").await;
    assert_eq!(says(&scene, other).await, "no_start", "both are used");

    // Calls that were accepted before the tool had such a limit have no key.
    let mut said = Vec::new();
    for tenant in ["acme", "acme", "acme", "beta"] {
        let call = scene.released_of("tool", tenant).await;
        said.push(says(&scene, call).await);
        if said.len() == 3 {
            assert_eq!(line_of(&scene, call).await, "tool/tool");
        }
    }
    assert_eq!(said, ["starts", "starts", "no_start", "starts"]);
    // Without the limit by value their keys say nothing.
    let by_tenant = json!({"rate_limit": {"calls": 1, "per": "1h", "by": "tenant"}});
    applied(
        &mut scene.ledger.database.connect().await,
        "tool",
        3,
        &by_tenant,
    )
    .await;
    let mut said = Vec::new();
    for account in ["a", "b"] {
        let call = accepted(&scene, "acme", account).await;
        said.push((says(&scene, call).await, line_of(&scene, call).await));
    }
    assert_eq!(said[0].0, "starts");
    assert_eq!(said[1], ("no_start", "tool/tool".to_owned()));
}

/// As releases of before call it: they name a tenant, or nobody.
#[tokio::test]
async fn programs_of_the_release_before_take_from_buckets_of_their_own() {
    let scene = scene(1, "1h", 1).await;
    let mut given = Vec::new();
    for owner in [None, None, Some("acme"), Some("acme")] {
        let count: i64 = sqlx::query_scalar(
            "SELECT given FROM toolfleet.take_starts('argument', 'tool', $1, 3600000000, 1, 1, 500, true)",
        )
        .bind(owner)
        .fetch_one(&scene.ledger.database.pool)
        .await
        .unwrap();
        given.push(count);
    }
    assert_eq!(given, [1, 0, 1, 0]);
}

#[tokio::test]
async fn a_remote_closes_the_bucket_of_one_value_and_new_numbers_are_those_of_all() {
    let scene = scene(100, "1s", 10).await;
    let call = accepted(&scene, "acme", "a").await;
    assert_eq!(says(&scene, call).await, "starts");
    let (tool, tenant) = ("tool".parse().unwrap(), "acme".parse().unwrap());
    let pause = Duration::from_secs(600);
    let pool = &scene.ledger.database.pool;
    starts::close(pool, &tool, &tenant, call, pause)
        .await
        .unwrap();
    for (tenant, account, expected) in [
        ("acme", "a", "no_start"),
        ("acme", "b", "starts"),
        ("beta", "a", "starts"),
    ] {
        let call = accepted(&scene, tenant, account).await;
        assert_eq!(says(&scene, call).await, expected, "{tenant} {account}");
    }
    let closed: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM toolfleet.limits WHERE closed_until > clock_timestamp() + interval '9 minutes'",
    )
    .fetch_one(pool)
    .await
    .unwrap();
    assert_eq!(closed, 1);
    // Who sets numbers opens what is closed, and all values have them.
    let setting = json!({"calls": 1, "per_ms": 3_600_000, "burst": 2});
    numbers(&mut scene.ledger.database.connect().await, "tool", &setting).await;
    for account in ["a", "b", "c"] {
        let mut said = Vec::new();
        for _ in 0..3 {
            let call = accepted(&scene, "beta", account).await;
            said.push(says(&scene, call).await);
        }
        assert_eq!(said[2], "no_start", "{account}");
    }
}

#[tokio::test]
async fn the_door_takes_starts_of_each_value() {
    let scene = scene(1, "1h", 2).await;
    let (tool, tenant) = ("tool".parse().unwrap(), "acme".parse().unwrap());
    let wanted = |account: &str, calls| Wanted {
        tool: &tool,
        key: Some(key_of("acme", &account.into())),
        calls,
    };
    let wanted = [wanted("a", 3), wanted("b", 1), wanted("a", 1)];
    let taken = starts::take(&scene.ledger.database.pool, &tenant, &wanted).await;
    let taken: Vec<u32> = taken.unwrap().iter().map(|started| started.calls).collect();
    assert_eq!(taken, [2, 1, 0]);
}

/// Many claims at once, of values that are drawn: each value's starts are as the rule allows, and there are as many as it allows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_many_values_at_once_keep_the_rate_of_each() {
    const CALLS: usize = 240;
    const BURST: i64 = 3;
    let seed = seed();
    println!("TOOLFLEET_SEED={seed}");
    let mut dice = Dice(seed);
    let scene = scene(20, "1s", 3).await;
    let mut calls: BTreeMap<(String, i64), Vec<CallId>> = BTreeMap::new();
    let mut all = Vec::new();
    for _ in 0..CALLS {
        let of = (
            dice.of(&["acme", "beta"]).to_owned(),
            i64::from(dice.of(&[1, 2, 3, 4, 5])),
        );
        let call = accepted(&scene, &of.0, of.1).await;
        all.push(call);
        calls.entry(of).or_default().push(call);
    }
    let claims = all.iter().map(|call| scene.claim(*call));
    let said = join_all(claims).await;
    let numbers = Numbers {
        step: 50_000,
        burst: BURST,
    };
    for (of, calls) in &calls {
        let mut starts = Vec::new();
        for call in calls {
            let place = all.iter().position(|one| one == call).unwrap();
            let at = match &said[place] {
                Some(Limited::Claimed { claimed, .. }) => {
                    claimed.attempt_until
                        - Duration::from_millis(u64::try_from(claimed.timeout_ms).unwrap())
                }
                Some(Limited::StartsIn(_)) => rate_at(&scene, *call).await,
                Some(Limited::NoStart) => continue,
                other => panic!("{of:?}: {other:?}"),
            };
            starts.push(i64::try_from(at.unix_timestamp_nanos() / 1_000).unwrap());
        }
        // A statement's clock is read before the bucket is locked, so starts at once are a little earlier than their times.
        let (first, last) = (*starts.iter().min().unwrap(), *starts.iter().max().unwrap());
        let allowed = usize::try_from(BURST + (last - first) / numbers.step + 1).unwrap();
        assert!(
            starts.len() <= allowed,
            "{of:?}: {} of {allowed}",
            starts.len()
        );
        assert!(
            starts.len() >= calls.len().min(13),
            "{of:?}: {} of {}",
            starts.len(),
            calls.len()
        );
        let mut later: Vec<i64> = starts.into_iter().filter(|at| *at > first).collect();
        keeps(&mut later, numbers).unwrap();
    }
    assert!(calls.len() > 5);
}

async fn rate_at(scene: &Scene, call: CallId) -> OffsetDateTime {
    sqlx::query_scalar("SELECT rate_at FROM toolfleet.open_calls WHERE call_id = $1")
        .bind(call.0)
        .fetch_one(&scene.ledger.database.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn lines_of_values_are_walked_in_stretches_and_each_says_how_many_may_go() {
    let scene = scene(1, "1h", 2).await;
    let held = |call: NewCall| NewCall { held: true, ..call };
    let mut keys = Vec::new();
    for account in 0..10 {
        for _ in 0..3 {
            scene
                .ledger
                .accepted(held(call_with("acme", account)))
                .await;
        }
        keys.push(key_of("acme", &account.into()));
    }
    keys.sort_unstable();
    // Calls of other tools, and those without a key, are none of them.
    applied(
        &mut scene.ledger.database.connect().await,
        "toolx",
        1,
        &by_account(1, "1h", 1),
    )
    .await;
    for (tool, line) in [("tool", "tool/tool"), ("toolx", "tool/toolx")] {
        let call = held(call_of(tool, "acme"));
        let line = line.parse().unwrap();
        scene.ledger.accepted(NewCall { line, ..call }).await;
    }
    let other: Line = format!("tool/toolx/{}", keys[0]).parse().unwrap();
    let call = held(call_of("toolx", "acme"));
    scene
        .ledger
        .accepted(NewCall {
            line: other,
            ..call
        })
        .await;
    scene.ledger.accepted(held(new_call())).await;

    let connection = &mut scene.ledger.database.connect().await;
    let holding = lines(connection, 100).await.unwrap();
    let tools: Vec<String> = holding.keyed.iter().map(ToString::to_string).collect();
    assert_eq!(tools, ["tool", "toolx"]);
    assert_eq!(holding.lines.len(), 3, "{holding:?}");
    assert_eq!(holding.unknown, None);

    // One of them has used both, and of one a call is on its way.
    for _ in 0..2 {
        let account = (0..10).find(|account| key_of("acme", &(*account).into()) == keys[4]);
        let call = accepted(&scene, "acme", account.unwrap()).await;
        assert_eq!(says(&scene, call).await, "starts");
    }
    let tool = "tool".parse().unwrap();
    let one = (
        Line::Key("tool".parse().unwrap(), keys[6]),
        "acme".parse().unwrap(),
        1,
    );
    let released = release_of_lines(connection, &[one]).await.unwrap();
    assert_eq!(released.len(), 1);
    let (mut after, mut found) = (None, Vec::new());
    loop {
        let step = free_by_key(&mut *connection, &tool, after, 4)
            .await
            .unwrap();
        found.extend(step.iter().map(|line| (line.key, line.free)));
        after = step.last().map(|line| line.key);
        if step.len() < 4 {
            break;
        }
    }
    let expected: Vec<_> = keys
        .iter()
        .enumerate()
        .map(|(place, key)| {
            (
                *key,
                Some(match place {
                    4 => 0,
                    6 => 1,
                    _ => 2,
                }),
            )
        })
        .collect();
    assert_eq!(found, expected);

    // Of two lines at once, each its share.
    let tenant = || "acme".parse().unwrap();
    let line = |place: usize| Line::Key("tool".parse().unwrap(), keys[place]);
    let turn = [(line(0), tenant(), 2), (line(1), tenant(), 1)];
    let mut of_line: BTreeMap<String, usize> = BTreeMap::new();
    for released in release_of_lines(connection, &turn).await.unwrap() {
        *of_line
            .entry(line_of(&scene, released.call.pointer.call_id).await)
            .or_default() += 1;
    }
    assert_eq!(
        of_line,
        BTreeMap::from([(line(0).to_string(), 2), (line(1).to_string(), 1)])
    );

    // A tool without such a limit says so.
    try_apply(connection, "tool", 3, &json!({})).await;
    let step = free_by_key(&mut *connection, &tool, None, 100)
        .await
        .unwrap();
    assert!(!step.is_empty() && step.iter().all(|line| line.free.is_none()));
}

#[tokio::test]
async fn the_bucket_of_a_value_is_dropped_when_it_is_as_good_as_new() {
    let scene = scene(1, "1s", 1).await;
    for account in ["a", "b", "c"] {
        let call = accepted(&scene, "acme", account).await;
        assert_eq!(says(&scene, call).await, "starts");
    }
    let connection = &mut scene.ledger.database.connect().await;
    let drop_unused = starts::drop_unused_values;
    assert_eq!(drop_unused(connection).await.unwrap(), 0, "used just now");
    scene.passes(61_000).await;
    let b = key_of("acme", &"b".into());
    let tat = format!(
        "UPDATE toolfleet.rate_buckets SET tat = now() + interval '1 s' WHERE tenant = 'acme/{b}'"
    );
    sqlx::query(sqlx::AssertSqlSafe(tat))
        .execute(&mut *connection)
        .await
        .unwrap();
    let c = key_of("acme", &"c".into());
    let closed =
        format!("UPDATE toolfleet.rate_buckets SET closed_until = now() WHERE tenant = 'acme/{c}'");
    sqlx::query(sqlx::AssertSqlSafe(closed))
        .execute(&mut *connection)
        .await
        .unwrap();
    assert_eq!(
        drop_unused(connection).await.unwrap(),
        1,
        "one remembers a start, one was closed"
    );
    scene
        .does("UPDATE toolfleet.rate_buckets SET tat = now(), closed_until = NULL")
        .await;
    assert_eq!(drop_unused(connection).await.unwrap(), 2);
}
