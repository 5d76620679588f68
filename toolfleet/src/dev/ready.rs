//! Waits until dispatchers, workers and gateways report that they are ready.

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::bail;
use fleet::http::INSTANCE;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};
use uuid::Uuid;

use super::state::{Board, Role};
use crate::servers::process;

/// How long all of them together may take to be ready.
const READY_MAX: Duration = Duration::from_secs(30);
/// A process that has ended this often before it was ready will not get ready.
const DEATHS_MAX: u32 = 3;
const POLL: Duration = Duration::from_millis(20);

/// A process that is waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Awaited {
    pub(crate) role: Role,
    pub(crate) address: SocketAddr,
    /// The id with which it identifies itself.
    pub(crate) instance: Uuid,
}

/// Waits until each answers at `/readyz` that it is ready, with its own id.
///
/// # Errors
///
/// One keeps ending, or is not ready in time; the message quotes its log.
pub(crate) async fn wait_for_all(
    processes: &[Awaited],
    board: &Board,
    log: impl Fn(Role) -> std::path::PathBuf,
) -> anyhow::Result<()> {
    let until = Instant::now() + READY_MAX;
    for process in processes {
        let Awaited { role, address, .. } = *process;
        while !is_ready(address, process.instance).await {
            let quote =
                |log: &Path| format!("its log {} says:\n{}", log.display(), process::tail(log, 0));
            if board.deaths(role) >= DEATHS_MAX {
                bail!(
                    "{role} ended {DEATHS_MAX} times instead of getting ready on {address}; {}",
                    quote(&log(role))
                );
            }
            if Instant::now() > until {
                bail!(
                    "{role} is not ready on {address} after {READY_MAX:?}; {}",
                    quote(&log(role))
                );
            }
            sleep(POLL).await;
        }
    }
    Ok(())
}

/// Whether the process with this id answers at `/readyz` that it is ready; another program may listen there.
pub(crate) async fn is_ready(address: SocketAddr, instance: Uuid) -> bool {
    let answer = timeout(Duration::from_secs(2), head(address)).await;
    matches!(answer, Ok(Ok(head)) if says_ready(&head, instance))
}

fn says_ready(head: &str, instance: Uuid) -> bool {
    let mut lines = head.lines();
    let is_ready = lines
        .next()
        .is_some_and(|status| status.starts_with("HTTP/1.1 200"));
    let instance = instance.to_string();
    is_ready
        && lines.take_while(|line| !line.is_empty()).any(|line| {
            line.split_once(':').is_some_and(|(name, value)| {
                name.eq_ignore_ascii_case(INSTANCE) && value.trim() == instance
            })
        })
}

/// The head of the answer: a few lines.
async fn head(address: SocketAddr) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    connection.take(1024).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_process_is_ready() {
        let (ours, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let head = |status: &str, name: Uuid| {
            format!("HTTP/1.1 {status}\r\nToolfleet-Instance: {name}\r\n\r\nready\n")
        };
        assert!(says_ready(&head("200 OK", ours), ours));
        assert!(!says_ready(&head("200 OK", other), ours));
        assert!(!says_ready(&head("503 Service Unavailable", ours), ours));
        let in_body = format!("HTTP/1.1 200 OK\r\n\r\ntoolfleet-instance: {ours}\n");
        assert!(!says_ready(&in_body, ours), "a body is anyone's text");
        assert!(!says_ready("", ours));
    }
}
