//! What is said of a server that does not work: its name in every failure, and a line when that begins and when it is over.

use std::sync::atomic::{AtomicBool, Ordering};

use fleet::{
    ids::ServerName,
    outcome::{Outcome, ToolFailure},
    said,
    wire::code::Code,
};
use serde_json::{Value, json};

/// The beginnings of our own sentences, which do not have the name.
const UNNAMED: [&str; 2] = ["the MCP server ", "MCP 服务器"];

/// Whether calls of a server do not start.
#[derive(Debug, Default)]
pub(super) struct ServerTrouble(AtomicBool);

impl ServerTrouble {
    /// An attempt could not reach the server, or was not let in. One line until that is over, without the message: that may have what the
    /// server's program wrote.
    pub(super) fn began(&self, server: &ServerName, code: Code) {
        if !self.0.swap(true, Ordering::AcqRel) {
            tracing::warn!(%server, code = code.as_str(), "calls of an MCP server do not start; toolfleet calls show says why, and there is no further line until one does");
        }
    }

    /// A call went out.
    pub(super) fn is_over(&self, server: &ServerName) {
        if self.0.load(Ordering::Acquire) && self.0.swap(false, Ordering::AcqRel) {
            tracing::warn!(%server, "calls of an MCP server start again");
        }
    }
}

/// The outcome with the server's name in its failure, unless it is the tool's own word.
pub(super) fn named(outcome: Outcome, server: &ServerName) -> Outcome {
    let named = |failure| of_server(failure, server);
    match outcome {
        Outcome::Applied { result, flaw } => Outcome::Applied { result, flaw },
        Outcome::NotStarted(failure) => Outcome::NotStarted(named(failure)),
        Outcome::DefiniteFailure(failure) => Outcome::DefiniteFailure(named(failure)),
        Outcome::Unknown(failure) => Outcome::Unknown(named(failure)),
    }
}

/// The failure with the server's name.
pub(super) fn of_server(mut failure: ToolFailure, server: &ServerName) -> ToolFailure {
    let is_about_server = matches!(
        failure.code,
        Code::Unavailable | Code::Timeout | Code::OutputInvalid
    );
    if !is_about_server || failure.wanted().is_some() {
        return failure;
    }
    match &mut failure.details {
        Some(Value::Object(details)) => {
            details.insert("server".to_owned(), json!(server));
        }
        Some(_) => {}
        None => failure.details = Some(json!({ "server": server })),
    }
    if has_name(failure.message.english(), server) {
        return failure;
    }
    let begins = failure.message.english().starts_with(UNNAMED[0]);
    failure.message = if begins {
        failure.message.map(|text| {
            let unnamed = UNNAMED
                .into_iter()
                .find_map(|words| text.strip_prefix(words));
            match unnamed {
                Some(rest) if text.starts_with(UNNAMED[0]) => {
                    format!("{}{server} {rest}", UNNAMED[0])
                }
                Some(rest) => format!("{} {server} {}", UNNAMED[1], rest.trim_start()),
                None => text,
            }
        })
    } else {
        let message = failure.message;
        said!(
            "{message} (MCP server {server})",
            "{message}（MCP 服务器 {server}）",
            message
        )
    };
    failure
}

/// Whether the text names the server already: a name is a word.
fn has_name(text: &str, server: &ServerName) -> bool {
    let name = format!("MCP server {server}");
    let mut behind = text.split(name.as_str()).skip(1);
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    behind.any(|rest| !rest.starts_with(is_of_name))
}

#[cfg(test)]
mod tests {
    use fleet::{call::Language, wire::message::Message};

    use super::*;

    #[test]
    fn a_name_is_a_word() {
        let server: ServerName = "s".parse().unwrap();
        assert!(has_name("the MCP server s has ended", &server));
        assert!(has_name("it broke (MCP server s)", &server));
        assert!(!has_name("the MCP server said no", &server));
    }

    #[test]
    fn every_failure_of_a_server_has_its_name() {
        let server: ServerName = "tracker".parse().unwrap();
        for (code, english, chinese, told) in [
            (
                Code::Unavailable,
                "the MCP server has ended",
                "MCP 服务器已经结束",
                (
                    "the MCP server tracker has ended",
                    "MCP 服务器 tracker 已经结束",
                ),
            ),
            (
                Code::Unavailable,
                "http://x cannot be reached",
                "无法连接",
                (
                    "http://x cannot be reached (MCP server tracker)",
                    "无法连接（MCP 服务器 tracker）",
                ),
            ),
            (
                Code::ToolError,
                "the MCP server is sad",
                "x",
                ("the MCP server is sad", "x"),
            ),
        ] {
            let failure = ToolFailure::new(code, Message::fixed(english, chinese));
            let failure = of_server(failure, &server);
            let message = &failure.message;
            assert_eq!(
                (message.told(Language::En), message.told(Language::Zh)),
                told
            );
            let has_name = failure
                .details
                .is_some_and(|details| details["server"] == "tracker");
            assert_eq!(has_name, code != Code::ToolError);
        }
    }
}
