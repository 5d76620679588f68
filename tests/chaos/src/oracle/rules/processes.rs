//! What a run leaves behind: nothing that holds on to anything, and logs that can be shown.

use crate::oracle::{
    case::{Case, at_large},
    facts::{Exit, How},
    verdict::Breach,
};

pub(super) const SESSIONS: &str = "no_session_is_left";
pub(super) const PROCESSES: &str = "no_process_is_left";
pub(super) const LEAVES: &str = "nobody_leaves_without_a_reason";
pub(super) const STAYS: &str = "everybody_leaves_when_told";
pub(super) const PANICS: &str = "nobody_panicked";
pub(super) const RIGHTS: &str = "nobody_lacks_a_right";
pub(super) const SECRETS: &str = "logs_keep_secrets";

/// Where a tool panics because it is told to.
const ON_PURPOSE: &str = "tests/chaos/src/effects/";
/// A transaction that does nothing for this long, in milliseconds, was forgotten.
const IDLE_MAX_MS: i64 = 1_000;
/// A session outlives its process by no more than this, in milliseconds.
const OUTLIVES_MAX_MS: i64 = 10_000;

/// No transaction of the fleet was left open, and no session outlives its process.
pub(super) fn no_session_is_left(case: &Case<'_>) -> Vec<Breach> {
    let ours = case
        .facts
        .sessions
        .iter()
        .filter(|session| session.application.starts_with("toolfleet"));
    let left = ours.filter_map(|session| {
        let forgotten =
            session.state.starts_with("idle in transaction") && session.for_ms > IDLE_MAX_MS;
        let outlives = case.facts.stopped && session.for_ms > OUTLIVES_MAX_MS;
        let what = format!(
            "{} is {:?} for {} ms",
            session.application, session.state, session.for_ms
        );
        (forgotten || outlives).then(|| at_large(SESSIONS, what))
    });
    left.collect()
}

/// Nothing that a tool had started is still there.
pub(super) fn no_process_is_left(case: &Case<'_>) -> Vec<Breach> {
    let left = case.facts.leftover_processes.iter();
    left.map(|process| at_large(PROCESSES, format!("left behind: {process}")))
        .collect()
}

/// A process ends by itself only when it was declared gone, or cannot start for want of a server.
pub(super) fn nobody_leaves_without_a_reason(case: &Case<'_>) -> Vec<Breach> {
    let strange = case.facts.exits.iter().filter(|exit| {
        let could_not_start =
            !exit.was_ready && exit.code.is_some() && struck_while_it_started(case, exit);
        !(exit.was_told && exit.code.is_some() || could_not_start)
    });
    strange
        .map(|exit| {
            let how = exit
                .code
                .map_or("a signal".to_owned(), |code| format!("code {code}"));
            at_large(LEAVES, format!("{} ended by itself, with {how}", exit.name))
        })
        .collect()
}

fn struck_while_it_started(case: &Case<'_>, exit: &Exit) -> bool {
    const STARTS: [How; 6] = [
        How::Ledger,
        How::ToolDatabase,
        How::Bus,
        How::Postgres,
        How::Nats,
        How::Stream,
    ];
    case.facts.injected.struck.iter().any(|struck| {
        STARTS.contains(&struck.how)
            && struck.member.is_none_or(|member| member == exit.member)
            && struck.from <= exit.at
            && struck.until >= exit.started - OUTLIVES_MAX_MS
    })
}

/// When everything has healed, a process that is told to leave does so in order and in time.
pub(super) fn everybody_leaves_when_told(case: &Case<'_>) -> Vec<Breach> {
    let stayed = case.facts.stayed.iter();
    stayed
        .map(|name| at_large(STAYS, format!("{name} did not leave")))
        .collect()
}

/// No process of the fleet has panicked.
pub(super) fn nobody_panicked(case: &Case<'_>) -> Vec<Breach> {
    lines_with(case, "panicked at")
        .filter(|(_, line)| !line.contains(ON_PURPOSE))
        .map(|(name, line)| at_large(PANICS, format!("{name}: {line}")))
        .collect()
}

/// No part of the fleet was refused what its user of NATS or its role in Postgres may not do. A worker tries to make the stream
/// of watermarks where there is none, and waits then. A service has its right to answer from a request, and loses it with the
/// connection.
pub(super) fn nobody_lacks_a_right(case: &Case<'_>) -> Vec<Breach> {
    let refused = ["Violation", "permission denied for"];
    let refused = refused.iter().flat_map(|what| lines_with(case, what));
    let expected = ["STREAM.CREATE.TOOLFLEET_GROUND", "/user:service-"];
    refused
        .filter(|(_, line)| !expected.iter().any(|known| line.contains(known)))
        .map(|(name, line)| at_large(RIGHTS, format!("{name}: {line}")))
        .collect()
}

/// No argument and no secret is in a log.
pub(super) fn logs_keep_secrets(case: &Case<'_>) -> Vec<Breach> {
    let Some(marker) = &case.facts.secret_marker else {
        return Vec::new();
    };
    lines_with(case, marker)
        .map(|(name, _)| {
            at_large(
                SECRETS,
                format!("a log of {name} holds what nobody may read"),
            )
        })
        .collect()
}

fn lines_with<'a>(case: &Case<'a>, what: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let lines = case
        .facts
        .logs
        .iter()
        .flat_map(|(name, log)| log.lines().map(move |line| (name.as_str(), line)));
    lines.filter(move |(_, line)| line.contains(what))
}
