//! How to end the process tree.

use fleet::processes::{all, descendants};
use nix::unistd::Pid;

/// Asks every descendant of this process to end, once each: some programs take a second TERM as an order to end at once.
pub(super) fn term(tool: Pid) {
    use nix::sys::signal::Signal::{SIGCONT, SIGTERM};
    if cfg!(not(target_os = "linux")) {
        signal_group(tool, SIGTERM);
    }
    for process in descendants(&[Pid::this()], &all())
        .iter()
        .filter(|process| !process.zombie)
    {
        signal(process.pid, SIGTERM);
        // A stopped process handles no signal until it continues.
        signal(process.pid, SIGCONT);
    }
}

/// Kills every descendant of this process, whole groups first: a group dies at once, forks included.
pub(super) fn kill(tool: Pid) {
    use nix::sys::signal::Signal::SIGKILL;
    if cfg!(not(target_os = "linux")) {
        signal_group(tool, SIGKILL);
    }
    let own = nix::unistd::getpgrp();
    let mut found = descendants(&[Pid::this()], &all());
    found.retain(|process| !process.zombie);
    let mut groups: Vec<Pid> = found.iter().map(|process| process.group).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
        .into_iter()
        .filter(|group| *group != own)
        .for_each(|group| signal_group(group, SIGKILL));
    found
        .iter()
        .for_each(|process| signal(process.pid, SIGKILL));
}

/// Sends a signal. A process that is gone, or that we may not signal, shows when the caller looks again.
pub(super) fn signal(pid: Pid, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(pid, signal).unwrap_or(());
}

fn signal_group(group: Pid, signal: nix::sys::signal::Signal) {
    nix::sys::signal::killpg(group, signal).unwrap_or(());
}
