//! Hands in a file: chunk by chunk, each sent again where no answer comes, for that changes nothing.

use std::path::Path;

use anyhow::{Context, bail};
use bytes::Bytes;
use fleet::{
    files::{BYTES_MAX, FileName, MimeType},
    ids::{FileId, Label},
};
use fleet_client::{Answer, AskError, FleetClient, files::NewFile};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tokio::{fs::File, io::AsyncReadExt};

use super::{mime, taken};
use crate::commands::ask::unanswered;

/// How often a request is sent that gets no answer.
const TRIES: usize = 3;
const ADVICE: &str = "hand the file in again; what came of it so far goes within an hour";

/// A file that is to be handed in.
pub(in crate::commands) struct Upload<'a> {
    /// Whose it is to be.
    pub(in crate::commands) tenant: &'a Label,
    /// Where it is.
    pub(in crate::commands) path: &'a Path,
    /// What it is called; `None`: as its path ends.
    pub(in crate::commands) name: Option<&'a FileName>,
    /// Its type; `None`: as its name says.
    pub(in crate::commands) mime: Option<&'a MimeType>,
}

#[derive(Deserialize)]
struct BegunFile {
    file_id: FileId,
    chunk_bytes: usize,
}

/// Hands it in. Its id, and the answer that describes it.
///
/// # Errors
///
/// It cannot be read, a dispatcher refuses it, or none answers.
pub(in crate::commands) async fn upload(
    client: &FleetClient,
    wanted: &Upload<'_>,
) -> anyhow::Result<(FileId, Answer)> {
    let Upload { tenant, path, .. } = *wanted;
    let shown = path.display();
    let name = match wanted.name {
        Some(name) => name.as_str().to_owned(),
        None => {
            let last = path.file_name().and_then(|name| name.to_str());
            last.with_context(|| format!("{shown} has no name in UTF-8: give one with --name"))?
                .to_owned()
        }
    };
    let mime = wanted
        .mime
        .map_or_else(|| mime::of(Path::new(&name)), MimeType::as_str);
    let mut file = File::open(path)
        .await
        .with_context(|| format!("open {shown}"))?;
    let about = file
        .metadata()
        .await
        .with_context(|| format!("look at {shown}"))?;
    let bytes = about.len();
    if !about.is_file() || !(1..=BYTES_MAX).contains(&bytes) {
        bail!("{shown} must be a file of 1 to {BYTES_MAX} bytes");
    }
    let new = NewFile {
        name: &name,
        mime,
        bytes,
    };
    let begun = client.begin_file(tenant, &new).await;
    let begun = taken(begun.map_err(|problem| unanswered(problem, ADVICE))?)?;
    let BegunFile {
        file_id,
        chunk_bytes,
    } = begun.read()?;
    let (mut at, mut hash) = (0, Sha256::new());
    loop {
        let mut chunk = Vec::with_capacity(chunk_bytes);
        let mut next = (&mut file).take(chunk_bytes as u64);
        next.read_to_end(&mut chunk)
            .await
            .with_context(|| format!("read {shown}"))?;
        if chunk.is_empty() {
            break;
        }
        hash.update(&chunk);
        let (chunk, length) = (Bytes::from(chunk), chunk_bytes as u64);
        repeated(|| client.send_chunk(tenant, file_id, at, chunk.clone())).await?;
        at += length;
    }
    let sha256 = hex_of(&hash.finalize());
    let answer = repeated(|| client.finish_file(tenant, file_id, &sha256)).await?;
    Ok((file_id, answer))
}

/// The answer to a request that may be repeated, unless it is a refusal.
pub(super) async fn repeated<F>(mut ask: impl FnMut() -> F) -> anyhow::Result<Answer>
where
    F: Future<Output = Result<Answer, AskError>>,
{
    let mut left = TRIES;
    loop {
        left -= 1;
        match ask().await {
            Err(AskError::NoAnswer { .. }) if left > 0 => {}
            asked => return taken(asked.map_err(|problem| unanswered(problem, ADVICE))?),
        }
    }
}

/// As hexadecimal digits.
pub(super) fn hex_of(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
