//! Exit codes: a promise to scripts. The whole chain of an error's causes is searched, so the kind of a cause decides, not its
//! place.

use std::error::Error;

use fleet::{
    explain::{Servers, explain},
    process,
};
use fleet_client::AskError;

use super::{
    destinations::Named, not_looked_at::NotLookedAt, output::OutputError, plain::plain,
    usage::UsageError, variable::BadVariable,
};
use crate::{dev::DevEnded, servers::ServerError};

/// It worked.
pub const OK: u8 = 0;
pub(super) const FAILED: u8 = process::FAILED;
const USAGE: u8 = 2;
/// Its settings are wrong, or a server is unfit.
pub(super) const CONFIGURATION: u8 = process::CONFIGURATION;
pub(super) const UNREACHABLE: u8 = process::UNREACHABLE;

/// The exit code for this error.
pub fn exit_code(problem: &anyhow::Error) -> u8 {
    let any = |is_so: fn(&(dyn Error + 'static)) -> bool| problem.chain().any(is_so);
    if any(is_reader_gone) {
        OK
    } else if any(|cause| cause.is::<UsageError>()) {
        USAGE
    } else if any(|cause| {
        cause.is::<BadVariable>() || is_no_server(cause) || process::is_configuration(cause)
    }) {
        CONFIGURATION
    } else if any(is_unreachable) {
        UNREACHABLE
    } else {
        FAILED
    }
}

/// The error for a person: what is wrong, where, and what to do, with settings under the names by which they were given.
/// Further lines, such as those of a server's log, are indented.
pub fn describe(problem: &anyhow::Error, servers: &Servers, named: &Named) -> String {
    let told = named.rename(&explain(problem.as_ref(), servers).to_string());
    let lines: Vec<String> = told.lines().map(plain).collect();
    lines.join("\n  ")
}

/// The reader of our output has closed it, as in `toolfleet calls list | head -1`.
fn is_reader_gone(cause: &(dyn Error + 'static)) -> bool {
    matches!(cause.downcast_ref(), Some(OutputError::ReaderGone))
}

/// This machine has no fit server program, a variable names an unfit one, or this user may not have its port.
fn is_no_server(cause: &(dyn Error + 'static)) -> bool {
    matches!(
        cause.downcast_ref(),
        Some(ServerError::Program(_) | ServerError::PortDenied { .. })
    )
}

fn is_unreachable(cause: &(dyn Error + 'static)) -> bool {
    let is_alone = matches!(cause.downcast_ref(), Some(AskError::NoResponders { .. }));
    is_alone
        || cause.is::<DevEnded>()
        || cause.is::<NotLookedAt>()
        || process::is_unreachable(cause)
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::anyhow;
    use fleet::{
        bus::BusError,
        config::ConfigError,
        ids::LedgerId,
        owner::{ForeignLedger, LedgerName},
        store::StoreError,
        telemetry::TelemetryError,
    };
    use uuid::Uuid;

    use super::*;

    fn lost() -> StoreError {
        let source = sqlx::Error::Io(io::ErrorKind::ConnectionRefused.into());
        StoreError::Unavailable {
            doing: "connect",
            source,
        }
    }

    #[test]
    fn the_kind_of_trouble_decides_however_deep_it_lies() {
        let wrong = || ConfigError(vec!["A must be B".to_owned()]);
        let silent = || BusError::Unavailable {
            doing: "connect to NATS",
            source: None,
        };
        let foreign = || {
            let name = LedgerName {
                id: LedgerId(Uuid::nil()),
                place: None,
            };
            BusError::ForeignLedger(Box::new(ForeignLedger {
                prefix: "toolfleet".parse().expect("a prefix"),
                theirs: name.clone(),
                ours: name,
            }))
        };
        let cases: Vec<(anyhow::Error, u8)> = vec![
            (anyhow!("anything"), FAILED),
            (anyhow!(UsageError("no".into())), USAGE),
            (anyhow!(wrong()), CONFIGURATION),
            (
                anyhow!(::dispatcher::RunError::from(wrong())),
                CONFIGURATION,
            ),
            (
                anyhow!(::worker::RunError::from(wrong())).context("run a worker"),
                CONFIGURATION,
            ),
            (
                anyhow!(StoreError::UnknownSchema("older".into())),
                CONFIGURATION,
            ),
            (
                anyhow!(StoreError::UnsafeServer("fsync is off".into())),
                CONFIGURATION,
            ),
            (
                anyhow!(BusError::UnfitServer("too old".into())),
                CONFIGURATION,
            ),
            (anyhow!(BusError::BadUrl), CONFIGURATION),
            (anyhow!(::worker::RunError::from(foreign())), CONFIGURATION),
            (anyhow!(TelemetryError::Endpoint), CONFIGURATION),
            (anyhow!(::worker::RunError::from(lost())), UNREACHABLE),
            (
                anyhow!(::dispatcher::RunError::from(silent())).context("run"),
                UNREACHABLE,
            ),
            (
                anyhow!(AskError::NoResponders {
                    subject: "toolfleet.v1".into(),
                }),
                UNREACHABLE,
            ),
            (anyhow!(OutputError::ReaderGone), OK),
            // A broken pipe to a server is not a closed output.
            (anyhow!(io::Error::from(io::ErrorKind::BrokenPipe)), FAILED),
        ];
        for (problem, expected) in cases {
            assert_eq!(exit_code(&problem), expected, "{problem:?}");
        }
    }

    #[test]
    fn a_description_has_the_causes_and_cannot_steer_a_terminal() {
        let problem = anyhow!("its log says:\nup\u{1b}[2J\u{202e}").context("start");
        assert_eq!(
            describe(&problem, &Servers::default(), &Named::default()),
            "start: its log says:\n  up\\u{1b}[2J\\u{202e}"
        );
    }
}
