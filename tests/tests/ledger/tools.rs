//! Applying tools: a version never changes, and everyone can read what is new without missing any.

use fleet::{
    manifest::{self, Manifest},
    store::{
        retire::{self, Retire, Retired},
        tools::{Applied, Change, apply, since},
    },
};
use fleet_tests::postgres::Database;
use tokio::task::JoinSet;

fn manifest(name: &str, version: i32, description: &str) -> Manifest {
    let text = format!(
        "{{\"name\":\"{name}\",\"version\":{version},\"description\":\"{description}\",\"effect\":\"read\",\
         \"input_schema\":{{\"type\":\"object\",\"additionalProperties\":false}},\
         \"executor\":{{\"http\":{{\"method\":\"GET\",\"url\":\"http://127.0.0.1:1/\"}}}}}}"
    );
    manifest::parse(&text).unwrap()
}

#[tokio::test]
async fn a_version_that_is_there_does_not_change() {
    let database = Database::fresh().await;
    let mut connection = database.connect().await;
    let first = manifest("one", 1, "What it does.");
    let mut applied =
        async |manifest: &Manifest| apply(&mut connection, manifest, "test").await.unwrap();
    assert_eq!(applied(&first).await, Applied::Created);
    assert_eq!(applied(&first).await, Applied::Unchanged);
    assert_eq!(
        applied(&manifest("one", 1, "Something else.")).await,
        Applied::Conflict
    );
    assert_eq!(
        applied(&manifest("one", 2, "Something else.")).await,
        Applied::Created
    );
    assert_eq!(applied(&first).await, Applied::Unchanged);
    let stored = since(&database.pool, 0).await.unwrap();
    let stored: Vec<Manifest> = stored
        .iter()
        .map(|(_, change)| match change {
            Change::Applied(text) => serde_json::from_str(text).unwrap(),
            Change::Retired(..) => panic!("{change:?}"),
        })
        .collect();
    assert_eq!(stored, [first, manifest("one", 2, "Something else.")]);
}

#[tokio::test]
async fn a_reader_who_follows_the_revisions_misses_no_tool() {
    let database = Database::fresh().await;
    let mut appliers = JoinSet::new();
    for index in 0..32 {
        let mut connection = database.connect().await;
        appliers.spawn(async move {
            let tool = manifest(&format!("tool_{index}"), 1, "What it does.");
            assert_eq!(
                apply(&mut connection, &tool, "test").await.unwrap(),
                Applied::Created
            );
        });
    }
    let mut revs = Vec::new();
    while appliers.try_join_next().transpose().unwrap().is_some() || !appliers.is_empty() {
        let last = revs.last().copied().unwrap_or(0);
        let new = since(&database.pool, last).await.unwrap();
        revs.extend(new.into_iter().map(|(rev, _)| rev));
    }
    let last = revs.last().copied().unwrap_or(0);
    revs.extend(
        since(&database.pool, last)
            .await
            .unwrap()
            .into_iter()
            .map(|(rev, _)| rev),
    );
    assert!(revs.is_sorted(), "{revs:?}");
    revs.dedup();
    assert_eq!(revs.len(), 32, "{revs:?}");
}

#[tokio::test]
async fn one_version_applied_by_many_at_once_is_created_once() {
    let database = Database::fresh().await;
    let mut appliers = JoinSet::new();
    for index in 0..16 {
        let mut connection = database.connect().await;
        // Half of them mean something else by it.
        let tool = manifest("one", 1, if index % 2 == 0 { "This." } else { "That." });
        appliers.spawn(async move { apply(&mut connection, &tool, "test").await.unwrap() });
    }
    let applied = appliers.join_all().await;
    let count = |what| applied.iter().filter(|one| **one == what).count();
    assert_eq!(
        (
            count(Applied::Created),
            count(Applied::Unchanged),
            count(Applied::Conflict)
        ),
        (1, 7, 8),
        "{applied:?}"
    );
}

async fn retire(database: &Database, tool: &str) -> Retired {
    let tool = tool.parse().unwrap();
    let retire = Retire {
        tool: &tool,
        by: "ada",
        note: "Replaced.",
    };
    let mut connection = database.connect().await;
    retire::retire(&mut connection, retire).await.unwrap()
}

/// The versions of a tool, each with who retired it.
async fn shown(database: &Database, tool: &str) -> Vec<(i32, Option<String>)> {
    sqlx::query_as(
        "SELECT version, retired_by || ': ' || retired_note FROM toolfleet.tools \
         WHERE tool = $1 AND (retired_at IS NULL) = (retired_by IS NULL) ORDER BY version",
    )
    .bind(tool)
    .fetch_all(&database.pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_retirement_holds_for_the_versions_that_are_there_and_is_read_in_order() {
    let database = Database::fresh().await;
    let mut connection = database.connect().await;
    let mut applied = async |version| {
        let manifest = manifest("one", version, "What it does.");
        apply(&mut connection, &manifest, "test").await.unwrap()
    };
    assert_eq!(retire(&database, "one").await, Retired::NotFound);
    assert_eq!(applied(1).await, Applied::Created);
    assert_eq!(applied(3).await, Applied::Created);
    assert_eq!(retire(&database, "one").await, Retired::Now(3));
    let again = retire(&database, "one").await;
    assert!(
        matches!(&again, Retired::Before(before) if before.version == 3 && before.retired_by == "ada"),
        "{again:?}"
    );
    // Neither the same version nor an older one takes it back; a newer one is offered, and can be retired in its turn.
    assert_eq!(applied(3).await, Applied::Unchanged);
    assert_eq!(applied(2).await, Applied::Created);
    let by_ada = || Some("ada: Replaced.".to_owned());
    assert_eq!(
        shown(&database, "one").await,
        [(1, by_ada()), (2, by_ada()), (3, by_ada())]
    );
    assert_eq!(applied(4).await, Applied::Created);
    assert_eq!(shown(&database, "one").await[3], (4, None));
    assert_eq!(retire(&database, "one").await, Retired::Now(4));

    let changes = since(&database.pool, 0).await.unwrap();
    let revs: Vec<i64> = changes.iter().map(|(rev, _)| *rev).collect();
    assert!(revs.is_sorted_by(|a, b| a < b), "{revs:?}");
    let retired: Vec<usize> = (0..changes.len())
        .filter(|at| matches!(&changes[*at].1, Change::Retired(tool, _) if tool == "one"))
        .collect();
    assert_eq!(retired, [2, 5], "{changes:?}");
    assert_eq!(since(&database.pool, revs[4]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_tool_retired_by_many_at_once_is_retired_once() {
    let database = Database::fresh().await;
    let mut connection = database.connect().await;
    let one = manifest("one", 1, "What it does.");
    assert_eq!(
        apply(&mut connection, &one, "test").await.unwrap(),
        Applied::Created
    );
    let retiring = (0..8).map(|_| retire(&database, "one"));
    let retired = futures_util::future::join_all(retiring).await;
    let now = retired.iter().filter(|one| **one == Retired::Now(1));
    assert_eq!(now.count(), 1, "{retired:?}");
    let before = retired.iter();
    let before = before.filter(|one| matches!(one, Retired::Before(_)));
    assert_eq!(before.count(), 7, "{retired:?}");
    let changes = since(&database.pool, 0).await.unwrap();
    assert_eq!(changes.len(), 2, "{changes:?}");
}
