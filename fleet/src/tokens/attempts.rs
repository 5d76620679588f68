//! Wrong tokens: an address that has sent [`WrongTokens::A_SECOND`] of them within a second is told to come later for the rest of it, where
//! its next one is wrong, too. One that holds is never refused for those of others: behind a proxy all have the same address. Pure:
//! who asks gives the moment.
//!
//! Nobody guesses 256 bits; this slows down a client that goes wrong in a loop, or somebody who tries. Seconds are counted
//! from the beginning of the process and are the same for all addresses, so what is remembered is forgotten at once and has a bound.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use tokio::time::Instant;

/// The wrong tokens of this second.
#[derive(Debug)]
pub struct WrongTokens {
    began: Instant,
    /// Which second it is.
    second: u64,
    /// How many each address has sent in it.
    sent: HashMap<IpAddr, u32>,
}

impl WrongTokens {
    /// So many of an address are answered as wrong, and further ones with "later" until the second is over.
    pub const A_SECOND: u32 = 10;
    /// Addresses that are remembered in a second. Wrong tokens of further ones are not counted: rather than being refused because of what
    /// others do, they are told that theirs are wrong.
    pub const ADDRESSES_MAX: usize = 4_096;

    /// Nobody has sent any. Seconds begin with this moment.
    pub fn new(now: Instant) -> Self {
        Self {
            began: now,
            second: 0,
            sent: HashMap::new(),
        }
    }

    /// For how long wrong tokens of this address are told to come later; `None`: they are not. To be asked where one is wrong.
    pub fn refuses(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        if self.second_of(now) != self.second {
            return None;
        }
        let sent = self.sent.get(&sender(address)).copied();
        let next = self.began + Duration::from_secs(self.second + 1);
        (sent.unwrap_or_default() >= Self::A_SECOND).then(|| next.saturating_duration_since(now))
    }

    /// Takes down a wrong token of this address.
    pub fn note(&mut self, address: IpAddr, now: Instant) {
        let second = self.second_of(now);
        if second != self.second {
            self.second = second;
            self.sent.clear();
        }
        let has_room = self.sent.len() < Self::ADDRESSES_MAX;
        let sender = sender(address);
        if has_room || self.sent.contains_key(&sender) {
            let sent = self.sent.entry(sender).or_default();
            *sent = sent.saturating_add(1);
        }
    }

    fn second_of(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_secs()
    }
}

/// Who counts as one sender: an address, and of IPv6 its network of 64 bits, all of which one machine may have. An IPv4 address is
/// the same one within IPv6.
pub fn sender(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            Ipv6Addr::from_bits(network).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn after_ten_wrong_ones_an_address_is_refused_for_the_rest_of_the_second() {
        let began = Instant::now();
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        let mut wrong = WrongTokens::new(began);
        let now = began + 200 * MILLI;
        for _ in 0..WrongTokens::A_SECOND {
            assert_eq!(wrong.refuses(one, now), None);
            wrong.note(one, now);
        }
        assert_eq!(wrong.refuses(one, now), Some(800 * MILLI));
        assert_eq!(wrong.refuses(one, began + 999 * MILLI), Some(MILLI));
        assert_eq!(wrong.refuses(other, now), None);
        assert_eq!(wrong.refuses(one, began + 1_000 * MILLI), None);
    }

    #[test]
    fn each_second_begins_with_nothing() {
        let began = Instant::now();
        let one = address("192.0.2.1");
        let mut wrong = WrongTokens::new(began);
        for _ in 0..9 {
            wrong.note(one, began + 999 * MILLI);
        }
        let next = began + 1_000 * MILLI;
        wrong.note(one, next);
        assert_eq!(wrong.refuses(one, next), None);
        for _ in 0..9 {
            wrong.note(one, next);
        }
        assert_eq!(wrong.refuses(one, next), Some(1_000 * MILLI));
        // A clock that is behind is the first second's.
        assert_eq!(wrong.refuses(one, began), None);
    }

    #[test]
    fn a_network_of_one_machine_is_one_sender() {
        let now = Instant::now();
        let mut wrong = WrongTokens::new(now);
        for n in 0..10 {
            wrong.note(address(&format!("2001:db8::{n}:1")), now);
            wrong.note(address("192.0.2.1"), now);
        }
        assert!(wrong.refuses(address("2001:db8::ffff"), now).is_some());
        assert_eq!(wrong.refuses(address("2001:db8:0:1::1"), now), None);
        assert!(wrong.refuses(address("::ffff:192.0.2.1"), now).is_some());
        assert_eq!(wrong.refuses(address("::1"), now), None);
    }

    #[test]
    fn what_is_remembered_has_a_bound_and_refuses_nobody_for_others() {
        let now = Instant::now();
        let mut wrong = WrongTokens::new(now);
        let last = address("203.0.113.1");
        let senders = (0..).map(|n: u32| IpAddr::from((0x0a00_0000 + n).to_be_bytes()));
        for sender in senders.take(WrongTokens::ADDRESSES_MAX) {
            wrong.note(sender, now);
        }
        for _ in 0..100 {
            wrong.note(last, now);
        }
        assert_eq!(wrong.sent.len(), WrongTokens::ADDRESSES_MAX);
        assert_eq!(wrong.refuses(last, now), None);
        // Who is remembered is counted on.
        let known = address("10.0.0.7");
        for _ in 0..9 {
            wrong.note(known, now);
        }
        assert!(wrong.refuses(known, now).is_some());
        let later = now + Duration::from_secs(1);
        wrong.note(last, later);
        assert_eq!(wrong.sent.len(), 1);
    }
}
