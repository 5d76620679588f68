//! Migrating, and what everything else says before it.

use std::process::Command;

use fleet::store::migrate::migrator;

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
async fn a_server_that_forgets_what_it_commits_gets_no_schema() {
    let folder = folder();
    let postgres = postgres(folder.path(), false).await;
    let ran = run(program(&["migrate", "--database-url", &postgres.url()]));
    assert_eq!(ran.code, 64, "{}", ran.err);
    assert!(ran.err.contains("fsync is off"), "{}", ran.err);
    postgres.stop().await;
}
