//! Text from the command line, from a file, or from standard input: `TEXT`, `@FILE`, `@-`.

use std::{
    error::Error,
    fs::File,
    io::{self, Read},
};

use anyhow::Context;
use fleet::{config::ConfigError, explain::chain};

use super::usage::UsageError;

/// No dispatcher accepts more; a dispatcher refuses what is too large, and names the limit.
const BYTES_MAX: u64 = 1024 * 1024;

/// The bytes that this option refers to.
pub(super) fn bytes(option: &str, text: &str) -> anyhow::Result<Vec<u8>> {
    match text.strip_prefix('@') {
        None => Ok(text.as_bytes().to_vec()),
        Some("-") => read("standard input", &mut io::stdin().lock()),
        Some(path) => {
            let unreadable = |problem: &(dyn Error + 'static)| unreadable(option, path, problem);
            let mut file = File::open(path).map_err(|problem| unreadable(&problem))?;
            // A folder can be opened, but not read.
            let is_folder = file.metadata().is_ok_and(|found| found.is_dir());
            if is_folder {
                let problem = io::Error::from(io::ErrorKind::IsADirectory);
                return Err(unreadable(&problem).into());
            }
            read(path, &mut file)
        }
    }
}

/// The error for a file that an option names and that cannot be read.
pub(super) fn unreadable(option: &str, path: &str, problem: &(dyn Error + 'static)) -> ConfigError {
    ConfigError(vec![format!(
        "{option} names {path}, which cannot be read: {}; name a file that this user may read",
        chain(problem)
    )])
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
