//! Ports for servers.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
};

use uuid::Uuid;

use super::error::ServerError;

/// Ports on 127.0.0.1 that were free a moment ago, all different.
///
/// They are below the range that the kernel uses for outgoing connections. A client that reconnects to a port of that range
/// while its server restarts can be given that very port, and the server never gets it back.
///
/// # Errors
///
/// No port can be bound.
pub fn free_ports(count: usize) -> Result<Vec<u16>, ServerError> {
    let held = hold_ports(count)?;
    Ok(held.iter().map(|one| one.port).collect())
}

/// A port of 127.0.0.1 that no other program gets until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldPort {
    pub(crate) port: u16,
    _listener: TcpListener,
}

impl HeldPort {
    /// # Errors
    ///
    /// Another program has it, or this one may not have it.
    pub(crate) fn bind(port: u16) -> io::Result<Self> {
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        Ok(Self { port, _listener })
    }
}

/// Free ports as of [`free_ports`], for servers that start later.
///
/// # Errors
///
/// No port can be bound.
pub(crate) fn hold_ports(count: usize) -> Result<Vec<HeldPort>, ServerError> {
    const LOWEST: u128 = 20_000;
    const HIGHEST: u128 = 32_767;
    const TRIES_MAX: usize = 1_000;

    let candidates =
        (0..TRIES_MAX).map(|_| LOWEST + Uuid::new_v4().as_u128() % (HIGHEST - LOWEST + 1));
    let candidates =
        candidates.map(|port| u16::try_from(port).expect("the range ends below 65,536"));
    // Held together until all are found, so that they differ.
    let bound: Vec<HeldPort> = candidates
        .filter_map(|port| HeldPort::bind(port).ok())
        .take(count)
        .collect();
    if bound.len() < count {
        let problem =
            format!("no {count} ports between {LOWEST} and {HIGHEST} are free on 127.0.0.1");
        return Err(ServerError::Data(problem));
    }
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ_and_leave_outgoing_connections_theirs() {
        let mut ports = free_ports(50).unwrap();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 50);
        assert!(ports.iter().all(|port| (20_000..32_768).contains(port)));
    }
}
