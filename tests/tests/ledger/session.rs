//! The connection of a session, as the kernel has it.

use std::{fs, os::fd::OwnedFd};

use fleet_tests::postgres::Database;
use rustix::{
    net::{getpeername, sockopt::tcp_nodelay},
    process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
};

/// Without the option a batch of several segments waits up to 40 ms for an acknowledgement.
#[tokio::test]
async fn a_session_sends_what_it_has_at_once() {
    let database = Database::fresh().await;
    let session = database.postgres.connect().await.unwrap();
    let delaying: Vec<bool> = sockets_to(port_of(&database.url))
        .iter()
        .map(|socket| !tcp_nodelay(socket).unwrap())
        .collect();
    assert!(!delaying.is_empty(), "no socket leads to Postgres");
    assert!(!delaying.contains(&true), "{delaying:?}");
    drop(session);
}

fn port_of(url: &str) -> u16 {
    let (front, _) = url.rsplit_once('/').unwrap();
    front.rsplit_once(':').unwrap().1.parse().unwrap()
}

/// Copies of this process's sockets that are connected to the port.
fn sockets_to(port: u16) -> Vec<OwnedFd> {
    let this = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let numbers = fs::read_dir("/proc/self/fd").unwrap();
    numbers
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .filter_map(|number| pidfd_getfd(&this, number, PidfdGetfdFlags::empty()).ok())
        .filter(|socket| leads_to(socket, port))
        .collect()
}

fn leads_to(socket: &OwnedFd, port: u16) -> bool {
    let peer = getpeername(socket).ok().flatten();
    let peer = peer.and_then(|address| std::net::SocketAddr::try_from(address).ok());
    peer.is_some_and(|address| address.port() == port)
}
