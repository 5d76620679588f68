//! A value from Postgres as JSON: exact, and independent of the session's settings.

use std::fmt::Write;

use sqlx::types::Uuid;

use super::{kind::Kind, moment};

/// The bytes do not fit their type: a fault of the driver or the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

/// Writes a value as JSON.
pub(super) fn write(out: &mut String, kind: &Kind, bytes: &[u8]) -> Result<(), Unreadable> {
    let mut bytes = Bytes(bytes);
    match kind {
        Kind::Bool => out.push_str(if bytes.u8()? == 0 { "false" } else { "true" }),
        Kind::Int2 => number(out, bytes.i16()?),
        Kind::Int4 => number(out, bytes.i32()?),
        Kind::Int8 => number(out, bytes.i64()?),
        Kind::Oid => number(out, bytes.i32()?.cast_unsigned()),
        Kind::Float4 => {
            let value = f32::from_bits(bytes.i32()?.cast_unsigned());
            float(out, value.is_finite(), value.into(), &value)?;
        }
        Kind::Float8 => {
            let value = f64::from_bits(bytes.i64()?.cast_unsigned());
            float(out, value.is_finite(), value, &value)?;
        }
        Kind::Numeric => numeric(out, &mut bytes)?,
        Kind::Text => text(out, bytes.rest_as_str()?),
        Kind::Char => match bytes.u8()? {
            0 => out.push_str("\"\""),
            byte => text(out, &String::from_utf8_lossy(&[byte])),
        },
        Kind::Json => out.push_str(bytes.rest_as_str()?),
        Kind::Jsonb => match bytes.u8()? {
            1 => out.push_str(bytes.rest_as_str()?),
            _ => return Err(Unreadable),
        },
        Kind::Uuid => {
            let uuid = Uuid::from_bytes(bytes.take()?);
            text(out, &uuid.to_string());
        }
        Kind::Date => text(out, &moment::date(bytes.i32()?)),
        Kind::Time => text(out, &moment::time(bytes.i64()?)),
        Kind::TimeTz => text(out, &moment::time_with_zone(bytes.i64()?, bytes.i32()?)),
        Kind::Timestamp => text(out, &moment::timestamp(bytes.i64()?, "")),
        Kind::TimestampTz => text(out, &moment::timestamp(bytes.i64()?, "Z")),
        Kind::Interval => text(
            out,
            &moment::interval(bytes.i64()?, bytes.i32()?, bytes.i32()?),
        ),
        Kind::Bytes => {
            out.push_str("\"\\\\x");
            for byte in bytes.rest() {
                write!(out, "{byte:02x}").map_err(|_never| Unreadable)?;
            }
            out.push('"');
        }
        Kind::Void => out.push_str("null"),
        Kind::Array(element) => array(out, element, &mut bytes)?,
    }
    bytes.end()
}

/// A text as a JSON string.
pub(super) fn text(out: &mut String, text: &str) {
    out.push_str(&serde_json::to_string(text).expect("a text is JSON"));
}

fn number(out: &mut String, number: impl std::fmt::Display) {
    write!(out, "{number}").expect("a String takes everything");
}

/// The shortest digits that are this number. NaN and the infinities have no JSON number.
fn float(
    out: &mut String,
    finite: bool,
    wide: f64,
    value: &impl serde::Serialize,
) -> Result<(), Unreadable> {
    if finite {
        out.push_str(&serde_json::to_string(value).map_err(|_not_a_number| Unreadable)?);
    } else if wide.is_nan() {
        out.push_str("\"NaN\"");
    } else {
        out.push_str(if wide > 0.0 {
            "\"Infinity\""
        } else {
            "\"-Infinity\""
        });
    }
    Ok(())
}

/// Groups of four decimal digits: how many, the weight of the first, the sign, and the digits after the point.
fn numeric(out: &mut String, bytes: &mut Bytes<'_>) -> Result<(), Unreadable> {
    let (count, weight) = (bytes.i16()?, bytes.i16()?);
    let (sign, scale) = (bytes.i16()?.cast_unsigned(), bytes.i16()?);
    match sign {
        0x0000 => {}
        0x4000 => out.push('-'),
        0xC000 => out.push_str("\"NaN\""),
        0xD000 => out.push_str("\"Infinity\""),
        0xF000 => out.push_str("\"-Infinity\""),
        _ => return Err(Unreadable),
    }
    if sign > 0x4000 {
        return Ok(());
    }
    let mut groups = Vec::new();
    for _ in 0..count {
        let group = bytes.i16()?;
        if !(0..10_000).contains(&group) {
            return Err(Unreadable);
        }
        groups.push(group);
    }
    // Postgres leaves out groups of zeros at either end.
    let group = |power: i32| {
        usize::try_from(i32::from(weight) - power)
            .ok()
            .and_then(|at| groups.get(at))
            .copied()
            .unwrap_or(0)
    };
    if weight < 0 {
        out.push('0');
    }
    for power in (0..=i32::from(weight)).rev() {
        if power == i32::from(weight) {
            number(out, group(power));
        } else {
            write!(out, "{:04}", group(power)).map_err(|_never| Unreadable)?;
        }
    }
    if scale > 0 {
        let scale = usize::try_from(scale).map_err(|_negative| Unreadable)?;
        let mut digits = String::with_capacity(scale + 4);
        let mut power = -1;
        while digits.len() < scale {
            write!(digits, "{:04}", group(power)).map_err(|_never| Unreadable)?;
            power -= 1;
        }
        digits.truncate(scale);
        out.push('.');
        out.push_str(&digits);
    }
    Ok(())
}

/// The most dimensions of an array in Postgres.
const DIMENSIONS_MAX: i32 = 6;

fn array(out: &mut String, element: &Kind, bytes: &mut Bytes<'_>) -> Result<(), Unreadable> {
    let dimensions = bytes.i32()?;
    let (_has_nulls, _element_oid) = (bytes.i32()?, bytes.i32()?);
    if !(0..=DIMENSIONS_MAX).contains(&dimensions) {
        return Err(Unreadable);
    }
    let mut lengths = Vec::new();
    for _ in 0..dimensions {
        lengths.push(bytes.i32()?);
        let _lower_bound = bytes.i32()?;
    }
    if lengths.is_empty() {
        out.push_str("[]");
        return Ok(());
    }
    items(out, element, bytes, &lengths)
}

fn items(
    out: &mut String,
    element: &Kind,
    bytes: &mut Bytes<'_>,
    lengths: &[i32],
) -> Result<(), Unreadable> {
    let Some((length, inner)) = lengths.split_first() else {
        return match bytes.i32()? {
            -1 => {
                out.push_str("null");
                Ok(())
            }
            length => {
                let length = usize::try_from(length).map_err(|_negative| Unreadable)?;
                write(out, element, bytes.slice(length)?)
            }
        };
    };
    out.push('[');
    for index in 0..*length {
        if index > 0 {
            out.push(',');
        }
        items(out, element, bytes, inner)?;
    }
    out.push(']');
    Ok(())
}

/// The bytes that are not read yet.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn slice(&mut self, length: usize) -> Result<&'a [u8], Unreadable> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Unreadable)?;
        self.0 = rest;
        Ok(taken)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        self.slice(N)?
            .try_into()
            .map_err(|_other_length| Unreadable)
    }

    fn u8(&mut self) -> Result<u8, Unreadable> {
        Ok(u8::from_be_bytes(self.take()?))
    }

    fn i16(&mut self) -> Result<i16, Unreadable> {
        Ok(i16::from_be_bytes(self.take()?))
    }

    fn i32(&mut self) -> Result<i32, Unreadable> {
        Ok(i32::from_be_bytes(self.take()?))
    }

    fn i64(&mut self) -> Result<i64, Unreadable> {
        Ok(i64::from_be_bytes(self.take()?))
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn rest_as_str(&mut self) -> Result<&'a str, Unreadable> {
        std::str::from_utf8(self.rest()).map_err(|_not_text| Unreadable)
    }

    const fn end(&self) -> Result<(), Unreadable> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Unreadable)
        }
    }
}
