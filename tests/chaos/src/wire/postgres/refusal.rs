//! Errors that the server did not make.

use bytes::{BufMut, Bytes, BytesMut};

use super::{Refusal, frames::message};

impl Refusal {
    /// SQLSTATE.
    pub const fn code(self) -> &'static str {
        match self {
            Self::SerializationFailure => "40001",
            Self::Deadlock => "40P01",
            Self::QueryCanceled => "57014",
            Self::TooManyConnections => "53300",
            Self::DiskFull => "53100",
            Self::AdminShutdown => "57P01",
            Self::LockNotAvailable => "55P03",
            Self::ReadOnly => "25006",
        }
    }

    /// Whether the connection ends with it.
    pub(super) const fn is_fatal(self) -> bool {
        matches!(self, Self::AdminShutdown)
    }

    const fn message(self) -> &'static str {
        match self {
            Self::SerializationFailure => "could not serialize access due to concurrent update",
            Self::Deadlock => "deadlock detected",
            Self::QueryCanceled => "canceling statement due to statement timeout",
            Self::TooManyConnections => "sorry, too many clients already",
            Self::DiskFull => "could not extend file: No space left on device",
            Self::AdminShutdown => "terminating connection due to administrator command",
            Self::LockNotAvailable => "canceling statement due to lock timeout",
            Self::ReadOnly => "cannot execute the statement in a read-only transaction",
        }
    }
}

/// The error as the server says it.
pub(super) fn response(refusal: Refusal) -> Bytes {
    let severity = if refusal.is_fatal() { "FATAL" } else { "ERROR" };
    let fields = [
        (b'S', severity),
        (b'V', severity),
        (b'C', refusal.code()),
        (b'M', refusal.message()),
    ];
    let mut body = BytesMut::new();
    for (field, value) in fields {
        body.put_u8(field);
        body.put_slice(value.as_bytes());
        body.put_u8(0);
    }
    body.put_u8(0);
    message(b'E', &body)
}

/// What is sent to the server instead of an `Execute`: it refuses that, takes nothing more of the message, and then stands
/// where it would stand after the error, inside a transaction or outside.
pub(super) fn impossible_execute() -> Bytes {
    message(b'E', b"chaos: no such portal\0\0\0\0\0")
}

/// What is sent instead of a `Query`. A `COMMIT` that is refused has ended its transaction.
pub(super) fn impossible_query(ends_transaction: bool) -> Bytes {
    let sql: &[u8] = if ends_transaction {
        b"ROLLBACK; SELECT 1/0\0"
    } else {
        b"SELECT 1/0\0"
    };
    message(b'Q', sql)
}
