//! **What is the tool of a server called here?** Pure.

use sha2::{Digest, Sha256};

use crate::manifest::McpServer;

/// The most characters of a name.
pub(super) const NAME_MAX: usize = 64;

/// What a tool is called here: the server's name and its own, in our alphabet. One that is too long, or of another script, ends in
/// a hash of the whole: what is left of it may be what is left of another.
pub(super) fn name_of(server: &McpServer, upstream: &str) -> String {
    let own: String = upstream
        .chars()
        .map(|one| match one.to_ascii_lowercase() {
            known @ ('a'..='z' | '0'..='9') => known,
            _other => '_',
        })
        .collect();
    let is_readable = upstream.is_ascii() && own.contains(|one| one != '_');
    let name = format!("{}_{own}", server.name);
    if is_readable && name.len() <= NAME_MAX {
        return name;
    }
    let hash = Sha256::digest(upstream.as_bytes());
    let [first, second, third, fourth, ..] = hash.as_slice() else {
        return name;
    };
    let beginning = &name[..name.len().min(NAME_MAX - 9)];
    let beginning = if is_readable {
        beginning
    } else {
        beginning.trim_end_matches('_')
    };
    format!("{beginning}_{first:02x}{second:02x}{third:02x}{fourth:02x}")
}
