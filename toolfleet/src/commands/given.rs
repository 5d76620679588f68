//! What stands on the command line itself, in a file, or on standard input: `TEXT`, `@FILE`, `@-`.

use std::{
    fs::File,
    io::{self, Read},
};

use anyhow::Context;

use super::exit::UsageError;

/// No dispatcher takes more; one that does not fit is refused there, with the limit.
const BYTES_MAX: u64 = 1024 * 1024;

/// The bytes that are meant.
pub(super) fn bytes(text: &str) -> anyhow::Result<Vec<u8>> {
    match text.strip_prefix('@') {
        None => Ok(text.as_bytes().to_vec()),
        Some("-") => read("standard input", &mut io::stdin().lock()),
        Some(path) => {
            let mut file = File::open(path).with_context(|| format!("open {path}"))?;
            read(path, &mut file)
        }
    }
}

fn read(source: &str, input: &mut dyn Read) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = input.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("read {source}"))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(UsageError(format!("{source} has more than {BYTES_MAX} bytes")).into());
    }
    Ok(bytes)
}
