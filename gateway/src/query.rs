//! The query of a URL, read strictly: what nobody asked for is refused by name, so that a misspelt filter does not mean everything.

use std::str::FromStr;

use fleet::{
    said,
    wire::{code::Code, message::Message},
};
use percent_encoding::percent_decode_str;

use crate::refusal::Refused;

/// The parameters of a request.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads it; the endpoint has these parameters and no others.
    ///
    /// # Errors
    ///
    /// A parameter is unknown, stands there twice, or is no text.
    pub(crate) fn read(query: Option<&str>, known: &[&str]) -> Result<Self, Refused> {
        let mut read: Vec<(String, String)> = Vec::new();
        let pairs = query.unwrap_or_default().split('&');
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (decoded(name), decoded(value)) else {
                return Err(wrong(Message::fixed(
                    "the query must be text in UTF-8",
                    "查询参数必须是 UTF-8 文本",
                )));
            };
            if !known.contains(&name.as_str()) {
                return Err(unknown(&name, known));
            }
            if read.iter().any(|(before, _)| *before == name) {
                return Err(wrong(said!(
                    "the parameter {name} stands there twice",
                    "参数 {name} 出现了两次"
                )));
            }
            read.push((name, value));
        }
        Ok(Self(read))
    }

    /// The query that a browser makes of a form: `+` is a space, and a field that nothing was written into is left out.
    ///
    /// # Errors
    ///
    /// As for [`Self::read`].
    pub(crate) fn of_form(query: Option<&str>, known: &[&str]) -> Result<Self, Refused> {
        let pairs = query.unwrap_or_default().split('&');
        let written = pairs.filter(|pair| !pair.ends_with('=') && pair.contains('='));
        let query = written.collect::<Vec<_>>().join("&").replace('+', "%20");
        Self::read(Some(&query), known)
    }

    /// The text of a parameter.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// A parameter as this type; `rule` is readable after "must be" and 必须.
    ///
    /// # Errors
    ///
    /// It is none.
    pub(crate) fn value<T: FromStr>(
        &self,
        name: &str,
        rule: Message,
    ) -> Result<Option<T>, Refused> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        text.parse()
            .map(Some)
            .map_err(|_wrong| wrong(said!("{name} must be {rule}", "{name} 必须{rule}", rule)))
    }
}

fn unknown(name: &str, known: &[&str]) -> Refused {
    let name: String = name.chars().take(64).collect();
    if known.is_empty() {
        return wrong(said!(
            "there is no parameter {name:?}: what is asked for here stands in the path and the body",
            "没有参数 {name:?}：请求的内容写在路径和请求体中"
        ));
    }
    let known = known.join(", ");
    wrong(said!(
        "there is no parameter {name:?}; there may be: {known}",
        "没有参数 {name:?}；可以有：{known}"
    ))
}

/// `+` stays what it is: a key may have one.
fn decoded(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?;
    (!text.contains('\0')).then(|| text.into_owned())
}

fn wrong(what: Message) -> Refused {
    Refused::new(Code::InvalidArguments, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_asked_for_is_refused() {
        let read = |query| Query::read(Some(query), &["tool", "wait_ms"]);
        let query = read("tool=a%2Fb&wait_ms=5&").unwrap();
        assert_eq!(query.text("tool"), Some("a/b"));
        let rule = Message::fixed("a number", "是数字");
        assert_eq!(
            query.value::<u64>("wait_ms", rule.clone()).unwrap(),
            Some(5)
        );
        assert_eq!(query.value::<u64>("none", rule.clone()).unwrap(), None);
        assert!(query.value::<u64>("tool", rule).is_err());
        assert_eq!(read("tool=a+b").unwrap().text("tool"), Some("a+b"));
        let of_form = Query::of_form(Some("tool=a+b%2Bc&wait_ms="), &["tool"]).unwrap();
        assert_eq!(of_form.text("tool"), Some("a b+c"));
        for bad in ["tol=x", "tool=a&tool=b", "tool=%ff", "tool=%00", "Tool=x"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert_eq!(Query::read(None, &[]).unwrap().text("tool"), None);
    }
}
