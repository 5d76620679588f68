//! Large blocks of what a call has come to, kept as files of its tenant.

use std::{sync::Arc, time::Duration};

use serde_json::value::RawValue;
use sqlx::{PgPool, Row as _};
use tokio::time::timeout;

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

/// What came of keeping a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKept {
    /// It is a file, since now or before.
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
    let parting = tokio::task::spawn_blocking(move || LargeAnswer::of(call, whole.get(), stays));
    let Ok(Some(large)) = parting.await else {
        return (*answer).to_owned();
    };
    let all = async {
        for block in large.large() {
            match keep(pool, (call, attempt), block, quota).await {
                Ok(BlockKept::Kept) => {}
                Ok(why @ (BlockKept::OverQuota | BlockKept::Over)) => {
                    tracing::debug!(%call, ?why, "large blocks stay in their answer");
                    return false;
                }
                Err(error) => {
                    tracing::debug!(%call, error = report(&error), "large blocks stay in their answer");
                    return false;
                }
            }
        }
        true
    };
    if timeout(ALL_MAX, all).await.unwrap_or(false) {
        large.linked()
    } else {
        (*answer).to_owned()
    }
}

/// Whether an answer may have blocks that become links.
pub fn may_link(manifest: &Manifest, answer: &str) -> bool {
    manifest.output == AnswerForm::Content && answer.len() > INLINE_MAX
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

/// Keeps a block for a day, or as long as the key of its call is known. Guards: the attempt is the call's own, the tenant's quota. Safe to repeat.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn keep(
    pool: &PgPool,
    (call, attempt): (CallId, AttemptId),
    block: &LargeBlock,
    quota: FileQuota,
) -> Result<BlockKept, StoreError> {
    let doing = "keep a part of an answer";
    let asking =
        sqlx::query("SELECT toolfleet.keep_answer_file($1, $2, $3, $4, $5, $6, $7, $8) AS verdict")
            .bind(call.0)
            .bind(attempt.0)
            .bind(block.file_id.0)
            .bind(block.name.as_str())
            .bind(block.mime.as_str())
            .bind(&block.data[..])
            .bind(signed(quota.files))
            .bind(signed(quota.bytes))
            .fetch_one(pool);
    let row = answer_within(doing, ANSWER_MAX, asking).await?;
    read(doing, &row, |row| {
        Ok(match row.try_get("verdict")? {
            "kept" => BlockKept::Kept,
            "quota" => BlockKept::OverQuota,
            "over" => BlockKept::Over,
            other => return Err(unknown(other)),
        })
    })
}
