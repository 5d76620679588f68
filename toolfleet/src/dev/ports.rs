//! The ports of a `dev`: the same in every run, as long as no other program has them.

use std::{io, path::Path};

use serde::{Deserialize, Serialize};

use super::private;
use crate::servers::{HeldPort, ServerError, hold_ports};

/// The ports that the first run on a data folder tries. They are below the range of outgoing connections, and are not the usual
/// ports of these servers: a program without an address must not find a `dev` by accident.
const FIRST: Ports = Ports {
    nats_port: 14_222,
    postgres_port: 15_432,
    http_port: 18_080,
    // The default of `toolfleet gateway`: what is written of it then works as it stands.
    gateway_port: 8_233,
};

/// The ports of the last run, as `ports.json` has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ports {
    pub(super) nats_port: u16,
    pub(super) postgres_port: u16,
    pub(super) http_port: u16,
    /// Of a release before it had one: that of a first run.
    #[serde(default = "gateway_port")]
    pub(super) gateway_port: u16,
}

const fn gateway_port() -> u16 {
    FIRST.gateway_port
}

impl Ports {
    /// The ports of the last run, or those that a first run tries; an unreadable file counts as none.
    pub(super) fn kept(file: &Path) -> (Self, IsKept) {
        let read = private::read(file).ok();
        let kept = read.and_then(|text| serde_json::from_slice(&text).ok());
        kept.map_or((FIRST, IsKept(false)), |kept| (kept, IsKept(true)))
    }

    /// Writes them down for the next run.
    pub(super) fn keep(&self, file: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        private::replace(file, &text)
    }
}

/// Whether there was a run before.
#[derive(Debug, Clone, Copy)]
pub(super) struct IsKept(bool);

/// The port for a server.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) port: u16,
    /// Whether another port may be taken instead.
    pub(super) may_move: bool,
    /// A note for the person: the port has changed.
    pub(super) note: Option<String>,
    /// Keeps other programs from the port until its server is started.
    held: Option<HeldPort>,
}

impl Choice {
    /// The port that the option names; a free one for 0; without an option the last one, or a free one where that is taken.
    ///
    /// # Errors
    ///
    /// No port is free, or the named one is not.
    pub(super) fn of(
        server: &str,
        option: &'static str,
        asked: Option<u16>,
        before: u16,
        kept: IsKept,
    ) -> Result<Self, ServerError> {
        match asked {
            Some(0) => Self::free(),
            Some(port) => Ok(Self {
                port,
                may_move: false,
                note: None,
                held: hold(option, port)?,
            }),
            None => match HeldPort::bind(before) {
                Ok(held) => Ok(Self::from(held)),
                Err(_taken) => {
                    let other = Self::free()?;
                    let note = kept.0.then(|| moved(server, before, other.port));
                    Ok(Self { note, ..other })
                }
            },
        }
    }

    /// One that nobody has asked for.
    fn free() -> Result<Self, ServerError> {
        let mut free = hold_ports(1)?;
        Ok(Self::from(free.remove(0)))
    }

    /// Frees the port for its server.
    pub(super) fn release(&mut self) {
        self.held = None;
    }
}

impl From<HeldPort> for Choice {
    fn from(held: HeldPort) -> Self {
        Self {
            port: held.port,
            may_move: true,
            note: None,
            held: Some(held),
        }
    }
}

/// Binds a port to keep it. Any other problem with the port, its server will report.
fn hold(option: &'static str, port: u16) -> Result<Option<HeldPort>, ServerError> {
    match HeldPort::bind(port) {
        Ok(held) => Ok(Some(held)),
        Err(problem) if problem.kind() == io::ErrorKind::AddrInUse => {
            Err(ServerError::PortTaken { option, port })
        }
        Err(problem) if problem.kind() == io::ErrorKind::PermissionDenied => {
            Err(ServerError::PortDenied { option, port })
        }
        Err(_other) => Ok(None),
    }
}

/// The note about a server whose port has changed.
pub(super) fn moved(server: &str, before: u16, now: u16) -> String {
    format!("port {before} is taken by another program: {server} is on port {now} from now on")
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;
    use crate::servers::free_ports;

    #[test]
    fn what_is_asked_for_goes_before_what_was_before_it() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken_port = taken.local_addr().unwrap().port();
        let free = free_ports(2).unwrap();
        let of = |asked, before| Choice::of("NATS", "--nats-port", asked, before, IsKept(true));
        let choose = |asked, before| of(asked, before).unwrap();

        let asked = choose(Some(free[0]), free[1]);
        assert_eq!((asked.port, asked.may_move), (free[0], false));
        let before = choose(None, free[1]);
        assert_eq!((before.port, before.may_move), (free[1], true));
        assert!(before.note.is_none());
        let other = choose(None, taken_port);
        assert!(other.port != taken_port && other.may_move);
        assert!(
            other.note.unwrap().contains(&taken_port.to_string()),
            "the old one is named"
        );
        assert!(choose(Some(0), free[1]).may_move);
        let refused = of(Some(taken_port), free[1]).unwrap_err().to_string();
        assert!(
            refused.contains("--nats-port") && refused.contains(&taken_port.to_string()),
            "{refused}"
        );
        // A first run had no ports before.
        let first = Choice::of("NATS", "--nats-port", None, taken_port, IsKept(false)).unwrap();
        assert!(first.note.is_none());
    }

    #[test]
    fn a_port_is_held_until_its_server_is_started() {
        let free = free_ports(2).unwrap();
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, free[1])).unwrap();
        let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        for (asked, before) in [
            (None, free[0]),
            (None, taken.local_addr().unwrap().port()),
            (Some(0), free[0]),
            (Some(free[0]), free[1]),
        ] {
            let mut choice =
                Choice::of("HTTP", "--http-port", asked, before, IsKept(false)).unwrap();
            assert!(bind(choice.port).is_err(), "{choice:?}");
            choice.release();
            assert!(bind(choice.port).is_ok(), "{choice:?}");
        }
    }

    #[test]
    fn a_run_begins_where_the_last_one_was() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ports.json");
        assert_eq!(Ports::kept(&file).0, FIRST);
        let ports = Ports {
            http_port: 20_001,
            ..FIRST
        };
        ports.keep(&file).unwrap();
        assert_eq!(Ports::kept(&file).0, ports);
        std::fs::write(&file, "{").unwrap();
        assert_eq!(Ports::kept(&file).0, FIRST);
    }
}
