//! The meaning of a failure of NATS, and what to do about it.

use std::{error::Error, io, iter};

use async_nats::{ConnectError, ConnectErrorKind};

use super::{chain::chain, destination::Destination};
use crate::{bus::BusError, store::server_check::Finding};

/// Words it. Without a destination, the place is left out.
pub(super) fn explain(problem: &BusError, at: Option<&Destination>) -> Finding {
    let server = at.map_or_else(
        || "nats-server".to_owned(),
        |at| format!("nats-server at {at}"),
    );
    let setting = at.map_or("NATS_URL", |at| at.setting.as_str());
    let (what, advice) = match problem {
        BusError::BadUrl => (
            format!("{setting} is not a nats:// URL"),
            "write nats://user:password@host:port, with %40 for an @ in the password".to_owned(),
        ),
        BusError::UnfitServer(what) => {
            let what = what.strip_prefix("nats-server").unwrap_or(what);
            (format!("{server}{what}"), String::new())
        }
        BusError::Denied { doing, what } => (
            format!("{server} does not allow {} to {doing}: {what}", user(at)),
            format!("permit it (deploy/README.md), or name another user in {setting}"),
        ),
        // They contain their own advice.
        BusError::BadLogin(_)
        | BusError::ForeignLedger(_)
        | BusError::UnreadableWatermark { .. } => (problem.to_string(), String::new()),
        BusError::Unavailable { doing, source } => {
            let source = source
                .as_deref()
                .map(|source| source as &(dyn Error + 'static));
            return away(&server, setting, at, doing, source);
        }
    };
    Finding { what, advice }
}

fn away(
    server: &str,
    setting: &str,
    at: Option<&Destination>,
    doing: &str,
    source: Option<&(dyn Error + 'static)>,
) -> Finding {
    let causes = || iter::successors(source, |&cause| cause.source());
    let connecting = causes().find_map(|cause| cause.downcast_ref::<ConnectError>());
    let system = causes().find_map(|cause| cause.downcast_ref::<io::Error>());
    let text = source.map(chain).unwrap_or_default();
    let correct = at.map_or_else(|| format!("correct {setting}"), Destination::correction);
    let (what, advice) = match connecting.map(ConnectError::kind) {
        Some(ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication) => {
            let who = at.and_then(|at| at.role.as_deref());
            let who = who.map_or_else(
                || "a connection without a user or with this token".to_owned(),
                |who| format!("the user {who} or the password"),
            );
            (
                format!("{server} does not take {who}"),
                format!("{correct}: nats://user:password@host:port"),
            )
        }
        Some(ConnectErrorKind::Dns) => (no_host(at, setting), "correct the host".to_owned()),
        Some(_) if text.contains("failed to lookup address") => {
            (no_host(at, setting), "correct the host".to_owned())
        }
        Some(_) if system.is_some_and(|it| it.kind() == io::ErrorKind::ConnectionRefused) => (
            format!("{server} is away: connection refused"),
            at.map_or_else(
                || format!("start it, or correct {setting}"),
                Destination::revival,
            ),
        ),
        Some(ConnectErrorKind::Tls) => (
            format!("{server} and this program find no common TLS: {text}"),
            "look at its certificate".to_owned(),
        ),
        Some(ConnectErrorKind::TimedOut) => silent(server),
        Some(_other) => (
            format!(
                "what answers at {} is not nats-server, or closed the connection",
                place(at)
            ),
            format!("{correct}, or look at its log"),
        ),
        None if source.is_none() || text.contains("elapsed") || text.contains("timed out") => {
            let (what, advice) = silent(server);
            let what = match doing {
                "connect to NATS" => what,
                doing => format!("{what} ({doing})"),
            };
            (what, advice)
        }
        None => (
            format!("{server} could not {doing}: {text}"),
            "look at its log".to_owned(),
        ),
    };
    Finding { what, advice }
}

fn silent(server: &str) -> (String, String) {
    (
        format!("{server} does not answer"),
        "see whether the server hangs, a firewall stands between, or the address is another's"
            .to_owned(),
    )
}

fn no_host(at: Option<&Destination>, setting: &str) -> String {
    let host = at.and_then(|at| at.address.rsplit_once(':'));
    let host = host.map_or("the host", |(host, _port)| host);
    format!("{host} ({setting}) is not the name of a machine")
}

fn user(at: Option<&Destination>) -> String {
    match at.and_then(|at| at.role.as_deref()) {
        Some(user) => format!("user {user}"),
        None => "this user".to_owned(),
    }
}

fn place(at: Option<&Destination>) -> String {
    at.map_or_else(|| "this address".to_owned(), ToString::to_string)
}
