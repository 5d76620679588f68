//! A client of HTTP that sends what it is told, byte for byte, on a connection for each request. Every answer is held against the document
//! of the API.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub use crate::web_answer::WebAnswer;

use crate::described;

/// Where a gateway is.
#[derive(Debug, Clone, Copy)]
pub struct Web {
    /// Its address.
    pub address: SocketAddr,
}

/// A request to be sent.
#[derive(Debug, Clone)]
pub struct WebRequest {
    web: Web,
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Web {
    /// A POST of this body.
    pub fn post(self, path: &str, body: impl Into<Vec<u8>>) -> WebRequest {
        WebRequest {
            body: body.into(),
            ..self.request(&format!("POST {path} HTTP/1.1"))
        }
    }

    /// A GET.
    pub fn get(self, path: &str) -> WebRequest {
        self.request(&format!("GET {path} HTTP/1.1"))
    }

    /// A request with this first line.
    pub fn request(self, line: &str) -> WebRequest {
        WebRequest {
            web: self,
            line: line.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// The answer to these bytes; `None` where the connection ends without one.
    pub async fn bytes(self, bytes: &[u8]) -> Option<WebAnswer> {
        let mut connection = TcpStream::connect(self.address).await.ok()?;
        connection.write_all(bytes).await.ok()?;
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.ok()?;
        WebAnswer::read(&answer)
    }

    /// A connection on which these bytes were sent.
    ///
    /// # Panics
    ///
    /// The gateway takes none.
    pub async fn open(self, bytes: &[u8]) -> TcpStream {
        let mut connection = TcpStream::connect(self.address)
            .await
            .expect("the gateway takes a connection");
        connection
            .write_all(bytes)
            .await
            .expect("the gateway reads");
        connection
    }
}

impl WebRequest {
    /// With this header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// As it goes over the wire. A `Host` and a length are added where none is given.
    pub fn to_bytes(&self) -> Vec<u8> {
        let has = |name: &str| {
            self.headers
                .iter()
                .any(|(given, _)| given.eq_ignore_ascii_case(name))
        };
        let mut head = format!("{}\r\n", self.line);
        if !has("host") {
            head += &format!("Host: {}\r\n", self.web.address);
        }
        if !has("content-length") && !has("transfer-encoding") && !self.body.is_empty() {
            head += &format!("Content-Length: {}\r\n", self.body.len());
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "Connection: close\r\n\r\n";
        [head.as_bytes(), &self.body].concat()
    }

    /// Sends it.
    ///
    /// # Panics
    ///
    /// There is no answer.
    pub async fn send(self) -> WebAnswer {
        let sent = self.try_send().await;
        sent.unwrap_or_else(|| panic!("no answer to {}", self.line))
    }

    /// Sends it; `None` where there is no answer.
    ///
    /// # Panics
    ///
    /// The answer is none that the document of the API describes.
    pub async fn try_send(&self) -> Option<WebAnswer> {
        let answer = self.web.bytes(&self.to_bytes()).await?;
        let problem = described::problem(&self.line, &answer);
        assert!(problem.is_none(), "{}", problem.unwrap_or_default());
        Some(answer)
    }

    /// Sends it, and leaves the connection to the test.
    ///
    /// # Panics
    ///
    /// The gateway takes none.
    pub async fn open(self) -> TcpStream {
        self.web.open(&self.to_bytes()).await
    }
}
