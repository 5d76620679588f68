//! Who does something, where nobody says so.

use nix::unistd::{User, geteuid, gethostname};

/// The user of this program.
pub(super) fn user() -> String {
    let user = User::from_uid(geteuid()).ok().flatten();
    user.map_or_else(|| geteuid().to_string(), |user| user.name)
}

/// The user and the machine of this program.
pub(super) fn user_at_host() -> String {
    let user = user();
    let host = gethostname().unwrap_or_else(|_unknown| "unknown".into());
    format!("{user}@{}", host.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_and_a_host_have_a_name() {
        let name = user_at_host();
        let (user, host) = name.split_once('@').unwrap();
        assert!(!user.is_empty() && !host.is_empty(), "{name}");
    }
}
