//! `toolfleet.decide`: who may decide about a call that waits for a yes, about which arguments, until when, and what follows.

use fleet::{
    approval::ApprovalWanted,
    call::{Effect, State},
    ids::CallId,
    store::{
        DecisionError,
        accept::NewCall,
        approvals::{self, Approval, Ruling, RulingVerdict},
        cancel::{self, Cancellation},
    },
};
use time::{Duration, OffsetDateTime};

use crate::support::{Ledger, approval, call_to_approve, wanted};

impl Ledger {
    async fn rules(&self, approval: &Approval<'_>) -> RulingVerdict {
        let ruling = approvals::rule(&self.database.pool, approval).await;
        ruling.unwrap()
    }

    async fn number(&self, call: CallId, column: &str) -> i64 {
        let sql = format!("SELECT ({column})::bigint FROM toolfleet.open_calls WHERE call_id = $1");
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(call.0)
            .fetch_one(&self.database.pool)
            .await
            .unwrap()
    }

    async fn decisions(&self, call: CallId) -> Vec<(String, String, String)> {
        sqlx::query_as(
            "SELECT decision, actor, note FROM toolfleet.approvals WHERE call_id = $1 ORDER BY at",
        )
        .bind(call.0)
        .fetch_all(&self.database.pool)
        .await
        .unwrap()
    }
}

fn denial(call: CallId, actor: &str) -> Approval<'_> {
    Approval {
        ruling: Ruling::Deny,
        ..approval(call, actor)
    }
}

const fn state(verdict: &RulingVerdict) -> Option<State> {
    match verdict {
        RulingVerdict::Decided { state, .. } => Some(*state),
        _ => None,
    }
}

#[tokio::test]
async fn a_yes_puts_the_call_into_its_line_and_begins_its_clocks() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let needed = ApprovalWanted {
        queue_wait_ms: Some(30_000),
        ..wanted()
    };
    let call = ledger.accepted(call_to_approve(needed)).await;
    assert_eq!(ledger.state(call).await, State::AwaitingClient);
    let seconds = "round(extract(epoch FROM deadline_at - now()))";
    assert!((50..=60).contains(&ledger.number(call, seconds).await));
    assert!(worker.tries(call).await.is_none());

    let verdict = ledger.rules(&approval(call, "ann")).await;
    assert_eq!(state(&verdict), Some(State::Queued), "{verdict:?}");
    assert!((590..=600).contains(&ledger.number(call, seconds).await));
    let first = "round(extract(epoch FROM queue_until - now()))";
    assert!((25..=30).contains(&ledger.number(call, first).await));
    assert_eq!(ledger.number(call, "held::integer").await, 1);
    // Nothing runs before its turn.
    assert!(worker.tries(call).await.is_none());
    ledger
        .meddle(
            call,
            "UPDATE toolfleet.open_calls SET held = false WHERE call_id = $1",
        )
        .await;
    worker.claims(call).await;
    assert_eq!(
        ledger.decisions(call).await,
        [("approve".into(), "ann".into(), "looked at it".into())]
    );
}

#[tokio::test]
async fn the_cap_of_a_run_holds_while_it_waits_and_after() {
    let ledger = Ledger::fresh().await;
    let now: OffsetDateTime = sqlx::query_scalar("SELECT now()")
        .fetch_one(&ledger.database.pool)
        .await
        .unwrap();
    let cap = now + Duration::seconds(20);
    let needed = ApprovalWanted {
        run_deadline: Some(cap),
        ..wanted()
    };
    let call = NewCall {
        run_deadline: Some(cap),
        ..call_to_approve(needed)
    };
    let call = ledger.accepted(call).await;
    let left = "round(extract(epoch FROM deadline_at - now()))";
    assert!(ledger.number(call, left).await <= 20);
    ledger.rules(&approval(call, "ann")).await;
    assert!(ledger.number(call, left).await <= 20);
}

#[tokio::test]
async fn two_different_people_decide_and_not_who_submitted_it() {
    let ledger = Ledger::fresh().await;
    let needed = ApprovalWanted {
        count: 2,
        ..wanted()
    };
    let call = NewCall {
        meta: Some("{\"principal\":\"Eve\"}".into()),
        ..call_to_approve(needed)
    };
    let call = ledger.accepted(call).await;
    assert_eq!(
        ledger.rules(&approval(call, " eve")).await,
        RulingVerdict::Submitter
    );
    assert_eq!(
        ledger.rules(&approval(call, "eve@host")).await,
        RulingVerdict::Submitter
    );
    let first = ledger.rules(&approval(call, "ann")).await;
    let RulingVerdict::Decided {
        state,
        given,
        needed,
        ..
    } = first
    else {
        panic!("{first:?}")
    };
    assert_eq!((state, given, needed), (State::AwaitingClient, 1, 2));
    for again in [
        "ann",
        " Ann ",
        "ANN",
        "ann (ops)",
        "ann (ops) (_INBOX)",
        "ann\u{a0}",
        "ann\u{2800}",
        "\u{ff21}nn",
        "ann\u{fe0f}",
    ] {
        let verdict = ledger.rules(&approval(call, again)).await;
        assert_eq!(verdict, RulingVerdict::SamePerson, "{again}");
    }
    assert_eq!(ledger.state(call).await, State::AwaitingClient);
    let second = ledger.rules(&approval(call, "bob")).await;
    assert!(matches!(
        second,
        RulingVerdict::Decided {
            state: State::Queued,
            given: 2,
            ..
        }
    ));
    assert_eq!(ledger.decisions(call).await.len(), 2);
}

/// Whatever the locale of the database is.
#[tokio::test]
async fn a_name_in_another_case_beyond_ascii_is_the_same_person() {
    let ledger = Ledger::fresh().await;
    for (first, again, other) in [
        ("straße", "STRASSE", "strase"),
        ("Straẞe", "strasse", "strassen"),
        ("Änn", "a\u{308}NN", "Ann"),
        ("Σοφίας", "ΣΟΦΊΑΣ", "Σοφία"),
        ("Иван (ops)", "ИВАН", "Ивана"),
        ("Łukasz", "łUKASZ", "Lukasz"),
        ("Արամ", "արամ", "Արամե"),
        // The same user on two machines, whatever stands behind.
        ("bob@h1", "bob@h2 (ops)", "bobby@h1"),
        ("ann (a(b))", "ann", "anne"),
        ("@x", "@x", "@y"),
    ] {
        let needed = ApprovalWanted {
            count: 2,
            ..wanted()
        };
        let call = ledger.accepted(call_to_approve(needed)).await;
        ledger.rules(&approval(call, first)).await;
        let verdict = ledger.rules(&approval(call, again)).await;
        assert_eq!(verdict, RulingVerdict::SamePerson, "{first} {again}");
        let verdict = ledger.rules(&approval(call, other)).await;
        let is_decided = matches!(verdict, RulingVerdict::Decided { given: 2, .. });
        assert!(is_decided, "{first} {other}: {verdict:?}");
    }
}

#[tokio::test]
async fn one_no_ends_it_even_of_who_said_yes_before() {
    let ledger = Ledger::fresh().await;
    for denier in ["bob", "ann"] {
        let needed = ApprovalWanted {
            count: 2,
            ..wanted()
        };
        let call = ledger.accepted(call_to_approve(needed)).await;
        ledger.rules(&approval(call, "ann")).await;
        let verdict = ledger.rules(&denial(call, denier)).await;
        assert_eq!(state(&verdict), Some(State::Failed), "{denier}");
        let after = ledger.rules(&approval(call, "cyd")).await;
        let RulingVerdict::NotWaiting {
            state, decided_by, ..
        } = after
        else {
            panic!("{after:?}")
        };
        assert_eq!(
            (state, decided_by.as_deref()),
            (State::Failed, Some(denier))
        );
        assert_eq!(ledger.decisions(call).await.len(), 2);
    }
}

#[tokio::test]
async fn a_decision_is_about_the_arguments_that_were_shown_and_in_time() {
    let ledger = Ledger::fresh().await;
    let call = ledger.accepted(call_to_approve(wanted())).await;
    for other in [
        "",
        "02",
        "0202020202020202020202020202020202020202020202020202020202020202",
    ] {
        for ruling in [Ruling::Approve, Ruling::Deny] {
            let other = Approval {
                args_hash: other,
                ruling,
                ..approval(call, "ann")
            };
            assert_eq!(ledger.rules(&other).await, RulingVerdict::OtherArguments);
        }
    }
    let other = "other".parse().unwrap();
    let foreign = Approval {
        tenant: Some(&other),
        ..approval(call, "ann")
    };
    assert_eq!(ledger.rules(&foreign).await, RulingVerdict::NotFound);
    assert_eq!(
        ledger.rules(&approval(CallId::generate(), "ann")).await,
        RulingVerdict::NotFound
    );
    for (actor, note) in [
        ("", "n"),
        (" ", "n"),
        ("ann", ""),
        ("ann", " \n"),
        ("ann\u{200b}", "n"),
        ("ann\n", "n"),
    ] {
        let invalid = Approval {
            note,
            ..approval(call, actor)
        };
        let refused = approvals::rule(&ledger.database.pool, &invalid).await;
        assert!(
            matches!(refused, Err(DecisionError::Invalid(_))),
            "{refused:?}"
        );
    }
    let past =
        "UPDATE toolfleet.open_calls SET due_at = now() - interval '1 ms' WHERE call_id = $1";
    ledger.meddle(call, past).await;
    for late in [approval(call, "ann"), denial(call, "ann")] {
        let verdict = ledger.rules(&late).await;
        assert!(matches!(verdict, RulingVerdict::Over { .. }), "{verdict:?}");
    }
    assert_eq!(ledger.decisions(call).await, []);
    assert_eq!(ledger.state(call).await, State::AwaitingClient);
}

#[tokio::test]
async fn a_call_of_a_client_tool_is_handed_out_by_the_yes() {
    let ledger = Ledger::fresh().await;
    let needed = ApprovalWanted {
        client_ms: Some(5_000),
        ..wanted()
    };
    let call = ledger.accepted(call_to_approve(needed)).await;
    let handed = ledger.rules(&approval(call, "ann")).await;
    assert_eq!(state(&handed), Some(State::AwaitingClient));
    let row = ledger.find(call).await;
    assert!(row.attempt_id().is_some());
    assert_eq!(row.attempts, 1);
    assert_eq!(
        ledger.number(call, "(awaiting = 'client')::integer").await,
        1
    );
    assert!(
        ledger
            .number(call, "round(extract(epoch FROM due_at - now()))")
            .await
            <= 5
    );
    // What was handed out is not decided about, and is never queued.
    let again = ledger.rules(&approval(call, "bob")).await;
    assert!(
        matches!(again, RulingVerdict::NotWaiting { .. }),
        "{again:?}"
    );
    let queued = sqlx::query(
        "UPDATE toolfleet.open_calls SET state = 'queued', awaiting = NULL WHERE call_id = $1",
    )
    .bind(call.0)
    .execute(&ledger.database.pool)
    .await;
    let refused = queued.unwrap_err();
    let refused = refused.as_database_error().unwrap();
    assert_eq!(refused.code().as_deref(), Some("23514"));
}

#[tokio::test]
async fn after_lost_writes_a_yes_runs_no_once_call_again() {
    let ledger = Ledger::fresh().await;
    let once = ledger.accepted(call_to_approve(wanted())).await;
    let idempotent = NewCall {
        effect: Effect::Idempotent,
        ..call_to_approve(wanted())
    };
    let idempotent = ledger.accepted(idempotent).await;
    let lost = "SELECT * FROM toolfleet.quarantine((SELECT quarantines FROM toolfleet.fleet), 7, '1', 1, 'test', \
                '{\"en\": {\"code\": \"in_doubt\"}, \"zh\": {\"code\": \"in_doubt\"}}')";
    sqlx::query(lost)
        .execute(&ledger.database.pool)
        .await
        .unwrap();
    assert_eq!(ledger.state(once).await, State::InDoubt);
    // For as long as a call may have run whose yes was lost.
    let left = "round(extract(epoch FROM attempt_until - now()))";
    assert!((590..=600).contains(&ledger.number(once, left).await));
    let again = ledger.rules(&approval(once, "ann")).await;
    assert!(
        matches!(
            again,
            RulingVerdict::NotWaiting {
                state: State::InDoubt,
                ..
            }
        ),
        "{again:?}"
    );

    assert_eq!(ledger.state(idempotent).await, State::AwaitingClient);
    assert_eq!(
        ledger.number(idempotent, "effect_unknown::integer").await,
        1
    );
    let yes = ledger.rules(&approval(idempotent, "ann")).await;
    assert_eq!(state(&yes), Some(State::Queued));
    assert_eq!(
        ledger.number(idempotent, "effect_unknown::integer").await,
        1
    );
}

#[tokio::test]
async fn no_statement_lets_a_call_go_on_without_its_yes() {
    let ledger = Ledger::fresh().await;
    let needed = ApprovalWanted {
        count: 2,
        ..wanted()
    };
    let call = ledger.accepted(call_to_approve(needed)).await;
    ledger.rules(&approval(call, "ann")).await;
    for bypass in [
        "UPDATE toolfleet.open_calls SET state = 'queued', awaiting = NULL WHERE call_id = $1",
        "UPDATE toolfleet.open_calls SET awaiting = 'client' WHERE call_id = $1",
    ] {
        let passed = sqlx::query(bypass)
            .bind(call.0)
            .execute(&ledger.database.pool)
            .await;
        let refused = passed.unwrap_err();
        let refused = refused.as_database_error().unwrap();
        assert_eq!(refused.code().as_deref(), Some("23514"), "{bypass}");
    }
}

#[tokio::test]
async fn decisions_do_not_change() {
    let ledger = Ledger::fresh().await;
    let call = ledger.accepted(call_to_approve(wanted())).await;
    ledger.rules(&denial(call, "ann")).await;
    for change in [
        "UPDATE toolfleet.call_decisions SET actor = 'bob' WHERE call_id = $1",
        "DELETE FROM toolfleet.call_decisions WHERE call_id = $1",
    ] {
        let changed = sqlx::query(change)
            .bind(call.0)
            .execute(&ledger.database.pool)
            .await;
        assert!(changed.is_err(), "{change}");
    }
    let emptied = sqlx::query("TRUNCATE toolfleet.call_decisions")
        .execute(&ledger.database.pool)
        .await;
    assert!(emptied.is_err());
}

const RACES: usize = 200;
const MANY_RACES: usize = 1_000;

#[tokio::test]
async fn of_a_yes_and_a_no_at_once_one_wins_and_the_other_is_told() {
    yes_and_no(RACES).await;
}

#[tokio::test]
#[ignore = "slow: a thousand races"]
async fn of_a_thousand_yeses_and_noes_at_once_one_each_wins() {
    yes_and_no(MANY_RACES).await;
}

/// Races a yes with a no about the same call.
async fn yes_and_no(races: usize) {
    let ledger = Ledger::fresh().await;
    let mut won = [0; 2];
    for _ in 0..races {
        let call = ledger.accepted(call_to_approve(wanted())).await;
        let (yes, no) = (approval(call, "ann"), denial(call, "bob"));
        let (yes, no) = tokio::join!(ledger.rules(&yes), ledger.rules(&no));
        let winner = match (&yes, &no) {
            (
                RulingVerdict::Decided { .. },
                RulingVerdict::NotWaiting {
                    decided_by, state, ..
                },
            ) => {
                assert_eq!(decided_by.as_deref(), Some("ann"));
                assert_eq!(*state, State::Queued);
                0
            }
            (
                RulingVerdict::NotWaiting {
                    decided_by, state, ..
                },
                RulingVerdict::Decided { .. },
            ) => {
                assert_eq!(decided_by.as_deref(), Some("bob"));
                assert_eq!(*state, State::Failed);
                1
            }
            both => panic!("{both:?}"),
        };
        won[winner] += 1;
        assert_eq!(ledger.decisions(call).await.len(), 1);
    }
    println!(
        "{races} races of a yes with a no: yes {}, no {}",
        won[0], won[1]
    );
}

#[tokio::test]
async fn of_a_yes_and_a_cancel_at_once_the_call_ends_cancelled_and_never_runs() {
    yes_and_cancel(RACES).await;
}

#[tokio::test]
#[ignore = "slow: a thousand races"]
async fn of_a_thousand_yeses_and_cancels_at_once_the_calls_end_cancelled() {
    yes_and_cancel(MANY_RACES).await;
}

/// Races a yes with a cancel of the same call.
async fn yes_and_cancel(races: usize) {
    let ledger = Ledger::fresh().await;
    let mut yes_first = 0;
    for _ in 0..races {
        let call = ledger.accepted(call_to_approve(wanted())).await;
        let yes = approval(call, "ann");
        let withdrawing = Cancellation {
            call,
            tenant: None,
            actor: "caller",
            reason: None,
        };
        let cancelling = cancel::cancel(&ledger.database.pool, &withdrawing);
        let (yes, cancelled) = tokio::join!(ledger.rules(&yes), cancelling);
        assert!(cancelled.unwrap().is_some());
        yes_first += u32::from(matches!(yes, RulingVerdict::Decided { .. }));
        // Whichever came first: it had not been released.
        assert_eq!(ledger.state(call).await, State::Cancelled, "{yes:?}");
    }
    println!("{races} races of a yes with a cancel: the yes was first {yes_first} times");
}

#[tokio::test]
async fn the_yes_of_two_at_once_makes_one_start() {
    yes_and_yes(RACES).await;
}

#[tokio::test]
#[ignore = "slow: a thousand races"]
async fn the_yes_of_two_at_once_makes_one_start_a_thousand_times() {
    yes_and_yes(MANY_RACES).await;
}

/// Races two yeses about the same call, of which one is enough.
async fn yes_and_yes(races: usize) {
    let ledger = Ledger::fresh().await;
    for _ in 0..races {
        let call = ledger.accepted(call_to_approve(wanted())).await;
        let before = ledger.number(call, "publish_n").await;
        let (ann, bob) = (approval(call, "ann"), approval(call, "bob"));
        let both = tokio::join!(ledger.rules(&ann), ledger.rules(&bob));
        let both: [RulingVerdict; 2] = both.into();
        let decided = both.iter().filter(|one| state(one).is_some());
        assert_eq!(decided.count(), 1, "{both:?}");
        assert_eq!(ledger.number(call, "publish_n").await, before + 1);
    }
}
