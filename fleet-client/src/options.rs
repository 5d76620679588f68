//! What a caller sets for a call beside its arguments, as headers.

use std::time::Duration;

use async_nats::{HeaderMap, HeaderValue};
use fleet::{
    call::{Language, Priority},
    ids::{FileId, IdempotencyKey, Label},
    wire::headers::{Prefer, RequestHeaders},
};
use serde_json::value::RawValue;

/// How long after the requested wait an answer may come.
pub const SLACK: Duration = Duration::from_secs(5);

/// The settings of a call. What is absent is left to the tool and the fleet.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The same key is the same call, however often it is sent.
    pub key: Option<IdempotencyKey>,
    /// How the caller wants to be answered. Whole seconds; absent, it waits [`RequestHeaders::WAIT_DEFAULT`].
    pub prefer: Option<Prefer>,
    /// How long the whole call may take from its acceptance. Whole milliseconds, at most a day.
    pub deadline: Option<Duration>,
    /// The session it belongs to: its events can be followed.
    pub session: Option<Label>,
    /// The run it belongs to.
    pub run: Option<Label>,
    /// The version of the tool, from 1.
    pub tool_version: Option<i32>,
    /// The language of messages.
    pub language: Option<Language>,
    /// Which calls of the tenant go first.
    pub priority: Option<Priority>,
    /// A JSON object of at most 4 KiB that is stored with the call and passed to the tool.
    pub meta: Option<Box<RawValue>>,
    /// Whether its tool is asked, whatever answer of an equal call is kept, and its own answer is kept for none.
    pub no_store: bool,
    /// The files beside its arguments, at most 16, in this order.
    pub files: Vec<FileId>,
}

impl Options {
    /// As headers.
    pub fn headers(&self) -> HeaderMap {
        let prefer = self.prefer.map(|prefer| match prefer {
            Prefer::RespondAsync => "respond-async".to_owned(),
            Prefer::Wait(wait) => format!("wait={}", wait.as_secs()),
        });
        let text = ToString::to_string;
        let lines = [
            ("Idempotency-Key", self.key.as_ref().map(text)),
            ("Prefer", prefer),
            (
                "Toolfleet-Deadline-Ms",
                self.deadline.map(|time| time.as_millis().to_string()),
            ),
            (
                "Toolfleet-Session",
                self.session.as_ref().map(Label::to_string),
            ),
            ("Toolfleet-Run", self.run.as_ref().map(Label::to_string)),
            (
                "Toolfleet-Tool-Version",
                self.tool_version.map(|version| version.to_string()),
            ),
            (
                "Toolfleet-Language",
                self.language.map(|word| word.to_string()),
            ),
            (
                "Cache-Control",
                self.no_store.then(|| "no-store".to_owned()),
            ),
            (
                "Toolfleet-Priority",
                self.priority.map(|word| word.to_string()),
            ),
            (
                "Toolfleet-Meta",
                self.meta.as_ref().map(|meta| on_one_line(meta.get())),
            ),
            ("Toolfleet-Files", list(&self.files)),
        ];
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            if let Some(value) = value {
                let value: HeaderValue = value.parse().expect("no field can hold a line end");
                headers.insert(name, value);
            }
        }
        headers
    }

    /// How long the answer to such a request may take.
    pub fn patience(&self) -> Duration {
        match self.prefer {
            Some(Prefer::RespondAsync) => SLACK,
            Some(Prefer::Wait(wait)) => wait + SLACK,
            None => RequestHeaders::WAIT_DEFAULT + SLACK,
        }
    }
}

fn list(files: &[FileId]) -> Option<String> {
    let ids: Vec<String> = files.iter().map(FileId::to_string).collect();
    (!ids.is_empty()).then(|| ids.join(","))
}

/// JSON has line ends only between its tokens: in a string they are escaped.
fn on_one_line(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(last: u8) -> FileId {
        let id = format!("01890a5d-ac96-774b-bcce-b302099a805{last}");
        id.parse().unwrap()
    }

    fn all() -> Options {
        Options {
            key: Some("k-1".parse().unwrap()),
            prefer: Some(Prefer::Wait(Duration::from_secs(3))),
            deadline: Some(Duration::from_millis(5000)),
            session: Some("s".parse().unwrap()),
            run: Some("r".parse().unwrap()),
            tool_version: Some(2),
            language: Some(Language::Zh),
            priority: Some(Priority::Low),
            meta: Some(RawValue::from_string("{\r\n \"a\": \"b\\n\"}".to_owned()).unwrap()),
            no_store: true,
            files: vec![file(1), file(2)],
        }
    }

    /// As a dispatcher's door reads it.
    fn read(options: &Options) -> RequestHeaders {
        let headers = options.headers();
        let lines: Vec<(String, String)> = headers
            .iter()
            .map(|(name, values)| (name.to_string(), values[0].to_string()))
            .collect();
        let lines: Vec<(&str, &str)> = lines
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        RequestHeaders::read(&lines).unwrap()
    }

    #[test]
    fn the_door_reads_what_was_written() {
        let (said, read) = (all(), read(&all()));
        assert_eq!(
            (
                read.key,
                Some(read.prefer),
                read.deadline,
                read.session,
                read.run
            ),
            (said.key, said.prefer, said.deadline, said.session, said.run)
        );
        assert_eq!(
            (
                read.tool_version,
                read.language,
                Some(read.priority),
                read.no_store
            ),
            (said.tool_version, said.language, said.priority, true)
        );
        assert_eq!(read.files, said.files);
        let meta: serde_json::Value = serde_json::from_str(read.meta.unwrap().get()).unwrap();
        assert_eq!(meta, serde_json::json!({"a": "b\n"}));
    }

    #[test]
    fn what_is_not_said_is_not_sent() {
        assert!(Options::default().headers().is_empty());
        let detached = Options {
            prefer: Some(Prefer::RespondAsync),
            ..Options::default()
        };
        assert_eq!(read(&detached).prefer, Prefer::RespondAsync);
        assert_eq!(detached.patience(), SLACK);
        assert_eq!(all().patience(), Duration::from_secs(3) + SLACK);
        assert_eq!(
            Options::default().patience(),
            RequestHeaders::WAIT_DEFAULT + SLACK
        );
    }
}
