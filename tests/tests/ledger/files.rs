//! Files in the ledger: chunks in order, what is said again, quotas, what a call names, and when a file goes.

use fleet::{
    files::{CHUNK_MAX, FileName, MimeType},
    ids::{CallId, FileId, Label},
    store::{
        PgPool,
        accept::NewCall,
        attempt_files,
        files::{
            self, ChunkTaken, FileBegun, FileDeleted, FileFinished, FileQuota, FileRow, NewFile,
        },
        keys::find_key,
        lane::Reply,
    },
};
use fleet_tests::postgres::Database;
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;

use crate::support::{
    Ledger, claim_of, keyed_call, new_call, new_key, run, succeeded, tenant, until_blocked,
};

const NONE: FileQuota = FileQuota { files: 0, bytes: 0 };

fn hash(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

async fn begun_of(pool: &PgPool, of: &Label, bytes: u64, quota: FileQuota) -> (FileId, FileBegun) {
    let (name, mime): (FileName, MimeType) =
        ("a.pdf".parse().unwrap(), "application/pdf".parse().unwrap());
    let new = NewFile {
        file_id: FileId::generate(),
        tenant: of,
        name: &name,
        mime: &mime,
        bytes,
    };
    let begun = files::begin(pool, &new, quota).await.unwrap();
    (new.file_id, begun)
}

async fn begun(pool: &PgPool, bytes: u64) -> FileId {
    begun_of(pool, &tenant(), bytes, NONE).await.0
}

async fn chunk(pool: &PgPool, file: FileId, at: u64, data: &[u8]) -> ChunkTaken {
    let taken = files::write_chunk(pool, &tenant(), file, at, data).await;
    taken.unwrap()
}

fn there(received: u64) -> ChunkTaken {
    ChunkTaken::There {
        received,
        is_ready: false,
    }
}

/// A ready file with these bytes.
async fn ready(pool: &PgPool, bytes: &[u8]) -> FileId {
    let file = begun(pool, bytes.len() as u64).await;
    for (n, part) in bytes.chunks(CHUNK_MAX).enumerate() {
        chunk(pool, file, (n * CHUNK_MAX) as u64, part).await;
    }
    let finished = files::finish(pool, &tenant(), file, &hash(bytes)).await;
    assert!(matches!(finished.unwrap(), FileFinished::Ready(_)));
    file
}

async fn found(pool: &PgPool, file: FileId) -> Option<FileRow> {
    files::find(pool, &tenant(), file).await.unwrap()
}

async fn deleted(pool: &PgPool, file: FileId) -> FileDeleted {
    files::delete(pool, &tenant(), file).await.unwrap()
}

/// A day later, for this file.
async fn over(database: &Database, file: FileId) {
    let moved = sqlx::query(
        "UPDATE toolfleet.kept_files SET expires_at = expires_at - interval '25 hours' WHERE file_id = $1",
    )
    .bind(file.0)
    .execute(&database.pool)
    .await;
    assert_eq!(moved.unwrap().rows_affected(), 1);
}

fn naming(named: &[FileId]) -> NewCall {
    NewCall {
        files: named.to_vec(),
        ..new_call()
    }
}

async fn named_by(pool: &PgPool, call: CallId) -> Option<Vec<uuid::Uuid>> {
    sqlx::query_scalar("SELECT files FROM toolfleet.calls WHERE call_id = $1")
        .bind(call.0)
        .fetch_one(pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn chunks_come_in_order_and_what_is_said_again_changes_nothing() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    let file = begun(pool, 7).await;
    assert_eq!(
        chunk(pool, file, 3, b"def").await,
        ChunkTaken::Gap { received: 0 }
    );
    assert_eq!(chunk(pool, file, 0, b"abc").await, there(3));
    assert_eq!(chunk(pool, file, 0, b"abc").await, there(3));
    let differs = ChunkTaken::Differs { received: 3 };
    assert_eq!(chunk(pool, file, 0, b"abd").await, differs);
    assert_eq!(chunk(pool, file, 0, b"ab").await, differs);
    assert_eq!(
        chunk(pool, file, 1, b"bc").await,
        ChunkTaken::Gap { received: 3 }
    );
    let beyond = ChunkTaken::Beyond {
        received: 3,
        bytes: 7,
    };
    assert_eq!(chunk(pool, file, 3, b"defgh").await, beyond);
    let whole = hash(b"abcdefg");
    let finish = async |said: [u8; 32]| files::finish(pool, &tenant(), file, &said).await.unwrap();
    let short = FileFinished::Short {
        received: 3,
        bytes: 7,
    };
    assert_eq!(finish(whole).await, short);
    assert_eq!(chunk(pool, file, 3, b"defg").await, there(7));
    assert_eq!(
        finish([0; 32]).await,
        FileFinished::Differs { sha256: whole }
    );
    assert_eq!(
        found(pool, file).await.unwrap().sha256,
        None,
        "it stays open"
    );
    let FileFinished::Ready(row) = finish(whole).await else {
        panic!("it is complete");
    };
    assert_eq!(
        (row.name.as_str(), row.mime.as_str(), row.bytes, row.sha256),
        ("a.pdf", "application/pdf", 7, Some(whole))
    );
    assert_eq!(finish(whole).await, FileFinished::Ready(row.clone()));
    assert_eq!(
        finish([0; 32]).await,
        FileFinished::Differs { sha256: whole }
    );
    let again = ChunkTaken::There {
        received: 7,
        is_ready: true,
    };
    assert_eq!(chunk(pool, file, 3, b"defg").await, again);
    assert!(matches!(
        chunk(pool, file, 7, b"h").await,
        ChunkTaken::Beyond { .. }
    ));
    assert_eq!(found(pool, file).await, Some(row));
    assert_eq!(deleted(pool, file).await, FileDeleted::Now);
    assert_eq!(deleted(pool, file).await, FileDeleted::NotFound);
    let left = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM toolfleet.file_chunks");
    assert_eq!(left.fetch_one(pool).await.unwrap(), 0);
}

#[tokio::test]
async fn a_file_has_a_bounded_number_of_chunks() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    let file = begun(pool, 2000).await;
    for at in 0..1024 {
        assert_eq!(chunk(pool, file, at, b"x").await, there(at + 1));
    }
    assert_eq!(chunk(pool, file, 1024, b"x").await, ChunkTaken::TooMany);
    assert_eq!(chunk(pool, file, 1023, b"x").await, there(1024));
}

#[tokio::test]
async fn a_file_of_the_largest_size_is_hashed_and_read_back() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    let bytes: Vec<u8> = (0..fleet::files::BYTES_MAX)
        .map(|n| (n % 251) as u8)
        .collect();
    let file = ready(pool, &bytes).await;
    let mut read = Vec::new();
    while read.len() < bytes.len() {
        let at = read.len() as u64;
        let part = files::read_part(pool, &tenant(), file, at, CHUNK_MAX).await;
        let part = part.unwrap().unwrap();
        assert_eq!(part.bytes, bytes.len() as u64);
        read.extend_from_slice(&part.data);
    }
    assert!(read == bytes);
    // From the middle of a chunk, and behind the end.
    let part = async |at, most| {
        let part = files::read_part(pool, &tenant(), file, at, most).await;
        part.unwrap().unwrap().data
    };
    assert_eq!(
        part(CHUNK_MAX as u64 + 5, 3).await,
        bytes[CHUNK_MAX + 5..][..3]
    );
    let last = part(bytes.len() as u64 - 1, CHUNK_MAX).await;
    assert_eq!(last, bytes[bytes.len() - 1..]);
    assert!(part(bytes.len() as u64, CHUNK_MAX).await.is_empty());
    assert!(part(u64::MAX, CHUNK_MAX).await.is_empty());
}

#[tokio::test]
async fn a_foreign_file_is_none_for_everything() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    let (file, open) = (ready(pool, b"abc").await, begun(pool, 3).await);
    let other: Label = "other".parse().unwrap();
    for id in [file, open, FileId::generate()] {
        assert_eq!(files::find(pool, &other, id).await.unwrap(), None);
        let chunk = files::write_chunk(pool, &other, id, 0, b"abc").await;
        assert_eq!(chunk.unwrap(), ChunkTaken::NotFound);
        let finished = files::finish(pool, &other, id, &hash(b"abc")).await;
        assert_eq!(finished.unwrap(), FileFinished::NotFound);
        let deleted = files::delete(pool, &other, id).await.unwrap();
        assert_eq!(deleted, FileDeleted::NotFound);
        let part = files::read_part(pool, &other, id, 0, 1).await.unwrap();
        assert_eq!(part, None);
        let nameable = files::nameable(pool, &other, &[id]).await.unwrap();
        assert_eq!(nameable, []);
    }
    // Its own tenant reads and names only what is ready.
    let part = files::read_part(pool, &tenant(), open, 0, 1).await;
    assert_eq!(part.unwrap(), None);
    let nameable = files::nameable(pool, &tenant(), &[open, file]).await;
    let nameable = nameable.unwrap();
    assert_eq!((nameable.len(), nameable[0].file_id), (1, file));
    let listed = files::list(pool, &tenant(), None, 10).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|row| row.file_id).collect();
    assert_eq!(listed, [open, file], "the newest first");
    let older = files::list(pool, &tenant(), Some(open), 10).await.unwrap();
    assert_eq!(older.len(), 1);
    assert!(
        files::list(pool, &other, None, 10)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn no_tenant_has_more_than_its_quota_however_many_begin_at_once() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    let quota = FileQuota {
        files: 3,
        bytes: 100,
    };
    let (first, second): (Label, Label) = (tenant(), "other".parse().unwrap());
    let many = (0..12).map(|_| begun_of(pool, &first, 30, quota));
    let all = futures_util::future::join_all(many).await;
    let open = all
        .iter()
        .filter(|(_, begun)| matches!(begun, FileBegun::Open { .. }));
    assert_eq!(open.count(), 3);
    let over = FileBegun::OverQuota {
        files: 3,
        bytes: 90,
    };
    assert_eq!(begun_of(pool, &first, 1, quota).await.1, over);
    // Another tenant has its own, and bytes count as they are announced.
    assert!(matches!(
        begun_of(pool, &second, 60, quota).await.1,
        FileBegun::Open { .. }
    ));
    let over = FileBegun::OverQuota {
        files: 1,
        bytes: 60,
    };
    assert_eq!(begun_of(pool, &second, 41, quota).await.1, over);
    let last = begun_of(pool, &second, 40, quota).await;
    assert!(matches!(last.1, FileBegun::Open { .. }));
    files::delete(pool, &second, last.0).await.unwrap();
    let again = begun_of(pool, &second, 40, quota).await.1;
    assert!(matches!(again, FileBegun::Open { .. }));
}

#[tokio::test]
async fn a_file_goes_when_its_time_is_over_and_no_open_call_names_it() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let pool = ledger.database.pool.clone();
    let (free, kept, open) = (
        ready(&pool, b"a").await,
        ready(&pool, b"b").await,
        begun(&pool, 1).await,
    );
    let call = ledger.accepted(naming(&[kept])).await;
    assert_eq!(files::drop_expired(&pool, 16).await.unwrap(), 0);
    for file in [free, kept, open] {
        over(&ledger.database, file).await;
    }
    for gone in [free, open] {
        assert_eq!(found(&pool, gone).await, None, "before the sweep too");
        assert_eq!(deleted(&pool, gone).await, FileDeleted::NotFound);
        assert_eq!(chunk(&pool, gone, 0, b"a").await, ChunkTaken::NotFound);
    }
    // Who is at work with it still reads it, and no new call can name it.
    assert!(found(&pool, kept).await.is_some());
    assert_eq!(deleted(&pool, kept).await, FileDeleted::Named);
    assert!(
        files::nameable(&pool, &tenant(), &[kept])
            .await
            .unwrap()
            .is_empty()
    );
    let late = ledger.accepting.accept(naming(&[kept])).await;
    assert!(matches!(late, Reply::Undecided), "{late:?}");
    assert_eq!(files::drop_expired(&pool, 16).await.unwrap(), 2);
    assert_eq!(files::drop_expired(&pool, 16).await.unwrap(), 0);
    let attempt = worker.claims(call).await;
    let told = attempt_files::of_attempt(&pool, call, attempt)
        .await
        .unwrap();
    assert_eq!((told.len(), told[0].file_id), (1, kept));
    ledger.ends(succeeded(call, attempt)).await;
    assert_eq!(found(&pool, kept).await, None);
    assert_eq!(files::drop_expired(&pool, 16).await.unwrap(), 1);
    assert_eq!(named_by(&pool, call).await, Some(vec![kept.0]));
}

#[tokio::test]
async fn a_call_is_accepted_with_all_of_its_files_or_not_at_all() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    let (one, two) = (ready(pool, b"a").await, ready(pool, b"b").await);
    let open = begun(pool, 1).await;
    let foreign = {
        let other: Label = "other".parse().unwrap();
        begun_of(pool, &other, 1, NONE).await.0
    };
    let call = ledger.accepted(naming(&[two, one])).await;
    assert_eq!(named_by(pool, call).await, Some(vec![two.0, one.0]));
    let plain = ledger.queued().await;
    assert_eq!(named_by(pool, plain).await, None);
    for lacking in [open, foreign, FileId::generate()] {
        let key = new_key();
        let calls = [
            naming(&[one, lacking]),
            NewCall {
                files: vec![lacking],
                ..keyed_call(key)
            },
        ];
        // Beside calls that have what they name, in one statement.
        let good = [naming(&[one]), new_call()];
        let sent = calls.iter().chain(&good).cloned().map(std::sync::Arc::new);
        let replies = ledger.accepting.accept_all(sent).await;
        for refused in &replies[..2] {
            assert!(matches!(refused, Reply::Undecided), "{refused:?}");
        }
        for accepted in &replies[2..] {
            assert!(matches!(accepted, Reply::Done(_)), "{accepted:?}");
        }
        let taken = find_key(pool, &tenant(), &key).await.unwrap();
        assert!(taken.is_none(), "nothing is stored, not even its key");
    }
    let rows = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM toolfleet.call_files");
    assert_eq!(rows.fetch_one(pool).await.unwrap(), 5);
}

#[tokio::test]
async fn a_deletion_and_a_call_that_names_the_file_come_one_after_the_other() {
    let ledger = Ledger::fresh().await;
    let pool = ledger.database.pool.clone();
    let (first, second) = (ready(&pool, b"a").await, ready(&pool, b"b").await);

    // The call is there first, and not committed yet.
    let mut call = ledger.database.connect().await;
    run(&mut call, "BEGIN").await;
    run(&mut call, "SELECT FROM toolfleet.kept_files FOR KEY SHARE").await;
    let mut deleting = JoinSet::new();
    {
        let pool = pool.clone();
        deleting.spawn(async move { deleted(&pool, first).await });
    }
    until_blocked(&ledger.database, 1).await;
    // Nor does the sweep take it meanwhile, or wait.
    over(&ledger.database, second).await;
    assert_eq!(files::drop_expired(&pool, 16).await.unwrap(), 0);
    let id = ledger.accepted(naming(&[first])).await;
    run(&mut call, "COMMIT").await;
    assert_eq!(
        deleting.join_next().await.unwrap().unwrap(),
        FileDeleted::Named
    );
    assert_eq!(named_by(&pool, id).await, Some(vec![first.0]));

    // The deletion is there first.
    let third = ready(&pool, b"c").await;
    let mut deletion = ledger.database.connect().await;
    run(&mut deletion, "BEGIN").await;
    sqlx::query("SELECT toolfleet.delete_file($1, 'tenant')")
        .bind(third.0)
        .execute(&mut deletion)
        .await
        .unwrap();
    let mut naming_it = JoinSet::new();
    {
        let accepting = ledger.accepting.clone();
        naming_it.spawn(async move { accepting.accept(naming(&[third])).await });
    }
    until_blocked(&ledger.database, 1).await;
    run(&mut deletion, "COMMIT").await;
    let reply = naming_it.join_next().await.unwrap().unwrap();
    assert!(matches!(reply, Reply::Undecided), "{reply:?}");
}

#[tokio::test]
async fn only_a_running_attempt_reads_the_files_of_its_call() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let pool = ledger.database.pool.clone();
    let bytes: Vec<u8> = (0..CHUNK_MAX + 10).map(|n| (n % 253) as u8).collect();
    let (named, other) = (ready(&pool, &bytes).await, ready(&pool, b"b").await);
    let call = ledger.accepted(naming(&[named])).await;
    let early = claim_of(call).attempt_id;
    let read = async |attempt, file, at| {
        let part = attempt_files::read_of_attempt(&pool, call, attempt, file, at).await;
        part.unwrap()
    };
    assert!(
        attempt_files::of_attempt(&pool, call, early)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(read(early, named, 0).await, None);
    let attempt = worker.claims(call).await;
    let told = attempt_files::of_attempt(&pool, call, attempt)
        .await
        .unwrap();
    assert_eq!(
        (told[0].bytes, told[0].sha256),
        (bytes.len() as u64, hash(&bytes))
    );
    assert_eq!(read(attempt, named, 0).await.unwrap(), bytes[..CHUNK_MAX]);
    let at = CHUNK_MAX as u64;
    assert_eq!(read(attempt, named, at).await.unwrap(), bytes[CHUNK_MAX..]);
    assert_eq!(read(attempt, named, at + 10).await.unwrap().len(), 0);
    assert_eq!(read(attempt, named, u64::MAX).await.unwrap().len(), 0);
    assert_eq!(read(attempt, other, 0).await, None);
    assert_eq!(read(early, named, 0).await, None);
    ledger.ends(succeeded(call, attempt)).await;
    assert_eq!(read(attempt, named, 0).await, None);
    assert!(
        attempt_files::of_attempt(&pool, call, attempt)
            .await
            .unwrap()
            .is_empty()
    );
}
