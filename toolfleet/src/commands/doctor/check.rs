//! One check, and its result.

use fleet::{
    explain::{Servers, explain},
    store::server_check::Finding,
};
use serde::Serialize;

use crate::commands::{
    exit::{self, FAILED},
    plain::plain,
};

/// How many of many things a line names.
pub(super) const NAMED_MAX: usize = 3;

/// The result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Ok,
    /// A person should look; the fleet works.
    Warn,
    /// The fleet does not work, or not as promised.
    Fail,
}

/// The line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    /// The name of the check, for scripts.
    pub(super) check: &'static str,
    pub(super) status: Status,
    /// What was found.
    pub(super) found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
    #[serde(skip)]
    code: u8,
}

impl Check {
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            check,
            status: Status::Ok,
            found: found.into(),
            advice: None,
            code: exit::OK,
        }
    }

    pub(super) fn warn(
        check: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            status: Status::Warn,
            advice: Some(advice.into()),
            ..Self::ok(check, found)
        }
    }

    pub(super) fn fail(
        check: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            status: Status::Fail,
            code: FAILED,
            ..Self::warn(check, found, advice)
        }
    }

    /// The processes refuse to start with this finding, with the same exit code.
    pub(super) fn unfit(
        check: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            code: exit::CONFIGURATION,
            ..Self::fail(check, found, advice)
        }
    }

    /// The check could not be made. The error says what kind of failure that is, and what to do.
    pub(super) fn error(
        check: &'static str,
        problem: impl Into<anyhow::Error>,
        servers: &Servers,
    ) -> Self {
        let problem = problem.into();
        let Finding { what, advice } = explain(problem.as_ref(), servers);
        Self {
            status: Status::Fail,
            advice: (!advice.is_empty()).then(|| capital(&advice)),
            code: exit::exit_code(&problem),
            ..Self::ok(check, what)
        }
    }
}

/// The exit code: a refusal by a server comes first, then a server that does not answer, then any other fault.
pub(super) fn exit_code(checks: &[Check]) -> u8 {
    let codes = [exit::CONFIGURATION, exit::UNREACHABLE, FAILED];
    let has = |code: &u8| checks.iter().any(|check| check.code == *code);
    codes.into_iter().find(has).unwrap_or(exit::OK)
}

/// A line for each.
pub(super) fn lines(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.check.len()).max();
    let width = width.unwrap_or_default();
    let line = |check: &Check| {
        let status = match check.status {
            Status::Ok => "ok  ",
            Status::Warn => "warn",
            Status::Fail => "FAIL",
        };
        let advice = check.advice.iter().map(|advice| format!(". {advice}"));
        let advice: String = advice.collect();
        plain(&format!(
            "{status}  {:width$}  {}{advice}",
            check.check, check.found
        ))
    };
    checks.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A length of time, in the words of people.
pub(super) fn age(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    let (amount, unit) = match seconds {
        s if s < 120.0 => (s, "s"),
        s if s < 7_200.0 => (s / 60.0, "min"),
        s if s < 172_800.0 => (s / 3_600.0, "h"),
        s => (s / 86_400.0, "d"),
    };
    format!("{amount:.0} {unit}")
}

/// The text with a capital at the beginning.
pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

/// The first of them, and how many more there are.
pub(super) fn some(all: &[String]) -> String {
    let more = match all.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let named = all.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
    format!("{}{more}", named.join(", "))
}

/// A number and its noun.
pub(super) fn count(number: usize, one: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {one}{s}")
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;
    use fleet::bus::BusError;

    use super::*;

    #[test]
    fn the_worst_decides_what_the_program_ends_with() {
        let ok = Check::ok("a", "fine");
        let warn = Check::warn("b", "odd", "look");
        let fail = Check::fail("c", "broken", "repair it");
        let doing = "connect to NATS";
        let away = BusError::Unavailable {
            doing,
            source: None,
        };
        let none = Servers::default();
        let away = Check::error("nats", away, &none);
        let refused = Check::error("nats", BusError::UnfitServer("too old".into()), &none);
        assert_eq!(exit_code(&[]), 0);
        assert_eq!(exit_code(&[ok.clone(), warn.clone()]), 0);
        assert_eq!(exit_code(&[warn, fail.clone()]), 1);
        assert_eq!(exit_code(&[fail.clone(), away.clone()]), 69);
        assert_eq!(exit_code(&[ok, fail, away, refused]), 64);
        assert_eq!(exit_code(&[Check::error("x", anyhow!("odd"), &none)]), 1);
    }

    #[test]
    fn a_line_says_what_was_found_and_what_to_do_and_stays_a_line() {
        let checks = [
            Check::ok("nats", "nats-server 2.15.1"),
            Check::fail("postgres", "bad\n\u{1b}[2J", "Do this"),
        ];
        assert_eq!(
            lines(&checks),
            "ok    nats      nats-server 2.15.1\nFAIL  postgres  bad\\n\\u{1b}[2J. Do this"
        );
    }

    #[test]
    fn ages_read_as_people_say_them() {
        let ages = [-1.0, 3.4, 119.0, 120.0, 7_200.0, 172_800.0].map(age);
        assert_eq!(ages, ["0 s", "3 s", "119 s", "2 min", "2 h", "2 d"]);
    }
}
