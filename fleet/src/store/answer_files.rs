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

/// How long all blocks of an answer may take.
const ALL_MAX: Duration = Duration::from_secs(5);

/// Answers that are taken apart and kept at a time: each has up to 8 MiB, and a few times that while it is.
static AT_A_TIME: Semaphore = Semaphore::const_new(2);

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
/// All of them, or none: where they cannot be kept within five seconds, or within the tenant's quota, the answer stays as it is. An answer
/// without such blocks, or of a tool whose answers are not made of blocks, costs nothing. Safe to repeat: the same answer is the same
/// files. Dropping it leaves files that nobody knows; they go after a day.
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
    let linking = async {
        let _turn = AT_A_TIME.acquire().await.ok()?;
        let parting =
            tokio::task::spawn_blocking(move || LargeAnswer::of(call, whole.get(), stays));
        let large = parting.await.ok()??;
        match keep(pool, (call, attempt), large.large(), quota).await {
            Ok(BlocksKept::Kept) => Some(large.linked()),
            Ok(why @ (BlocksKept::OverQuota | BlocksKept::Over)) => {
                tracing::debug!(%call, ?why, "large blocks stay in their answer");
                None
            }
            Err(error) => {
                tracing::debug!(%call, error = report(&error), "large blocks stay in their answer");
                None
            }
        }
    };
    let linked = timeout(ALL_MAX, linking).await.ok().flatten();
    linked.unwrap_or_else(|| (*answer).to_owned())
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
