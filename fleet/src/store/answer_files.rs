//! Large blocks of what a call has come to, kept as files of its tenant.

use std::{sync::Arc, time::Duration};

use serde_json::value::RawValue;
use sqlx::{PgPool, Row as _};
use tokio::{sync::Semaphore, time::timeout};
use uuid::Uuid;

use super::{
    StoreError,
    answer::answer_within,
    files::{ANSWER_MAX, FileQuota, read, signed, unknown},
};
use crate::{
    content::large::{INLINE_MAX, LargeAnswer, LargeBlock},
    ids::{AttemptId, CallId},
    manifest::{AnswerForm, Manifest, ShownAs},
    telemetry::report,
};

/// How long an answer may wait for its turn and take to be parted.
const PART_MAX: Duration = Duration::from_secs(5);
/// An answer of more bytes is a long one.
const LONG: usize = 1024 * 1024;
/// Long answers that are parted and kept at a time: each takes a few times its bytes meanwhile.
static FEW_LONG: Semaphore = Semaphore::const_new(2);
/// Others, which do not wait for long ones.
static SOME: Semaphore = Semaphore::const_new(4);

/// What came of keeping blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlocksKept {
    /// They are files, since now or before.
    Kept,
    /// The tenant has as much as it may have.
    OverQuota,
    /// The call has no such attempt any more.
    Over,
}

/// The answer to an attempt with links in the place of its large blocks.
///
/// All of them, or none: where they cannot be kept, or not within the tenant's quota, or have to wait for five seconds, the answer
/// stays as it is. An answer without such blocks, or of a tool whose answers are not made of blocks, costs nothing. Safe to repeat:
/// the same answer is the same files. Dropping it leaves files that nobody knows; they go after a day.
pub async fn with_links(
    pool: &PgPool,
    (call, attempt): (CallId, AttemptId),
    manifest: &Manifest,
    quota: FileQuota,
    answer: Box<RawValue>,
) -> Box<RawValue> {
    if !may_link(manifest, answer.get()) {
        return answer;
    }
    let (answer, stays): (Arc<RawValue>, _) = (answer.into(), stays(manifest));
    let whole = Arc::clone(&answer);
    let lane = if whole.get().len() > LONG {
        &FEW_LONG
    } else {
        &SOME
    };
    let parting = async {
        let turn = lane.acquire().await.ok()?;
        let parting = move || LargeAnswer::of(call, whole.get(), stays);
        let large = tokio::task::spawn_blocking(parting).await.ok()??;
        Some((large, turn))
    };
    let Ok(Some((large, _turn))) = timeout(PART_MAX, parting).await else {
        return (*answer).to_owned();
    };
    // Waited for to its end, which the server sets: a statement that nobody waits for may still be committed.
    match keep(pool, (call, attempt), large.large(), quota).await {
        Ok(BlocksKept::Kept) => large.linked(),
        Ok(why @ (BlocksKept::OverQuota | BlocksKept::Over)) => {
            tracing::debug!(%call, ?why, "large blocks stay in their answer");
            (*answer).to_owned()
        }
        Err(error) => {
            tracing::debug!(%call, error = report(&error), "large blocks stay in their answer");
            (*answer).to_owned()
        }
    }
}

/// Whether an answer may have blocks that become links.
pub fn may_link(manifest: &Manifest, answer: &str) -> bool {
    // What must not be stored as it is must not be stored as a file.
    let may = manifest.output == AnswerForm::Content && manifest.sensitive.is_none();
    may && answer.len() > INLINE_MAX
}

/// The answer of this call with links; `None`: it has no large block. Takes long: do not run it on a thread of the runtime.
pub fn linked(call: CallId, manifest: &Manifest, answer: &str) -> Option<Box<RawValue>> {
    let large =
        may_link(manifest, answer).then(|| LargeAnswer::of(call, answer, stays(manifest)))?;
    large.map(LargeAnswer::linked)
}

/// The kinds of blocks that a turn shows, in items that have no place for a link.
fn stays(manifest: &Manifest) -> &'static [&'static str] {
    if manifest.is_final {
        return &["text"];
    }
    match manifest.presents {
        Some(ShownAs::ImageGenerationCall) => &["image"],
        Some(ShownAs::CodeInterpreterCall | ShownAs::ShellCall) => &["text"],
        Some(ShownAs::FileSearchCall | ShownAs::WebSearchCall) | None => &[],
    }
}

/// Keeps blocks for a day, or as long as the key of their call is known: all of them, or none. Guards: the attempt is the call's own, the
/// tenant's quota. Safe to repeat.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn keep(
    pool: &PgPool,
    (call, attempt): (CallId, AttemptId),
    blocks: &[LargeBlock],
    quota: FileQuota,
) -> Result<BlocksKept, StoreError> {
    let doing = "keep parts of an answer";
    let ids: Vec<Uuid> = blocks.iter().map(|block| block.file_id.0).collect();
    let names: Vec<&str> = blocks.iter().map(|block| block.name.as_str()).collect();
    let mimes: Vec<&str> = blocks.iter().map(|block| block.mime.as_str()).collect();
    let data: Vec<&[u8]> = blocks.iter().map(|block| &block.data[..]).collect();
    let asking = sqlx::query(
        "SELECT toolfleet.keep_answer_files($1, $2, $3, $4, $5, $6, $7, $8) AS verdict",
    )
    .bind(call.0)
    .bind(attempt.0)
    .bind(ids)
    .bind(names)
    .bind(mimes)
    .bind(data)
    .bind(signed(quota.files))
    .bind(signed(quota.bytes))
    .fetch_one(pool);
    let row = answer_within(doing, ANSWER_MAX, asking).await?;
    read(doing, &row, |row| {
        Ok(match row.try_get("verdict")? {
            "kept" => BlocksKept::Kept,
            "quota" => BlocksKept::OverQuota,
            "over" => BlocksKept::Over,
            other => return Err(unknown(other)),
        })
    })
}
