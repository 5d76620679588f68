//! Applying tools: a version never changes, and everyone can read what is new without missing any.

use fleet::{
    manifest::{self, Manifest},
    store::tools::{Applied, apply, since},
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
        .map(|(_, text)| serde_json::from_str(text).unwrap())
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
