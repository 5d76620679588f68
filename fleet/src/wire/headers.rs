//! Request headers, read once and refused as a whole: what a caller asks for beside the arguments.

use std::time::Duration;

use serde_json::value::RawValue;
use time::{OffsetDateTime, UtcOffset, format_description::well_known::Rfc3339};

use crate::{
    arguments::{self, Limits, nearest, shorten},
    call::{Language, Priority},
    canonical, files,
    ids::{FileId, IdempotencyKey, InvalidName, Label},
    manifest::Manifest,
    said,
    wire::{code::Code, message::Message, trace::TraceContext},
};

/// With [`QUESTION`], a `get` that waits is answered too when its call waits for its caller.
pub const WAIT_FOR: &str = "Toolfleet-Wait-For";
/// A value of [`WAIT_FOR`].
pub const QUESTION: &str = "question";

/// How the caller wants to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefer {
    /// When the call is decided, or when this much time is over.
    Wait(Duration),
    /// At once.
    RespondAsync,
}

/// What a submission asks for beside the arguments.
#[derive(Debug, Clone)]
pub struct RequestHeaders {
    /// `Idempotency-Key`.
    pub key: Option<IdempotencyKey>,
    /// `Prefer`.
    pub prefer: Prefer,
    /// `Toolfleet-Deadline-Ms`.
    pub deadline: Option<Duration>,
    /// `Toolfleet-Run-Deadline`.
    pub run_deadline: Option<OffsetDateTime>,
    /// `Toolfleet-Run`.
    pub run: Option<Label>,
    /// `Toolfleet-Session`.
    pub session: Option<Label>,
    /// `Toolfleet-Priority`.
    pub priority: Priority,
    /// `Toolfleet-Tool-Version`.
    pub tool_version: Option<i32>,
    /// `Toolfleet-Language`.
    pub language: Option<Language>,
    /// `Toolfleet-Meta`: a JSON object, as it came.
    pub meta: Option<Box<RawValue>>,
    /// `Toolfleet-Files`: the files beside its arguments, in their order, none of them twice.
    pub files: Vec<FileId>,
    /// `Cache-Control` with `no-store`: its answer is not another call's, and no other call's is its answer.
    pub no_store: bool,
    /// `traceparent`, `tracestate`, `baggage`.
    pub trace: TraceContext,
}

/// A header that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadHeader {
    /// `header_invalid`, `deadline_invalid` or `invalid_idempotency_key`.
    pub code: Code,
    /// The header, as the contract writes it; `None` where it is all of them together.
    pub header: Option<&'static str>,
    /// What it must be, readable after "must be" and 必须; the whole sentence where it is no single header. Never the value.
    pub rule: Message,
}

impl BadHeader {
    /// One sentence: which header is wrong, and what it must be.
    pub fn message(&self) -> Message {
        let rule = &self.rule;
        match self.header {
            Some(name) => said!(
                "header {name} must be {rule}",
                "请求头 {name} 必须{rule}",
                rule
            ),
            None => rule.clone(),
        }
    }
}

const LANGUAGE: &str = "Toolfleet-Language";

impl RequestHeaders {
    /// The language that is asked for, if that can be read. A refusal uses it, whatever else is wrong with the request.
    pub fn language_of(lines: &[(&str, &str)]) -> Option<Language> {
        one_of(lines, LANGUAGE)?.parse().ok()
    }

    /// How long a caller waits for an answer that does not say.
    pub const WAIT_DEFAULT: Duration = Duration::from_secs(30);
    /// The longest wait a caller may ask for.
    pub const WAIT_MAX: Duration = Duration::from_secs(300);
    /// The most bytes of `Toolfleet-Meta`.
    pub const META_MAX: usize = 4 * 1024;
    /// The most bytes all headers may have together.
    pub const BYTES_MAX: usize = 16 * 1024;
    /// The most header lines.
    pub const COUNT_MAX: usize = 64;

    /// Reads name and value of every header line; they have no space around them. Names are compared without regard to case.
    /// Unknown ones are ignored, unless they begin as ours do: ignored, they would promise what nobody asked for.
    ///
    /// # Errors
    ///
    /// The first header that cannot be accepted.
    pub fn read(lines: &[(&str, &str)]) -> Result<Self, BadHeader> {
        let bytes: usize = lines
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        if bytes > Self::BYTES_MAX || lines.len() > Self::COUNT_MAX {
            let (bytes_max, count_max) = (Self::BYTES_MAX, Self::COUNT_MAX);
            let rule = said!(
                "headers may have {bytes_max} bytes and {count_max} lines in all",
                "请求头总共最多 {bytes_max} 字节、{count_max} 行"
            );
            return Err(BadHeader {
                code: Code::HeaderInvalid,
                header: None,
                rule,
            });
        }
        if let Some(name) = lines.iter().find_map(|(name, _)| unknown_of_ours(name)) {
            return Err(unknown(name));
        }
        let label = |name: &'static str| match one(lines, name)? {
            Some(text) => text
                .parse::<Label>()
                .map(Some)
                .map_err(|rule| invalid(name, rule.rule)),
            None => Ok(None),
        };
        let key = match one(lines, "Idempotency-Key").map_err(as_key)? {
            Some(text) => Some(
                text.parse()
                    .map_err(|bad: InvalidName| as_key(invalid("Idempotency-Key", bad.rule)))?,
            ),
            None => None,
        };
        let prefer = read_one(lines, "Prefer", rules::PREFER, read_prefer)?;
        let priority = |text: &str| text.parse().ok();
        let priority = read_one(lines, "Toolfleet-Priority", rules::PRIORITY, priority)?;
        let version = |text: &str| text.parse().ok().filter(|version| *version >= 1);
        Ok(Self {
            key,
            prefer: prefer.unwrap_or(Prefer::Wait(Self::WAIT_DEFAULT)),
            deadline: read_one(
                lines,
                "Toolfleet-Deadline-Ms",
                rules::DEADLINE,
                read_deadline,
            )
            .map_err(as_deadline)?,
            run_deadline: read_one(lines, "Toolfleet-Run-Deadline", rules::TIME, read_time)
                .map_err(as_deadline)?,
            run: label("Toolfleet-Run")?,
            session: label("Toolfleet-Session")?,
            priority: priority.unwrap_or(Priority::Normal),
            tool_version: read_one(lines, "Toolfleet-Tool-Version", rules::VERSION, version)?,
            language: read_one(lines, LANGUAGE, rules::LANGUAGE, |text| text.parse().ok())?,
            meta: read_one(lines, "Toolfleet-Meta", rules::META, read_meta)?,
            files: read_one(lines, "Toolfleet-Files", rules::FILES, files::read_list)?
                .unwrap_or_default(),
            no_store: is_no_store(lines)?,
            trace: TraceContext::from_headers(|name| one_of(lines, name).map(str::to_owned)),
        })
    }
}

/// How the names of our headers begin.
const PREFIX: &str = "Toolfleet-";
/// The headers of a request, without [`PREFIX`].
const OURS: [&str; 9] = [
    "Deadline-Ms",
    "Files",
    "Language",
    "Meta",
    "Priority",
    "Run",
    "Run-Deadline",
    "Session",
    "Tool-Version",
];
/// What tools are told besides: a tool that calls another one may pass on all that it got.
const OF_TOOLS: [&str; 6] = [
    "Attempt",
    "Attempt-Id",
    "Call-Id",
    "Remaining-Ms",
    "Tenant",
    "Tool",
];

/// The rest of a name that begins as ours do and is none of them.
fn unknown_of_ours<'a>(name: &&'a str) -> Option<&'a str> {
    let (start, rest) = name.split_at_checked(PREFIX.len())?;
    let mut known = OURS.iter().chain(&OF_TOOLS);
    let is_unknown =
        start.eq_ignore_ascii_case(PREFIX) && !known.any(|known| known.eq_ignore_ascii_case(rest));
    is_unknown.then_some(rest)
}

fn unknown(name: &str) -> BadHeader {
    let found = shorten(name, 64);
    let rule = match nearest(name, OURS.into_iter()) {
        Some(meant) => said!(
            "there is no header {PREFIX}{found}; write {PREFIX}{meant}",
            "没有请求头 {PREFIX}{found}；请写 {PREFIX}{meant}"
        ),
        None => said!(
            "there is no header {PREFIX}{found}",
            "没有请求头 {PREFIX}{found}"
        ),
    };
    BadHeader {
        code: Code::HeaderInvalid,
        header: None,
        rule,
    }
}

fn one_of<'a>(lines: &[(&str, &'a str)], name: &str) -> Option<&'a str> {
    lines
        .iter()
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| *value)
}

fn one<'a>(lines: &[(&str, &'a str)], name: &'static str) -> Result<Option<&'a str>, BadHeader> {
    let mut values = lines
        .iter()
        .filter(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| *value);
    let first = values.next();
    if values.next().is_some() {
        return Err(invalid(name, rules::ONCE));
    }
    match first {
        Some(text) if text.chars().any(char::is_control) => Err(invalid(name, rules::NO_CONTROL)),
        Some(text) => Ok(Some(text)),
        None => Ok(None),
    }
}

/// What a header says, if it is there.
fn read_one<T>(
    lines: &[(&str, &str)],
    name: &'static str,
    rule: Message,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, BadHeader> {
    let text = one(lines, name)?;
    text.map(|text| read(text).ok_or_else(|| invalid(name, rule)))
        .transpose()
}

fn invalid(name: &'static str, rule: Message) -> BadHeader {
    BadHeader {
        code: Code::HeaderInvalid,
        header: Some(name),
        rule,
    }
}

/// What a header must be.
mod rules {
    use super::Message;

    pub(super) const PREFER: Message = Message::fixed(
        "respond-async, or wait= and 0 to 300 seconds",
        "是 respond-async，或 wait= 后接 0 到 300 的秒数",
    );
    pub(super) const DEADLINE: Message = Message::fixed(
        "a whole number of milliseconds, 1 to 86400000",
        "是 1 到 86400000 的整数毫秒数",
    );
    pub(super) const TIME: Message = Message::fixed(
        "an RFC 3339 time such as 2026-01-31T12:00:00Z",
        "是 RFC 3339 时间，例如 2026-01-31T12:00:00Z",
    );
    pub(super) const PRIORITY: Message =
        Message::fixed("high, normal or low", "是 high、normal 或 low");
    pub(super) const VERSION: Message =
        Message::fixed("a whole number from 1", "是不小于 1 的整数");
    pub(super) const LANGUAGE: Message = Message::fixed("en or zh", "是 en 或 zh");
    pub(super) const META: Message = Message::fixed(
        "a JSON object of at most 4 KiB",
        "是最多 4 KiB 的 JSON 对象",
    );
    pub(super) const FILES: Message = Message::fixed(
        "1 to 16 file ids with commas between them, none of them twice",
        "是 1 到 16 个以逗号分隔、互不重复的 file_id",
    );
    pub(super) const ONCE: Message = Message::fixed("given once", "只出现一次");
    pub(super) const NO_CONTROL: Message =
        Message::fixed("free of control characters", "不含控制字符");
}

fn as_key(bad: BadHeader) -> BadHeader {
    BadHeader {
        code: Code::InvalidIdempotencyKey,
        ..bad
    }
}

fn as_deadline(bad: BadHeader) -> BadHeader {
    BadHeader {
        code: Code::DeadlineInvalid,
        ..bad
    }
}

fn read_prefer(text: &str) -> Option<Prefer> {
    match text.split_once('=') {
        None if text == "respond-async" => Some(Prefer::RespondAsync),
        Some(("wait", seconds)) if digits(seconds) => {
            let wait = Duration::from_secs(seconds.parse().ok()?);
            (wait <= RequestHeaders::WAIT_MAX).then_some(Prefer::Wait(wait))
        }
        None | Some(_) => None,
    }
}

/// Whether one of the header's directives says so. The others are about caches between a caller and a server, of which there are none.
fn is_no_store(lines: &[(&str, &str)]) -> Result<bool, BadHeader> {
    let said = one(lines, "Cache-Control")?;
    let mut directives = said.unwrap_or_default().split(',');
    Ok(directives.any(|directive| directive.trim().eq_ignore_ascii_case("no-store")))
}

fn read_deadline(text: &str) -> Option<Duration> {
    let deadline = Duration::from_millis(text.parse().ok().filter(|_| digits(text))?);
    (!deadline.is_zero() && deadline <= Manifest::DEADLINE_MAX).then_some(deadline)
}

/// In UTC: with an offset, the last day of the last year could not be represented.
fn read_time(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &Rfc3339)
        .ok()?
        .checked_to_offset(UtcOffset::UTC)
}

/// With the door's own parser: what it accepts can be stored and read by every later reader.
fn read_meta(text: &str) -> Option<Box<RawValue>> {
    let limits = Limits {
        bytes: RequestHeaders::META_MAX,
        ..Limits::DEFAULT
    };
    let value = arguments::parse(text.as_bytes(), &limits).ok()?;
    RawValue::from_string(canonical::to_text(&value)).ok()
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: &str =
        "01890a5d-ac96-774b-bcce-b302099a8058, 01890a5d-ac96-774b-bcce-b302099a8057";

    #[test]
    fn every_bad_value_is_refused_with_its_code() {
        let long = "x".repeat(256);
        let meta = format!("{{\"a\":\"{}\"}}", "x".repeat(4096));
        let ids: Vec<String> = (0..17).map(|_| FileId::generate().to_string()).collect();
        let (twice, many) = (format!("{0},{0}", ids[0]), ids.join(","));
        for (name, value, code) in [
            ("Prefer", "wait=301", Code::HeaderInvalid),
            ("Prefer", "wait=-1", Code::HeaderInvalid),
            ("Prefer", "soon", Code::HeaderInvalid),
            ("Toolfleet-Deadline-Ms", "0", Code::DeadlineInvalid),
            ("Toolfleet-Deadline-Ms", "86400001", Code::DeadlineInvalid),
            ("Toolfleet-Deadline-Ms", "-5", Code::DeadlineInvalid),
            ("Toolfleet-Deadline-Ms", "1e3", Code::DeadlineInvalid),
            (
                "Toolfleet-Deadline-Ms",
                "1000000000000000000",
                Code::DeadlineInvalid,
            ),
            ("Toolfleet-Run-Deadline", "tomorrow", Code::DeadlineInvalid),
            (
                "Toolfleet-Run-Deadline",
                "9999-12-31T23:59:59-23:59",
                Code::DeadlineInvalid,
            ),
            (
                "Toolfleet-Meta",
                "{\"a\":{\"$serde_json::private::RawValue\":\"1\"}}",
                Code::HeaderInvalid,
            ),
            ("Toolfleet-Run", "a.b", Code::HeaderInvalid),
            ("Toolfleet-Session", "", Code::HeaderInvalid),
            ("Toolfleet-Priority", "urgent", Code::HeaderInvalid),
            ("Toolfleet-Tool-Version", "0", Code::HeaderInvalid),
            ("Toolfleet-Language", "fr", Code::HeaderInvalid),
            ("Toolfleet-Meta", "[1]", Code::HeaderInvalid),
            ("Toolfleet-Meta", &meta, Code::HeaderInvalid),
            ("Toolfleet-Meta", "{\"a\":\"\\u0000\"}", Code::HeaderInvalid),
            ("Toolfleet-Files", "", Code::HeaderInvalid),
            ("Toolfleet-Files", "../../etc/passwd", Code::HeaderInvalid),
            ("Toolfleet-Files", &twice, Code::HeaderInvalid),
            ("Toolfleet-Files", &many, Code::HeaderInvalid),
            ("Idempotency-Key", "", Code::InvalidIdempotencyKey),
            ("Idempotency-Key", &long, Code::InvalidIdempotencyKey),
            ("Idempotency-Key", "a b", Code::InvalidIdempotencyKey),
            ("idempotency-key", "k\u{e9}", Code::InvalidIdempotencyKey),
        ] {
            assert_eq!(
                RequestHeaders::read(&[(name, value)]).unwrap_err().code,
                code,
                "{name}: {value}"
            );
        }
        let twice = RequestHeaders::read(&[("Idempotency-Key", "a"), ("idempotency-key", "b")]);
        assert_eq!(twice.unwrap_err().code, Code::InvalidIdempotencyKey);
        let flood: Vec<(&str, &str)> = (0..65).map(|_| ("X", "y")).collect();
        assert_eq!(
            RequestHeaders::read(&flood).unwrap_err().code,
            Code::HeaderInvalid
        );
    }

    #[test]
    fn the_language_is_read_whatever_else_is_wrong() {
        let lines = [("Prefer", "soon"), ("toolfleet-language", "zh")];
        assert_eq!(RequestHeaders::language_of(&lines), Some(Language::Zh));
        let told = RequestHeaders::read(&lines).unwrap_err().message();
        assert_eq!(
            told.told(Language::Zh),
            "请求头 Prefer 必须是 respond-async，或 wait= 后接 0 到 300 的秒数"
        );
        let unknown = [("Toolfleet-Language", "fr")];
        assert_eq!(RequestHeaders::language_of(&unknown), None);
    }

    #[test]
    fn a_name_that_begins_as_ours_and_is_none_is_refused_with_the_one_that_was_meant() {
        let refused = |name: &str| RequestHeaders::read(&[("X-Other", "y"), (name, "1")]);
        let bad = refused("toolfleet-deadline").unwrap_err();
        assert_eq!(bad.code, Code::HeaderInvalid);
        let told = bad.message();
        assert_eq!(
            told.told(Language::En),
            "there is no header Toolfleet-deadline; write Toolfleet-Deadline-Ms"
        );
        assert_eq!(
            told.told(Language::Zh),
            "没有请求头 Toolfleet-deadline；请写 Toolfleet-Deadline-Ms"
        );
        let far = refused("Toolfleet-X-Forwarded-For").unwrap_err().message();
        assert_eq!(
            far.told(Language::En),
            "there is no header Toolfleet-X-Forwarded-For"
        );
        // What a tool was told, and names that only look alike.
        for name in [
            "Toolfleet-Call-Id",
            "TOOLFLEET-REMAINING-MS",
            "Toolfleet",
            "Toolfleetx-Run",
        ] {
            assert!(refused(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn what_is_asked_for_is_read() {
        let read = RequestHeaders::read(&[
            ("prefer", "wait=5"),
            ("TOOLFLEET-DEADLINE-MS", "1500"),
            ("Toolfleet-Meta", "{\"a\": 1}"),
            ("Toolfleet-Files", FILES),
            ("X-Other", "ignored"),
        ]);
        let read = read.unwrap();
        let files: Vec<String> = read.files.iter().map(FileId::to_string).collect();
        assert_eq!(files.join(", "), FILES);
        assert_eq!(read.prefer, Prefer::Wait(Duration::from_secs(5)));
        assert_eq!(read.deadline, Some(Duration::from_millis(1500)));
        assert_eq!(read.meta.unwrap().get(), "{\"a\":1}");
    }
}
