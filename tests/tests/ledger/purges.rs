//! What a purge takes away, and how it counts that.

use std::time::Duration;

use fleet::{
    call::State,
    store::{
        accept::NewCall,
        answers::{self, Looked, Purge, Purged},
    },
};

use crate::{
    answers::{answered, apply, ends, is_answer, look, looking, read, row},
    support::{Ledger, end_in, run},
};

#[tokio::test]
async fn a_purge_takes_what_is_kept_and_what_is_being_fetched_and_is_in_the_log() {
    let mut ledger = Ledger::fresh().await;
    let (worker, looking) = (ledger.worker().await, looking(&mut ledger));
    let pool = ledger.database.pool.clone();
    apply(&pool).await;
    let other = NewCall {
        tenant: "other".parse().unwrap(),
        ..read(1)
    };
    let [kept, fetched, of_other] = [
        ledger.accepted(read(1)).await,
        ledger.accepted(read(2)).await,
        ledger.accepted(other).await,
    ];
    for call in [kept, fetched, of_other] {
        assert!(matches!(look(&looking, call).await, Looked::Leads));
    }
    ends(&ledger, &worker, kept, answered("7")).await;
    let mut connection = ledger.database.connect().await;
    let purge = Purge {
        tool: "tool",
        tenant: Some("tenant"),
        actor: "ada",
        note: "it was wrong",
        in_tenant: None,
    };
    let purged = answers::purge(&mut connection, &purge).await.unwrap();
    assert_eq!(counts(purged), (1, 1, 0));
    ends(&ledger, &worker, fetched, answered("7")).await;
    for question in [1, 2] {
        let next = ledger.accepted(read(question)).await;
        assert!(
            matches!(look(&looking, next).await, Looked::Leads),
            "{question}"
        );
    }
    let log: Vec<(String, Option<String>, String)> = sqlx::query_as(
        "SELECT change, tenant, actor FROM toolfleet.control_log WHERE kind = 'purge'",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    assert_eq!(
        log,
        [(
            "purged".to_owned(),
            Some("tenant".to_owned()),
            "ada".to_owned()
        )]
    );
    let tenant = "tenant".parse().unwrap();
    for (wrong, why) in [
        (
            Purge {
                tool: "absent",
                ..purge
            },
            "there is no tool absent",
        ),
        (
            Purge {
                tool: "not a tool",
                ..purge
            },
            "tool must name a tool",
        ),
        (Purge { note: " ", ..purge }, "note must"),
        (
            Purge {
                tenant: None,
                in_tenant: Some(&tenant),
                ..purge
            },
            "tenant must be named",
        ),
        (
            Purge {
                tenant: Some("other"),
                in_tenant: Some(&tenant),
                ..purge
            },
            "tenant is another one",
        ),
    ] {
        let refused = answers::purge(&mut connection, &wrong).await.unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
    let without = "UPDATE toolfleet.tool_versions SET manifest = '{}'";
    sqlx::query(without).execute(&pool).await.unwrap();
    let refused = answers::purge(&mut connection, &purge).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the tool tool has no cache: no answer of it is kept"
    );
}

const fn counts(purged: Purged) -> (u64, u64, u64) {
    (purged.answers, purged.fetching, purged.old)
}

/// What a purge counts as an answer is what a call would have been given: not one whose time is over, nor a failure, nor one that is too
/// large to be kept.
#[tokio::test]
async fn a_purge_counts_what_calls_would_have_been_given() {
    let mut ledger = Ledger::fresh().await;
    let (worker, looking) = (ledger.worker().await, looking(&mut ledger));
    let pool = ledger.database.pool.clone();
    apply(&pool).await;
    let large = serde_json::to_string(&"x".repeat(300 * 1024)).unwrap();
    let endings = [
        Some(answered("7")),
        Some(answered("7")),
        Some(answered("7")),
        Some(end_in(State::Failed)),
        Some(answered(&large)),
        None,
        Some(answered("7")),
    ];
    let mut leaders = Vec::new();
    for (question, ending) in (1..).zip(endings) {
        let call = ledger.accepted(read(question)).await;
        assert!(matches!(look(&looking, call).await, Looked::Leads));
        if let Some(ending) = ending {
            ends(&ledger, &worker, call, ending).await;
        }
        leaders.push(call);
    }
    // Of the first one it is known that it counts, and of the second one not yet.
    let asks = ledger.accepted(read(1)).await;
    assert!(is_answer(&look(&looking, asks).await, "7"));
    let over = "UPDATE toolfleet.finished_calls SET finished_at = finished_at - interval '2 minutes' WHERE call_id = ANY($1)";
    let mut owner = ledger.database.connect().await;
    run(&mut owner, "SET session_replication_role = replica").await;
    sqlx::query(over)
        .bind(vec![leaders[2].0, leaders[6].0])
        .execute(&mut owner)
        .await
        .unwrap();
    run(&mut owner, "RESET session_replication_role").await;
    // Another call asks what is not answered any more, and the old answer may stand in for it.
    let asks = ledger.accepted(read(7)).await;
    let mut keeps = row(asks);
    keeps.keep = Duration::from_secs(3_600);
    assert!(matches!(
        looking.look(keeps).await.unwrap(),
        Some(Looked::Leads)
    ));
    let purge = Purge {
        tool: "tool",
        tenant: None,
        actor: "ada",
        note: "they were wrong",
        in_tenant: None,
    };
    let purged = answers::purge(&mut owner, &purge).await.unwrap();
    assert_eq!(counts(purged), (2, 2, 1));
    let purged = answers::purge(&mut owner, &purge).await.unwrap();
    assert_eq!(counts(purged), (0, 0, 0));
}

#[tokio::test]
async fn a_purge_of_many_answers_goes_on_to_the_end() {
    let ledger = Ledger::fresh().await;
    let pool = ledger.database.pool.clone();
    apply(&pool).await;
    sqlx::query(
        "INSERT INTO toolfleet.kept_answers (key, tenant, tool, version, leader, keep_until) \
         SELECT int8send(n), 'tenant', 'tool', 1, gen_random_uuid(), now() + interval '1 hour' FROM generate_series(1, 2500) n",
    )
    .execute(&pool)
    .await
    .unwrap();
    let purge = Purge {
        tool: "tool",
        tenant: Some("tenant"),
        actor: "ada",
        note: "all of them",
        in_tenant: None,
    };
    let mut connection = ledger.database.connect().await;
    let purged = answers::purge(&mut connection, &purge).await.unwrap();
    assert_eq!(counts(purged), (0, 0, 0), "nobody has answered them");
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM toolfleet.kept_answers")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(left, 0);
    let logged: i64 = sqlx::query_scalar("SELECT count(*) FROM toolfleet.control_changes")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(logged, 1);
}
