//! What ended a process, as one sentence for a person: the place, the setting that leads there, and what to do.
//!
//! `destination` says where a server is, without its password. `postgres` and `nats` word the failures that they know, each as
//! a pure function of the error; `chain` writes all other errors, without repetition. Logs have chains only: their readers know
//! where the servers are.

mod chain;
mod destination;
mod nats;
mod postgres;

use std::{error::Error, io, iter};

pub use self::{
    chain::chain,
    destination::{Destination, Located, Origin, Servers},
};
use crate::{
    bus::BusError,
    config::ConfigError,
    process::start_error::StartError,
    store::{StoreError, server_check::Finding},
    telemetry::TelemetryError,
};

/// What went wrong, and the advice, which is empty where none is known.
pub fn explain(problem: &(dyn Error + 'static), servers: &Servers) -> Finding {
    let mut ledger = servers.ledger.as_ref();
    for cause in iter::successors(Some(problem), |&cause| cause.source()) {
        if let Some(located) = cause.downcast_ref::<Located>() {
            ledger = Some(&located.place);
        } else if let Some(problem) = cause.downcast_ref::<StoreError>() {
            return postgres::explain(problem, ledger);
        } else if let Some(problem) = cause.downcast_ref::<BusError>() {
            return nats::explain(problem, servers.bus.as_ref());
        } else if let Some(StartError::Bind { address, source }) = cause.downcast_ref() {
            return bind(address, source);
        } else if cause.is::<ConfigError>() || cause.is::<TelemetryError>() {
            // They name the setting and the advice; the errors around them say where they were found.
            return told(cause);
        }
    }
    told(problem)
}

fn told(problem: &(dyn Error + 'static)) -> Finding {
    Finding {
        what: chain(problem),
        advice: String::new(),
    }
}

fn bind(address: &std::net::SocketAddr, source: &io::Error) -> Finding {
    let (ip, port) = (address.ip(), address.port());
    let (what, advice) = match source.kind() {
        io::ErrorKind::AddrInUse => (
            format!("port {port} of {ip} (TOOLFLEET_HTTP) is taken"),
            "end what listens there, or name another port; 0 lets the system pick one",
        ),
        io::ErrorKind::AddrNotAvailable => (
            format!("{ip} (TOOLFLEET_HTTP) is not an address of this machine"),
            "name one of its own, such as 127.0.0.1, or 0.0.0.0 for all of them",
        ),
        io::ErrorKind::PermissionDenied => (
            format!("this user may not listen on port {port} (TOOLFLEET_HTTP)"),
            "name a port above 1023",
        ),
        _other => (
            format!(
                "{address} (TOOLFLEET_HTTP) cannot be listened on: {}",
                chain(source)
            ),
            "name another address",
        ),
    };
    Finding {
        what,
        advice: advice.to_owned(),
    }
}
