//! Ports for servers.

use std::{io, net::TcpListener};

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
    const LOWEST: u128 = 20_000;
    const HIGHEST: u128 = 32_767;
    const TRIES_MAX: usize = 1_000;

    let candidates =
        (0..TRIES_MAX).map(|_| LOWEST + Uuid::new_v4().as_u128() % (HIGHEST - LOWEST + 1));
    let candidates =
        candidates.map(|port| u16::try_from(port).expect("the range ends below 65,536"));
    // Held together until all are found, so that they differ.
    let bound = candidates
        .filter_map(|port| TcpListener::bind(("127.0.0.1", port)).ok())
        .take(count);
    let bound: Vec<TcpListener> = bound.collect();
    if bound.len() < count {
        let problem =
            format!("no {count} ports between {LOWEST} and {HIGHEST} are free on 127.0.0.1");
        return Err(ServerError::Data(problem));
    }
    let ports: io::Result<Vec<u16>> = bound
        .iter()
        .map(|one| Ok(one.local_addr()?.port()))
        .collect();
    ports.map_err(ServerError::prepare("find a free port on 127.0.0.1"))
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
