//! **Whose prefix is it?**
//!
//! A prefix of NATS belongs to one ledger: its callers ask for that ledger's calls, and the stream has that ledger's pointers.
//! The watermark in NATS shows which, for it contains the ledger's id. A process that publishes a watermark names the one that
//! it replaces, so of two ledgers that come at once one fails.
//!
//! ```text
//!   there is no watermark                        a new nats-server, or one that lost its files   free
//!   the watermark has no identity                left by a program of the release before         unnamed
//!   the watermark has this ledger's identity     this fleet's                                    ours
//!   the watermark has another identity           another fleet's: it stays where it is           foreign
//! ```
//!
//! A dump, a backup and a replica are the same ledger as their original, but may have lost writes; that is
//! [`crate::lost_writes`]'s question. Another ledger's watermark says nothing about this one.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    ids::{LedgerId, Prefix},
    lost_writes::Watermark,
};

/// The watermark as NATS keeps it: fields may be added, none is renamed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftWatermark {
    /// Where the ledger was, and which one it is.
    #[serde(flatten)]
    pub watermark: Watermark,
    /// Its host and database, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

/// A ledger, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerName {
    /// Which one.
    pub id: LedgerId,
    /// Its host and database, where that is known.
    pub place: Option<String>,
}

impl fmt::Display for LedgerName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(formatter)?;
        match &self.place {
            Some(place) => write!(formatter, " ({place})"),
            None => Ok(()),
        }
    }
}

/// The owner of a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrefixOwner {
    /// No ledger's.
    Free,
    /// A watermark without a ledger's id is stored.
    Unnamed(Watermark),
    /// This ledger's.
    Ours(Watermark),
    /// Another ledger's.
    Foreign(LedgerName),
}

/// Decides by the ledger's id.
pub fn owner(ours: LedgerId, left: Option<LeftWatermark>) -> PrefixOwner {
    let Some(LeftWatermark { watermark, place }) = left else {
        return PrefixOwner::Free;
    };
    match watermark.ledger_id {
        None => PrefixOwner::Unnamed(watermark),
        Some(id) if id == ours => PrefixOwner::Ours(watermark),
        Some(id) => PrefixOwner::Foreign(LedgerName { id, place }),
    }
}

/// The prefix is another ledger's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "prefix {prefix} belongs to ledger {theirs}, and DATABASE_URL names ledger {ours}: set the DATABASE_URL of that ledger, or \
     another --prefix (TOOLFLEET_PREFIX) for this one; where the other is gone for good, `toolfleet doctor --take-prefix` gives \
     the prefix to this one"
)]
pub struct ForeignLedger {
    /// The prefix.
    pub prefix: Prefix,
    /// The ledger that has it.
    pub theirs: LedgerName,
    /// The ledger of this process.
    pub ours: LedgerName,
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::lost_writes::WalPosition;

    const OURS: LedgerId = LedgerId(Uuid::from_u128(1));
    const THEIRS: LedgerId = LedgerId(Uuid::from_u128(2));

    fn left(ledger_id: Option<LedgerId>) -> LeftWatermark {
        LeftWatermark {
            watermark: Watermark {
                ledger_id,
                system_identifier: "7001".to_owned(),
                timeline: 2,
                quarantines: 1,
                wal_lsn: WalPosition(0x16_0000_00AB),
            },
            place: Some("db.example:5432/toolfleet".to_owned()),
        }
    }

    #[test]
    fn the_identity_alone_decides_whose_a_prefix_is() {
        assert_eq!(owner(OURS, None), PrefixOwner::Free);
        let (nameless, own) = (left(None), left(Some(OURS)));
        let unnamed = PrefixOwner::Unnamed(nameless.watermark.clone());
        assert_eq!(owner(OURS, Some(nameless)), unnamed);
        let ours = PrefixOwner::Ours(own.watermark.clone());
        assert_eq!(owner(OURS, Some(own)), ours);
        let foreign = owner(OURS, Some(left(Some(THEIRS))));
        let place = Some("db.example:5432/toolfleet".to_owned());
        let theirs = LedgerName { id: THEIRS, place };
        assert_eq!(foreign, PrefixOwner::Foreign(theirs));
    }

    #[test]
    fn a_watermark_survives_its_way_through_nats() {
        let watermark = left(Some(OURS));
        let text = serde_json::to_string(&watermark).unwrap();
        assert!(text.contains("\"16/AB\""), "{text}");
        assert_eq!(
            serde_json::from_str::<LeftWatermark>(&text).unwrap(),
            watermark
        );
    }

    #[test]
    fn watermarks_of_the_release_before_are_read_and_have_no_identity() {
        let before =
            r#"{"system_identifier":"7001","timeline":2,"quarantines":1,"wal_lsn":"16/AB"}"#;
        let expected = LeftWatermark {
            place: None,
            ..left(None)
        };
        assert_eq!(
            serde_json::from_str::<LeftWatermark>(before).unwrap(),
            expected
        );
        assert_eq!(serde_json::to_string(&expected).unwrap(), before);
    }

    #[test]
    fn who_is_refused_is_told_by_what_and_what_to_do() {
        let name = |id, place: Option<&str>| LedgerName {
            id,
            place: place.map(ToOwned::to_owned),
        };
        let refused = ForeignLedger {
            prefix: "toolfleet".parse().unwrap(),
            theirs: name(THEIRS, Some("db.example:5432/toolfleet")),
            ours: name(OURS, None),
        };
        let said = refused.to_string();
        for part in [
            "prefix toolfleet",
            "00000000-0000-0000-0000-000000000002 (db.example:5432/toolfleet)",
            "00000000-0000-0000-0000-000000000001:",
            "DATABASE_URL",
            "--prefix",
            "toolfleet doctor --take-prefix",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}
