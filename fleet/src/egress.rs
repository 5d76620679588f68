//! **May a tool's request go there?** Every address is judged, in whatever form it hides another one.
//!
//! A worker that goes out only to public addresses cannot be led to what its machine alone reaches: services on it, its
//! network, the cloud's metadata. Pure; the worker resolves names, asks here, and connects to what was judged.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use reqwest::Url;

/// How far requests of tools may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Reach {
    /// Anywhere.
    #[default]
    Any,
    /// To public addresses and to the exceptions.
    Public,
}

/// Names, addresses and networks that are reached whatever they are: `billing.internal,10.1.0.0/16,fd00::7`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exceptions(Vec<Exception>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Exception {
    /// A host by its whole name.
    Name(String),
    /// Addresses that begin with these bits.
    Network(IpAddr, u8),
}

/// Why it is not a list of exceptions.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{0:?} is no name, address or network; write names and networks with commas between them, such as billing.internal,10.1.0.0/16"
)]
pub struct NotAnException(String);

/// Where requests of tools may go.
#[derive(Debug, Clone, Default)]
pub struct Egress {
    reach: Reach,
    exceptions: Exceptions,
}

impl Egress {
    /// With these exceptions, which mean something where the reach is not [`Reach::Any`].
    pub const fn new(reach: Reach, exceptions: Exceptions) -> Self {
        Self { reach, exceptions }
    }

    /// Whether a request goes anywhere, so that nothing has to be judged.
    pub fn is_open(&self) -> bool {
        self.reach == Reach::Any
    }

    /// Whether a request to this host may go to this address, which its name was resolved to or which it is itself.
    pub fn allows(&self, host: &str, address: IpAddr) -> bool {
        self.is_open() || is_public(address) || self.exceptions.have(host, address)
    }

    /// The address that the URL of a tool names instead of a host, where requests may not go to it. Of a template only the
    /// beginning is looked at, which is literal.
    pub fn forbidden_literal(&self, url: &str) -> Option<IpAddr> {
        let (host, address) = literal(url)?;
        (!self.allows(&host, address)).then_some(address)
    }
}

impl Exceptions {
    fn have(&self, host: &str, address: IpAddr) -> bool {
        let address = embedded(address).map_or(address, IpAddr::V4);
        self.0.iter().any(|exception| match exception {
            Exception::Name(name) => host.trim_end_matches('.').eq_ignore_ascii_case(name),
            Exception::Network(network, bits) => begins_with(address, *network, *bits),
        })
    }
}

impl FromStr for Exceptions {
    type Err = NotAnException;

    fn from_str(text: &str) -> Result<Self, NotAnException> {
        let parts = text.split(',').map(str::trim).filter(|one| !one.is_empty());
        parts
            .map(Exception::read)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl Exception {
    fn read(text: &str) -> Result<Self, NotAnException> {
        let wrong = || NotAnException(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        if let Ok(address) = address.parse::<IpAddr>() {
            let all = if address.is_ipv4() { 32 } else { 128 };
            let bits = bits.map_or(Ok(all), str::parse).ok();
            let bits = bits.filter(|bits| *bits <= all).ok_or_else(wrong)?;
            return Ok(Self::Network(address, bits));
        }
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        // What ends in a number is an address in a spelling of its own.
        let last = text.rsplit('.').next().unwrap_or_default();
        let is_name = bits.is_none()
            && text.bytes().all(letter)
            && !last.is_empty()
            && !last.starts_with(|c: char| c.is_ascii_digit());
        is_name
            .then(|| Self::Name(text.to_ascii_lowercase()))
            .ok_or_else(wrong)
    }
}

/// The host of a URL, and the address that it is; `None` where it is a name. `2130706433`, `0x7f.1` and `0177.0.0.1` are
/// `127.0.0.1`, as they are to whoever sends the request.
fn literal(url: &str) -> Option<(String, IpAddr)> {
    let literal = url.split(['{', '}']).next()?;
    let url = Url::parse(literal).ok()?;
    let host = url.host_str()?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), bare.parse().ok()?))
}

fn begins_with(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let (address, network, all) = match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => (
            u128::from(address.to_bits()),
            u128::from(network.to_bits()),
            32,
        ),
        (IpAddr::V6(address), IpAddr::V6(network)) => (address.to_bits(), network.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    bits == 0 || (address ^ network) >> (all - u32::from(bits)) == 0
}

/// Whether anybody on the Internet reaches it, so that nothing is behind it that this machine alone reaches.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(six) => match embedded(address) {
            Some(four) => is_public_v4(four),
            None => is_public_v6(six),
        },
    }
}

/// IPv4 networks that are not public: IANA's special purpose registry, and where clouds answer their own machines.
const NOT_PUBLIC_V4: [(Ipv4Addr, u8); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Link-local, and the metadata of most clouds.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // Azure's wire server.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    let inside = |(network, bits): &(Ipv4Addr, u8)| {
        begins_with(IpAddr::V4(address), IpAddr::V4(*network), *bits)
    };
    !NOT_PUBLIC_V4.iter().any(inside)
}

/// IPv6 networks within `2000::/3` that are not public.
const NOT_PUBLIC_V6: [(Ipv6Addr, u8); 3] = [
    // Protocols of the IETF: Teredo, ORCHID and others.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Nothing outside of `2000::/3` is: loopback, link-local, site-local, unique local, multicast, local translation.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let inside =
        |network: Ipv6Addr, bits: u8| begins_with(IpAddr::V6(address), IpAddr::V6(network), bits);
    inside(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3)
        && !NOT_PUBLIC_V6
            .iter()
            .any(|(network, bits)| inside(*network, *bits))
}

/// The IPv4 address that a packet to this address ends at: mapped, compatible, translated (NAT64, SIIT), 6to4, ISATAP.
fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else {
        return None;
    };
    let [a, b, c, d, e, f, g, h] = address.segments();
    let four = |high: u16, low: u16| Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low));
    match [a, b, c, d, e, f] {
        // `::` and `::1` are addresses of their own.
        [0, 0, 0, 0, 0, 0] if g != 0 => Some(four(g, h)),
        [0, 0, 0, 0, 0, 0xffff]
        | [0, 0, 0, 0, 0xffff, 0]
        | [0x64, 0xff9b, 0, 0, 0, 0]
        | [_, _, _, _, 0 | 0x200, 0x5efe] => Some(four(g, h)),
        [0x2002, high, low, ..] => Some(four(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public(exceptions: &str) -> Egress {
        Egress::new(Reach::Public, exceptions.parse().unwrap())
    }

    /// Spellings of addresses that a worker must not reach.
    const FORBIDDEN: &[&str] = &[
        "http://127.0.0.1/",
        "http://127.1/",
        "http://127.0.1/",
        "http://127.255.255.254:8080/x",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://0177.0.0.1/",
        "http://017700000001/",
        "http://0/",
        "http://0.0.0.0/",
        "http://127.0.0.1./",
        "http://%31%32%37.0.0.1/",
        "http://１２７.0.0.1/",
        "http://127。0。0。1/",
        "http://10.0.0.1/",
        "http://10.255.0.1/{id}",
        "http://012.0.0.1/",
        "http://172.16.0.1/",
        "http://172.31.255.255/",
        "http://192.168.1.1/",
        "http://0xc0.0xa8.1.1/",
        "http://3232235777/",
        "http://100.64.0.1/",
        "http://100.100.100.200/latest/meta-data",
        "http://169.254.169.254/latest/meta-data",
        "http://169.254.43518/",
        "http://0xa9fea9fe/",
        "http://2852039166/",
        "http://0251.0376.0251.0376/",
        "http://168.63.129.16/",
        "http://192.0.0.192/",
        "http://192.0.2.1/",
        "http://198.18.0.1/",
        "http://198.51.100.1/",
        "http://203.0.113.1/",
        "http://224.0.0.1/",
        "http://239.255.255.250/",
        "http://240.0.0.1/",
        "http://255.255.255.255/",
        "http://[::]/",
        "http://[::1]/",
        "http://[0:0:0:0:0:0:0:1]:8080/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[::ffff:0:169.254.169.254]/",
        "http://[::127.0.0.1]/",
        "http://[64:ff9b::10.0.0.1]/",
        "http://[64:ff9b:1::1]/",
        "http://[2002:7f00:1::]/",
        "http://[2002:a9fe:a9fe::1]/",
        "http://[2001::1]/",
        "http://[2001:db8::1]/",
        "http://[2606:4700::5efe:a00:1]/",
        "http://[fe80::1]/",
        "http://[fec0::1]/",
        "http://[fc00::1]/",
        "http://[fd00:ec2::254]/",
        "http://[ff02::1]/",
        "http://[100::1]/",
        "http://[3fff::1]/",
    ];

    #[test]
    fn no_spelling_hides_an_address() {
        for url in FORBIDDEN {
            assert!(public("").forbidden_literal(url).is_some(), "{url}");
            assert_eq!(Egress::default().forbidden_literal(url), None, "{url}");
        }
    }

    #[test]
    fn what_is_public_is_reached() {
        for url in [
            "http://1.1.1.1/",
            "http://172.32.0.1/",
            "http://100.63.255.255/",
            "http://100.128.0.1/",
            "http://192.0.1.1/",
            "http://223.255.255.255/",
            "https://[2606:4700:4700::1111]/{id}",
            "http://[::ffff:8.8.8.8]/",
            "http://[64:ff9b::8.8.8.8]/",
            "http://[2002:808:808::1]/",
            "https://api.example.com/{id}",
            "https://localhost/",
        ] {
            // A name is judged when it is resolved.
            assert_eq!(public("").forbidden_literal(url), None, "{url}");
        }
    }

    #[test]
    fn exceptions_are_reached_in_every_form() {
        let egress = public("billing.internal, 10.1.0.0/16,fd00::7, 127.0.0.1");
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for (host, ip) in [
            ("billing.internal", "10.9.9.9"),
            ("BILLING.internal.", "127.0.0.2"),
            ("x", "10.1.255.255"),
            ("x", "::ffff:10.1.0.1"),
            ("x", "fd00::7"),
            ("x", "127.0.0.1"),
        ] {
            assert!(egress.allows(host, address(ip)), "{host} {ip}");
        }
        for (host, ip) in [
            ("x.billing.internal", "10.9.9.9"),
            ("billing.internal.evil.example", "10.9.9.9"),
            ("x", "10.2.0.1"),
            ("x", "fd00::8"),
            ("x", "127.0.0.2"),
        ] {
            assert!(!egress.allows(host, address(ip)), "{host} {ip}");
        }
        assert!(public("0.0.0.0/0").allows("x", address("10.0.0.1")));
        assert!(!public("0.0.0.0/0").allows("x", address("fd00::1")));
    }

    #[test]
    fn a_list_that_is_none_is_refused() {
        for wrong in [
            "10.0.0.0/33",
            "10.0/8",
            "a b",
            "*.internal",
            "http://a",
            "0x7f.1",
            "a/8",
            "::1/129",
        ] {
            assert!(wrong.parse::<Exceptions>().is_err(), "{wrong}");
        }
    }
}
