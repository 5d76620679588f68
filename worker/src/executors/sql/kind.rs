//! The types that an answer may contain.

use sqlx::postgres::{PgTypeInfo, PgTypeKind};

/// How the bytes of a value are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int2,
    Int4,
    Int8,
    Oid,
    Float4,
    Float8,
    Numeric,
    Text,
    Char,
    Json,
    Jsonb,
    Uuid,
    Date,
    Time,
    TimeTz,
    Timestamp,
    TimestampTz,
    Interval,
    Bytes,
    Void,
    Array(Box<Self>),
}

impl Kind {
    /// How values of this type are read; `None`: they are not supported.
    pub(super) fn of(info: &PgTypeInfo) -> Option<Self> {
        match info.kind() {
            PgTypeKind::Array(element) => match Self::of(element)? {
                // An array of arrays is one array with two dimensions; only a domain could nest two.
                Self::Array(_) | Self::Void => None,
                element => Some(Self::Array(Box::new(element))),
            },
            PgTypeKind::Domain(base) => Self::of(base),
            PgTypeKind::Enum(_) => Some(Self::Text),
            PgTypeKind::Composite(_) | PgTypeKind::Range(_) => None,
            PgTypeKind::Simple | PgTypeKind::Pseudo => Self::simple(info),
        }
    }

    /// By the oid in `pg_type.dat`, which never changes; citext by its name, for it belongs to an extension.
    fn simple(info: &PgTypeInfo) -> Option<Self> {
        Some(match info.oid()?.0 {
            16 => Self::Bool,
            17 => Self::Bytes,
            18 => Self::Char,
            20 => Self::Int8,
            21 => Self::Int2,
            23 => Self::Int4,
            26 => Self::Oid,
            19 | 25 | 705 | 1042 | 1043 => Self::Text,
            114 => Self::Json,
            700 => Self::Float4,
            701 => Self::Float8,
            1082 => Self::Date,
            1083 => Self::Time,
            1114 => Self::Timestamp,
            1184 => Self::TimestampTz,
            1186 => Self::Interval,
            1266 => Self::TimeTz,
            1700 => Self::Numeric,
            2278 => Self::Void,
            2950 => Self::Uuid,
            3802 => Self::Jsonb,
            _ if sqlx::TypeInfo::name(info).eq_ignore_ascii_case("citext") => Self::Text,
            _ => return None,
        })
    }
}
