//! Tokens of clients over HTTP: what is made, who reads which part of it, and what nothing changes any more.

use std::time::Duration;

use fleet::{
    ids::Label,
    store::{
        DecisionError, StoreError,
        rights::Duty,
        session::Postgres,
        tokens::{self, NewToken, Scope, TokenRevoked, TokenRow, parse},
    },
    tokens::{KnownTokens, NewSecret, TokenLookup},
};
use fleet_tests::postgres::Database;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Executor, PgPool};

const SCOPES: [Scope; 2] = [Scope::Call, Scope::Read];

fn wanted<'a>(secret: &'a NewSecret, tools: &'a [String]) -> NewToken<'a> {
    NewToken {
        secret,
        name: "ann",
        tenant: None,
        scopes: &SCOPES,
        tools,
        actor: "ada",
        note: "for the shop",
        for_ms: None,
    }
}

fn every_tool() -> Vec<String> {
    vec!["*".to_owned()]
}

/// A token of every tenant that calls every tool.
async fn made(pool: &PgPool) -> NewSecret {
    let secret = NewSecret::generate();
    let token = tokens::create(pool, &wanted(&secret, &every_tool())).await;
    token.unwrap();
    secret
}

async fn why_not(pool: &PgPool, token: &NewToken<'_>) -> String {
    match tokens::create(pool, token).await {
        Err(DecisionError::Invalid(why)) => why,
        other => panic!("{token:?}: {other:?}"),
    }
}

async fn ids(pool: &PgPool) -> Vec<String> {
    let live = tokens::live(pool).await.unwrap();
    let mut ids: Vec<String> = live.into_iter().map(|row| row.token_id).collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn a_token_that_is_made_holds_as_it_was_made_and_the_ledger_has_no_secret() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    assert!(tokens::live(pool).await.unwrap().is_empty());
    let acme: Label = "acme".parse().unwrap();
    let tools = ["pay_*".to_owned(), "look_up".to_owned()];
    let secret = NewSecret::generate();
    let token = NewToken {
        tenant: Some(&acme),
        for_ms: Some(90 * 86_400_000),
        ..wanted(&secret, &tools)
    };
    let row: Value = serde_json::from_str(&tokens::create(pool, &token).await.unwrap()).unwrap();
    for (column, value) in [
        ("token_id", json!(secret.id())),
        ("name", json!("ann")),
        ("tenant", json!("acme")),
        ("scopes", json!(["call", "read"])),
        ("tools", json!(["pay_*", "look_up"])),
        ("state", json!("live")),
        ("note", json!("for the shop")),
        ("created_by", json!("ada")),
        ("revoked_at", Value::Null),
    ] {
        assert_eq!(row[column], value, "{column}");
    }
    assert!(row.get("hash").is_none());

    let live = tokens::read(pool).await.unwrap();
    let [found] = &live.rows[..] else {
        panic!("{live:?}");
    };
    let (id, hash) = parse(secret.expose()).unwrap();
    let expires_at = found.expires_at.unwrap();
    let expected = TokenRow {
        token_id: id.to_owned(),
        name: "ann".to_owned(),
        hash,
        tenant: Some(acme.clone()),
        scopes: SCOPES.to_vec(),
        tools: tools.to_vec(),
        expires_at: Some(expires_at),
    };
    assert_eq!(*found, expected);
    let left = (expires_at - live.at).whole_seconds();
    assert!((90 * 86_400 - 60..=90 * 86_400).contains(&left), "{left}");

    let everything: String = sqlx::query_scalar("SELECT t::text FROM toolfleet.access_tokens t")
        .fetch_one(pool)
        .await
        .unwrap();
    assert!(!everything.contains(&secret.expose()[16..]), "{everything}");
    assert!(everything.contains(&hex::encode(hash)), "{everything}");
}

#[tokio::test]
async fn a_token_is_made_once_however_often_it_is_asked_for() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    let (secret, tools) = (NewSecret::generate(), every_tool());
    let token = wanted(&secret, &tools);
    let first = tokens::create(pool, &token).await.unwrap();
    assert_eq!(tokens::create(pool, &token).await.unwrap(), first);
    let other = NewToken {
        scopes: &[Scope::Admin],
        ..token
    };
    let why = why_not(pool, &other).await;
    assert_eq!(why, "token_id is that of another token; make a new one");
    assert_eq!(ids(pool).await, [secret.id()]);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_its_reason_and_makes_nothing() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    let (secret, tools) = (NewSecret::generate(), every_tool());
    let token = wanted(&secret, &tools);
    let (long_name, long, many) = ("a".repeat(65), "x".repeat(201), "x".repeat(2_001));
    for name in [
        "",
        " ann",
        "-ann",
        "ann smith",
        "änn",
        "a/b",
        "a\nb",
        &long_name,
    ] {
        let why = why_not(pool, &NewToken { name, ..token }).await;
        assert!(why.starts_with("name must be 1 to 64"), "{name:?}: {why}");
    }
    for actor in ["", "  ", "a\u{7}b", "a\u{200b}b", &long] {
        let why = why_not(pool, &NewToken { actor, ..token }).await;
        assert!(why.starts_with("actor must"), "{actor:?}: {why}");
    }
    for note in ["", "\u{202e}x", &many] {
        let why = why_not(pool, &NewToken { note, ..token }).await;
        assert!(why.starts_with("note must"), "{note:?}: {why}");
    }
    let scopes = &[];
    let why = why_not(pool, &NewToken { scopes, ..token }).await;
    assert!(why.starts_with("scopes must be some of call"), "{why}");
    for tools in [
        vec![],
        vec![String::new()],
        vec!["Pay".to_owned()],
        vec!["a,b".to_owned()],
        vec!["a".repeat(65)],
        vec!["a".to_owned(); 65],
    ] {
        let token = NewToken {
            tools: &tools,
            ..token
        };
        let why = why_not(pool, &token).await;
        assert!(why.starts_with("tools must be 1 to 64"), "{tools:?}: {why}");
    }
    for for_ms in [0, -1, 999, 315_360_000_001, i64::MAX, i64::MIN] {
        let token = NewToken {
            for_ms: Some(for_ms),
            ..token
        };
        let why = why_not(pool, &token).await;
        assert!(why.starts_with("for_ms must be 1000"), "{for_ms}: {why}");
    }
    // What our program does not send.
    for (argument, why) in [
        (
            "'x', 'ann', decode(repeat('ab', 32), 'hex'), '*', '{call}', '{*}'",
            "token_id must",
        ),
        (
            "NULL, 'ann', decode(repeat('ab', 32), 'hex'), '*', '{call}', '{*}'",
            "token_id must",
        ),
        (
            "'0123456789ab', 'ann', decode(repeat('ab', 31), 'hex'), '*', '{call}', '{*}'",
            "hash must",
        ),
        (
            "'0123456789ab', 'ann', NULL, '*', '{call}', '{*}'",
            "hash must",
        ),
        (
            "'0123456789ab', 'ann', decode(repeat('ab', 32), 'hex'), 'a b', '{call}', '{*}'",
            "tenant must",
        ),
        (
            "'0123456789ab', 'ann', decode(repeat('ab', 32), 'hex'), NULL, '{call}', '{*}'",
            "tenant must",
        ),
        (
            "'0123456789ab', 'ann', decode(repeat('ab', 32), 'hex'), '**', '{call}', '{*}'",
            "tenant must",
        ),
        (
            "'0123456789ab', 'ann', decode(repeat('ab', 32), 'hex'), '*', '{call,root}', '{*}'",
            "scopes must",
        ),
        (
            "'0123456789ab', 'ann', decode(repeat('ab', 32), 'hex'), '*', '{call,NULL}', '{*}'",
            "scopes must",
        ),
        (
            "'0123456789ab', 'ann', decode(repeat('ab', 32), 'hex'), '*', '{call}', '{*,NULL}'",
            "tools must",
        ),
    ] {
        let sql = format!("SELECT toolfleet.create_token({argument}, 'ada', 'why')");
        let refused = pool.execute(AssertSqlSafe(sql)).await.unwrap_err();
        let said = refused.as_database_error().unwrap().message().to_owned();
        assert!(said.starts_with(why), "{argument}: {said}");
    }
    assert!(ids(pool).await.is_empty());
}

#[tokio::test]
async fn a_revoked_token_holds_no_more_and_says_who_revoked_it_first() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    let (one, other) = (made(pool).await, made(pool).await);
    let revoke = async |actor: &'static str| {
        let revoked = tokens::revoke(pool, one.id(), actor, "it leaked").await;
        revoked.unwrap()
    };
    let TokenRevoked::Now(first) = revoke("bob").await else {
        panic!("it held");
    };
    assert_eq!(ids(pool).await, [other.id()]);
    let row: Value = serde_json::from_str(&first).unwrap();
    for (column, value) in [
        ("state", "revoked"),
        ("revoked_by", "bob"),
        ("revoke_note", "it leaked"),
        ("created_by", "ada"),
    ] {
        assert_eq!(row[column], value, "{column}");
    }
    assert_eq!(revoke("eve").await, TokenRevoked::Before(first));
    let unknown = tokens::revoke(pool, "0123456789ab", "bob", "why").await;
    assert_eq!(unknown.unwrap(), TokenRevoked::NotFound);
    for (actor, note) in [("", "why"), ("bob", "")] {
        let refused = tokens::revoke(pool, other.id(), actor, note).await;
        assert!(matches!(refused, Err(DecisionError::Invalid(_))));
    }
    assert_eq!(ids(pool).await, [other.id()]);
}

#[tokio::test]
async fn a_token_is_over_at_its_moment_and_people_see_that() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    let (secret, tools) = (NewSecret::generate(), every_tool());
    let token = NewToken {
        for_ms: Some(1_000),
        ..wanted(&secret, &tools)
    };
    tokens::create(pool, &token).await.unwrap();
    assert_eq!(ids(pool).await, [secret.id()]);
    // The ledger's own clock, which no test moves.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert!(ids(pool).await.is_empty());
    let state: String = sqlx::query_scalar("SELECT state FROM toolfleet.tokens")
        .fetch_one(pool)
        .await
        .unwrap();
    assert_eq!(state, "expired");
}

#[tokio::test]
async fn nothing_changes_a_token_but_its_revocation() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    let secret = made(pool).await;
    for change in [
        "UPDATE toolfleet.access_tokens SET tenant = '*', scopes = '{admin}'",
        "UPDATE toolfleet.access_tokens SET hash = decode(repeat('ab', 32), 'hex')",
        "UPDATE toolfleet.access_tokens SET revoked_at = now(), revoked_by = 'x', revoked_role = 'x', revoke_note = 'x', name = 'bob'",
        "UPDATE toolfleet.access_tokens SET revoked_at = now()",
        "DELETE FROM toolfleet.access_tokens",
        "TRUNCATE toolfleet.access_tokens",
    ] {
        let refused = pool.execute(change).await.unwrap_err();
        let code = refused.as_database_error().unwrap().code().unwrap();
        assert_eq!(code, "23514", "{change}: {refused}");
    }
    let revoked = tokens::revoke(pool, secret.id(), "bob", "why").await;
    assert!(matches!(revoked, Ok(TokenRevoked::Now(_))));
    let back = "UPDATE toolfleet.access_tokens SET revoked_at = NULL, revoked_by = NULL, revoked_role = NULL, revoke_note = NULL";
    assert!(pool.execute(back).await.is_err());
    assert!(ids(pool).await.is_empty());
}

#[tokio::test]
async fn there_are_at_most_a_thousand_that_hold() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    let first = made(pool).await;
    pool.execute(
        "SELECT toolfleet.create_token(lpad(to_hex(n), 12, '0'), 'ann', sha256(n::text::bytea), '*', '{call}', '{*}', 'ada', 'why') \
           FROM generate_series(1, 999) n",
    )
    .await
    .unwrap();
    let (secret, tools) = (NewSecret::generate(), every_tool());
    let why = why_not(pool, &wanted(&secret, &tools)).await;
    assert!(why.starts_with("there are 1000 tokens that hold"), "{why}");
    tokens::revoke(pool, first.id(), "ada", "room")
        .await
        .unwrap();
    tokens::create(pool, &wanted(&secret, &tools))
        .await
        .unwrap();
    assert_eq!(tokens::live(pool).await.unwrap().len(), 1_000);
}

#[tokio::test]
async fn gateways_read_hashes_and_an_operator_who_makes_a_token_does_not() {
    let database = Database::fresh().await;
    database.grant_roles().await;
    let pool_of = |duty: Duty| {
        let url = database.url_of(duty.role()).into();
        Postgres::new(&url, "toolfleet")
            .unwrap()
            .pool_for_reading(1)
    };
    let operator = pool_of(Duty::Operator);
    let secret = made(&operator).await;
    for duty in [Duty::Operator, Duty::Reader, Duty::Dispatcher, Duty::Worker] {
        let refused = tokens::live(&pool_of(duty)).await;
        assert!(
            matches!(refused, Err(StoreError::Refused { .. })),
            "{duty:?}"
        );
    }
    let gateway = pool_of(Duty::Gateway);
    assert_eq!(ids(&gateway).await, [secret.id()]);
    let role: String = sqlx::query_scalar("SELECT role FROM toolfleet.tokens")
        .fetch_one(&gateway)
        .await
        .unwrap();
    assert_eq!(role, Duty::Operator.role());
}

#[tokio::test]
async fn what_a_process_knows_follows_the_ledger_and_outlives_its_silence() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    let secret = made(pool).await;
    let known = KnownTokens::default();
    assert_eq!(known.look(secret.expose()), TokenLookup::Unavailable);
    known.refresh(pool).await.unwrap();
    let TokenLookup::Live(row) = known.look(secret.expose()) else {
        panic!("it was read");
    };
    assert_eq!(row.token_id, secret.id());
    // A ledger that is away changes nothing for now.
    let away = sqlx::postgres::PgPoolOptions::new()
        .acquire_timeout(Duration::from_millis(100))
        .connect_lazy("postgres://127.0.0.1:1/none")
        .unwrap();
    assert!(known.refresh(&away).await.is_err());
    assert!(matches!(known.again(secret.id()), TokenLookup::Live(_)));
    tokens::revoke(pool, secret.id(), "ada", "why")
        .await
        .unwrap();
    known.refresh(pool).await.unwrap();
    assert_eq!(known.look(secret.expose()), TokenLookup::Unknown);
    assert_eq!(known.again(secret.id()), TokenLookup::Unknown);
}
