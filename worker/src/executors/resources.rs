//! Whether this machine, and not the tool, is the reason that something could not be started.

use std::io;

use nix::errno::Errno;

/// Whether the system has no process, thread, descriptor or memory left. Later it may have some.
pub(crate) fn lacks_resources(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(
        errno,
        Some(Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_machine_is_told_from_a_tool_that_is_not_there() {
        for full in [
            Errno::EAGAIN,
            Errno::ENOMEM,
            Errno::EMFILE,
            Errno::ENFILE,
            Errno::ENOBUFS,
        ] {
            assert!(lacks_resources(&full.into()), "{full}");
        }
        for other in [
            Errno::ENOENT,
            Errno::EACCES,
            Errno::E2BIG,
            Errno::ECONNREFUSED,
        ] {
            assert!(!lacks_resources(&other.into()), "{other}");
        }
        assert!(!lacks_resources(&io::Error::other("no errno")));
    }
}
