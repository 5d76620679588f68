//! **Did Postgres lose writes?**
//!
//! The ledger keeps, in one row, the place where it stands: the cluster's system identifier, its timeline, and a WAL
//! position that moves forward every second. Every process remembers the last such mark that it has seen committed, and the
//! dispatchers leave it in NATS for those who start later. A server that has forgotten a committed mark has forgotten calls.
//!
//! ```text
//!   the row names another cluster        restored from a dump, or a copy with an identifier of its own   other_cluster
//!   the row names another timeline       a replica or a backup was promoted                              other_timeline
//!   the row's mark is older than ours    an old copy was started again                                   behind
//!   the row has no mark                  a new ledger: nothing is remembered, nothing is lost            first
//!   the row has another ledger's name    not the database that this process works with                   other_ledger
//! ```
//!
//! A switch to a replica that had everything changes the timeline too. From here nobody can tell it from one that lacked the
//! last second, and wrongly calling an effect unknown is the smaller harm, so it is treated alike.
//!
//! Marks are ordered by how often lost writes have been dealt with (`quarantines`), then by position: whoever deals with
//! them sets a number above every one that is remembered, so that nobody does it again.
//!
//! What nobody remembers, nobody misses: an old copy that is started again on the same timeline is not recognised if NATS
//! lost its mark and every process is new.

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

/// A place that the ledger has reached. Also what is kept in NATS: fields may be added, none is renamed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The ledger; `None` where a program of the release before left it in NATS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_id: Option<LedgerId>,
    /// The cluster, as `initdb` named it.
    pub system_identifier: String,
    /// Raised by every promotion.
    pub timeline: i32,
    /// How often lost writes have been dealt with.
    pub quarantines: i32,
    /// Everything up to here was on the disk.
    pub wal_lsn: WalPosition,
}

impl Mark {
    /// Whether it was made after the other one.
    pub fn is_after(&self, other: &Self) -> bool {
        (self.quarantines, self.wal_lsn) > (other.quarantines, other.wal_lsn)
    }
}

impl fmt::Display for Mark {
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

/// What one connection sees.
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
    /// The mark in the ledger; `None` in a new one.
    pub ledger: Option<Mark>,
    /// How often lost writes have been dealt with, as the ledger says.
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
            Some(mark) => write!(formatter, "the ledger is at {mark}"),
            None => formatter.write_str("the ledger has no mark"),
        }
    }
}

impl Seen {
    /// The number of the next quarantine: above every one that is known.
    pub fn next_quarantine(&self, remembered: Option<&Mark>) -> i32 {
        let remembered = remembered.map_or(0, |mark| mark.quarantines);
        self.quarantines.max(remembered).saturating_add(1)
    }
}

words! {
    /// How what is seen stands to what is remembered.
    Standing {
        /// Nothing is missing.
        Same = "same",
        /// A new ledger.
        First = "first",
        /// Writes that were committed are not there.
        Behind = "behind",
        /// A replica or a backup was promoted.
        OtherTimeline = "other_timeline",
        /// The ledger was moved into another cluster.
        OtherCluster = "other_cluster",
        /// It is another ledger, of which the memory says nothing.
        OtherLedger = "other_ledger",
    }
}

impl Standing {
    /// Whether calls may have been run of which this ledger knows nothing.
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

/// Compares.
pub fn judge(remembered: Option<&Mark>, seen: &Seen) -> Standing {
    let known = remembered.and_then(|mark| mark.ledger_id);
    if known.is_some_and(|known| known != seen.ledger_id) {
        return Standing::OtherLedger;
    }
    let Some(ledger) = &seen.ledger else {
        return Standing::First;
    };
    if ledger.system_identifier != seen.system_identifier {
        return Standing::OtherCluster;
    }
    if ledger.timeline != seen.timeline {
        return Standing::OtherTimeline;
    }
    if seen.wal_lsn < ledger.wal_lsn {
        return Standing::Behind;
    }
    match remembered {
        Some(mark) if mark.quarantines > ledger.quarantines => Standing::Behind,
        // Somebody has dealt with whatever happened since.
        Some(mark) if mark.quarantines < ledger.quarantines => Standing::Same,
        Some(mark) if mark.system_identifier != ledger.system_identifier => Standing::OtherCluster,
        Some(mark) if mark.timeline != ledger.timeline => Standing::OtherTimeline,
        Some(mark) if mark.wal_lsn > ledger.wal_lsn => Standing::Behind,
        Some(_) | None => Standing::Same,
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const LEDGER: LedgerId = LedgerId(Uuid::from_u128(7));

    fn mark(timeline: i32, quarantines: i32, wal_lsn: u64) -> Mark {
        Mark {
            ledger_id: Some(LEDGER),
            system_identifier: "7001".to_owned(),
            timeline,
            quarantines,
            wal_lsn: WalPosition(wal_lsn),
        }
    }

    /// A server that has written a little since the mark.
    fn server(mark: &Mark) -> Seen {
        Seen {
            ledger_id: LEDGER,
            system_identifier: mark.system_identifier.clone(),
            timeline: mark.timeline,
            wal_lsn: WalPosition(mark.wal_lsn.0 + 10),
            ledger: Some(mark.clone()),
            quarantines: mark.quarantines,
        }
    }

    #[test]
    fn the_same_place_or_further_on_is_the_same() {
        let remembered = mark(1, 0, 100);
        assert_eq!(judge(None, &server(&remembered)), Standing::Same);
        assert_eq!(
            judge(Some(&remembered), &server(&remembered)),
            Standing::Same
        );
        let later = server(&mark(1, 0, 900));
        assert_eq!(judge(Some(&remembered), &later), Standing::Same);
    }

    #[test]
    fn a_new_ledger_is_adopted_whatever_is_remembered() {
        let new = Seen {
            ledger: None,
            ..server(&mark(1, 0, 100))
        };
        assert_eq!(judge(None, &new), Standing::First);
        assert_eq!(judge(Some(&mark(3, 2, 900)), &new), Standing::First);
    }

    #[test]
    fn a_promotion_is_seen_without_any_memory() {
        let promoted = Seen {
            timeline: 2,
            ..server(&mark(1, 0, 100))
        };
        assert_eq!(judge(None, &promoted), Standing::OtherTimeline);
        assert_eq!(
            judge(Some(&mark(1, 0, 100)), &promoted),
            Standing::OtherTimeline
        );
    }

    #[test]
    fn a_ledger_in_another_cluster_is_seen_without_any_memory() {
        let moved = Seen {
            system_identifier: "7002".to_owned(),
            ..server(&mark(1, 0, 100))
        };
        assert_eq!(judge(None, &moved), Standing::OtherCluster);
    }

    #[test]
    fn an_old_copy_is_seen_by_whoever_remembers_more() {
        let copy = server(&mark(1, 0, 50));
        assert_eq!(judge(None, &copy), Standing::Same);
        assert_eq!(judge(Some(&mark(1, 0, 51)), &copy), Standing::Behind);
        let written_since = Seen {
            wal_lsn: WalPosition(5_000),
            ..copy
        };
        assert_eq!(
            judge(Some(&mark(1, 0, 51)), &written_since),
            Standing::Behind
        );
    }

    #[test]
    fn a_server_behind_its_own_ledger_is_behind() {
        let seen = Seen {
            wal_lsn: WalPosition(99),
            ..server(&mark(1, 0, 100))
        };
        assert_eq!(judge(None, &seen), Standing::Behind);
    }

    #[test]
    fn what_has_been_dealt_with_is_not_dealt_with_again() {
        let remembered = mark(1, 0, 900);
        let copy = server(&mark(1, 0, 50));
        assert!(judge(Some(&remembered), &copy).lost_writes());
        let next = copy.next_quarantine(Some(&remembered));
        for timeline in [1, 2] {
            let dealt_with = mark(timeline, next, 60);
            assert!(dealt_with.is_after(&remembered));
            assert_eq!(
                judge(Some(&remembered), &server(&dealt_with)),
                Standing::Same
            );
            // And a copy from before is recognised by whoever has seen it.
            assert_eq!(judge(Some(&dealt_with), &copy), Standing::Behind);
        }
    }

    #[test]
    fn a_timeline_that_was_promoted_twice_under_one_number_is_told_apart() {
        let (first, second) = (mark(2, 1, 900), mark(2, 1, 800));
        assert_eq!(judge(Some(&first), &server(&second)), Standing::Behind);
        assert_eq!(server(&second).next_quarantine(Some(&first)), 2);
    }

    #[test]
    fn what_another_ledger_left_is_never_taken_for_a_loss() {
        let foreign = Mark {
            ledger_id: Some(LedgerId(Uuid::from_u128(8))),
            system_identifier: "7002".to_owned(),
            ..mark(3, 2, 900)
        };
        let own = server(&mark(1, 0, 100));
        let new = Seen {
            ledger: None,
            ..own.clone()
        };
        for seen in [own.clone(), new] {
            let standing = judge(Some(&foreign), &seen);
            assert_eq!(standing, Standing::OtherLedger);
            assert!(!standing.lost_writes());
        }
        // Without an identity it is taken for this ledger's.
        let nameless = Mark {
            ledger_id: None,
            ..mark(1, 0, 900)
        };
        assert_eq!(judge(Some(&nameless), &own), Standing::Behind);
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
