//! Values in the scope of a control: a number is one scope in every spelling; and texts with characters that nobody sees.

use fleet::{
    invisible::first_invisible,
    store::controls::{self, ControlKind, ControlScope, ControlSet, WhichControl, covered},
};
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgPool};

use super::{PLACE, pause, read, unset, with_a_tool};
use crate::support::{Ledger, new_call};

const fn at(value: &str) -> ControlScope<'_> {
    ControlScope {
        value: Some(value),
        ..PLACE
    }
}

/// The value as it is stored.
async fn stored(pool: &PgPool) -> Vec<String> {
    sqlx::query_scalar("SELECT value FROM toolfleet.live_controls ORDER BY control_id")
        .fetch_all(pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_number_is_one_scope_in_every_spelling() {
    let database = with_a_tool().await;
    let pool = &database.pool;
    for (plain, spellings) in [
        (
            "7",
            &["7", "7.0", "7e0", "70e-1", "0.7E1", " 7.00 ", "0.0007e4"][..],
        ),
        ("100", &["1e2", "1e+2", "1.00E2", "100.0", "10e1"]),
        ("0", &["0", "-0", "0.0", "0e5", "-0.00e-3"]),
        ("-0.5", &["-5e-1", "-0.50", "-0.5"]),
        (
            "9007199254740993",
            &["9007199254740993", "9007199254740993.0"],
        ),
        ("0.10000000000000001", &["1.0000000000000001e-1"]),
    ] {
        for set in spellings {
            let new = controls::replace(pool, &pause(at(set))).await.unwrap();
            assert!(matches!(new, ControlSet::Set(_)), "{set}: {new:?}");
            assert_eq!(stored(pool).await, [plain], "{set}");
            for other in spellings {
                let again = controls::replace(pool, &pause(at(other))).await.unwrap();
                assert!(matches!(again, ControlSet::Already(_)), "{other}");
            }
            let by_scope = unset(WhichControl::Scope(ControlKind::Pause, at(spellings[0])));
            let was = controls::unset(pool, &by_scope).await.unwrap();
            assert!(was.is_some(), "{set}");
        }
    }
}

#[tokio::test]
async fn what_is_no_number_or_none_that_arguments_have_stays_as_it_was_written() {
    let database = with_a_tool().await;
    let pool = &database.pool;
    let longest = format!("1e{}", "9".repeat(1_000));
    for value in [
        "\"7.0\"",
        "true",
        "null",
        "[7.0]",
        "{\"a\":1e2}",
        "1e999999",
        "-1e-1000",
        &longest,
    ] {
        let set = controls::set(pool, &pause(at(value))).await.unwrap();
        let ControlSet::Set(set) = set else {
            panic!("{value}: {set:?}")
        };
        assert_eq!(stored(pool).await, [value]);
        let id = read(&set)["control_id"].as_i64().unwrap();
        let by_id = unset(WhichControl::Id(fleet::controls::ControlId(id)));
        assert!(controls::unset(pool, &by_id).await.unwrap().is_some());
    }
    // The largest that arguments have is a number of 309 digits.
    let ControlSet::Set(set) = controls::set(pool, &pause(at("1e308"))).await.unwrap() else {
        panic!("it is new")
    };
    let value: Value = read(&set)["value"].clone();
    assert_eq!(value.to_string(), format!("1{}", "0".repeat(308)));
}

#[tokio::test]
async fn what_was_there_before_gets_its_one_spelling_unless_two_say_the_same() {
    let database = with_a_tool().await;
    let pool = &database.pool;
    let before = "INSERT INTO toolfleet.live_controls (control_id, kind, tool, pointer, value, setting, actor, note, role, set_at) \
        SELECT n, 'pause', 'charge', '/a/' || place, value, '\"wait\"', 'ada', 'why', 'x', now() \
        FROM (VALUES (1, 1, '7.0'), (2, 2, '1e+2'), (3, 3, '5'), (4, 3, '5.0'), (5, 4, '\"7.0\"'), (6, 5, '3.0'), (7, 5, '30e-1')) \
            AS b (n, place, value)";
    sqlx::query(before).execute(pool).await.unwrap();
    let migration =
        include_str!("../../../../migrations/20261127150000_keep_controls_to_their_word.sql");
    let from = migration.find("UPDATE toolfleet.live_controls l SET value");
    let rewriting = migration.split_at(from.unwrap()).1;
    let rewriting = rewriting.split_once(';').unwrap().0;
    sqlx::query(AssertSqlSafe(rewriting))
        .execute(pool)
        .await
        .unwrap();
    let expected = ["7", "100", "5", "5.0", "\"7.0\"", "3.0", "30e-1"];
    assert_eq!(stored(pool).await, expected);
}

#[tokio::test]
async fn a_number_covers_calls_whose_arguments_spell_it_otherwise() {
    let ledger = Ledger::fresh().await;
    for args in [
        r#"{"account":{"id":7}}"#,
        r#"{"account":{"id":7.0}}"#,
        r#"{"account":{"id":"7"}}"#,
        r#"{"account":{"id":70}}"#,
    ] {
        let mut call = new_call();
        call.args = args.into();
        ledger.accepted(call).await;
    }
    for value in ["7", "7.0", "70e-1"] {
        let scope = ControlScope {
            tool: Some("tool"),
            ..at(value)
        };
        let covers = covered(&ledger.database.pool, &scope).await.unwrap();
        assert_eq!(covers, 2, "{value}");
    }
}

#[tokio::test]
async fn the_ledger_and_the_programs_agree_on_what_is_invisible() {
    let database = with_a_tool().await;
    for (before, from, to) in [
        ("", 1, 0xd7ff),
        ("a", 1, 0xd7ff),
        ("क", 1, 0xd7ff),
        ("a", 0xe000, 0x0010_ffff),
    ] {
        let hidden: Vec<i32> = sqlx::query_scalar(
            "SELECT n FROM generate_series($2, $3) n WHERE toolfleet.has_invisible($1 || chr(n)) ORDER BY n",
        )
        .bind(before)
        .bind(from)
        .bind(to)
        .fetch_all(&database.pool)
        .await
        .unwrap();
        let expected: Vec<i32> = (from..=to)
            .filter(|point| {
                let letter = u32::try_from(*point).ok().and_then(char::from_u32);
                letter.is_some_and(|letter| first_invisible(&format!("{before}{letter}")).is_some())
            })
            .collect();
        assert_eq!(hidden, expected, "behind {before:?}");
    }
    for (text, expected) in [
        ("Zürich 苏黎世", false),
        ("👩\u{200d}🚀", false),
        ("می\u{200c}خواهم", false),
        ("क\u{200d}\u{200d}ष", true),
        ("a\u{200d}b", true),
    ] {
        let found: bool = sqlx::query_scalar("SELECT toolfleet.has_invisible($1)")
            .bind(text)
            .fetch_one(&database.pool)
            .await
            .unwrap();
        assert_eq!(found, expected, "{text}");
        assert_eq!(first_invisible(text).is_some(), expected, "{text}");
    }
}
