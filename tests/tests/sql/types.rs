//! Values there and back.

use serde_json::{Value, json};

use crate::bench::{Bench, answer, word};

#[tokio::test]
async fn a_value_goes_there_and_back() {
    let mut bench = Bench::new().await;
    bench.admin("CREATE TYPE @tool.mood AS ENUM ('sad', 'glad'); CREATE DOMAIN @tool.age AS int CHECK (VALUE >= 0)").await;
    for (type_name, value, expected) in [
        ("bool", "true", "true"),
        ("int2", "-7", "-7"),
        ("int8", "9007199254740993", "9007199254740993"),
        ("oid", "4294967295", "4294967295"),
        ("float4", "0.1", "0.1"),
        ("float8", "1e300", "1e+300"),
        ("float8", "\"NaN\"", "\"NaN\""),
        ("float8", "\"-Infinity\"", "\"-Infinity\""),
        (
            "numeric",
            "12345678901234567890.00010",
            "12345678901234567890.00010",
        ),
        ("numeric", "-0.0000001", "-0.0000001"),
        ("numeric", "10000000000", "10000000000"),
        ("numeric", "\"NaN\"", "\"NaN\""),
        ("text", "\"it's \\\"é\\\" 😀\"", "\"it's \\\"é\\\" 😀\""),
        ("varchar", "\"x\"", "\"x\""),
        ("bpchar", "\"longer than one\"", "\"longer than one\""),
        ("\"char\"", "\"c\"", "\"c\""),
        ("name", "\"n\"", "\"n\""),
        (
            "json",
            "{\"a\":[null],\"b\":1.0}",
            "{\"a\":[null],\"b\":1.0}",
        ),
        ("jsonb", "{\"a\":[1,{}]}", "{\"a\": [1, {}]}"),
        (
            "uuid",
            "\"0193aaaa-0000-7000-8000-000000000000\"",
            "\"0193aaaa-0000-7000-8000-000000000000\"",
        ),
        ("date", "\"2024-02-29\"", "\"2024-02-29\""),
        ("time", "\"12:34:56.5\"", "\"12:34:56.5\""),
        ("timetz", "\"12:00:00+02\"", "\"12:00:00+02:00\""),
        (
            "timestamp",
            "\"1999-12-31T23:59:59.999999\"",
            "\"1999-12-31T23:59:59.999999\"",
        ),
        (
            "timestamptz",
            "\"2024-01-01T00:00:00+02:00\"",
            "\"2023-12-31T22:00:00Z\"",
        ),
        ("timestamptz", "\"infinity\"", "\"infinity\""),
        (
            "interval",
            "\"1 year 2 days 3.5 seconds\"",
            "\"P1Y2DT3.5S\"",
        ),
        ("bytea", "\"\\\\xdeadbeef\"", "\"\\\\xdeadbeef\""),
        ("mood", "\"glad\"", "\"glad\""),
        ("age", "42", "42"),
        ("int[]", "[1,null,3]", "[1,null,3]"),
        ("int[]", "[[1,2],[3,4]]", "[[1,2],[3,4]]"),
        (
            "text[]",
            "[\"a,b\",\"{}\",\"\\\"\\\\\",\"NULL\",\"\"]",
            "[\"a,b\",\"{}\",\"\\\"\\\\\",\"NULL\",\"\"]",
        ),
        ("text[]", "[]", "[]"),
        ("mood[]", "[\"sad\"]", "[\"sad\"]"),
        ("jsonb[]", "[{\"a\":1},[2],\"x\"]", "[{\"a\": 1},[2],\"x\"]"),
        ("numeric[]", "[1.10]", "[1.10]"),
        ("text", "null", "null"),
        ("jsonb", "null", "null"),
    ] {
        let given: Value = serde_json::from_str(value).unwrap();
        let statement = format!("SELECT $1::{type_name} AS v");
        let outcome = bench
            .run("read", &statement, json!(["{v}"]), json!({ "v": given }))
            .await;
        let fleet::outcome::Outcome::Applied { result, flaw: None } = &outcome else {
            panic!("{type_name} {value}: {outcome:?}");
        };
        assert_eq!(
            result.get(),
            format!("[{{\"v\":{expected}}}]"),
            "{type_name} {value}"
        );
    }
}

#[tokio::test]
async fn a_placeholder_may_stand_wherever_a_value_may() {
    let bench = Bench::new().await;
    let statement =
        "SELECT ($1::int[])[1] AS first, $2::text || '$3' AS text, $3 + 1 AS more, /* $9 */ $1[2] AS second
        FROM (VALUES (1)) v (n) WHERE v.n = ANY ($1::int[]) ORDER BY $3 LIMIT $4";
    let params = json!([[1, 2], "a", 41, 1]);
    let outcome = bench.run("read", statement, params, json!({})).await;
    assert_eq!(
        answer(&outcome),
        json!([{"first": 1, "text": "a$3", "more": 42, "second": 2}])
    );
}

#[tokio::test]
async fn what_changed_in_the_tables_is_learned_again() {
    let mut bench = Bench::new().await;
    let insert = "INSERT INTO items VALUES ($1)";
    let large = json!([5_000_000_000_i64]);
    let refused = bench.run("once", insert, large.clone(), json!({})).await;
    assert_eq!(word(&refused), ("definite_failure", "tool_error"));
    bench
        .admin("ALTER TABLE @tool.items ALTER id TYPE bigint")
        .await;
    let taken = bench.run("once", insert, large, json!({})).await;
    assert_eq!(answer(&taken), json!({"rows_affected": 1}));
}
