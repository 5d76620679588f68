//! The types that an answer may have.

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
    /// How values of a type are read; `None` if they are not. The row is that of a column in `statement::COLUMNS`.
    pub(super) fn of(row: &[String]) -> Option<Self> {
        let [arrays, oid, sort, name, ..] = row else {
            return None;
        };
        let item = match sort.as_str() {
            "b" | "p" => Self::simple(oid.parse().ok()?, name)?,
            // An enum.
            "e" => Self::Text,
            _ => return None,
        };
        match (arrays.as_str(), item) {
            ("0", item) => Some(item),
            ("1", Self::Void) => None,
            ("1", item) => Some(Self::Array(Box::new(item))),
            // An array of arrays is one array of two dimensions: only a domain could make it two.
            _ => None,
        }
    }

    /// By the number that `pg_type.dat` gives it, which never changes; citext by its name, for it is an extension's.
    fn simple(oid: u32, name: &str) -> Option<Self> {
        Some(match oid {
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
            _ if name.eq_ignore_ascii_case("citext") => Self::Text,
            _ => return None,
        })
    }
}
