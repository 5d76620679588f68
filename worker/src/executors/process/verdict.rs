//! What an observed run means: a pure table from how it ended to an [`Outcome`].
#![deny(clippy::wildcard_enum_match_arm)]

use fleet::{
    call::Effect,
    manifest::ExitCodes,
    outcome::{Outcome, ToolFailure},
    said,
    taken_back::TakenBack,
    wire::{code::Code, message::Message},
};
use serde_json::{Map, Value, value::RawValue};

use crate::{
    executors::{StopReason, output, refusal},
    guard::{Ending, Excess},
};

/// How much of stderr is kept: its end, where the reason usually is.
pub(super) const STDERR_MAX: usize = 4 * 1024;

/// A run as the worker observed it.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) end: ProgramEnd,
    /// At most one byte more than the manifest allows.
    pub(super) stdout: Vec<u8>,
    /// There was more than the manifest allows.
    pub(super) overflow: bool,
    /// Its end.
    pub(super) stderr: Vec<u8>,
    /// Whether one of its processes may live on.
    pub(super) left_behind: bool,
}

/// How a run ended.
#[derive(Debug)]
pub(super) enum ProgramEnd {
    /// The program ended by itself.
    Exited(Ending),
    /// It was never started. The second is the reason for taking the attempt back, where it was not the tool's fault.
    NotStarted(Message, Option<TakenBack>),
    /// Its guard killed it: it used more than its sandbox gives.
    Exceeded(Excess),
    /// We ended it.
    Ended(EndReason),
    /// Its guard is gone and said nothing.
    GuardLost,
}

/// Why we ended a program.
#[derive(Debug, Clone, Copy)]
pub(super) enum EndReason {
    /// It did not answer in time.
    Deadline,
    /// The attempt was told to stop.
    Stop(StopReason),
    /// It wrote more than it may.
    Overflow,
}

impl Observed {
    pub(super) const fn not_started(why: Message, taken_back: Option<TakenBack>) -> Self {
        let end = ProgramEnd::NotStarted(why, taken_back);
        Self {
            end,
            stdout: Vec::new(),
            overflow: false,
            stderr: Vec::new(),
            left_behind: false,
        }
    }
}

/// How the manifest classifies exit codes.
#[derive(Debug)]
pub(super) struct ExitRules {
    pub(super) effect: Effect,
    pub(super) exit_codes: ExitCodes,
}

impl ExitRules {
    fn says_no(&self, code: i32) -> bool {
        holds(&self.exit_codes.business, code)
    }

    fn proves_nothing_happened(&self, code: i32) -> bool {
        holds(&self.exit_codes.not_applied, code)
    }
}

fn holds(codes: &[u8], code: i32) -> bool {
    codes.iter().any(|listed| i32::from(*listed) == code)
}

/// The outcome of a run.
pub(super) fn verdict(observed: Observed, rules: &ExitRules) -> Outcome {
    let fail = |code, message: Message, facts: &[(&str, Value)]| {
        failure(code, message, facts, &observed.stderr)
    };
    match observed.end {
        ProgramEnd::NotStarted(why, taken_back) => {
            let failure = ToolFailure::new(Code::Unavailable, why);
            Outcome::NotStarted(match taken_back {
                Some(taken_back) => failure.taken_back(taken_back),
                None => failure,
            })
        }
        ProgramEnd::Exited(Ending::Code(0)) => match answer(&observed.stdout, observed.overflow) {
            Ok((result, mark)) => Outcome::Applied { result, flaw: mark },
            Err((code, message)) => Outcome::Applied {
                result: if observed.overflow {
                    output::beginning(&observed.stdout, observed.stdout.len() - 1)
                } else {
                    RawValue::NULL.to_owned()
                },
                flaw: Some(fail(code, message, &[("exit_code", 0.into())])),
            },
        },
        ProgramEnd::Exited(Ending::Code(exit)) if rules.says_no(exit) => {
            let (message, code) = refusal(&observed.stdout, observed.overflow);
            let code = code.map(|code| ("code", Value::String(code)));
            Outcome::DefiniteFailure(fail(Code::ToolError, message, code.as_slice()))
        }
        ProgramEnd::Exited(Ending::Code(exit)) if rules.proves_nothing_happened(exit) => {
            let message = said!(
                "the tool is not available: the program ended with exit code {exit}",
                "工具不可用：程序以退出码 {exit} 结束"
            );
            let failure = fail(Code::Unavailable, message, &[("exit_code", exit.into())]);
            match rules.effect {
                Effect::Read => Outcome::DefiniteFailure(failure),
                Effect::Idempotent | Effect::Once | Effect::Transaction => {
                    Outcome::NotStarted(failure)
                }
            }
        }
        ProgramEnd::Exited(Ending::Code(code)) => {
            let message = said!(
                "the program ended with exit code {code}",
                "程序以退出码 {code} 结束"
            );
            Outcome::Unknown(fail(
                Code::ToolCrashed,
                message,
                &[("exit_code", code.into())],
            ))
        }
        ProgramEnd::Exited(Ending::Signal(signal)) => {
            let message = said!(
                "the program was ended by signal {signal}",
                "程序被信号 {signal} 终止"
            );
            Outcome::Unknown(fail(
                Code::ToolCrashed,
                message,
                &[("signal", signal.into())],
            ))
        }
        ProgramEnd::Ended(EndReason::Deadline) => {
            let message = Message::fixed(
                "the program did not answer in time and was ended",
                "程序没有按时响应，已被终止",
            );
            Outcome::Unknown(fail(Code::Timeout, message, &[]))
        }
        ProgramEnd::Ended(EndReason::Stop(why)) => {
            let word = why.word();
            let message = said!("{word} before it answered", "在响应之前{word}", word);
            Outcome::Unknown(fail(why.code(), message, &[("stopped", true.into())]))
        }
        // The worker ended it while it was running, so whether its effect had taken place is not known. If it had exited with 0
        // by itself, its effect would be certain and only its answer lost. A read has no effect that could be in doubt, and
        // would write as much the next time.
        ProgramEnd::Ended(EndReason::Overflow) => {
            let failure = fail(Code::OutputTooLarge, TOO_LARGE, &[]);
            match rules.effect {
                Effect::Read => Outcome::DefiniteFailure(failure),
                Effect::Idempotent | Effect::Once | Effect::Transaction => {
                    Outcome::Unknown(failure)
                }
            }
        }
        // A read has no effect that could be in doubt.
        ProgramEnd::Exceeded(excess) => {
            let field = excess.field();
            let message = said!(
                "the program was ended: it used more {field} than its sandbox gives",
                "程序被终止：它的 {field} 超过了沙箱允许的上限"
            );
            let failure = fail(Code::ToolCrashed, message, &[("sandbox", field.into())]);
            match rules.effect {
                Effect::Read => Outcome::DefiniteFailure(failure),
                Effect::Idempotent | Effect::Once | Effect::Transaction => {
                    Outcome::Unknown(failure)
                }
            }
        }
        ProgramEnd::GuardLost => {
            let message = Message::fixed(
                "the program's guard was killed, and the program with it",
                "程序的守护进程被杀死，程序也随之终止",
            );
            Outcome::Unknown(fail(
                Code::ToolCrashed,
                message,
                &[("guard", "lost".into())],
            ))
        }
    }
}

const TOO_LARGE: Message = Message::fixed(
    "the program wrote more than its output_limit allows",
    "程序的输出超过了它的 output_limit",
);

/// The answer of a program that exited with 0.
fn answer(
    stdout: &[u8],
    overflow: bool,
) -> Result<(Box<RawValue>, Option<ToolFailure>), (Code, Message)> {
    if overflow {
        return Err((Code::OutputTooLarge, TOO_LARGE));
    }
    match output::json(stdout) {
        Ok(answer) => Ok(answer),
        Err(problem) => Err((
            Code::OutputInvalid,
            said!(
                "the program's answer cannot be used: {problem}",
                "程序返回的结果无法使用：{problem}",
                problem
            ),
        )),
    }
}

/// The message and code of a program that said no.
fn refusal(stdout: &[u8], overflow: bool) -> (Message, Option<String>) {
    let said = (!overflow).then(|| refusal::read(stdout)).flatten();
    match said {
        Some((message, code)) => (Message::verbatim(message), code),
        None => (refusal::NO_REASON, None),
    }
}

fn failure(code: Code, message: Message, facts: &[(&str, Value)], stderr: &[u8]) -> ToolFailure {
    let facts = facts
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()));
    let mut details: Map<String, Value> = facts.collect();
    if !stderr.is_empty() {
        details.insert("stderr".to_owned(), Value::String(printable(stderr)));
    }
    let failure = ToolFailure::new(code, message);
    if details.is_empty() {
        failure
    } else {
        failure.with_details(Value::Object(details))
    }
}

/// The end of what a program printed, without characters that harm a terminal or Postgres.
pub(super) fn printable(bytes: &[u8]) -> String {
    let mut text = String::new();
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '\n' | '\t' => text.push(c),
            c if c.is_control() => text.extend(c.escape_default()),
            c => text.push(c),
        }
    }
    // Escapes and replacement characters make it longer.
    text.split_off(text.ceil_char_boundary(text.len().saturating_sub(STDERR_MAX)))
}

#[cfg(test)]
mod tests {
    use fleet::outcome::OutcomeWord;

    use super::*;

    fn rules(effect: Effect) -> ExitRules {
        ExitRules {
            effect,
            exit_codes: ExitCodes::default(),
        }
    }

    fn observed(end: ProgramEnd, stdout: &[u8]) -> Observed {
        Observed {
            end,
            stdout: stdout.to_vec(),
            overflow: false,
            stderr: Vec::new(),
            left_behind: false,
        }
    }

    fn exited(code: i32, stdout: &[u8]) -> Observed {
        observed(ProgramEnd::Exited(Ending::Code(code)), stdout)
    }

    #[test]
    fn each_end_has_its_word() {
        use OutcomeWord::{Applied, DefiniteFailure, NotStarted, Unknown};
        let table = [
            (exited(0, b"{}"), Applied, None),
            (exited(0, b""), Applied, Some(Code::OutputInvalid)),
            (exited(10, b""), DefiniteFailure, Some(Code::ToolError)),
            (exited(1, b"{}"), Unknown, Some(Code::ToolCrashed)),
            (
                observed(ProgramEnd::Exited(Ending::Signal(9)), b"{}"),
                Unknown,
                Some(Code::ToolCrashed),
            ),
            (
                Observed::not_started(Message::verbatim("x"), None),
                NotStarted,
                Some(Code::Unavailable),
            ),
            (
                observed(ProgramEnd::Ended(EndReason::Deadline), b"{}"),
                Unknown,
                Some(Code::Timeout),
            ),
            (
                observed(
                    ProgramEnd::Ended(EndReason::Stop(StopReason::Drained)),
                    b"{}",
                ),
                Unknown,
                Some(Code::Timeout),
            ),
            (
                observed(
                    ProgramEnd::Ended(EndReason::Stop(StopReason::Cancelled)),
                    b"{}",
                ),
                Unknown,
                Some(Code::Cancelled),
            ),
            (
                observed(ProgramEnd::Ended(EndReason::Overflow), b"{}"),
                Unknown,
                Some(Code::OutputTooLarge),
            ),
            (
                observed(ProgramEnd::Exceeded(Excess::Memory), b"{}"),
                Unknown,
                Some(Code::ToolCrashed),
            ),
            (
                observed(ProgramEnd::GuardLost, b"{}"),
                Unknown,
                Some(Code::ToolCrashed),
            ),
        ];
        for (run, word, code) in table {
            let end = format!("{:?}", run.end);
            let outcome = verdict(run, &rules(Effect::Once));
            assert_eq!(
                (outcome.word(), outcome.failure().map(|f| f.code)),
                (word, code),
                "{end}"
            );
        }
    }

    #[test]
    fn too_much_output_leaves_doubt_only_where_there_may_be_an_effect() {
        for effect in Effect::ALL {
            let running = verdict(
                observed(ProgramEnd::Ended(EndReason::Overflow), b""),
                &rules(*effect),
            );
            assert_eq!(
                running.word() == OutcomeWord::DefiniteFailure,
                *effect == Effect::Read
            );
            let finished = verdict(
                Observed {
                    overflow: true,
                    ..exited(0, b"{}")
                },
                &rules(*effect),
            );
            assert_eq!(finished.word(), OutcomeWord::Applied);
            assert_eq!(
                finished.failure().map(|f| f.code),
                Some(Code::OutputTooLarge)
            );
        }
    }

    #[test]
    fn the_manifest_says_what_exit_codes_mean() {
        use Code::{ToolCrashed, ToolError, Unavailable};
        use OutcomeWord::{Applied, DefiniteFailure, NotStarted, Unknown};
        for (exit, read, write) in [
            (0, (Applied, None), (Applied, None)),
            (
                3,
                (DefiniteFailure, Some(ToolError)),
                (DefiniteFailure, Some(ToolError)),
            ),
            (
                75,
                (DefiniteFailure, Some(Unavailable)),
                (NotStarted, Some(Unavailable)),
            ),
            // A list in the manifest replaces the default one, which has this code.
            (
                10,
                (Unknown, Some(ToolCrashed)),
                (Unknown, Some(ToolCrashed)),
            ),
            (
                1,
                (Unknown, Some(ToolCrashed)),
                (Unknown, Some(ToolCrashed)),
            ),
            (
                331,
                (Unknown, Some(ToolCrashed)),
                (Unknown, Some(ToolCrashed)),
            ),
        ] {
            for effect in Effect::ALL {
                let exit_codes = ExitCodes {
                    business: vec![3, 4],
                    not_applied: vec![75],
                };
                let outcome = verdict(
                    exited(exit, b"{}"),
                    &ExitRules {
                        effect: *effect,
                        exit_codes,
                    },
                );
                let expected = if *effect == Effect::Read { read } else { write };
                assert_eq!(
                    (outcome.word(), outcome.failure().map(|f| f.code)),
                    expected,
                    "exit {exit}, {effect}"
                );
            }
        }
    }

    #[test]
    fn a_refusal_speaks_for_itself() {
        let said = |stdout: &str, overflow| refusal(stdout.as_bytes(), overflow).0.to_string();
        let sold_out = r#"{"error":{"message":"sold out"}}"#;
        assert_eq!(said(sold_out, false), "sold out");
        let silent = "the tool said no and gave no reason";
        assert_eq!(
            (said(sold_out, true), said("no", false)),
            (silent.into(), silent.into())
        );
    }

    #[test]
    fn stderr_is_harmless_and_bounded() {
        assert_eq!(
            printable(b"a\x1b[2J\0\xff\r\n\tb"),
            "a\\u{1b}[2J\\u{0}\u{fffd}\\r\n\tb"
        );
        assert!(printable(&[0; STDERR_MAX]).len() <= STDERR_MAX);
        assert!(printable(&[0xff; STDERR_MAX]).len() <= STDERR_MAX);
    }
}
