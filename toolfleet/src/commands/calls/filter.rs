//! Which calls a command is about: the same flags for a list and for what is done to many calls.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use fleet::{
    call::{CallOutcome, State},
    ids::{CallId, Label, QueueName, ToolName},
    wire::code::Code,
};
use fleet_history::{
    filter::{Filter, ValueAt},
    last_code::LastCode,
    tools::is_known,
};
use serde_json::{Value, json};
use sqlx::PgPool;
use time::OffsetDateTime;

use crate::commands::{holds::Holds, moment::Moment, usage::UsageError, words::one_of};

/// How far back an operation on many calls looks where no moment is given.
const LOOKS_BACK: Duration = Duration::from_secs(24 * 3600);
/// The most values that are compared in arguments, and in results.
const VALUES_MAX: usize = 8;

/// Which calls; every flag that is given holds for them.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct FilterFlags {
    /// Only calls of this tool
    #[arg(long)]
    pub(super) tool: Option<ToolName>,
    /// Only calls of this queue
    #[arg(long)]
    pub(super) queue: Option<QueueName>,
    /// Only calls in this state
    #[arg(long, value_parser = one_of::<State>(State::ALL, State::as_str))]
    pub(super) state: Option<State>,
    /// Only calls of this tenant
    #[arg(long)]
    pub(super) tenant: Option<Label>,
    /// Only calls of this session
    #[arg(long)]
    pub(super) session: Option<Label>,
    /// Only calls of this run
    #[arg(long)]
    pub(super) run: Option<Label>,
    /// Only calls whose error has this code (docs/errors); of an open call, the error of its last attempt
    #[arg(long, hide_possible_values = true, value_parser = one_of::<Code>(Code::ALL, Code::as_str))]
    pub(super) code: Option<Code>,
    /// Only calls whose last attempt came to this code: behind `retries_exhausted` and `deadline_exceeded` the one inside, of a
    /// doubt its cause or its `why` (docs/history.md), else as --code
    #[arg(long, value_name = "CODE", hide_possible_values = true, value_parser = last_code())]
    pub(super) last_code: Option<LastCode>,
    /// Only calls accepted then or later: how long ago, such as 2h, or a moment, such as 2026-11-23T08:00:00Z
    #[arg(long, value_name = "AGO|MOMENT")]
    pub(super) since: Option<Moment>,
    /// Only calls accepted before: how long ago, or a moment
    #[arg(long, value_name = "AGO|MOMENT")]
    pub(super) until: Option<Moment>,
    /// Only calls with this value in their arguments: JSON pointer, =, and the value as JSON, else as text; up to eight times
    #[arg(long = "arg", value_name = "/POINTER=VALUE")]
    pub(super) args: Vec<Holds>,
}

/// How the calls ended; what is open or in doubt has neither.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct EndFlags {
    /// Only calls that ended with this outcome
    #[arg(long, value_parser = one_of::<CallOutcome>(CallOutcome::ALL, CallOutcome::as_str))]
    pub(super) outcome: Option<CallOutcome>,
    /// Only calls with this value in their results, as for --arg
    #[arg(long = "result", value_name = "/POINTER=VALUE")]
    pub(super) results: Vec<Holds>,
}

/// What a command was told about the calls that it is for.
#[derive(Debug, Clone)]
pub(super) struct WhichCalls {
    pub(super) flags: FilterFlags,
    pub(super) ends: EndFlags,
}

impl WhichCalls {
    /// As the history is asked, by Postgres's clock. Without a moment it looks at all of it.
    ///
    /// # Errors
    ///
    /// A [`UsageError`]: the moments or a pointer make no sense.
    pub(super) fn filter(&self, now: OffsetDateTime) -> Result<Filter, UsageError> {
        let flags = &self.flags;
        let at = |moment: Option<Moment>| moment.map(|moment| moment.at(now));
        let (since, until) = (at(flags.since), at(flags.until));
        if since.is_some_and(|since| until.is_some_and(|until| until <= since)) {
            let what = "--until must be after --since: `--since 3h --until 2h` is the hour before the last two";
            return Err(UsageError(what.to_owned()));
        }
        Ok(Filter {
            tool: flags.tool.clone(),
            queue: flags.queue.clone(),
            state: flags.state,
            outcome: self.ends.outcome,
            tenant: flags.tenant.clone(),
            session: flags.session.clone(),
            run: flags.run.clone(),
            code: flags.code,
            last_code: flags.last_code,
            args: values("--arg", &flags.args)?,
            results: values("--result", &self.ends.results)?,
            since,
            until,
            ..Filter::default()
        })
    }

    /// The same for what is too much of a long history: both moments are fixed. Without one it looks at the last 24 hours before
    /// --until.
    ///
    /// # Errors
    ///
    /// As for [`WhichCalls::filter`].
    pub(super) fn recent(&self, now: OffsetDateTime) -> Result<Filter, UsageError> {
        let filter = self.filter(now)?;
        let until = filter.until.unwrap_or(now);
        let since = filter
            .since
            .unwrap_or_else(|| Moment::Ago(LOOKS_BACK).at(until));
        Ok(Filter {
            since: Some(since),
            until: Some(until),
            ..filter
        })
    }

    /// The same for an operation on many calls.
    ///
    /// # Errors
    ///
    /// As for [`WhichCalls::filter`], and where nothing but the state is given.
    pub(super) fn bounded(&self, now: OffsetDateTime) -> Result<Filter, UsageError> {
        if !self.says_more_than_the_state() {
            let what = "name one call, or say which calls with at least one flag besides --state, such as --tool or --since";
            return Err(UsageError(what.to_owned()));
        }
        self.recent(now)
    }

    /// Sees to it that a tool that is named was applied once: a name that is mistyped finds nothing, which looks like an answer.
    ///
    /// # Errors
    ///
    /// A [`UsageError`]: there never was such a tool. Or the view cannot be read.
    pub(super) async fn of_a_tool_that_is(&self, pool: &PgPool) -> anyhow::Result<()> {
        match &self.flags.tool {
            Some(tool) if !is_known(pool, tool).await? => {
                let what =
                    format!("there is no tool {tool}: `toolfleet tools list` has their names");
                Err(UsageError(what).into())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// What was given, in one spelling: the same flags are the same text, in whatever order they stood.
    pub(super) fn spelled(&self) -> Value {
        let flags = &self.flags;
        let word = |text: Option<&str>| text.map(str::to_owned);
        let held = |holds: &[Holds]| {
            let mut held: Vec<String> = holds
                .iter()
                .map(|holds| format!("{}={}", holds.pointer, holds.value))
                .collect();
            held.sort();
            held
        };
        let mut spelled = json!({
            "tool": word(flags.tool.as_ref().map(ToolName::as_str)),
            "queue": word(flags.queue.as_ref().map(QueueName::as_str)),
            "state": word(flags.state.map(State::as_str)),
            "outcome": word(self.ends.outcome.map(CallOutcome::as_str)),
            "tenant": word(flags.tenant.as_ref().map(Label::as_str)),
            "session": word(flags.session.as_ref().map(Label::as_str)),
            "run": word(flags.run.as_ref().map(Label::as_str)),
            "code": word(flags.code.map(Code::as_str)),
            "since": flags.since.map(Moment::spelled),
            "until": flags.until.map(Moment::spelled),
            "args": held(&flags.args),
            "results": held(&self.ends.results),
        });
        // Names of before this flag was there are still the same names.
        if let Some(code) = flags.last_code {
            spelled["last_code"] = code.as_str().into();
        }
        spelled
    }

    /// Whether a flag that is about many calls was given; the tenant is for one call too.
    pub(super) fn is_about_many(&self) -> bool {
        self.flags.state.is_some() || self.says_more(false)
    }

    fn says_more_than_the_state(&self) -> bool {
        self.says_more(true)
    }

    fn says_more(&self, with_tenant: bool) -> bool {
        let FilterFlags {
            tool,
            queue,
            state: _,
            tenant,
            session,
            run,
            code,
            last_code,
            since,
            until,
            args,
        } = &self.flags;
        let EndFlags { outcome, results } = &self.ends;
        tool.is_some()
            || queue.is_some()
            || with_tenant && tenant.is_some()
            || session.is_some()
            || run.is_some()
            || code.is_some()
            || last_code.is_some()
            || since.is_some()
            || until.is_some()
            || !args.is_empty()
            || outcome.is_some()
            || !results.is_empty()
    }
}

/// What is said where this tenant has no such call.
pub(super) fn not_of(tenant: &Label, call: CallId) -> String {
    format!(
        "the tenant {tenant} has no call {call}: --tenant says whose it is, and `toolfleet calls show {call}` shows it"
    )
}

fn last_code() -> impl TypedValueParser<Value = LastCode> {
    PossibleValuesParser::new(LastCode::all().map(LastCode::as_str))
        .try_map(|word| word.parse::<LastCode>())
}

/// The tenant of a single call.
pub(super) fn tenant_of_one(which: &WhichCalls) -> Label {
    let named = which.flags.tenant.clone();
    named.unwrap_or_else(|| "default".parse().expect("it is a label"))
}

fn values(flag: &str, holds: &[Holds]) -> Result<Vec<ValueAt>, UsageError> {
    if holds.len() > VALUES_MAX {
        let what = format!("{flag} may be given {VALUES_MAX} times");
        return Err(UsageError(what));
    }
    let values = holds.iter().map(Holds::value_at);
    let values: Result<_, String> = values.collect();
    values.map_err(|wrong| UsageError(format!("{flag}: {wrong}")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        flags: FilterFlags,
        #[command(flatten)]
        ends: EndFlags,
    }

    const NOW: OffsetDateTime =
        OffsetDateTime::UNIX_EPOCH.saturating_add(time::Duration::days(20_000));

    fn which(line: &str) -> WhichCalls {
        let words = std::iter::once("line").chain(line.split_whitespace());
        let Line { flags, ends } = Line::try_parse_from(words).unwrap();
        WhichCalls { flags, ends }
    }

    #[test]
    fn many_calls_have_two_moments_and_more_than_a_state() {
        for line in ["", "--state failed"] {
            assert!(which(line).bounded(NOW).is_err(), "{line}");
        }
        let hours = |hours| Some(NOW - time::Duration::hours(hours));
        for (line, since, until) in [
            ("--tool look", hours(24), hours(0)),
            ("--tool look --since 3h", hours(3), hours(0)),
            ("--until 48h", hours(72), hours(48)),
            (
                "--outcome system_error --since 3h --until 2h",
                hours(3),
                hours(2),
            ),
        ] {
            let filter = which(line).bounded(NOW).unwrap();
            assert_eq!((filter.since, filter.until), (since, until), "{line}");
        }
        for line in ["--since 2h --until 3h", "--since 2h --until 2h"] {
            assert!(which(line).bounded(NOW).is_err(), "{line}");
        }
    }

    #[test]
    fn what_reads_the_history_at_large_looks_a_day_back_where_nothing_else_is_said() {
        let hours = |hours| Some(NOW - time::Duration::hours(hours));
        for (line, since, until) in [
            ("", hours(24), hours(0)),
            ("--since 90h", hours(90), hours(0)),
            ("--until 2h", hours(26), hours(2)),
        ] {
            let filter = which(line).recent(NOW).unwrap();
            assert_eq!((filter.since, filter.until), (since, until), "{line}");
        }
    }

    #[test]
    fn the_same_flags_have_one_spelling_and_other_flags_another() {
        let spelled = |line: &str| which(line).spelled().to_string();
        assert_eq!(
            spelled("--tool look --arg /a=1 --arg /b=2 --since 60m"),
            spelled("--arg /b=2 --since 1h --arg /a=1 --tool look")
        );
        let all = [
            "",
            "--tool a",
            "--queue a",
            "--state failed",
            "--tenant a",
            "--session a",
            "--run a",
            "--code timeout",
            "--last-code timeout",
            "--last-code completion_silent",
            "--since 1h",
            "--until 1h",
            "--since 1970-01-01T01:00:00Z",
            "--arg /a=1",
            "--result /a=1",
            "--outcome success",
        ];
        let mut texts: Vec<String> = all.iter().map(|line| spelled(line)).collect();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), all.len());
    }
}
