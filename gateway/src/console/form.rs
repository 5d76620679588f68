//! What a browser sends of a form: `application/x-www-form-urlencoded`.

use axum::{body::Body, http::HeaderMap};
use fleet::wire::{code::Code, message::Message};
use percent_encoding::percent_decode;

use crate::{asked::Asked, body, refusal::Refused, state::Gateway};

/// The most bytes of a form: the largest arguments, of which each byte may be written as three.
const BYTES_MAX: usize = 3 * body::CALL_MAX + 16 * 1024;
/// The most bytes of one of somebody who has not signed in.
const SHORT_MAX: usize = 16 * 1024;
/// The most fields.
const FIELDS_MAX: usize = 64;

/// The fields of a form.
#[derive(Debug, Default)]
pub(super) struct SentForm(Vec<(String, String)>);

impl SentForm {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// It is too long, or no form.
    pub(super) async fn read(
        gateway: &Gateway,
        asked: &Asked,
        body: Body,
    ) -> Result<Self, Refused> {
        Self::read_within(gateway, asked, body, BYTES_MAX).await
    }

    /// The same of somebody who has not signed in.
    ///
    /// # Errors
    ///
    /// As for [`Self::read`].
    pub(super) async fn read_short(
        gateway: &Gateway,
        asked: &Asked,
        body: Body,
    ) -> Result<Self, Refused> {
        Self::read_within(gateway, asked, body, SHORT_MAX).await
    }

    async fn read_within(
        gateway: &Gateway,
        asked: &Asked,
        body: Body,
        bytes_max: usize,
    ) -> Result<Self, Refused> {
        is_form(&asked.headers)?;
        let bytes = body::read(&gateway.bodies, asked, body, bytes_max).await?;
        body::aside(bytes.len(), move || Self::of(&bytes)).await?
    }

    pub(super) fn of(bytes: &[u8]) -> Result<Self, Refused> {
        let pairs = bytes
            .split(|byte| *byte == b'&')
            .filter(|pair| !pair.is_empty());
        let mut fields = Vec::new();
        for pair in pairs {
            let mut halves = pair.splitn(2, |byte| *byte == b'=');
            let (name, value) = (
                halves.next().unwrap_or_default(),
                halves.next().unwrap_or_default(),
            );
            let (Some(name), Some(value)) = (decoded(name), decoded(value)) else {
                return Err(no_form());
            };
            if fields.len() == FIELDS_MAX {
                return Err(no_form());
            }
            fields.push((name, value));
        }
        Ok(Self(fields))
    }

    /// What was written into this field; `None`: nothing.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        let text = found.map(|(_, value)| value.trim());
        text.filter(|text| !text.is_empty())
    }

    /// Whether a box is ticked.
    pub(super) fn is_ticked(&self, name: &str) -> bool {
        self.text(name).is_some()
    }
}

fn is_form(headers: &HeaderMap) -> Result<(), Refused> {
    let kind = headers.get(axum::http::header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    match kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        true => Ok(()),
        false => Err(no_form()),
    }
}

/// Line ends as texts have them: browsers send them as two characters.
fn decoded(bytes: &[u8]) -> Option<String> {
    let spaced: Vec<u8> = bytes
        .iter()
        .map(|byte| if *byte == b'+' { b' ' } else { *byte })
        .collect();
    let text = percent_decode(&spaced)
        .decode_utf8()
        .ok()?
        .replace("\r\n", "\n");
    (!text.contains('\0')).then_some(text)
}

fn no_form() -> Refused {
    let what = Message::fixed(
        "the console takes forms as its pages have them",
        "控制台只接受其页面上的表单",
    );
    Refused::new(Code::InvalidArguments, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_browsers_write_them() {
        let form =
            SentForm::of(b"note=a+%2B+b%0D%0Ac&empty=&by_time_only=yes&n=%E4%B8%AD").unwrap();
        assert_eq!(form.text("note"), Some("a + b\nc"));
        assert_eq!((form.text("empty"), form.text("none")), (None, None));
        assert_eq!(form.text("n"), Some("中"));
        assert!(form.is_ticked("by_time_only") && !form.is_ticked("empty"));
        assert!(SentForm::of(b"a=%ff").is_err() && SentForm::of(b"a=%00").is_err());
        let many = "a=b&".repeat(FIELDS_MAX + 1);
        assert!(SentForm::of(many.as_bytes()).is_err());
    }
}
