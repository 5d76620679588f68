//! What is told of a program that serves, when it does not: how it ended, the end of its standard error, and what it wrote that is
//! no message.

use std::sync::{Mutex, MutexGuard};

use fleet::{
    ids::ServerName,
    outcome::ToolFailure,
    said,
    wire::{code::Code, message::Message},
};
use serde_json::{Value, json};

use crate::{executors::process::server::ServedEnd, guard::Ending};

/// The most bytes of a line of its standard error in a message. All that is kept of it is in the details.
const LINE_MAX: usize = 200;

/// A program, and what it has come to.
#[derive(Debug)]
pub(super) struct ProgramStory {
    server: ServerName,
    program: String,
    told: Mutex<ProgramTold>,
}

#[derive(Debug, Default)]
struct ProgramTold {
    /// Whether it has ever answered.
    has_answered: bool,
    /// Its lines that are no message.
    odd_lines: u64,
    /// The length of the first of them.
    first_odd: usize,
    stderr: String,
    end: Option<ServedEnd>,
}

impl ProgramStory {
    /// Of a program of this server, which is started with this command.
    pub(super) fn of(server: &ServerName, command: &[String]) -> Self {
        Self {
            server: server.clone(),
            program: command.first().cloned().unwrap_or_default(),
            told: Mutex::default(),
        }
    }

    /// It has answered a request.
    pub(super) fn answered(&self) {
        self.told().has_answered = true;
    }

    /// It wrote a line of so many bytes that is no message.
    pub(super) fn wrote_no_message(&self, bytes: usize) {
        let mut told = self.told();
        if told.odd_lines == 0 {
            told.first_odd = bytes;
        }
        told.odd_lines = told.odd_lines.saturating_add(1);
    }

    /// This is the end of its standard error by now.
    pub(super) fn complained(&self, stderr: String) {
        self.told().stderr = stderr;
    }

    /// It has ended so, and this is the end of its standard error.
    pub(super) fn ended(&self, end: ServedEnd, stderr: String) {
        let mut told = self.told();
        told.stderr = stderr;
        told.end = Some(end);
    }

    /// Whether it is proven that it was never started.
    pub(super) fn was_never_started(&self) -> bool {
        let told = self.told();
        told.end.as_ref().is_some_and(|end| end.why.is_some())
    }

    /// Logs its end, without what it wrote.
    pub(super) fn log(&self) {
        let told = self.told();
        let (server, program, odd_lines) = (&self.server, &self.program, told.odd_lines);
        let end = told.end.as_ref();
        let why = end.and_then(|end| end.why.as_deref());
        let (exit_code, signal) = match end.and_then(|end| end.ending) {
            Some(Ending::Code(code)) => (Some(code), None),
            Some(Ending::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        tracing::warn!(%server, program, exit_code, signal, odd_lines, why, "the program of an MCP server has ended, or answers nothing and is ended");
    }

    /// The failure of what it had not answered when it ended.
    pub(super) fn failure(&self) -> ToolFailure {
        let told = self.told();
        let (server, program) = (&self.server, &self.program);
        let ended = match &told.end {
            Some(ServedEnd { why: Some(why), .. }) => said!(
                "the MCP server {server} was not started: {why}",
                "MCP 服务器 {server} 没有启动：{why}"
            ),
            Some(ServedEnd {
                ending: Some(Ending::Code(code)),
                ..
            }) => said!(
                "the MCP server {server} has ended: {program} ended with exit code {code}",
                "MCP 服务器 {server} 已经结束：{program} 以退出码 {code} 结束"
            ),
            Some(ServedEnd {
                ending: Some(Ending::Signal(signal)),
                ..
            }) => said!(
                "the MCP server {server} has ended: {program} was ended by signal {signal}",
                "MCP 服务器 {server} 已经结束：{program} 被信号 {signal} 终止"
            ),
            Some(ServedEnd { ending: None, .. }) | None => said!(
                "the MCP server {server} has ended ({program})",
                "MCP 服务器 {server} 已经结束（{program}）"
            ),
        };
        let failure = ToolFailure::new(Code::Unavailable, told.beside(ended));
        failure.with_details(self.details(&told))
    }

    /// A failure of one that has not answered in time, with what it did instead where it has never answered.
    pub(super) fn instead_of_an_answer(&self, mut failure: ToolFailure) -> ToolFailure {
        let told = self.told();
        if told.has_answered || (told.odd_lines == 0 && told.stderr.is_empty()) {
            return failure;
        }
        failure.message = told.beside(failure.message);
        failure.with_details(self.details(&told))
    }

    fn details(&self, told: &ProgramTold) -> Value {
        let mut details = json!({ "server": self.server, "program": self.program });
        match told.end.as_ref().and_then(|end| end.ending) {
            Some(Ending::Code(code)) => details["exit_code"] = code.into(),
            Some(Ending::Signal(signal)) => details["signal"] = signal.into(),
            None => {}
        }
        if told.odd_lines > 0 {
            details["odd_lines"] = told.odd_lines.into();
        }
        if !told.stderr.is_empty() {
            details["stderr"] = told.stderr.as_str().into();
        }
        details
    }

    fn told(&self) -> MutexGuard<'_, ProgramTold> {
        self.told
            .lock()
            .expect("no thread panics while holding what is told")
    }
}

impl ProgramTold {
    /// The message, and beside it what says most of one that has never answered.
    fn beside(&self, message: Message) -> Message {
        if self.has_answered {
            return message;
        }
        let message = if self.odd_lines > 0 {
            let (lines, first) = (self.odd_lines, self.first_odd);
            said!(
                "{message}; it wrote {lines} lines that are no messages of MCP, the first of {first} bytes, and never answered",
                "{message}；它写了 {lines} 行不是 MCP 消息的内容（第一行 {first} 字节），从未回答",
                message
            )
        } else {
            message
        };
        let last = self.stderr.lines().rfind(|line| !line.trim().is_empty());
        match last.map(|line| &line[..line.floor_char_boundary(LINE_MAX)]) {
            Some(line) => said!(
                "{message}; it wrote last on its standard error: {line}",
                "{message}；它在标准错误上最后写道：{line}",
                message
            ),
            None => message,
        }
    }
}
