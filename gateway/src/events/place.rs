//! The id of an event: which stream, and where in it. Pure.

use std::{fmt, str::FromStr};

/// A place in the stream of events: behind the event with this sequence. Written `epoch-sequence`, both in decimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EventId {
    /// When the stream was made, in nanoseconds since 1970.
    pub(crate) epoch: u64,
    /// The sequence in that stream; 0 is before its first event.
    pub(crate) sequence: u64,
}

/// It is not the id of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoEventId;

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch, sequence } = self;
        write!(f, "{epoch}-{sequence}")
    }
}

impl FromStr for EventId {
    type Err = NoEventId;

    /// Only what [`EventId`] writes is read: an id has one form.
    fn from_str(text: &str) -> Result<Self, NoEventId> {
        let (epoch, sequence) = text.split_once('-').ok_or(NoEventId)?;
        Ok(Self {
            epoch: number(epoch)?,
            sequence: number(sequence)?,
        })
    }
}

fn number(text: &str) -> Result<u64, NoEventId> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_padded = text.len() > 1 && text.starts_with('0');
    if !is_number || is_padded {
        return Err(NoEventId);
    }
    text.parse().map_err(|_too_large| NoEventId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_written_and_in_no_other_form() {
        for text in ["0-0", "1764366593123456789-42", "1-18446744073709551615"] {
            let id: EventId = text.parse().unwrap();
            assert_eq!(id.to_string(), text);
        }
        for bad in [
            "",
            "-",
            "1-",
            "-1",
            "1",
            "01-1",
            "1-01",
            "+1-1",
            "1--1",
            "1-1.0",
            "1-1-1",
            " 1-1",
            "1-1 ",
            "1-18446744073709551616",
            "x-1",
            "1-١",
        ] {
            assert_eq!(bad.parse::<EventId>(), Err(NoEventId), "{bad:?}");
        }
    }
}
