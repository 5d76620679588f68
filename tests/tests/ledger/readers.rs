//! A role of one's own that reads the documented views, beside the shipped roles.

use fleet_tests::postgres::Database;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use uuid::Uuid;

const VIEWS: &[&str] = &[
    "calls",
    "attempts",
    "call_events",
    "in_doubt",
    "tools",
    "workers",
];

async fn says(connection: &mut PgConnection, sql: String) -> Result<(), String> {
    // Made of names of this test, and of what a page says.
    let ran = connection.execute(AssertSqlSafe(sql)).await;
    ran.map(|_| ()).map_err(|error| error.to_string())
}

/// Which views the role cannot read, and whether it cannot mask.
async fn denied(connection: &mut PgConnection, role: &str) -> Vec<&'static str> {
    says(connection, format!("SET ROLE {role}")).await.unwrap();
    let mut denied = Vec::new();
    for view in VIEWS {
        if says(connection, format!("SELECT * FROM toolfleet.{view}"))
            .await
            .is_err()
        {
            denied.push(*view);
        }
    }
    // What the views show of a sensitive value goes through all of these.
    let masked = r#"SELECT toolfleet.shown('{"a":[{"b":1}]}', '{"pointers":["/a/*/b"]}')"#;
    if says(connection, masked.to_owned()).await.is_err() {
        denied.push("masked values");
    }
    says(connection, "RESET ROLE".to_owned()).await.unwrap();
    denied
}

#[tokio::test]
async fn a_reader_of_ones_own_needs_the_functions_that_the_page_names() {
    let database = Database::fresh().await;
    let mut connection = database.connect().await;
    let role = format!("reports_{}", Uuid::new_v4().simple());
    let views = VIEWS.iter().map(|view| format!("toolfleet.{view}"));
    let views = views.collect::<Vec<_>>().join(", ");
    says(&mut connection, format!("CREATE ROLE {role}"))
        .await
        .unwrap();
    database.grant_roles().await;
    for grant in [
        format!("GRANT USAGE ON SCHEMA toolfleet TO {role}"),
        format!("GRANT SELECT ON {views} TO {role}"),
    ] {
        says(&mut connection, grant).await.unwrap();
    }
    let before = denied(&mut connection, &role).await;
    assert_eq!(before, ["calls", "in_doubt", "masked values"]);

    let page = include_str!("../../../docs/history.md");
    let named = page
        .split('`')
        .find(|text| text.starts_with("GRANT EXECUTE ON FUNCTION"))
        .unwrap();
    let grant = named.replace("TO reports", &format!("TO {role}"));
    assert_ne!(grant, named);
    says(&mut connection, grant).await.unwrap();
    assert_eq!(denied(&mut connection, &role).await, [""; 0]);
    connection.close().await.unwrap();
}
