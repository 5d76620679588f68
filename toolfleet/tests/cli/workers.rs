//! Lists the live workers, and declares one gone.

use fleet::{
    ids::WorkerId,
    store::{
        migrate::migrate,
        workers::{self, Leave, WorkerRow},
    },
};

use crate::support::{Ran, folder, ledger, postgres, program, run};

#[tokio::test]
async fn workers_are_listed_and_fenced_and_one_that_beats_is_not() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let ledger = ledger(&postgres.url());
    migrate(&ledger).await.unwrap();
    let mut connection = ledger.connect().await.unwrap();
    let mut named = Vec::new();
    for name in ["lives", "silent", "dead", "left"] {
        let row = row(name);
        workers::register(&mut connection, &row).await.unwrap();
        named.push(row.worker_id);
    }
    let [lives, silent, dead, left] = named[..] else {
        unreachable!()
    };
    let declared = workers::declare_dead(&mut connection, dead, 0).await;
    assert!(declared.unwrap());
    let leaves = workers::leave(&mut connection, left, true).await.unwrap();
    assert_eq!(leaves, Leave::Left);
    sqlx::query("UPDATE toolfleet.worker_processes SET beat_at = now() - interval '1 minute' WHERE worker_id = $1")
        .bind(silent.0)
        .execute(&mut connection)
        .await
        .unwrap();
    let workers = |arguments: &[&str]| -> Ran {
        let mut command = program(&[&["workers"], arguments].concat());
        command.env("DATABASE_URL", postgres.url());
        run(command)
    };
    let names = |arguments: &[&str]| -> Vec<(String, String)> {
        let ran = workers(&[&["list", "--json"], arguments].concat());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        let rows = ran.json();
        let text = |row: &serde_json::Value, column: &str| row[column].as_str().unwrap().to_owned();
        let rows = rows.as_array().unwrap().iter();
        let mut rows: Vec<_> = rows
            .map(|row| (text(row, "name"), text(row, "state")))
            .collect();
        rows.sort();
        rows
    };
    let pair = |name: &str, state: &str| (name.to_owned(), state.to_owned());
    let listed = [
        pair("dead", "dead"),
        pair("lives", "live"),
        pair("silent", "live"),
    ];
    assert_eq!(names(&[]), listed);
    assert_eq!(names(&["--all"]).len(), 4);

    let gone = ["--note", "the machine\u{1b}[2J is gone", "--by", "anna"];
    let fence = |worker: WorkerId, more: &[&str]| -> Ran {
        workers(&[&["fence", &worker.to_string()], &gone[..], more].concat())
    };
    let alive = fence(lives, &[]);
    assert_eq!(alive.code, 1);
    assert!(
        alive
            .err
            .contains("lives: it has beaten within the last 15s"),
        "{}",
        alive.err
    );
    for worker in [silent, dead] {
        let fenced = fence(worker, &["--json"]);
        assert_eq!((fenced.code, fenced.err.as_str()), (0, ""));
        assert_eq!(fenced.json()["result"], "fenced");
    }
    assert_eq!(fence(dead, &["--json"]).json()["result"], "already_fenced");
    assert_eq!(fence(left, &["--json"]).json()["result"], "left");
    let said = fence(left, &[]);
    assert!(said.out.contains("had left in order"), "{}", said.out);
    let unknown = fence(WorkerId::generate(), &[]);
    assert_eq!(unknown.code, 1);
    assert!(
        unknown.err.contains("there is no worker"),
        "{}",
        unknown.err
    );
    assert_eq!(names(&[]), [pair("lives", "live")]);

    let table = workers(&["list", "--all"]).out;
    assert!(table.starts_with("WORKER "), "{table}");
    assert!(
        table.contains("anna (toolfleet): the machine\\u{1b}[2J is gone"),
        "{table}"
    );
    let row: (String, String) =
        sqlx::query_as("SELECT fenced_by, fence_note FROM toolfleet.workers WHERE worker_id = $1")
            .bind(dead.0)
            .fetch_one(&mut connection)
            .await
            .unwrap();
    let by = format!("{} (toolfleet)", gone[3]);
    assert_eq!((row.0, row.1.as_str()), (by, gone[1]));
    postgres.stop().await;
}

#[test]
fn a_fence_without_a_reason_is_refused() {
    let id = WorkerId::generate().to_string();
    let fences = |more: &[&str]| {
        let url = ["--database-url", "postgres://127.0.0.1:1/none"];
        run(program(&[&["workers", "fence"], more, &url[..]].concat()))
    };
    for (arguments, hint) in [
        (&[id.as_str()][..], "--note"),
        (&[&id, "--note", " "], "a note has 1 to 2000 characters"),
        (&["worker-1", "--note", "gone"], "worker id must be a UUID"),
    ] {
        let ran = fences(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(hint), "{arguments:?}: {}", ran.err);
    }
    assert_eq!(fences(&[&id, "--note", "gone"]).code, 69);
}

fn row(name: &str) -> WorkerRow {
    WorkerRow {
        worker_id: WorkerId::generate(),
        name: name.to_owned(),
        host: "host".into(),
        pid: 1,
        queues: vec!["default".parse().unwrap(), "slow".parse().unwrap()],
        concurrency: 4,
        sandbox: serde_json::json!({}),
        interceptors: Vec::new(),
    }
}
