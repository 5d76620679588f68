//! **Did Postgres lose writes?**
//!
//! The ledger keeps a watermark in one row: the cluster's system identifier, its timeline, and a WAL position that moves forward
//! every second. Every process remembers the last watermark that it has seen committed, and the dispatchers publish it to NATS
//! for processes that start later. A server that lacks a committed watermark lacks calls too.
//!
//! ```text
//!   the row names another cluster         restored from a dump, or a copy with an identifier of its own   other_cluster
//!   the row names another timeline        a replica or a backup was promoted                              other_timeline
//!   the row's watermark is older          an old copy was started again                                   behind
//!   the row has no watermark              a new ledger: nothing is remembered, nothing is lost            first
//!   the row has another ledger's name     not the database that this process works with                   other_ledger
//! ```
//!
//! A switch to a replica that had everything changes the timeline too. Nothing tells it from a switch to a replica that lacked
//! the last second, so both count as lost writes: to call an effect unknown by mistake is the smaller harm.
//!
//! Watermarks are ordered by the number of quarantines, then by position. A process that quarantines sets the number above every
//! one that it remembers, so no other process quarantines again.
//!
//! An old copy that is started again on the same timeline is not recognised if NATS lost its watermark and every process is new:
//! then nothing remembers a later one.

use std::{fmt, num::ParseIntError, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{call::words, ids::LedgerId};

/// A position in the WAL, as Postgres writes it: `16/B374D848`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WalPosition(pub u64);

impl fmt::Display for WalPosition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

/// The text is not a position in the WAL.
#[derive(Debug, thiserror::Error)]
#[error("a WAL position is two hexadecimal numbers with a slash between them")]
pub struct NotAPosition(#[source] Option<ParseIntError>);

impl FromStr for WalPosition {
    type Err = NotAPosition;

    fn from_str(text: &str) -> Result<Self, NotAPosition> {
        let half = |text| u32::from_str_radix(text, 16).map_err(|e| NotAPosition(Some(e)));
        let (high, low) = text.split_once('/').ok_or(NotAPosition(None))?;
        Ok(Self(u64::from(half(high)?) << 32 | u64::from(half(low)?)))
    }
}

impl TryFrom<String> for WalPosition {
    type Error = NotAPosition;

    fn try_from(text: String) -> Result<Self, NotAPosition> {
        text.parse()
    }
}

impl From<WalPosition> for String {
    fn from(position: WalPosition) -> Self {
        position.to_string()
    }
}

/// A position that the ledger has reached. Stored in NATS too: fields may be added, none is renamed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watermark {
    /// The ledger; `None` where a program of the release before published it to NATS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_id: Option<LedgerId>,
    /// The cluster, as `initdb` named it.
    pub system_identifier: String,
    /// Raised by every promotion.
    pub timeline: i32,
    /// How often open calls were put in doubt because writes were lost.
    pub quarantines: i32,
    /// Everything up to here was on the disk.
    pub wal_lsn: WalPosition,
}

impl Watermark {
    /// Whether it was taken after the other one.
    pub fn is_after(&self, other: &Self) -> bool {
        (self.quarantines, self.wal_lsn) > (other.quarantines, other.wal_lsn)
    }
}

impl fmt::Display for Watermark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            ledger_id: _,
            system_identifier,
            timeline,
            quarantines,
            wal_lsn,
        } = self;
        write!(
            formatter,
            "system {system_identifier}, timeline {timeline}, position {wal_lsn}, quarantine {quarantines}"
        )
    }
}

/// What one connection reads: the watermark in the ledger, and where the server is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The ledger that is there.
    pub ledger_id: LedgerId,
    /// The cluster that answers.
    pub system_identifier: String,
    /// The timeline that it writes now.
    pub timeline: i32,
    /// How far its WAL has come.
    pub wal_lsn: WalPosition,
    /// The watermark in the ledger; `None` in a new one.
    pub ledger: Option<Watermark>,
    /// The number of quarantines in the ledger's row.
    pub quarantines: i32,
}

impl fmt::Display for Seen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            system_identifier,
            timeline,
            wal_lsn,
            ledger,
            ..
        } = self;
        write!(
            formatter,
            "the server is at system {system_identifier}, timeline {timeline}, position {wal_lsn}; "
        )?;
        match ledger {
            Some(watermark) => write!(formatter, "the ledger is at {watermark}"),
            None => formatter.write_str("the ledger has no watermark"),
        }
    }
}

impl Seen {
    /// The number of the next quarantine: above every one that is known.
    pub fn next_quarantine(&self, remembered: Option<&Watermark>) -> i32 {
        let remembered = remembered.map_or(0, |watermark| watermark.quarantines);
        self.quarantines.max(remembered).saturating_add(1)
    }
}

words! {
    /// What the watermark in the ledger says, compared with the remembered one.
    Comparison {
        /// Nothing is missing.
        Same = "same",
        /// A new ledger.
        First = "first",
        /// Writes that were committed are missing.
        Behind = "behind",
        /// A replica or a backup was promoted.
        OtherTimeline = "other_timeline",
        /// The ledger was moved into another cluster.
        OtherCluster = "other_cluster",
        /// It is another ledger, about which the memory says nothing.
        OtherLedger = "other_ledger",
    }
}

impl Comparison {
    /// Whether calls may have run of which this ledger knows nothing.
    pub const fn lost_writes(self) -> bool {
        match self {
            Self::Same | Self::First | Self::OtherLedger => false,
            Self::Behind | Self::OtherTimeline | Self::OtherCluster => true,
        }
    }

    /// What has happened, as a clause.
    pub const fn what(self) -> &'static str {
        match self {
            Self::Same => "the ledger stands where it stood",
            Self::First => "the ledger is new",
            Self::Behind => {
                "Postgres lost writes: the ledger is behind what it had committed, as when an old copy is started again"
            }
            Self::OtherTimeline => {
                "Postgres may have lost writes: a replica or a backup was promoted since the ledger was last written"
            }
            Self::OtherCluster => {
                "Postgres may have lost writes: the ledger was restored into another cluster"
            }
            Self::OtherLedger => "this database has another ledger than the one that was known",
        }
    }
}

/// Compares the ledger and its server with the remembered watermark.
pub fn compare(remembered: Option<&Watermark>, seen: &Seen) -> Comparison {
    let known = remembered.and_then(|watermark| watermark.ledger_id);
    if known.is_some_and(|known| known != seen.ledger_id) {
        return Comparison::OtherLedger;
    }
    let Some(ledger) = &seen.ledger else {
        return Comparison::First;
    };
    if ledger.system_identifier != seen.system_identifier {
        return Comparison::OtherCluster;
    }
    if ledger.timeline != seen.timeline {
        return Comparison::OtherTimeline;
    }
    if seen.wal_lsn < ledger.wal_lsn {
        return Comparison::Behind;
    }
    match remembered {
        Some(watermark) if watermark.quarantines > ledger.quarantines => Comparison::Behind,
        // Another process has quarantined since.
        Some(watermark) if watermark.quarantines < ledger.quarantines => Comparison::Same,
        Some(watermark) if watermark.system_identifier != ledger.system_identifier => {
            Comparison::OtherCluster
        }
        Some(watermark) if watermark.timeline != ledger.timeline => Comparison::OtherTimeline,
        Some(watermark) if watermark.wal_lsn > ledger.wal_lsn => Comparison::Behind,
        Some(_) | None => Comparison::Same,
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const LEDGER: LedgerId = LedgerId(Uuid::from_u128(7));

    fn watermark(timeline: i32, quarantines: i32, wal_lsn: u64) -> Watermark {
        Watermark {
            ledger_id: Some(LEDGER),
            system_identifier: "7001".to_owned(),
            timeline,
            quarantines,
            wal_lsn: WalPosition(wal_lsn),
        }
    }

    /// A server that has written a little since the watermark.
    fn server(watermark: &Watermark) -> Seen {
        Seen {
            ledger_id: LEDGER,
            system_identifier: watermark.system_identifier.clone(),
            timeline: watermark.timeline,
            wal_lsn: WalPosition(watermark.wal_lsn.0 + 10),
            ledger: Some(watermark.clone()),
            quarantines: watermark.quarantines,
        }
    }

    #[test]
    fn the_same_place_or_further_on_is_the_same() {
        let remembered = watermark(1, 0, 100);
        assert_eq!(compare(None, &server(&remembered)), Comparison::Same);
        assert_eq!(
            compare(Some(&remembered), &server(&remembered)),
            Comparison::Same
        );
        let later = server(&watermark(1, 0, 900));
        assert_eq!(compare(Some(&remembered), &later), Comparison::Same);
    }

    #[test]
    fn a_new_ledger_is_adopted_whatever_is_remembered() {
        let new = Seen {
            ledger: None,
            ..server(&watermark(1, 0, 100))
        };
        assert_eq!(compare(None, &new), Comparison::First);
        assert_eq!(
            compare(Some(&watermark(3, 2, 900)), &new),
            Comparison::First
        );
    }

    #[test]
    fn a_promotion_is_seen_without_any_memory() {
        let promoted = Seen {
            timeline: 2,
            ..server(&watermark(1, 0, 100))
        };
        assert_eq!(compare(None, &promoted), Comparison::OtherTimeline);
        assert_eq!(
            compare(Some(&watermark(1, 0, 100)), &promoted),
            Comparison::OtherTimeline
        );
    }

    #[test]
    fn a_ledger_in_another_cluster_is_seen_without_any_memory() {
        let moved = Seen {
            system_identifier: "7002".to_owned(),
            ..server(&watermark(1, 0, 100))
        };
        assert_eq!(compare(None, &moved), Comparison::OtherCluster);
    }

    #[test]
    fn an_old_copy_is_seen_by_whoever_remembers_more() {
        let copy = server(&watermark(1, 0, 50));
        assert_eq!(compare(None, &copy), Comparison::Same);
        assert_eq!(
            compare(Some(&watermark(1, 0, 51)), &copy),
            Comparison::Behind
        );
        let written_since = Seen {
            wal_lsn: WalPosition(5_000),
            ..copy
        };
        assert_eq!(
            compare(Some(&watermark(1, 0, 51)), &written_since),
            Comparison::Behind
        );
    }

    #[test]
    fn a_server_behind_its_own_ledger_is_behind() {
        let seen = Seen {
            wal_lsn: WalPosition(99),
            ..server(&watermark(1, 0, 100))
        };
        assert_eq!(compare(None, &seen), Comparison::Behind);
    }

    #[test]
    fn what_has_been_dealt_with_is_not_dealt_with_again() {
        let remembered = watermark(1, 0, 900);
        let copy = server(&watermark(1, 0, 50));
        assert!(compare(Some(&remembered), &copy).lost_writes());
        let next = copy.next_quarantine(Some(&remembered));
        for timeline in [1, 2] {
            let dealt_with = watermark(timeline, next, 60);
            assert!(dealt_with.is_after(&remembered));
            assert_eq!(
                compare(Some(&remembered), &server(&dealt_with)),
                Comparison::Same
            );
            // And a process that has seen the quarantine recognises a copy from before.
            assert_eq!(compare(Some(&dealt_with), &copy), Comparison::Behind);
        }
    }

    #[test]
    fn a_timeline_that_was_promoted_twice_under_one_number_is_told_apart() {
        let (first, second) = (watermark(2, 1, 900), watermark(2, 1, 800));
        assert_eq!(compare(Some(&first), &server(&second)), Comparison::Behind);
        assert_eq!(server(&second).next_quarantine(Some(&first)), 2);
    }

    #[test]
    fn what_another_ledger_left_is_never_taken_for_a_loss() {
        let foreign = Watermark {
            ledger_id: Some(LedgerId(Uuid::from_u128(8))),
            system_identifier: "7002".to_owned(),
            ..watermark(3, 2, 900)
        };
        let own = server(&watermark(1, 0, 100));
        let new = Seen {
            ledger: None,
            ..own.clone()
        };
        for seen in [own.clone(), new] {
            let standing = compare(Some(&foreign), &seen);
            assert_eq!(standing, Comparison::OtherLedger);
            assert!(!standing.lost_writes());
        }
        // Without an identity it is taken for this ledger's.
        let nameless = Watermark {
            ledger_id: None,
            ..watermark(1, 0, 900)
        };
        assert_eq!(compare(Some(&nameless), &own), Comparison::Behind);
    }

    #[test]
    fn a_position_reads_as_postgres_writes_it() {
        for text in ["0/0", "16/B374D848", "FFFFFFFF/FFFFFFFF"] {
            assert_eq!(text.parse::<WalPosition>().unwrap().to_string(), text);
        }
        assert!(WalPosition::from_str("1/0").unwrap() > "0/FFFFFFFF".parse().unwrap());
        for text in ["", "16", "x/1", "1/", "1/2/3", "100000000/0"] {
            assert!(text.parse::<WalPosition>().is_err(), "{text}");
        }
    }
}
