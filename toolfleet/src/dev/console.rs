//! The link with which the person who has started `dev` signs in to the console: once, so that a line of a terminal gives nobody
//! else a way in.

use std::{net::SocketAddr, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::state::DevState;

/// How long the gateway may take to make it.
const MADE_MAX: Duration = Duration::from_secs(3);
/// The most bytes of its answer.
const ANSWER_MAX: u64 = 4_096;

/// Where the console is: a link that signs in once, or, where the gateway makes none, its plain address. `None`: there is no gateway.
pub(super) async fn link(state: &DevState) -> Option<String> {
    let (url, token) = (state.gateway_url.as_ref()?, state.gateway_token.as_ref()?);
    let path = match timeout(MADE_MAX, made(url, token)).await {
        Ok(Ok(answer)) => path(&answer),
        Ok(Err(_)) | Err(_) => None,
    };
    Some(format!("{url}{}", path.as_deref().unwrap_or("/console")))
}

/// The answer to who has the token and wants a link.
async fn made(url: &str, token: &str) -> std::io::Result<String> {
    let place = url.strip_prefix("http://").unwrap_or(url);
    let address: SocketAddr = place.parse().map_err(std::io::Error::other)?;
    let mut connection = TcpStream::connect(address).await?;
    let request = format!(
        "POST /console/links HTTP/1.1\r\nHost: {place}\r\nAuthorization: Bearer {token}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    connection.take(ANSWER_MAX).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn path(answer: &str) -> Option<String> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let body: Value = serde_json::from_str(body).ok()?;
    let path = body["path"].as_str()?;
    let is_made = head.starts_with("HTTP/1.1 200") && path.starts_with("/console/");
    is_made.then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_path_of_the_console_is_a_link() {
        let answer = |status: &str, path: &str| {
            format!("HTTP/1.1 {status}\r\nA: b\r\n\r\n{{\"path\":\"{path}\"}}")
        };
        assert_eq!(
            path(&answer("200 OK", "/console/enter/x")).as_deref(),
            Some("/console/enter/x")
        );
        assert_eq!(path(&answer("401 Unauthorized", "/console/enter/x")), None);
        assert_eq!(path(&answer("200 OK", "//evil.example")), None);
        assert_eq!(path("HTTP/1.1 200 OK\r\n\r\n"), None);
    }
}
