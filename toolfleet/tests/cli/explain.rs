//! What `calls explain` says of a fleet that is not well, and of calls that are over.

use std::time::Duration;

use fleet::{
    call::{CallOutcome, EffectKnown, Source, State},
    ids::{AttemptId, CallId},
    lease::LATE,
    outcome::OutcomeWord,
    store::{
        complete::{Complete, Decision, EndedAttempt, Ending, EndingKind, Guard},
        lane::{Locks, Statement},
        migrate::migrate,
    },
    taken_back::AttemptCost,
};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tokio::time::{Instant, sleep};

use crate::{
    decisions::{Where, apply, claim, queued, running},
    support::{folder, ledger, nats, postgres, run},
};

const SEALED: &str = "name: sealed\nversion: 1\ndescription: Needs a secret.\neffect: read\nqueue: sealed\n\
    input_schema: {type: object}\n\
    executor: {http: {method: GET, url: \"http://127.0.0.1:1/\", headers: {x-seal: \"secret://NOWHERE\"}}}\n";

const BARE: &str = "name: bare\nversion: 1\ndescription: Runs a program.\neffect: read\nqueue: bare\n\
    input_schema: {type: object}\nexecutor: {process: {command: [\"true\"]}}\n";

/// Waits until Postgres answers yes.
async fn until(connection: &mut PgConnection, what: &str, question: &'static str) {
    let began = Instant::now();
    while !sqlx::query_scalar::<_, bool>(question)
        .fetch_one(&mut *connection)
        .await
        .unwrap()
    {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// The reason and the sentence.
fn told(why: &Value) -> (&str, &str) {
    (
        why["reason"].as_str().unwrap(),
        why["because"].as_str().unwrap(),
    )
}

#[tokio::test]
async fn a_worker_that_was_killed_is_said_to_be_silent_within_its_lease() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let nats = nats(folder.path()).await;
    let here = Where {
        database: postgres.url(),
        nats: nats.url(),
    };
    let ledger = ledger(&here.database);
    migrate(&ledger).await.unwrap();
    let mut connection = ledger.connect().await.unwrap();
    apply(&here, folder.path());
    let dispatcher = here.dispatcher();
    let worker = here.worker("worker-1", "payments", folder.path());
    until(
        &mut connection,
        "the worker lives",
        "SELECT EXISTS (SELECT FROM toolfleet.workers WHERE state = 'live')",
    )
    .await;
    // No process is left that would find the worker dead: it counts as live from here on.
    drop(dispatcher);
    drop(worker);
    let waiting = queued(&mut connection).await.to_string();
    let late = "SELECT now() - beat_at > interval '6 s' FROM toolfleet.workers";
    assert_eq!(LATE, Duration::from_secs(6));
    until(&mut connection, "two heartbeats are missed", late).await;
    let why = here.reason(&waiting);
    let (reason, because) = told(&why);
    assert_eq!(reason, "silent_worker", "{why}");
    assert!(
        because.starts_with(
            "no worker that lives pulls from its queue payments: worker worker-1 has been silent for "
        ),
        "{because}"
    );
    assert!(
        why["next"]
            .as_str()
            .unwrap()
            .contains("toolfleet worker --queues payments"),
        "{why}"
    );

    // One that runs on a silent worker, too.
    let (runs, _attempt) = running(&mut connection, &["payments"], 2).await;
    let runs = runs.to_string();
    assert_eq!(told(&here.reason(&runs)).0, "running");
    let silent = "UPDATE toolfleet.worker_processes SET beat_at = now() - interval '9 s'";
    sqlx::query(silent).execute(&mut connection).await.unwrap();
    let why = here.reason(&runs);
    let (reason, because) = told(&why);
    assert_eq!(reason, "silent_worker", "{why}");
    assert!(
        because.ends_with("that worker has been silent for 9 s: it may be dead"),
        "{because}"
    );
    let why = here.reason(&waiting);
    let (reason, because) = told(&why);
    assert_eq!(reason, "silent_worker", "{why}");
    assert_eq!(
        because.matches("has been silent for").count(),
        2,
        "{because}"
    );

    // Of both no word any more, once one lives: but they are told of, and their slots are not free.
    running(&mut connection, &["payments"], 1).await;
    let why = here.reason(&waiting);
    let (reason, because) = told(&why);
    assert_eq!(reason, "no_free_slot", "{why}");
    assert!(
        because.starts_with(
            "the live worker of its queue payments has 1 slot for it, none of them free; worker "
        ) && because.ends_with("and may be dead: not counted"),
        "{because}"
    );
    nats.stop().await;
    postgres.stop().await;
}

#[tokio::test]
async fn a_call_that_waits_while_nats_is_away_says_so_where_the_address_is_given() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let nats = nats(folder.path()).await;
    let here = Where {
        database: postgres.url(),
        nats: nats.url(),
    };
    let ledger = ledger(&here.database);
    migrate(&ledger).await.unwrap();
    let mut connection = ledger.connect().await.unwrap();
    apply(&here, folder.path());
    let waiting = queued(&mut connection).await.to_string();
    // Its worker has a slot that is free.
    running(&mut connection, &["payments"], 2).await;
    assert_eq!(told(&here.reason(&waiting)).0, "published");
    let port = here.nats.rsplit_once(':').unwrap().1.to_owned();
    nats.stop().await;
    let why = here.reason(&waiting);
    let (reason, because) = told(&why);
    assert_eq!(reason, "nats_away", "{why}");
    let expected = format!(
        "a worker gets it through NATS, and nats-server at 127.0.0.1:{port} (NATS_URL) is away: connection refused"
    );
    assert_eq!(because, expected);
    // A person who has the address of Postgres alone is told what Postgres knows.
    let mut alone = here.command(&["calls", "explain", &waiting, "--json"]);
    alone.env_remove("NATS_URL");
    assert_ne!(told(&run(alone).json()).0, "nats_away");
    postgres.stop().await;
}

/// Ends a running call as the sweep does.
async fn end(
    connection: &mut PgConnection,
    call: (CallId, AttemptId),
    kind: EndingKind,
    reason: &str,
) {
    let (call_id, attempt_id) = call;
    let ending = Ending {
        call_id,
        guard: Guard::Attempt(attempt_id),
        kind,
        attempt: Some(EndedAttempt {
            outcome: OutcomeWord::Unknown,
            effect: EffectKnown::None,
            error: None,
            has_stopped: false,
        }),
        actor: "sweep".into(),
        reason: reason.into(),
    };
    let ended = Complete.run(connection, &[ending], Locks::Wait).await;
    assert!(ended.unwrap()[0].is_some());
}

/// Lets a queued call expire where it is held, as the sweep does.
async fn expire_in(connection: &mut PgConnection, call_id: CallId, line: &str) {
    let hold = "UPDATE toolfleet.open_calls SET held = true, line = $2, accepted_at = now() - interval '2 s', deadline_at = now() \
                WHERE call_id = $1 RETURNING rev";
    let hold = sqlx::query_scalar(hold).bind(call_id.0).bind(line);
    let rev = hold.fetch_one(&mut *connection).await.unwrap();
    let error = json!({"code": "deadline_exceeded", "message": "m", "retryable": true, "retry_after_ms": null,
        "suggestion": "retry_later"});
    let ending = Ending {
        call_id,
        guard: Guard::Queued(rev),
        kind: EndingKind::End(Decision {
            state: State::Expired,
            outcome: CallOutcome::SystemError,
            source: Source::Error,
            effect: EffectKnown::NotApplied,
            result: None,
            error: Some(error.to_string()),
            preview: None,
            degraded: None,
        }),
        attempt: None,
        actor: "sweep".into(),
        reason: "deadline_exceeded".into(),
    };
    let ended = Complete.run(connection, &[ending], Locks::Wait).await;
    assert!(ended.unwrap()[0].is_some());
}

#[tokio::test]
async fn a_call_that_expired_where_it_was_held_says_what_held_it() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let here = Where {
        database: postgres.url(),
        nats: "nats://127.0.0.1:1".to_owned(),
    };
    let ledger = ledger(&here.database);
    migrate(&ledger).await.unwrap();
    let mut connection = ledger.connect().await.unwrap();
    apply(&here, folder.path());
    // Workers that live would not have helped.
    running(&mut connection, &["payments"], 2).await;
    let pause = "SELECT verdict FROM toolfleet.set_control('pause', '\"wait\"', 'ada', 'the bank migrates', tool => 'charge')";
    sqlx::query(pause).execute(&mut connection).await.unwrap();
    let paused = queued(&mut connection).await;
    expire_in(&mut connection, paused, "pause/1").await;
    // The log knows it when it is over.
    let resume = "SELECT toolfleet.unset_control('ada', 'it is done', 1)";
    sqlx::query(resume).execute(&mut connection).await.unwrap();
    let limited = queued(&mut connection).await;
    expire_in(&mut connection, limited, "tool/charge").await;
    let broken = queued(&mut connection).await;
    expire_in(&mut connection, broken, "breaker/1").await;
    let crowded = queued(&mut connection).await;
    expire_in(&mut connection, crowded, "payments").await;
    for (call, reason, words) in [
        (
            paused,
            "paused",
            "; it was held by a pause of ada (control 1): the bank migrates",
        ),
        (
            limited,
            "tool_limit",
            "; it waited to its end for a place of its tool charge, which has a limit; it has none at present",
        ),
        (
            broken,
            "circuit_open",
            "; the breaker of its tool charge was open, for its target failed: nothing was sent to it",
        ),
        (
            crowded,
            "deadline_exceeded",
            "; 1 worker of its queue payments lived meanwhile and did not start it: m",
        ),
    ] {
        let why = here.reason(&call.to_string());
        let (found, because) = told(&why);
        assert_eq!(found, reason, "{why}");
        assert!(because.ends_with(words), "{because}");
    }

    // Calls that were committed together: those before it in the order of the release, and no others.
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(queued(&mut connection).await);
    }
    let together = "UPDATE toolfleet.open_calls SET held = true, accepted_at = '2026-01-01', deadline_at = now() + interval '1 h' \
                    WHERE state = 'queued'";
    sqlx::query(together)
        .execute(&mut connection)
        .await
        .unwrap();
    calls.sort_unstable_by_key(|call| call.0);
    for (call, ahead) in calls.iter().zip([
        "no call of its tenant is",
        "1 call of its tenant is",
        "2 calls of its tenant are",
    ]) {
        // What it says of NATS is another matter.
        let mut alone = here.command(&["calls", "explain", &call.to_string(), "--json"]);
        alone.env_remove("NATS_URL");
        let why = run(alone).json();
        assert!(told(&why).1.contains(ahead), "{why}");
    }
    postgres.stop().await;
}

#[tokio::test]
async fn a_call_that_is_over_says_why_from_its_history() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let nats = nats(folder.path()).await;
    let here = Where {
        database: postgres.url(),
        nats: nats.url(),
    };
    let ledger = ledger(&here.database);
    migrate(&ledger).await.unwrap();
    let mut connection = ledger.connect().await.unwrap();
    apply(&here, folder.path());
    let dispatcher = here.dispatcher();

    // No worker pulls from its queue: this worker has another one, and this one left before.
    running(&mut connection, &["elsewhere"], 1).await;
    let submit = [
        "call",
        "charge",
        "--key",
        "k",
        "--deadline-ms",
        "300",
        "--json",
    ];
    let answer = run(here.command(&submit)).json();
    assert_eq!(answer["state"], "expired", "{answer}");
    let why = here.reason(answer["call_id"].as_str().unwrap());
    let (reason, because) = told(&why);
    assert_eq!(reason, "no_worker", "{why}");
    assert!(
        because.starts_with("its deadline passed at ")
            && because
                .ends_with(", and no worker that pulls from its queue payments lived meanwhile"),
        "{because}"
    );
    assert!(
        why["next"].as_str().unwrap().contains("--queues payments"),
        "{why}"
    );

    // Lost once, and then once too often.
    let lost = running(&mut connection, &["payments"], 1).await;
    let again = EndingKind::Again {
        pause_ms: 0,
        cost: AttemptCost::Lost,
    };
    end(&mut connection, lost, again, "worker_lost").await;
    let lost = claim(&mut connection, lost.0, &["payments"], 1).await;
    let error = json!({"code": "tool_crashed", "message": "m", "retryable": true, "retry_after_ms": null,
        "suggestion": "retry_later"});
    let kind = EndingKind::End(Decision {
        state: State::Failed,
        outcome: CallOutcome::SystemError,
        source: Source::Error,
        effect: EffectKnown::None,
        result: None,
        error: Some(error.to_string()),
        preview: None,
        degraded: None,
    });
    end(&mut connection, lost, kind, "poison").await;
    let why = here.reason(&lost.0.to_string());
    let (reason, because) = told(&why);
    assert_eq!(reason, "poison", "{why}");
    assert!(
        because.ends_with(
            ": it lost its worker 2 times while it ran, at last on worker worker-1, and its tool charge allows 5"
        ),
        "{because}"
    );

    // A worker lives now, and has no free slot: it is not said that there was none.
    running(&mut connection, &["payments"], 1).await;
    let busy = [
        "call",
        "charge",
        "--key",
        "l",
        "--deadline-ms",
        "300",
        "--json",
    ];
    let answer = run(here.command(&busy)).json();
    let why = here.reason(answer["call_id"].as_str().unwrap());
    let (reason, because) = told(&why);
    assert_eq!(reason, "deadline_exceeded", "{why}");
    assert!(
        because.contains("of its queue payments lived meanwhile and did not start it: "),
        "{because}"
    );

    let unwanted = queued(&mut connection).await.to_string();
    here.calls(0, &["cancel", &unwanted, "--reason", "changed my mind"]);
    let why = here.reason(&unwanted);
    let (reason, because) = told(&why);
    assert_eq!(reason, "cancelled", "{why}");
    assert!(
        because.starts_with("it was taken back by ")
            && because.ends_with(", before it ran: changed my mind"),
        "{because}"
    );
    // A worker of its queue lives, and lacks what the tool needs.
    let sealed = folder.path().join("sealed.yaml");
    std::fs::write(&sealed, SEALED).unwrap();
    let applied = run(here.command(&["tools", "apply", sealed.to_str().unwrap()]));
    assert_eq!(applied.code, 0, "{}", applied.err);
    let bare = folder.path().join("bare.yaml");
    std::fs::write(&bare, BARE).unwrap();
    let applied = run(here.command(&["tools", "apply", bare.to_str().unwrap()]));
    assert_eq!(applied.code, 0, "{}", applied.err);
    let strict = here.worker_with("worker-3", "bare", folder.path(), &["--sandbox", "strict"]);
    let submit = ["call", "bare", "--async", "--json"];
    let bare = run(here.command(&submit)).json();
    let worker = here.worker("worker-2", "sealed", folder.path());
    let submit = ["call", "sealed", "--deadline-ms", "15000", "--json"];
    let answer = run(here.command(&submit)).json();
    assert_eq!(answer["state"], "expired", "{answer}");
    let why = here.reason(answer["call_id"].as_str().unwrap());
    let (reason, because) = told(&why);
    assert_eq!(reason, "missing_secret", "{why}");
    assert!(
        because.ends_with(
            "; worker worker-2 had put it back: secret NOWHERE is neither in the secrets folder nor in the environment"
        ),
        "{because}"
    );
    assert!(
        why["next"]
            .as_str()
            .unwrap()
            .contains("a readable file NOWHERE"),
        "{why}"
    );
    let bare = bare["call_id"].as_str().unwrap();
    until(
        &mut connection,
        "the strict worker puts the program back",
        "SELECT EXISTS (SELECT FROM toolfleet.calls WHERE tool = 'bare' AND obstacle IS NOT NULL)",
    )
    .await;
    let why = here.reason(bare);
    let (reason, because) = told(&why);
    assert_eq!(reason, "postponed", "{why}");
    assert!(
        because.contains("worker worker-3 could not run it")
            && because.ends_with(
                ": this worker runs only programs with a sandbox (WORKER_SANDBOX=strict), and the tool has none"
            ),
        "{because}"
    );
    drop(strict);
    drop(worker);
    drop(dispatcher);
    nats.stop().await;
    postgres.stop().await;
}
