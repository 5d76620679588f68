//! What a client is told of its call while that runs: the events of the call in the words of the protocol. Pure.
//!
//! | the event | to who wants progress | to who wants log messages |
//! |---|---|---|
//! | `progress` | `progress` (of `total` 1), `message` | – |
//! | `output` with a `step` | `message` | `info`, the step |
//! | `output` with a `text` or a `value` | – | `debug`, that |
//! | `retrying` | – | `warning`, which attempt and why |
//! | `awaiting` | – | `notice`, for whom |
//! | any other | – | – |
//!
//! Progress only rises, as the protocol wants it: what a tool says of less than before, as in a new attempt, is told by its message alone.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{log_level::LogLevel, wishes::Wishes};

/// How much a message that says nothing of how far it is moves the progress on.
const NUDGE: f64 = 1e-6;

/// What is told of one call.
#[derive(Debug)]
pub(super) struct Notices {
    wishes: Wishes,
    /// What log messages are from: the tool.
    logger: String,
    /// The last progress that was told.
    reached: Option<f64>,
}

/// What an event says, as far as it is told on.
#[derive(Debug, Deserialize)]
struct NoticedEvent<'a> {
    kind: String,
    #[serde(default)]
    attempt: Option<i64>,
    #[serde(default)]
    fraction: Option<f64>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    code: Option<String>,
    #[serde(default, rename = "for")]
    whom: Option<String>,
    #[serde(default, borrow)]
    output: Option<ToldPart<'a>>,
}

/// A part of an answer.
#[derive(Debug, Deserialize)]
struct ToldPart<'a> {
    #[serde(default)]
    step: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default, borrow)]
    value: Option<&'a RawValue>,
}

impl Notices {
    /// Of a call of this tool.
    pub(super) const fn new(wishes: Wishes, tool: String) -> Self {
        Self {
            wishes,
            logger: tool,
            reached: None,
        }
    }

    /// The messages for an event with these bytes.
    pub(super) fn of_event(&mut self, payload: &[u8]) -> Vec<Value> {
        let Ok(event) = serde_json::from_slice::<NoticedEvent<'_>>(payload) else {
            return Vec::new();
        };
        let NoticedEvent {
            kind,
            attempt,
            fraction,
            message,
            code,
            whom,
            output,
        } = event;
        let mut told = Vec::new();
        match kind.as_str() {
            "progress" => told.extend(self.progress(fraction, message.as_deref())),
            "output" => {
                let ToldPart { step, text, value } = match output {
                    Some(part) => part,
                    None => return told,
                };
                if let Some(step) = step {
                    told.extend(self.progress(None, Some(&step)));
                    told.extend(self.log(LogLevel::Info, || json!(step)));
                }
                if let Some(text) = text {
                    told.extend(self.log(LogLevel::Debug, || json!({ "text": text })));
                }
                if let Some(value) = value {
                    told.extend(self.log(LogLevel::Debug, || json!({ "value": value })));
                }
            }
            "retrying" => told.extend(self.log(
                LogLevel::Warning,
                || json!({ "retrying": { "attempt": attempt, "code": code } }),
            )),
            "awaiting" => told.extend(self.log(LogLevel::Notice, || json!({ "awaiting": whom }))),
            _ => {}
        }
        told
    }

    fn progress(&mut self, fraction: Option<f64>, message: Option<&str>) -> Option<Value> {
        let token = self.wishes.progress.as_ref()?;
        let rises = |fraction: &f64| self.reached.is_none_or(|reached| *fraction > reached);
        let fraction = fraction.filter(rises);
        let reached = match (fraction, message) {
            (Some(fraction), _) => fraction,
            (None, Some(_)) => self.reached.map_or(0.0, |reached| reached + NUDGE),
            (None, None) => return None,
        };
        let mut params = json!({ "progressToken": token, "progress": reached });
        if fraction.is_some() {
            params["total"] = json!(1);
        }
        if let Some(message) = message {
            params["message"] = json!(message);
        }
        self.reached = Some(reached);
        Some(notification("notifications/progress", &params))
    }

    fn log(&self, level: LogLevel, data: impl FnOnce() -> Value) -> Option<Value> {
        self.wishes.log.filter(|from| *from <= level)?;
        let params = json!({ "level": level.as_str(), "logger": self.logger, "data": data() });
        Some(notification("notifications/message", &params))
    }
}

/// A message that wants no answer.
pub(super) fn notification(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notices(progress: Option<&str>, log: Option<LogLevel>) -> Notices {
        let progress = progress.map(|token| RawValue::from_string(token.to_owned()).unwrap());
        Notices::new(Wishes { progress, log }, "look".to_owned())
    }

    fn told(notices: &mut Notices, event: &Value) -> Vec<Value> {
        let told = notices.of_event(event.to_string().as_bytes()).into_iter();
        told.map(|notice| notice["params"].clone()).collect()
    }

    #[test]
    fn progress_only_rises_and_messages_are_never_lost() {
        let mut notices = notices(Some("\"t\""), None);
        let mut last = -1.0;
        for (fraction, message, expected) in [
            (None, Some("begins"), Some(0.0)),
            (Some(0.0), None, None),
            (Some(0.25), Some("a quarter"), Some(0.25)),
            (Some(0.25), None, None),
            // Another attempt begins anew.
            (Some(0.1), Some("again"), Some(0.250_001)),
            (None, Some("reading"), Some(0.250_002)),
            (Some(1.0), None, Some(1.0)),
            (None, Some("almost"), Some(1.000_001)),
        ] {
            let event =
                json!({"kind": "progress", "attempt": 1, "fraction": fraction, "message": message});
            let told = told(&mut notices, &event);
            let Some(expected) = expected else {
                assert!(told.is_empty(), "{event}");
                continue;
            };
            let progress = told[0]["progress"].as_f64().unwrap();
            assert!((progress - expected).abs() < 1e-9, "{event}: {progress}");
            assert!(progress > last, "{event}");
            assert_eq!(told[0]["progressToken"], "t");
            assert_eq!(told[0].get("message"), message.map(|it| json!(it)).as_ref());
            last = progress;
        }
        assert!(
            told(
                &mut notices,
                &json!({"kind": "finished", "state": "succeeded"})
            )
            .is_empty()
        );
        assert!(notices.of_event(b"nothing").is_empty());
    }

    #[test]
    fn log_messages_are_those_that_were_asked_for() {
        let step =
            json!({"kind": "output", "attempt": 1, "part": 0, "output": {"step": "searching"}});
        let text = json!({"kind": "output", "attempt": 1, "part": 1, "output": {"text": "once"}});
        let value = json!({"kind": "output", "attempt": 1, "part": 2, "output": {"value": 9_007_199_254_740_993_u64}});
        let retrying = json!({"kind": "retrying", "attempt": 2, "code": "timeout"});
        let awaiting = json!({"kind": "awaiting", "for": "approval", "token": "secret"});
        let image = json!({"kind": "output", "attempt": 1, "part": 3, "output": {"image": {"b64": "eA=="}}});
        let events = [&step, &text, &value, &retrying, &awaiting, &image];
        for (level, count) in [
            (Some(LogLevel::Debug), 5),
            (Some(LogLevel::Info), 3),
            (Some(LogLevel::Notice), 2),
            (Some(LogLevel::Warning), 1),
            (Some(LogLevel::Error), 0),
            (None, 0),
        ] {
            let mut notices = notices(None, level);
            let told: Vec<Value> = events
                .iter()
                .flat_map(|event| told(&mut notices, event))
                .collect();
            assert_eq!(told.len(), count, "{level:?} {told:?}");
            assert!(told.iter().all(|one| one["logger"] == "look"));
            assert!(!json!(told).to_string().contains("secret"));
        }
        let mut both = notices(Some("7"), Some(LogLevel::Info));
        let told = told(&mut both, &step);
        assert_eq!(
            (&told[0]["message"], &told[0]["progress"]),
            (&json!("searching"), &json!(0.0))
        );
        assert_eq!(
            (&told[1]["level"], &told[1]["data"]),
            (&json!("info"), &json!("searching"))
        );
    }
}
