//! `toolfleet control`: what may run now, over the whole fleet. It asks Postgres, so it works without NATS.

mod breaker;
mod change;
mod interceptors;
mod limit;
mod list;
mod log;
mod only;
mod pause;
mod purge;
mod resume;
mod scope;
mod set;
mod unset;

use std::process::ExitCode;

use clap::Subcommand;
use fleet::store::DecisionError;
use fleet_history::controls::ListedControl;

/// What `control` can do.
#[derive(Debug, Subcommand)]
pub enum Control {
    /// List the controls that hold now: who set them, why, until when, and how many calls wait
    List(list::ListControls),
    /// List the interceptors of workers' programs: who has them, what they did, how often they failed
    Interceptors(interceptors::ListInterceptors),
    /// Show every change of a control that was ever made, the newest first
    Log(log::ControlLog),
    /// Pause calls: those of a tool, a queue, a tenant, or of a tool with a value in their arguments; what runs goes on
    Pause(Box<pause::PauseCalls>),
    /// End a pause, by its id or by its scope: what waits runs in its turn
    Resume(Box<resume::Resume>),
    /// Say what an interceptor may do: enforce, observe, off; of several the one that says most about a call decides
    Set(Box<set::SetMode>),
    /// Leave only these interceptors, and the mandatory ones: for tests, and to find out which one it is
    Only(Box<only::OnlyThese>),
    /// Take a control away, by its id
    Unset(Box<unset::UnsetControl>),
    /// Force the circuit breaker of a tool open or closed, or let it decide by itself again
    Breaker(Box<breaker::ForceBreaker>),
    /// Say how many attempts of a tool, or of tools that share a limit, may start in a time, whatever their manifests say
    Limit(Box<limit::LimitStarts>),
    /// Let the kept answers of a tool with a cache count no more
    Purge(purge::PurgeAnswers),
}

impl Control {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::List(list) => list.run().await,
            Self::Interceptors(list) => list.run().await,
            Self::Log(log) => log.run().await,
            Self::Pause(pause) => Box::pin(pause.run()).await,
            Self::Resume(resume) => Box::pin(resume.run()).await,
            Self::Set(set) => Box::pin(set.run()).await,
            Self::Only(only) => Box::pin(only.run()).await,
            Self::Unset(unset) => Box::pin(unset.run()).await,
            Self::Breaker(breaker) => Box::pin(breaker.run()).await,
            Self::Limit(limit) => Box::pin(limit.run()).await,
            Self::Purge(purge) => Box::pin(purge.run()).await,
        }
    }
}

/// What a control does, in a few words.
pub(super) fn in_words(control: &ListedControl) -> String {
    scope::whole(&control.scope)
}

/// The answer of the ledger; an error of the server keeps its exit code.
pub(super) fn answered<T>(asked: Result<T, DecisionError>) -> anyhow::Result<T> {
    asked.map_err(|error| match error {
        DecisionError::Invalid(why) => anyhow::Error::msg(at_command_line(&why)),
        DecisionError::Store(error) => error.into(),
    })
}

/// How the sentences of the ledger begin that name an argument of its functions, and the same for who wrote a command.
const AT_COMMAND_LINE: [(&str, &str); 12] = [
    (
        "for_ms must be 1 to 2592000000,",
        "--for must be 1ms to 720h,",
    ),
    (
        "per_ms must be 1 to 86400000,",
        "the time after the / must be 1ms to 24h,",
    ),
    ("calls must be", "the number before the / must be"),
    ("calls are more", "these are more"),
    ("burst must be", "--burst must be"),
    ("told ", "--tell "),
    ("actor ", "--actor "),
    ("note ", "--note "),
    (
        "pointer must be a JSON pointer",
        "--where must begin with a JSON pointer",
    ),
    (
        "pointer is sensitive",
        "the pointer of --where is sensitive",
    ),
    ("value ", "the value of --where "),
    ("subject names the limit", "this name is the limit"),
];

/// A sentence of the ledger in the words of the command line.
fn at_command_line(why: &str) -> String {
    let begins = AT_COMMAND_LINE
        .iter()
        .find_map(|(begins, instead)| Some((why.strip_prefix(begins)?, instead)));
    begins.map_or_else(
        || why.to_owned(),
        |(rest, instead)| format!("{instead}{rest}"),
    )
}
