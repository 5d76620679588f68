//! Waiting until dispatchers and workers say that they are ready.

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::bail;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use super::state::{Board, Role};
use crate::servers::process;

/// How long everything together may take to get ready.
const READY_MAX: Duration = Duration::from_secs(30);
/// A process that has ended this often before it was ready will not get ready.
const DEATHS_MAX: u32 = 3;
const POLL: Duration = Duration::from_millis(20);

/// Waits until `/readyz` of each of them answers 200.
///
/// # Errors
///
/// One keeps ending, or is not ready in time; the message quotes its log.
pub(crate) async fn wait_for_all(
    addresses: &[(Role, SocketAddr)],
    board: &Board,
    log: impl Fn(Role) -> std::path::PathBuf,
) -> anyhow::Result<()> {
    let until = Instant::now() + READY_MAX;
    for (role, address) in addresses {
        while !is_ready(*address).await {
            let quote =
                |log: &Path| format!("its log {} says:\n{}", log.display(), process::tail(log, 0));
            if board.deaths(*role) >= DEATHS_MAX {
                bail!(
                    "{role} ended {DEATHS_MAX} times instead of getting ready; {}",
                    quote(&log(*role))
                );
            }
            if Instant::now() > until {
                bail!(
                    "{role} is not ready after {READY_MAX:?}; {}",
                    quote(&log(*role))
                );
            }
            sleep(POLL).await;
        }
    }
    Ok(())
}

/// Whether a process answers at `/readyz` that it is ready.
pub(crate) async fn is_ready(address: SocketAddr) -> bool {
    let answer = timeout(Duration::from_secs(2), status_line(address)).await;
    matches!(answer, Ok(Ok(line)) if line.starts_with("HTTP/1.1 200"))
}

async fn status_line(address: SocketAddr) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    connection.take(64).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
