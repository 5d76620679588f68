//! The headers of a submission on their way from HTTP to NATS: the contract's own go through as they are, all others stay here.
//!
//! Three are the gateway's: `Prefer` may also say `status=outcome`, `Toolfleet-On-Disconnect` says what becomes of the call when its
//! caller goes away, and into `Toolfleet-Meta` the gateway writes who asks.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName};
use fleet::{
    said,
    wire::{code::Code, headers::RequestHeaders, message::Message},
};

use crate::{
    form::{Fields, NoFields},
    headers::{IDEMPOTENCY_KEY, META, ON_DISCONNECT, PREFER, SESSION, TENANT},
    refusal::Refused,
    status::Column,
};

/// The contract's headers that do not begin as ours do.
const OTHERS: [&str; 5] = [
    "idempotency-key",
    "cache-control",
    "traceparent",
    "tracestate",
    "baggage",
];
/// How the names of our headers begin.
const OURS: &str = "toolfleet-";
/// How the names begin that the gateway gives out itself: the keys and the sessions of turns, and the keys of requests over MCP
/// that have none.
const OUR_NAMES: [&str; 2] = ["turn_", "mcp-"];
/// The field of `Toolfleet-Meta` that says who asks.
pub(crate) const PRINCIPAL: &str = "principal";

/// How the caller wants to be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Preference {
    /// What goes to the door, where it is said.
    said: Option<String>,
    /// How the status is chosen.
    pub(crate) column: Column,
}

/// What becomes of a call when its caller goes away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum OnDisconnect {
    /// It goes on.
    #[default]
    Keep,
    /// It is cancelled.
    Cancel,
}

impl Preference {
    /// Of all `Prefer` lines together, which are one list. What the gateway does not know is the door's to judge.
    ///
    /// # Errors
    ///
    /// A line is no text, or says of the status what is not known here.
    pub(crate) fn read(headers: &HeaderMap) -> Result<Self, Refused> {
        let mut column = Column::Plain;
        let mut said = Vec::new();
        for line in headers.get_all(&PREFER) {
            let line = text(&PREFER, line.as_bytes())?;
            for preference in line.split(',').map(str::trim) {
                match preference {
                    "" => {}
                    "status=outcome" => column = Column::ByOutcome,
                    other if other.starts_with("status") => {
                        let english = "respond-async or wait=N, and perhaps status=outcome";
                        let chinese = "是 respond-async 或 wait=N，还可以有 status=outcome";
                        return Err(invalid(&PREFER, english, chinese));
                    }
                    other => said.push(other),
                }
            }
        }
        let said = (!said.is_empty()).then(|| said.join(", "));
        Ok(Self { said, column })
    }

    /// Of a caller that waits so many seconds, and gets no status.
    pub(crate) fn waiting(seconds: u64) -> Self {
        Self {
            said: Some(format!("wait={seconds}")),
            column: Column::Plain,
        }
    }

    /// Of a caller that does not wait.
    pub(crate) fn at_once() -> Self {
        Self {
            said: Some("respond-async".to_owned()),
            column: Column::Plain,
        }
    }

    /// How long the caller waits for the outcome; `None`: not at all, or something that the door will refuse.
    pub(crate) fn wait(&self) -> Option<Duration> {
        match self.said.as_deref() {
            None => Some(RequestHeaders::WAIT_DEFAULT),
            Some(said) => {
                let seconds = said.strip_prefix("wait=")?;
                let digits = seconds.bytes().all(|byte| byte.is_ascii_digit());
                let wait = Duration::from_secs(seconds.parse().ok().filter(|_| digits)?);
                (wait <= RequestHeaders::WAIT_MAX).then_some(wait)
            }
        }
    }

    /// As it goes to the door.
    pub(crate) fn said(&self) -> Option<&str> {
        self.said.as_deref()
    }
}

impl OnDisconnect {
    /// Of the header.
    ///
    /// # Errors
    ///
    /// It is neither `keep` nor `cancel`.
    pub(crate) fn read(headers: &HeaderMap) -> Result<Self, Refused> {
        let mut lines = headers.get_all(&ON_DISCONNECT).iter();
        match (lines.next().map(|line| line.as_bytes()), lines.next()) {
            (None, _) | (Some(b"keep"), None) => Ok(Self::Keep),
            (Some(b"cancel"), None) => Ok(Self::Cancel),
            (Some(_), _) => Err(invalid(
                &ON_DISCONNECT,
                "keep or cancel",
                "是 keep 或 cancel",
            )),
        }
    }
}

/// The headers for the door, without `Prefer`. `principal`: who asks, by name.
///
/// # Errors
///
/// A line is no text, or the caller writes itself who asks.
pub(crate) fn headers(
    headers: &HeaderMap,
    principal: Option<&str>,
) -> Result<async_nats::HeaderMap, Refused> {
    let mut passed = async_nats::HeaderMap::new();
    for (name, value) in headers {
        let is_contracts = OTHERS.contains(&name.as_str()) || name.as_str().starts_with(OURS);
        if !is_contracts || [TENANT, ON_DISCONNECT, META].contains(name) {
            continue;
        }
        append(&mut passed, name, text(name, value.as_bytes())?.trim());
    }
    let metas = headers.get_all(&META).iter();
    let metas: Result<Vec<&str>, Refused> =
        metas.map(|value| text(&META, value.as_bytes())).collect();
    match (metas?.as_slice(), principal) {
        ([], None) => {}
        ([], Some(_)) => append(&mut passed, &META, &with_principal("{}", principal)?),
        // Twice, which the door refuses.
        (metas, _) => {
            for meta in metas {
                append(&mut passed, &META, &with_principal(meta, principal)?);
            }
        }
    }
    Ok(passed)
}

/// Refuses a key or a session of a name that only the gateway gives out: with it a call would be taken for one of a turn, or for
/// that of somebody else's request.
///
/// # Errors
///
/// As said.
pub(crate) fn own_names(headers: &HeaderMap) -> Result<(), Refused> {
    let named = [IDEMPOTENCY_KEY, SESSION];
    let mut named = named.iter().flat_map(|name| headers.get_all(name));
    named.try_for_each(|name| own_name(name.to_str().unwrap_or_default().trim()))
}

/// The same for one of them.
///
/// # Errors
///
/// As said.
pub(crate) fn own_name(name: &str) -> Result<(), Refused> {
    let Some(ours) = OUR_NAMES.iter().find(|ours| name.starts_with(**ours)) else {
        return Ok(());
    };
    let what = said!(
        "keys and sessions that begin with {ours} are the gateway's own: take another",
        "以 {ours} 开头的 key 和会话由网关自己使用：请使用其他名称"
    );
    Err(Refused::new(Code::HeaderInvalid, what))
}

/// A caller's data for the tool, with who asks. What is no object stays as it is: the door refuses it.
///
/// # Errors
///
/// The caller writes itself who asks.
pub(crate) fn with_principal(meta: &str, principal: Option<&str>) -> Result<String, Refused> {
    let mut fields = match Fields::of(meta) {
        Ok(fields) => fields,
        // It may say itself who asks, where nobody looks.
        Err(NoFields::TooMany) => {
            let what = Message::fixed("meta has too many fields", "meta 的字段太多");
            return Err(Refused::new(Code::HeaderInvalid, what));
        }
        Err(NoFields::Other) => return Ok(meta.to_owned()),
    };
    if fields.has(PRINCIPAL) {
        let what = Message::fixed(
            "meta.principal is written by the gateway alone: leave it out",
            "meta.principal 只能由网关写入：请去掉它",
        );
        return Err(Refused::new(Code::HeaderInvalid, what));
    }
    let Some(principal) = principal else {
        return Ok(meta.to_owned());
    };
    fields.push(PRINCIPAL, &principal);
    Ok(fields.to_text())
}

fn append(headers: &mut async_nats::HeaderMap, name: &HeaderName, value: &str) {
    headers.append(name.as_str(), value);
}

/// The text of a header.
fn text<'a>(name: &HeaderName, value: &'a [u8]) -> Result<&'a str, Refused> {
    let is_text = |text: &&str| !text.contains(['\r', '\n', '\0']);
    let text = std::str::from_utf8(value).ok().filter(is_text);
    text.ok_or_else(|| invalid(name, "text in UTF-8", "是 UTF-8 文本"))
}

fn invalid(name: &HeaderName, english: &'static str, chinese: &'static str) -> Refused {
    let rule = Message::fixed(english, chinese);
    let what = said!(
        "header {name} must be {rule}",
        "请求头 {name} 必须{rule}",
        rule
    );
    Refused::new(Code::HeaderInvalid, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    fn passed(lines: &[(&str, &str)], principal: Option<&str>) -> Vec<(String, String)> {
        let passed = headers(&map(lines), principal).unwrap();
        let mut lines: Vec<(String, String)> = passed
            .iter()
            .flat_map(|(name, values)| {
                values
                    .iter()
                    .map(|value| (name.to_string().to_lowercase(), value.to_string()))
            })
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn the_contracts_headers_go_through_and_no_others() {
        let sent = [
            ("Idempotency-Key", "k"),
            ("Toolfleet-Run", "r"),
            ("Toolfleet-Unknown", "x"),
            ("traceparent", "00-x"),
            ("Authorization", "Bearer tf_x_y"),
            ("Cookie", "a=b"),
            ("Host", "localhost"),
            ("Prefer", "wait=3"),
            ("Toolfleet-Tenant", "acme"),
            ("Toolfleet-On-Disconnect", "cancel"),
        ];
        let names: Vec<String> = passed(&sent, None).into_iter().map(|line| line.0).collect();
        assert_eq!(
            names,
            [
                "idempotency-key",
                "toolfleet-run",
                "toolfleet-unknown",
                "traceparent"
            ]
        );
    }

    #[test]
    fn the_gateway_alone_says_who_asks() {
        let meta = |value, principal| passed(&[("Toolfleet-Meta", value)], principal)[0].1.clone();
        assert_eq!(meta("{\"a\": 1E2}", None), "{\"a\": 1E2}");
        assert_eq!(
            meta("{\"a\": 1E2}", Some("ann")),
            r#"{"a":1E2,"principal":"ann"}"#
        );
        assert_eq!(passed(&[], Some("ann"))[0].1, r#"{"principal":"ann"}"#);
        assert_eq!(meta("[1]", Some("ann")), "[1]");
        for own in [
            r#"{"principal":"root"}"#,
            r#"{"a":1,"princip\u0061l":null}"#,
        ] {
            for principal in [None, Some("ann")] {
                let sent = map(&[("Toolfleet-Meta", own)]);
                assert!(headers(&sent, principal).is_err(), "{own}");
            }
        }
    }

    #[test]
    fn a_preference_for_the_status_is_the_gateways_and_the_rest_the_doors() {
        let read = |lines: &[(&str, &str)]| {
            let preference = Preference::read(&map(lines)).unwrap();
            let said = preference.said().map(ToOwned::to_owned);
            (
                said,
                preference.wait().map(|wait| wait.as_secs()),
                preference.column,
            )
        };
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(read(&[]), (None, Some(30), Column::Plain));
        assert_eq!(
            read(&[("Prefer", "status=outcome")]),
            (None, Some(30), Column::ByOutcome)
        );
        assert_eq!(
            read(&[("Prefer", "respond-async, status=outcome")]),
            (said("respond-async"), None, Column::ByOutcome)
        );
        assert_eq!(
            read(&[("Prefer", "wait=5"), ("Prefer", "status=outcome")]),
            (said("wait=5"), Some(5), Column::ByOutcome)
        );
        for refused in ["wait=301", "wait=-1", "wait=", "soon", "wait=1, wait=2"] {
            let (passed, wait, _) = read(&[("Prefer", refused)]);
            assert_eq!((passed.as_deref(), wait), (Some(refused), None));
        }
    }

    #[test]
    fn a_call_is_kept_or_cancelled_and_nothing_between() {
        let read = |value| OnDisconnect::read(&map(&[("Toolfleet-On-Disconnect", value)]));
        assert_eq!(read("cancel").unwrap(), OnDisconnect::Cancel);
        assert_eq!(read("keep").unwrap(), OnDisconnect::Keep);
        assert!(read("Cancel").is_err() && read("").is_err());
    }
}
