//! What a file is called and what kind it is, as headers say it. Whether that may be decides the door. Pure.

use std::{borrow::Cow, fmt::Write as _};

use axum::http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CONTENT_DISPOSITION, CONTENT_TYPE},
};
use fleet::wire::{code::Code, message::Message};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::{headers::FILE_NAME, refusal::Refused};

/// The name of a file that nobody has named.
const NAMELESS: &str = "file";
/// The kind of a file of which nobody says it.
const ANY_KIND: &str = "application/octet-stream";
/// What RFC 8187 has escaped in a name.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// The name: that of `Toolfleet-File-Name`, which may be percent-encoded, else of `Content-Disposition`.
///
/// # Errors
///
/// `header_invalid`: it is no text.
pub(crate) fn name(headers: &HeaderMap) -> Result<String, Refused> {
    if let Some(line) = single(headers.get_all(&FILE_NAME).iter())? {
        let text = std::str::from_utf8(line.as_bytes()).map_err(|_no_text| wrong())?;
        return decoded(text.trim());
    }
    let Some(line) = single(headers.get_all(CONTENT_DISPOSITION).iter())? else {
        return Ok(NAMELESS.to_owned());
    };
    let text = std::str::from_utf8(line.as_bytes()).map_err(|_no_text| wrong())?;
    let named = parameters(text)?;
    let of = |name: &str| {
        let found = named.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    };
    match (of("filename*"), of("filename")) {
        (Some(extended), _) => {
            let (charset, rest) = extended.split_once('\'').ok_or_else(wrong)?;
            let (_language, text) = rest.split_once('\'').ok_or_else(wrong)?;
            if !charset.eq_ignore_ascii_case("utf-8") {
                return Err(wrong());
            }
            decoded(text)
        }
        (None, Some(plain)) => Ok(plain.to_owned()),
        (None, None) => Ok(NAMELESS.to_owned()),
    }
}

/// The kind: `type/subtype`, without parameters.
///
/// # Errors
///
/// `header_invalid`: it is no text, stands there twice, or the body is a form.
pub(crate) fn mime(headers: &HeaderMap) -> Result<String, Refused> {
    let Some(line) = single(headers.get_all(CONTENT_TYPE).iter())? else {
        return Ok(ANY_KIND.to_owned());
    };
    let text = line.to_str().map_err(|_no_text| wrong())?;
    let kind = text.split(';').next().unwrap_or_default().trim();
    match kind.to_ascii_lowercase().as_str() {
        // What curl says where nobody says it.
        "application/x-www-form-urlencoded" => Ok(ANY_KIND.to_owned()),
        form if form.starts_with("multipart/") => {
            let what = Message::fixed(
                "the body has to be the bytes of the file and no form: with curl, --data-binary @FILE",
                "请求体必须是文件本身的内容，而不是表单：使用 curl 时请用 --data-binary @FILE",
            );
            let refused = Refused::new(Code::HeaderInvalid, what);
            Err(refused.status(StatusCode::UNSUPPORTED_MEDIA_TYPE))
        }
        kind => Ok(kind.to_owned()),
    }
}

/// `Content-Disposition` of a file that is sent: to be kept, not to be shown.
pub(crate) fn attachment(name: &str) -> HeaderValue {
    let mut line = "attachment; filename=\"".to_owned();
    line.extend(name.chars().map(|letter| match letter {
        ' '..='~' if !"\"\\%/".contains(letter) => letter,
        _ => '_',
    }));
    let escaped = utf8_percent_encode(name, ESCAPED);
    write!(line, "\"; filename*=UTF-8''{escaped}").expect("text can be written");
    HeaderValue::try_from(line).expect("only visible ASCII is left")
}

/// The parameters behind the first word, in lower case; quoted values without their quotes.
fn parameters(text: &str) -> Result<Vec<(String, String)>, Refused> {
    let mut found = Vec::new();
    let mut rest = text.split_once(';').map_or("", |(_, rest)| rest);
    while !rest.trim().is_empty() {
        let (name, behind) = rest.split_once('=').ok_or_else(wrong)?;
        let behind = behind.trim_start();
        let value = if let Some(quoted) = behind.strip_prefix('"') {
            let (value, end) = unquoted(quoted).ok_or_else(wrong)?;
            rest = quoted[end..].trim_start();
            rest = match rest.strip_prefix(';') {
                Some(rest) => rest,
                None if rest.is_empty() => rest,
                None => return Err(wrong()),
            };
            value
        } else {
            let (value, behind) = behind.split_once(';').unwrap_or((behind, ""));
            rest = behind;
            value.trim().to_owned()
        };
        let name = name.trim().to_ascii_lowercase();
        if found.iter().any(|(before, _)| *before == name) {
            return Err(wrong());
        }
        found.push((name, value));
    }
    Ok(found)
}

/// What stands before the closing quote, and where it ends.
fn unquoted(text: &str) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, at + 1)),
            '\\' => value.push(letters.next()?.1),
            _ => value.push(letter),
        }
    }
    None
}

fn decoded(text: &str) -> Result<String, Refused> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(Cow::into_owned).map_err(|_no_text| wrong())
}

/// The one line; two of them are one too many.
fn single<'a>(
    mut lines: impl Iterator<Item = &'a HeaderValue>,
) -> Result<Option<&'a HeaderValue>, Refused> {
    match (lines.next(), lines.next()) {
        (line, None) => Ok(line),
        (_, Some(_)) => Err(wrong()),
    }
}

fn wrong() -> Refused {
    let what = Message::fixed(
        "Content-Type, Content-Disposition and Toolfleet-File-Name may stand there once each, and must be text in UTF-8, percent-encoded \
         where it is not ASCII",
        "Content-Type、Content-Disposition 和 Toolfleet-File-Name 各只能出现一次，并且必须是 UTF-8 文本（非 ASCII 字符用百分号编码）",
    );
    Refused::new(Code::HeaderInvalid, what)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn map(lines: &[(&str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn a_name_is_read_from_either_header() {
        let of = |line: &str| name(&map(&[("content-disposition", line.as_bytes())])).ok();
        for (line, is) in [
            ("attachment", Some("file")),
            ("attachment; filename=\"a b.pdf\"", Some("a b.pdf")),
            ("attachment;filename=a.pdf ; x=y", Some("a.pdf")),
            (r#"attachment; filename="a\"b;c.pdf""#, Some("a\"b;c.pdf")),
            (
                "attachment; filename=\"x\"; filename*=UTF-8''%e2%82%ac.pdf",
                Some("\u{20ac}.pdf"),
            ),
            (
                "attachment; filename=\"../../etc/passwd\"",
                Some("../../etc/passwd"),
            ),
            ("attachment; filename*=latin1''a", None),
            ("attachment; filename*=UTF-8''%ff", None),
            ("attachment; filename=\"open", None),
            ("attachment; filename=\"a\" b", None),
            ("attachment; filename=a; filename=b", None),
        ] {
            assert_eq!(of(line).as_deref(), is, "{line}");
        }
        let plain = |line: &[u8]| name(&map(&[("toolfleet-file-name", line)])).ok();
        assert_eq!(plain(b"a%20b.pdf").as_deref(), Some("a b.pdf"));
        let euro = "\u{20ac}.pdf";
        assert_eq!(plain(euro.as_bytes()).as_deref(), Some(euro));
        assert_eq!(plain(b"\xff"), None);
        let both = map(&[
            ("toolfleet-file-name", b"a"),
            ("content-disposition", b"attachment; filename=b"),
        ]);
        assert_eq!(name(&both).ok().as_deref(), Some("a"));
        assert_eq!(name(&map(&[])).ok().as_deref(), Some("file"));
        let twice = map(&[("toolfleet-file-name", b"a"), ("toolfleet-file-name", b"a")]);
        assert!(name(&twice).is_err());
    }

    #[test]
    fn a_kind_has_no_parameters() {
        let of = |line: &str| mime(&map(&[("content-type", line.as_bytes())])).ok();
        assert_eq!(
            of("Text/Plain; charset=utf-8").as_deref(),
            Some("text/plain")
        );
        assert_eq!(mime(&map(&[])).ok().as_deref(), Some(ANY_KIND));
        let curls = "application/x-www-form-urlencoded";
        assert_eq!(of(curls).as_deref(), Some(ANY_KIND));
        assert_eq!(of("Multipart/form-data; boundary=x"), None);
    }

    #[test]
    fn a_name_that_is_sent_can_do_no_harm() {
        let line = attachment("a\"b\\\u{20ac} %.pdf");
        assert_eq!(
            line.to_str().unwrap(),
            "attachment; filename=\"a_b__ _.pdf\"; filename*=UTF-8''a%22b%5C%E2%82%AC%20%25.pdf"
        );
        assert_eq!(
            name(&map(&[("content-disposition", line.as_bytes())]))
                .ok()
                .as_deref(),
            Some("a\"b\\\u{20ac} %.pdf")
        );
    }
}
