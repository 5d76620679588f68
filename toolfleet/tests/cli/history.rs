//! docs/history.md against the views it documents.

use std::{collections::BTreeSet, fs, path::Path};

use fleet::store::migrate::migrate;
use sqlx::AssertSqlSafe;

use crate::support::{folder, ledger, postgres, program, run};

#[tokio::test]
async fn every_column_is_documented_and_every_query_of_the_page_runs() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/history.md");
    let page = fs::read_to_string(page).unwrap();
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let ledger = ledger(&postgres.url());
    migrate(&ledger).await.unwrap();
    let mut connection = ledger.connect().await.unwrap();

    let columns: Vec<(String, String)> = sqlx::query_as(
        "SELECT table_name::text, column_name::text FROM information_schema.columns
         JOIN information_schema.views USING (table_schema, table_name)
         WHERE table_schema = 'toolfleet'",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    let there: BTreeSet<(String, String)> = columns.into_iter().collect();
    assert_eq!(there, documented(&page));

    let queries = page
        .split("```sql\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap());
    let queries: Vec<&str> = queries.collect();
    assert_eq!(queries.len(), 7);
    for query in queries {
        // Our own page.
        let ran = sqlx::query(AssertSqlSafe(query.to_owned()))
            .fetch_all(&mut connection)
            .await;
        ran.unwrap_or_else(|refused| panic!("{refused}: {query}"));
    }
    postgres.stop().await;
}

#[tokio::test]
async fn the_documented_read_only_role_reads_the_history() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let ledger = ledger(&postgres.url());
    migrate(&ledger).await.unwrap();
    let mut owner = ledger.connect().await.unwrap();
    let views: Vec<String> = sqlx::query_scalar(
        "SELECT 'toolfleet.' || table_name FROM information_schema.views WHERE table_schema = 'toolfleet'",
    )
    .fetch_all(&mut owner)
    .await
    .unwrap();
    let grants = format!(
        "CREATE ROLE reader LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA toolfleet TO reader; GRANT SELECT ON {} TO reader",
        views.join(", ")
    );
    // Names of the catalog.
    sqlx::raw_sql(AssertSqlSafe(grants))
        .execute(&mut owner)
        .await
        .unwrap();
    let port = postgres.port();
    let url = format!("postgres://reader:x@127.0.0.1:{port}/toolfleet");
    for line in [
        &["calls", "list"][..],
        &[
            "calls",
            "list",
            "--session",
            "s",
            "--run",
            "r",
            "--code",
            "timeout",
            "--since",
            "2h",
            "--until",
            "1h",
        ],
        &["tools", "list", "--all"],
        &["workers", "list"],
        &["models"],
        &["models", "--by", "route", "--since", "1h", "--json"],
        &["models", "--by", "run"],
        &["models", "--by", "day"],
        &["models", "--by", "tenant"],
    ] {
        let mut command = program(line);
        command.env("DATABASE_URL", &url);
        let ran = run(command);
        assert_eq!(ran.code, 0, "{line:?}: {}", ran.err);
    }
    let unknown = fleet::ids::CallId::generate().to_string();
    for verb in ["show", "explain"] {
        let mut command = program(&["calls", verb, &unknown]);
        command.env("DATABASE_URL", &url);
        let ran = run(command);
        assert!(
            ran.code == 1 && ran.err.contains("no call"),
            "{verb}: {}",
            ran.err
        );
    }
    postgres.stop().await;
}

/// The view and column of every line of the page's tables.
fn documented(page: &str) -> BTreeSet<(String, String)> {
    let sections = page.split("\n## toolfleet.").skip(1);
    let sections = sections.filter_map(|section| section.split_once('\n'));
    let rows = sections.flat_map(|(view, body)| {
        let body = body.split("\n## ").next().unwrap();
        let names = body
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        names.map(|(column, _meaning)| (view.to_owned(), column.to_owned()))
    });
    rows.collect()
}
