//! **May this call run now?** The controls as a process knows them, and the pause that holds a call.
//!
//! A control is a row of the ledger that changes what may run, over the whole fleet. Every process has a snapshot of them; the
//! door, the gate and the sweep ask it. A pause keeps calls from running: all of a tool, a queue, a tenant, or those of a tool
//! with a certain value in their arguments; what of that it does not name restricts nothing.
//!
//! Pure: the moment is an argument. A snapshot knows how long its rows last by the ledger's clock, counted on this process's
//! own from the moment when they were read, so no call is let go too early.

use std::{cell::OnceCell, fmt, str::FromStr};

use serde_json::Value;
use tokio::time::Instant;

use crate::{
    alike::is_same,
    arguments::{self, Limits},
    breaker::ForcedBreaker,
    call::words,
    canonical,
    ids::{InvalidName, Label, QueueName, ToolName},
    modes::Modes,
    wire::message::Message,
};

/// One control. The ledger numbers them in the order in which they were set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ControlId(pub i64);

impl fmt::Display for ControlId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ControlId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let id = text.parse().ok().filter(|_| digits);
        id.map(Self).ok_or(InvalidName {
            what: "control id",
            rule: Message::fixed("a whole number", "是一个整数"),
        })
    }
}

words! {
    /// What becomes of new calls that a pause covers. Calls that were accepted before wait, whatever it says.
    PauseMode {
        /// They are accepted, and wait.
        Wait = "wait",
        /// They are refused.
        Refuse = "refuse",
    }
}

/// What a pause covers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PauseScope {
    /// Calls of this tool.
    pub tool: Option<ToolName>,
    /// Calls of this queue.
    pub queue: Option<QueueName>,
    /// Calls of this tenant.
    pub tenant: Option<Label>,
    /// Calls with this value in their arguments.
    pub holds: Option<ArgumentEquals>,
}

/// A value at a place of the arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentEquals {
    /// JSON pointer.
    pub pointer: String,
    /// The value; `None`: it cannot be read, and every call of the scope counts as one that has it.
    pub value: Option<Value>,
}

/// A pause that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// Which control it is.
    pub id: ControlId,
    /// What it covers.
    pub scope: PauseScope,
    /// What becomes of new calls.
    pub mode: PauseMode,
    /// What a refused caller is told.
    pub told: Option<String>,
    /// When it is over; `None`: when somebody ends it.
    pub until: Option<Instant>,
}

/// What a pause looks at in a call.
#[derive(Debug, Clone, Copy)]
pub struct PausedBy<'a> {
    /// Its tool.
    pub tool: &'a ToolName,
    /// Its queue.
    pub queue: &'a QueueName,
    /// Its tenant.
    pub tenant: &'a Label,
    /// Its arguments.
    pub arguments: &'a LazyArguments<'a>,
}

/// Arguments that are parsed only when a pause looks into them.
#[derive(Debug)]
pub struct LazyArguments<'a> {
    text: &'a str,
    value: Option<&'a Value>,
    parsed: OnceCell<Option<Value>>,
}

impl<'a> LazyArguments<'a> {
    /// JSON text.
    pub const fn new(text: &'a str) -> Self {
        Self {
            text,
            value: None,
            parsed: OnceCell::new(),
        }
    }

    /// Arguments that are parsed already.
    pub const fn of(value: &'a Value) -> Self {
        Self {
            text: "",
            value: Some(value),
            parsed: OnceCell::new(),
        }
    }

    /// The value at this JSON pointer, if there is one.
    pub fn at(&self, pointer: &str) -> Option<&Value> {
        self.parsed()?.pointer(pointer)
    }

    fn parsed(&self) -> Option<&Value> {
        if self.value.is_some() {
            return self.value;
        }
        let parse = || arguments::parse(self.text.as_bytes(), &Limits::DEFAULT).ok();
        self.parsed.get_or_init(parse).as_ref()
    }
}

impl ArgumentEquals {
    /// The value of this JSON text.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(value: &str) -> Result<Value, Message> {
        let value = arguments::parse_any(value.as_bytes(), &Limits::DEFAULT);
        value.map_err(|error| error.message)
    }

    /// The value as the ledger keeps it: JSON text in canonical form.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn canonical(value: &str) -> Result<String, Message> {
        Self::parse(value).map(|value| canonical::to_text(&value))
    }

    /// Whether two values are the same one, whatever their spelling.
    pub fn is_same(one: &Value, other: &Value) -> bool {
        is_same(one, other)
    }

    fn is_in(&self, arguments: &LazyArguments<'_>) -> bool {
        let Some(wanted) = &self.value else {
            return true;
        };
        let found = arguments.at(&self.pointer);
        found.is_some_and(|found| is_same(wanted, found))
    }
}

impl PauseScope {
    fn covers(&self, call: &PausedBy<'_>) -> bool {
        self.tool.as_ref().is_none_or(|tool| tool == call.tool)
            && self.queue.as_ref().is_none_or(|queue| queue == call.queue)
            && self
                .tenant
                .as_ref()
                .is_none_or(|tenant| tenant == call.tenant)
            && self
                .holds
                .as_ref()
                .is_none_or(|holds| holds.is_in(call.arguments))
    }
}

/// The controls that hold, as they were read at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Controls {
    /// In the order of their ids.
    pauses: Vec<Pause>,
    modes: Modes,
    /// The breakers that are forced, by their tools.
    forced: Vec<(ToolName, ForcedBreaker)>,
    /// When the next one is over of those that the ledger alone obeys: limits.
    ledgers_end: Option<Instant>,
    /// Whether some were over when they were read: the ledger still has them.
    has_expired: bool,
}

impl Controls {
    /// These pauses; `has_expired`: the ledger has controls that are over.
    pub fn new(mut pauses: Vec<Pause>, has_expired: bool) -> Self {
        pauses.sort_by_key(|pause| pause.id);
        Self {
            pauses,
            modes: Modes::default(),
            forced: Vec::new(),
            ledgers_end: None,
            has_expired,
        }
    }

    /// With what operators have said of interceptors.
    #[must_use]
    pub fn with_modes(self, modes: Modes) -> Self {
        Self { modes, ..self }
    }

    /// What operators have said of interceptors.
    pub const fn modes(&self) -> &Modes {
        &self.modes
    }

    /// The same with these forced breakers.
    #[must_use]
    pub fn with_forced(mut self, forced: Vec<(ToolName, ForcedBreaker)>) -> Self {
        self.forced = forced;
        self
    }

    /// The same, and the next one that the ledger alone obeys is over then.
    #[must_use]
    pub fn with_ledgers_end(mut self, end: Option<Instant>) -> Self {
        self.ledgers_end = end;
        self
    }

    /// Whether an operator has forced the breaker of this tool.
    pub fn forced_breaker(&self, tool: &ToolName) -> Option<ForcedBreaker> {
        let mut found = self.forced.iter().filter(|(of, _)| of == tool);
        found.next().map(|(_, forced)| *forced)
    }

    /// Whether no call can be paused.
    pub const fn are_none(&self) -> bool {
        self.pauses.is_empty()
    }

    /// Whether the ledger has controls that are over, as it was when these were read.
    pub const fn have_expired(&self) -> bool {
        self.has_expired
    }

    /// When the next one is over.
    pub fn next_end(&self) -> Option<Instant> {
        let pauses = self.pauses.iter().filter_map(|pause| pause.until);
        let forced = self.forced.iter().filter_map(|(_, forced)| forced.until);
        let others = self.modes.next_end().into_iter().chain(self.ledgers_end);
        pauses.chain(forced).chain(others).min()
    }

    /// Whether this pause holds.
    pub fn has(&self, pause: ControlId, now: Instant) -> bool {
        let mut found = self.pauses.iter().filter(|known| known.id == pause);
        found.any(|known| known.until.is_none_or(|until| until > now))
    }

    /// The tools of which a pause looks into arguments.
    pub fn look_into(&self) -> impl Iterator<Item = &ToolName> {
        let scopes = self.pauses.iter().map(|pause| &pause.scope);
        scopes.filter_map(|scope| scope.tool.as_ref().filter(|_| scope.holds.is_some()))
    }

    /// The pause that decides about a new call: one that refuses it before one that makes it wait.
    pub fn pause_of_new(&self, call: &PausedBy<'_>, now: Instant) -> Option<&Pause> {
        let refuses = |pause: &&Pause| pause.mode == PauseMode::Refuse;
        let refusing = self.over(call, now).find(refuses);
        refusing.or_else(|| self.over(call, now).next())
    }

    /// The pause for whose end an accepted call waits: of several the one that was set first, so that all processes agree.
    pub fn pause_of_accepted(&self, call: &PausedBy<'_>, now: Instant) -> Option<&Pause> {
        self.over(call, now).next()
    }

    fn over<'s>(&'s self, call: &PausedBy<'_>, now: Instant) -> impl Iterator<Item = &'s Pause> {
        let lasts = move |pause: &&Pause| pause.until.is_none_or(|until| until > now);
        let lasting = self.pauses.iter().filter(lasts);
        lasting.filter(move |pause| pause.scope.covers(call))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn pause(id: i64, scope: PauseScope) -> Pause {
        Pause {
            id: ControlId(id),
            scope,
            mode: PauseMode::Wait,
            told: None,
            until: None,
        }
    }

    fn tool(name: &str) -> PauseScope {
        PauseScope {
            tool: Some(name.parse().unwrap()),
            ..PauseScope::default()
        }
    }

    fn with(pointer: &str, value: &str) -> PauseScope {
        PauseScope {
            holds: Some(ArgumentEquals {
                pointer: pointer.to_owned(),
                value: ArgumentEquals::parse(value).ok(),
            }),
            ..tool("charge")
        }
    }

    /// Whether a call of `charge` in the queue `payments` of `acme` with these arguments is paused.
    fn covers(scope: PauseScope, arguments: &str) -> bool {
        let controls = Controls::new(vec![pause(1, scope)], false);
        let arguments = LazyArguments::new(arguments);
        let (tool, queue) = ("charge".parse().unwrap(), "payments".parse().unwrap());
        let call = PausedBy {
            tool: &tool,
            queue: &queue,
            tenant: &"acme".parse().unwrap(),
            arguments: &arguments,
        };
        controls.pause_of_accepted(&call, Instant::now()).is_some()
    }

    #[test]
    fn a_scope_is_a_conjunction_of_what_it_names() {
        let queue = |name: &str| Some(name.parse().unwrap());
        let tenant = |name: &str| Some(name.parse().unwrap());
        for (scope, expected) in [
            (PauseScope::default(), true),
            (tool("charge"), true),
            (tool("look"), false),
            (
                PauseScope {
                    queue: queue("payments"),
                    ..tool("charge")
                },
                true,
            ),
            (
                PauseScope {
                    queue: queue("default"),
                    ..tool("charge")
                },
                false,
            ),
            (
                PauseScope {
                    tenant: tenant("acme"),
                    ..PauseScope::default()
                },
                true,
            ),
            (
                PauseScope {
                    tenant: tenant("beta"),
                    ..tool("charge")
                },
                false,
            ),
        ] {
            let told = format!("{scope:?}");
            assert_eq!(covers(scope, "{}"), expected, "{told}");
        }
    }

    #[test]
    fn a_value_is_compared_by_what_it_is_and_not_by_its_spelling() {
        let arguments =
            r#"{"account":{"id":"7","tags":["a","b"],"n":9007199254740993},"a/b":null}"#;
        for (pointer, value, expected) in [
            ("/account/id", "\"7\"", true),
            ("/account/id", "\"\\u0037\"", true),
            ("/account/id", "7", false),
            ("/account/n", "9007199254740993", true),
            ("/account/n", "9007199254740993.0", true),
            ("/account/n", "9007199254740992", false),
            ("/account/tags", "[ \"a\", \"b\" ]", true),
            ("/account/tags/1", "\"b\"", true),
            ("/account/tags/2", "\"b\"", false),
            ("/a~1b", "null", true),
            ("/absent", "null", false),
        ] {
            assert_eq!(
                covers(with(pointer, value), arguments),
                expected,
                "{pointer} {value}"
            );
        }
        // What cannot be read pauses the whole tool rather than nothing.
        assert!(covers(with("/account/id", "{"), arguments));
        assert!(!covers(with("/account/id", "\"7\""), "no JSON"));
    }

    #[test]
    fn a_new_call_meets_the_pause_that_refuses_it_and_an_accepted_one_the_oldest() {
        let refusing = Pause {
            mode: PauseMode::Refuse,
            ..pause(2, tool("charge"))
        };
        let now = Instant::now();
        let over = Pause {
            until: Some(now),
            ..pause(0, tool("charge"))
        };
        let lasting = Pause {
            until: Some(now + Duration::from_millis(1)),
            ..pause(1, tool("charge"))
        };
        let controls = Controls::new(vec![refusing, lasting.clone(), over.clone()], false);
        assert_eq!(controls.next_end(), over.until);
        let arguments = LazyArguments::new("{}");
        let call = PausedBy {
            tool: &"charge".parse().unwrap(),
            queue: &"payments".parse().unwrap(),
            tenant: &"acme".parse().unwrap(),
            arguments: &arguments,
        };
        assert_eq!(controls.pause_of_new(&call, now).unwrap().id, ControlId(2));
        assert_eq!(
            controls.pause_of_accepted(&call, now).unwrap().id,
            ControlId(1)
        );
        let later = lasting.until.unwrap();
        assert_eq!(
            controls.pause_of_accepted(&call, later).unwrap().id,
            ControlId(2)
        );
    }

    #[test]
    fn an_id_is_digits() {
        assert_eq!("17".parse::<ControlId>().unwrap(), ControlId(17));
        for wrong in ["", "-1", "+1", "1.0", "99999999999999999999", "x"] {
            assert!(wrong.parse::<ControlId>().is_err(), "{wrong}");
        }
    }
}
