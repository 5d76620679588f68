//! Transaction: how a call of a `transaction` tool ends, inside the transaction that had its effect.
//!
//! It runs on the connection of the tool, with the rights of the tool's role; what it may do of the ledger is one function,
//! `toolfleet_tool.succeed`. Whatever else ends or moves the call locks the same row, so exactly one of them happens.

use std::{error::Error, str::FromStr};

use time::{Duration, OffsetDateTime, macros::datetime};
use uuid::Uuid;

use super::complete::Moved;
use crate::{ids::DispatcherId, wire::envelope::Timing};

/// SQLSTATE: the call is not this attempt's any more. Nothing may be committed, and nothing is: the transaction has failed.
pub const NOT_OURS: &str = "TF001";
/// SQLSTATE: the ledger does not take the result.
pub const BAD_RESULT: &str = "TF002";

/// Ends a call as succeeded once the open transaction commits.
///
/// The call, the attempt and the result as JSON; the last statement before `COMMIT`. Anything but one row means that the
/// transaction must not be committed.
pub const SUCCEED: &str = "SELECT * FROM toolfleet_tool.succeed($1, $2, $3::pg_catalog.json)";

/// What the columns of that row say, in the server's binary format.
///
/// # Errors
///
/// They are not what [`SUCCEED`] returns.
pub fn moved<'r>(columns: impl Iterator<Item = Option<&'r [u8]>>) -> Result<Moved, Unreadable> {
    let mut columns = Binary(columns);
    Ok(Moved {
        rev: i32::from_be_bytes(columns.take()?),
        moved_at: instant(i64::from_be_bytes(columns.take()?)),
        state: columns.parsed()?,
        tool: columns.text()?.to_owned(),
        tool_version: i32::from_be_bytes(columns.take()?),
        tenant: columns.parsed()?,
        session: columns.text_if_any()?.map(parse).transpose()?,
        dispatcher: DispatcherId(Uuid::from_bytes(columns.take()?)),
        attempts: i32::from_be_bytes(columns.take()?),
        coercions: columns.text_if_any()?.map(str::to_owned),
        timing: Timing {
            queued_ms: i64::from_be_bytes(columns.take()?),
            run_ms: i64::from_be_bytes(columns.take()?),
        },
    })
}

/// A row that is not what it should be.
#[derive(Debug, thiserror::Error)]
#[error("the row is not that of a call that has ended")]
pub struct Unreadable;

struct Binary<I>(I);

impl<'r, I: Iterator<Item = Option<&'r [u8]>>> Binary<I> {
    fn bytes(&mut self) -> Result<Option<&'r [u8]>, Unreadable> {
        self.0.next().ok_or(Unreadable)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let bytes = self.bytes()?.ok_or(Unreadable)?;
        bytes.try_into().map_err(|_other_length| Unreadable)
    }

    fn text_if_any(&mut self) -> Result<Option<&'r str>, Unreadable> {
        let text = self.bytes()?.map(str::from_utf8).transpose();
        text.map_err(|_not_text| Unreadable)
    }

    fn text(&mut self) -> Result<&'r str, Unreadable> {
        self.text_if_any()?.ok_or(Unreadable)
    }

    fn parsed<T: FromStr<Err: Error>>(&mut self) -> Result<T, Unreadable> {
        parse(self.text()?)
    }
}

fn parse<T: FromStr<Err: Error>>(text: &str) -> Result<T, Unreadable> {
    text.parse().map_err(|_unknown| Unreadable)
}

/// The server counts microseconds from the year 2000.
fn instant(micros: i64) -> OffsetDateTime {
    datetime!(2000-01-01 0:00 UTC).saturating_add(Duration::microseconds(micros))
}
