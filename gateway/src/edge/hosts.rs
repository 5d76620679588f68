//! By which names a gateway may be asked for, and which web pages may ask: the headers `Host` and `Origin`.
//!
//! A page of a stranger can let its own name lead to this machine, and its visitors' browsers then ask here as if they were at
//! that page (DNS rebinding). They send the stranger's name as `Host`, so only names that are expected are answered, whatever
//! else a request says.

use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use axum::http::{
    HeaderMap, HeaderName, Uri, Version,
    header::{HOST, ORIGIN},
};

/// A name or address of this gateway, in lower case and without a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName(String);

/// A web page's scheme, host and port, as browsers send it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebOrigin(String);

/// What is expected.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    hosts: Vec<HostName>,
    origins: Vec<WebOrigin>,
}

/// Why a request is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unexpected {
    /// It asks for another host, for none, or for two.
    Host,
    /// It comes from a web page that may not ask.
    Origin,
}

/// Where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AskedFrom<'a> {
    /// A program, or a page of the gateway's own.
    Own,
    /// A page of this origin, which is in the list.
    Page(&'a str),
}

impl HostName {
    /// A name or address, without a port; an IPv6 address with or without brackets.
    pub fn read(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        if text
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_ipv6())
        {
            return Some(Self(format!("[{text}]")));
        }
        let is_literal = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .is_some_and(|inner| inner.parse::<IpAddr>().is_ok_and(|it| it.is_ipv6()));
        let is_name = |text: &str| {
            let label = |label: &str| {
                !label.is_empty()
                    && label
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            };
            text.len() <= 253 && text.split('.').all(label)
        };
        (is_literal || is_name(&text)).then_some(Self(text))
    }

    fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(four) => Self(four.to_string()),
            IpAddr::V6(six) => Self(format!("[{six}]")),
        }
    }

    /// The name in a `Host`, which may have a port.
    fn of_header(text: &str) -> Option<Self> {
        let (name, port) = match text.rsplit_once(':') {
            // A colon inside brackets is the address's own.
            Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
            _ => (text, None),
        };
        let is_port = |port: &str| {
            let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            digits && port.parse::<u16>().is_ok()
        };
        if !port.is_none_or(is_port) || (name.contains(':') && !name.starts_with('[')) {
            return None;
        }
        Self::read(name).filter(|read| read.0.eq_ignore_ascii_case(name))
    }
}

impl WebOrigin {
    /// `http://` or `https://`, a host, and a port where it is not the usual one; nothing behind it.
    pub fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        let host = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"))?;
        HostName::of_header(host)?;
        Some(Self(text.to_ascii_lowercase()))
    }
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text).ok_or_else(|| {
            "write a name or an address without a port, such as tools.example".to_owned()
        })
    }
}

impl FromStr for WebOrigin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text).ok_or_else(|| {
            "write scheme and host, such as https://app.example or http://localhost:3000".to_owned()
        })
    }
}

impl Expected {
    /// Of a gateway that listens there.
    pub(crate) fn new(listen: SocketAddr, hosts: &[HostName], origins: &[WebOrigin]) -> Self {
        let mut all = ["localhost", "127.0.0.1", "[::1]"]
            .map(|name| HostName(name.to_owned()))
            .to_vec();
        if !listen.ip().is_unspecified() {
            all.push(HostName::of(listen.ip()));
        }
        all.extend_from_slice(hosts);
        Self {
            hosts: all,
            origins: origins.to_vec(),
        }
    }

    /// Whether a request may be answered, by what stands before its body. Only its host and its origin count.
    ///
    /// # Errors
    ///
    /// It may not.
    pub(crate) fn check<'a>(
        &self,
        version: Version,
        uri: &Uri,
        headers: &'a HeaderMap,
    ) -> Result<AskedFrom<'a>, Unexpected> {
        let host = one(headers, &HOST).map_err(|_twice| Unexpected::Host)?;
        let in_line = uri.authority().map(|authority| authority.as_str());
        // Before HTTP/1.1 a request could leave it out.
        let named = match (host, in_line) {
            (Some(host), _) => host,
            (None, Some(in_line)) if version < Version::HTTP_11 => in_line,
            (None, _) => return Err(Unexpected::Host),
        };
        if !self.knows(named) || !in_line.is_none_or(|in_line| self.knows(in_line)) {
            return Err(Unexpected::Host);
        }
        match one(headers, &ORIGIN).map_err(|_twice| Unexpected::Origin)? {
            None => Ok(AskedFrom::Own),
            Some(origin) if is_of(origin, named) => Ok(AskedFrom::Own),
            Some(origin) if self.origins.iter().any(|allowed| allowed.0 == origin) => {
                Ok(AskedFrom::Page(origin))
            }
            Some(_other) => Err(Unexpected::Origin),
        }
    }

    fn knows(&self, named: &str) -> bool {
        HostName::of_header(named).is_some_and(|name| self.hosts.contains(&name))
    }
}

/// Whether an origin is the page of this host itself. A proxy before the gateway may have taken off the TLS.
fn is_of(origin: &str, host: &str) -> bool {
    let rest = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    rest == Some(host)
}

/// The value of a header that may stand there once; an error where it stands there twice, or is no text.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_no_text| ()),
        (Some(_), Some(_)) => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected() -> Expected {
        Expected::new(
            "127.0.0.1:8233".parse().unwrap(),
            &[HostName::read("tools.example").unwrap()],
            &[WebOrigin::read("https://app.example").unwrap()],
        )
    }

    fn check(uri: &str, lines: &[(HeaderName, &str)]) -> Result<bool, Unexpected> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, value.parse().unwrap());
        }
        let uri: Uri = uri.parse().unwrap();
        let checked = expected().check(Version::HTTP_11, &uri, &headers);
        checked.map(|from| from != AskedFrom::Own)
    }

    #[test]
    fn only_names_that_are_expected_are_answered() {
        for host in [
            "localhost",
            "LOCALHOST:8233",
            "127.0.0.1",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:8233",
            "tools.example",
            "Tools.Example:443",
        ] {
            assert_eq!(check("/v1/tools", &[(HOST, host)]), Ok(false), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1:80@evil",
            "127.0.0.1@evil",
            "127.0.0.1.evil.example",
            "evil.example:127.0.0.1",
            "localhost:",
            "localhost:x",
            "localhost:99999",
            "localhost.",
            "0.0.0.0",
            "::1",
            "127.1",
            "2130706433",
            "",
        ] {
            let checked = check("/v1/tools", &[(HOST, host)]);
            assert_eq!(checked, Err(Unexpected::Host), "{host}");
        }
        assert_eq!(check("/v1/tools", &[]), Err(Unexpected::Host));
        let twice = [(HOST, "localhost"), (HOST, "localhost")];
        assert_eq!(check("/", &twice), Err(Unexpected::Host));
        // The line names another host than the header.
        let proxied = check("http://evil.example/v1/tools", &[(HOST, "localhost")]);
        assert_eq!(proxied, Err(Unexpected::Host));
    }

    #[test]
    fn only_pages_that_are_listed_and_own_pages_ask() {
        let from = |origin| {
            let lines = [(HOST, "localhost:8233"), (ORIGIN, origin)];
            check("/v1/tools", &lines)
        };
        assert_eq!(from("http://localhost:8233"), Ok(false));
        assert_eq!(from("https://app.example"), Ok(true));
        for other in [
            "null",
            "https://app.example:444",
            "http://app.example",
            "https://app.example.evil",
            "HTTPS://APP.EXAMPLE",
            "http://localhost",
            "http://localhost:3000",
            "http://evil.example",
            "",
        ] {
            assert_eq!(from(other), Err(Unexpected::Origin), "{other}");
        }
        let twice = [
            (HOST, "localhost"),
            (ORIGIN, "https://app.example"),
            (ORIGIN, "https://app.example"),
        ];
        assert_eq!(check("/", &twice), Err(Unexpected::Origin));
    }

    #[test]
    fn every_address_is_no_name_but_a_single_one_is() {
        let hosts = |listen: &str| Expected::new(listen.parse().unwrap(), &[], &[]).hosts;
        assert_eq!(hosts("0.0.0.0:80").len(), 3);
        assert!(hosts("10.0.0.7:80").contains(&HostName("10.0.0.7".to_owned())));
    }
}
