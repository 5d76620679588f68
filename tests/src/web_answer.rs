//! An answer over HTTP, as it came.

use serde_json::Value;

/// An answer as it came.
#[derive(Debug, Clone)]
pub struct WebAnswer {
    /// The status.
    pub status: u16,
    /// The lines of its head.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl WebAnswer {
    /// The answer in these bytes.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?;
        let mut lines = head.split("\r\n");
        let status: u16 = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        if status == 100 {
            return Self::read(&bytes[end + 4..]);
        }
        let headers = lines.filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_owned(), value.trim().to_owned()))
        });
        Some(Self {
            status,
            headers: headers.collect(),
            body: bytes[end + 4..].to_vec(),
        })
    }

    /// A header's value, or nothing.
    pub fn header(&self, name: &str) -> &str {
        let found = self
            .headers
            .iter()
            .find(|(given, _)| given.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }

    /// Its body as JSON; `null` where it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Its body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The code of its error, or nothing. An error of JSON-RPC, whose own code is a number, has ours in its data.
    pub fn code(&self) -> String {
        let error = &self.json()["error"];
        let code = match error["code"].is_number() {
            true => &error["data"]["code"],
            false => &error["code"],
        };
        code.as_str().unwrap_or_default().to_owned()
    }
}
