//! Migrating, and what everything else says before it.

use std::process::Command;

use fleet::store::migrate::migrator;
use sqlx::{Connection, PgConnection};
use toolfleet::servers::tools;

use crate::support::{folder, postgres, program, run};

#[tokio::test]
async fn migrating_twice_applies_everything_once() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let with_database = |arguments: &[&str]| -> Command {
        let mut command = program(arguments);
        command.env("DATABASE_URL", postgres.url());
        command
    };
    for early in [
        &["calls", "list"][..],
        &["tools", "list"],
        &["tools", "apply", "examples/tools"],
    ] {
        let ran = run(with_database(early));
        assert_eq!(ran.code, 64, "{early:?}: {}", ran.err);
        assert!(ran.err.contains("run `toolfleet migrate`"), "{}", ran.err);
    }

    let known = migrator().iter().count();
    let first = run(with_database(&["migrate"]));
    assert_eq!(
        (first.code, first.out),
        (0, format!("{known} migrations applied\n")),
        "{}",
        first.err
    );
    let second = run(with_database(&["migrate"]));
    assert_eq!((second.code, second.out.as_str()), (0, "nothing to do\n"));
    assert_eq!(
        run(with_database(&["migrate", "--json"])).out,
        "{\"applied\":0}\n"
    );

    let wrong = postgres.url().replace("/toolfleet", "/elsewhere");
    let ran = run(program(&["migrate", "--database-url", &wrong]));
    assert_eq!(ran.code, 64, "no such database: {}", ran.err);
    postgres.stop().await;
}

#[tokio::test]
async fn the_role_of_the_tools_is_admitted_if_it_cannot_reach_the_ledger() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let admit = |name: &str| {
        let mut command = program(&["migrate", "--tool-role", name]);
        command.env("DATABASE_URL", postgres.url());
        run(command)
    };
    let none = admit("tools");
    assert_eq!(none.code, 64, "{}", none.err);
    assert!(
        none.err.contains("CREATE ROLE \"tools\" LOGIN"),
        "{}",
        none.err
    );

    let mut owner = PgConnection::connect(&postgres.url()).await.unwrap();
    let create = "CREATE ROLE tools LOGIN PASSWORD 'x'; CREATE ROLE strong LOGIN CREATEROLE";
    sqlx::raw_sql(create).execute(&mut owner).await.unwrap();
    let strong = admit("strong");
    assert_eq!(strong.code, 64, "{}", strong.err);
    assert!(strong.err.contains("NOCREATEROLE"), "{}", strong.err);
    let owner_itself = admit("toolfleet");
    assert!(
        owner_itself.err.contains("name another role"),
        "{}",
        owner_itself.err
    );
    for _again in 0..2 {
        let fit = admit("tools");
        assert_eq!(fit.code, 0, "{}", fit.err);
        assert!(
            fit.out.contains("role tools may end the calls"),
            "{}",
            fit.out
        );
    }

    // What a worker says about the URL it is given.
    let worker = |url: &str| {
        let mut command = program(&["worker"]);
        command
            .env("DATABASE_URL", postgres.url())
            .env("NATS_URL", "nats://127.0.0.1:1")
            .env("WORKER_TOOL_DATABASE_URL", url);
        run(command)
    };
    let own = worker(&postgres.url());
    assert_eq!(own.code, 64, "{}", own.err);
    assert!(
        own.err
            .contains("WORKER_TOOL_DATABASE_URL: it logs in as \"toolfleet\""),
        "{}",
        own.err
    );
    let strong = tools::url_of(&postgres.url(), "x").replace(tools::ROLE, "tools");
    sqlx::raw_sql("GRANT USAGE ON SCHEMA toolfleet TO tools")
        .execute(&mut owner)
        .await
        .unwrap();
    let reaching = worker(&strong);
    assert_eq!(reaching.code, 64, "{}", reaching.err);
    assert!(
        reaching.err.contains("reaches schema toolfleet"),
        "{}",
        reaching.err
    );
    postgres.stop().await;
}

#[tokio::test]
async fn a_server_that_forgets_what_it_commits_gets_no_schema() {
    let folder = folder();
    let postgres = postgres(folder.path(), false).await;
    let ran = run(program(&["migrate", "--database-url", &postgres.url()]));
    assert_eq!(ran.code, 64, "{}", ran.err);
    assert!(ran.err.contains("fsync is off"), "{}", ran.err);
    postgres.stop().await;
}
