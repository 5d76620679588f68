//! The names of what was said: `<epoch>-<seq>.<k>`.
//!
//! The epoch is the stream's, which is made anew when its server was; `seq` is the place in the stream of the message that caused
//! the event, and `k` counts what one message caused. Names of one epoch are in the order in which they were said.

use std::{fmt, str::FromStr};

/// The most characters of an epoch.
const EPOCH_MAX: usize = 32;

/// Which stream it was: a name of 1 to 32 digits and small letters of ASCII.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StreamEpoch(Box<str>);

/// A place in what is said of one session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpokenPlace {
    /// The place in the stream of the message that caused it.
    pub seq: u64,
    /// Its place among the events that this message caused, from 0.
    pub k: u32,
}

/// The name of one event that was said, as `Last-Event-ID` has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SpokenId {
    /// Of which stream.
    pub epoch: StreamEpoch,
    /// Where in it.
    pub place: SpokenPlace,
}

/// Why a text is no name of an event. The text itself is left out: it may be anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSpokenId {
    /// It is not made of an epoch and two numbers.
    #[error("an event id reads EPOCH-SEQUENCE.PLACE")]
    Form,
    /// The epoch is none.
    #[error("the epoch of an event id has 1 to 32 digits and small letters")]
    Epoch,
    /// A number is not one, has a zero before it, or is too large.
    #[error("the numbers of an event id are decimal, without a sign or a zero before them")]
    Number,
}

impl SpokenId {
    /// Its place, if it is of this stream.
    pub fn within(&self, epoch: &StreamEpoch) -> Option<SpokenPlace> {
        (self.epoch == *epoch).then_some(self.place)
    }
}

impl fmt::Display for StreamEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for SpokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SpokenPlace { seq, k } = self.place;
        write!(f, "{}-{seq}.{k}", self.epoch)
    }
}

impl FromStr for StreamEpoch {
    type Err = BadSpokenId;

    fn from_str(text: &str) -> Result<Self, BadSpokenId> {
        let fits = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
        if (1..=EPOCH_MAX).contains(&text.len()) && text.bytes().all(fits) {
            Ok(Self(text.into()))
        } else {
            Err(BadSpokenId::Epoch)
        }
    }
}

impl FromStr for SpokenId {
    type Err = BadSpokenId;

    /// Takes what [`fmt::Display`] writes, and nothing else.
    fn from_str(text: &str) -> Result<Self, BadSpokenId> {
        let (epoch, place) = text.split_once('-').ok_or(BadSpokenId::Form)?;
        let (seq, k) = place.split_once('.').ok_or(BadSpokenId::Form)?;
        Ok(Self {
            epoch: epoch.parse()?,
            place: SpokenPlace {
                seq: number(seq)?,
                k: number(k)?,
            },
        })
    }
}

fn number<N: FromStr>(text: &str) -> Result<N, BadSpokenId> {
    let is_plain =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    let number = is_plain.then(|| text.parse().ok()).flatten();
    number.ok_or(BadSpokenId::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in [
            "0-0.0",
            "1764280000000-18446744073709551615.4294967295",
            "a9-7.12",
        ] {
            assert_eq!(text.parse::<SpokenId>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn garbage_is_no_name() {
        for (text, why) in [
            ("", BadSpokenId::Form),
            ("7", BadSpokenId::Form),
            ("e-7", BadSpokenId::Form),
            ("e7.1", BadSpokenId::Form),
            ("-7.1", BadSpokenId::Epoch),
            ("E-7.1", BadSpokenId::Epoch),
            ("é-7.1", BadSpokenId::Epoch),
            ("e -7.1", BadSpokenId::Epoch),
            ("e--7.1", BadSpokenId::Number),
            ("e-+7.1", BadSpokenId::Number),
            ("e-07.1", BadSpokenId::Number),
            ("e-7.01", BadSpokenId::Number),
            ("e-7.1 ", BadSpokenId::Number),
            ("e-7.", BadSpokenId::Number),
            ("e-.1", BadSpokenId::Number),
            ("e-7.1.2", BadSpokenId::Number),
            ("e-18446744073709551616.0", BadSpokenId::Number),
            ("e-7.4294967296", BadSpokenId::Number),
            ("e-٧.1", BadSpokenId::Number),
        ] {
            assert_eq!(text.parse::<SpokenId>(), Err(why), "{text:?}");
        }
        let long = format!("{}-7.1", "e".repeat(EPOCH_MAX + 1));
        assert_eq!(long.parse::<SpokenId>(), Err(BadSpokenId::Epoch));
    }

    #[test]
    fn a_name_of_another_stream_has_no_place_in_this_one() {
        let id: SpokenId = "e1-7.1".parse().unwrap();
        let place = SpokenPlace { seq: 7, k: 1 };
        assert_eq!(id.within(&"e1".parse().unwrap()), Some(place));
        assert_eq!(id.within(&"e2".parse().unwrap()), None);
    }
}
