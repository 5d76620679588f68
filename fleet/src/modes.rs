//! **Does this interceptor, or this brake, have a say in this call?** The modes that operators have set, and lists of the only
//! interceptors.
//!
//! Pure: the moment is an argument. A mode is about an interceptor and all calls, those of a tenant, of a tool, or of both; the
//! row that says most decides. A list names the interceptors that remain, beside the mandatory ones. A mandatory interceptor
//! always has its say, whatever the rows are. A list says nothing of the engine's own brakes.

use tokio::time::Instant;

use crate::{
    call::words,
    ids::{Label, ToolName},
};

words! {
    /// What an interceptor may do.
    InterceptMode {
        /// What it says holds.
        Enforce = "enforce",
        /// It is asked, and what it says is counted and not done.
        Observe = "observe",
        /// It is not asked.
        Off = "off",
    }
}

words! {
    /// A part of the engine that has a say in whether or how long calls run, or in what models are asked, and that a mode may name as
    /// it names an interceptor.
    Brake {
        /// So many attempts of a tool start in a time.
        RateLimit = "rate_limit",
        /// Nothing is sent to a target that fails.
        Breaker = "breaker",
        /// So many further attempts for so many first ones.
        RetryBudget = "retry_budget",
        /// The same call fails so often in a run.
        RepeatCap = "repeat_cap",
        /// An attempt is given as much time as the fleet has learned.
        LearnedTimeout = "learned_timeout",
        /// The answer of an equal call counts for a time.
        Cache = "cache",
        /// Another answer stands in for that of a tool that cannot.
        Fallback = "fallback",
        /// Callers get a part of a large answer.
        LargeResult = "large_result",
        /// A model is told of a tool that can do better what it is asked.
        Delegation = "delegation",
        /// A model is offered the tools that a conversation needs.
        ToolSelection = "tool_selection",
        /// A model is told the list of what there is to do.
        Todo = "todo",
        /// A conversation is kept within a number of tokens.
        Context = "context",
        /// What is sent to models is logged, without its content.
        Log = "log",
    }
}

/// The calls that a mode is about; what it does not name restricts nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModeScope {
    /// Of this tool.
    pub tool: Option<ToolName>,
    /// Of this tenant.
    pub tenant: Option<Label>,
}

/// A row that says what an interceptor may do, or which ones remain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModeControl {
    /// The calls that it is about.
    pub scope: ModeScope,
    /// What it says.
    pub says: ModeSaid,
    /// When it is over; `None`: when somebody takes it away.
    pub until: Option<Instant>,
}

/// What a row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModeSaid {
    /// This interceptor has this mode.
    Mode(String, InterceptMode),
    /// These interceptors remain.
    Only(Vec<String>),
}

/// The modes that hold, as they were read at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Modes(Vec<ModeControl>);

impl ModeScope {
    /// How much it says, if it is about such a call: a tool says more than a tenant.
    fn weight(&self, tool: &ToolName, tenant: Option<&Label>) -> Option<u8> {
        let of_tool = self.tool.as_ref().is_none_or(|named| named == tool);
        let of_tenant = self
            .tenant
            .as_ref()
            .is_none_or(|named| tenant == Some(named));
        let weight = 2 * u8::from(self.tool.is_some()) + u8::from(self.tenant.is_some());
        (of_tool && of_tenant).then_some(weight)
    }
}

impl Modes {
    /// Of these rows.
    pub const fn new(rows: Vec<ModeControl>) -> Self {
        Self(rows)
    }

    /// Whether every interceptor has its say in every call.
    pub const fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// When the next one is over.
    pub fn next_end(&self) -> Option<Instant> {
        self.0.iter().filter_map(|row| row.until).min()
    }

    /// What an interceptor that is not mandatory may do in a call of this tool and tenant.
    pub fn of(
        &self,
        interceptor: &str,
        tool: &ToolName,
        tenant: &Label,
        now: Instant,
    ) -> InterceptMode {
        let is_list = |says: &ModeSaid| matches!(says, ModeSaid::Only(_));
        if let Some(ModeSaid::Only(names)) = self.heaviest(tool, Some(tenant), now, is_list)
            && !names.iter().any(|name| name == interceptor)
        {
            return InterceptMode::Off;
        }
        self.said_of(interceptor, tool, Some(tenant), now)
    }

    /// What a brake may do in a call of this tool and tenant. Without a tenant, by the rows that name none.
    pub fn of_brake(
        &self,
        brake: Brake,
        tool: &ToolName,
        tenant: Option<&Label>,
        now: Instant,
    ) -> InterceptMode {
        self.said_of(brake.as_str(), tool, tenant, now)
    }

    fn said_of(
        &self,
        name: &str,
        tool: &ToolName,
        tenant: Option<&Label>,
        now: Instant,
    ) -> InterceptMode {
        let said = self.heaviest(tool, tenant, now, |says| says.mode_of(name).is_some());
        said.and_then(|says| says.mode_of(name))
            .unwrap_or(InterceptMode::Enforce)
    }

    fn lasting(&self, now: Instant) -> impl Iterator<Item = &ModeControl> {
        let lasts = move |row: &&ModeControl| row.until.is_none_or(|until| until > now);
        self.0.iter().filter(lasts)
    }

    /// What the row says that says most of such a call, among those that say such a thing.
    fn heaviest(
        &self,
        tool: &ToolName,
        tenant: Option<&Label>,
        now: Instant,
        about: impl Fn(&ModeSaid) -> bool,
    ) -> Option<&ModeSaid> {
        let rows = self.lasting(now).filter(|row| about(&row.says));
        let weighed = rows.filter_map(|row| Some((row.scope.weight(tool, tenant)?, row)));
        // The ledger takes no two rows that say as much.
        let best = weighed.max_by_key(|(weight, _)| *weight);
        best.map(|(_, row)| &row.says)
    }
}

impl ModeSaid {
    /// The mode that it gives to the interceptor or brake of this name.
    fn mode_of(&self, name: &str) -> Option<InterceptMode> {
        match self {
            Self::Mode(of, mode) if of == name => Some(*mode),
            Self::Mode(..) | Self::Only(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn scope(tool: Option<&str>, tenant: Option<&str>) -> ModeScope {
        ModeScope {
            tool: tool.map(|tool| tool.parse().unwrap()),
            tenant: tenant.map(|tenant| tenant.parse().unwrap()),
        }
    }

    fn row(scope: ModeScope, says: ModeSaid) -> ModeControl {
        ModeControl {
            scope,
            says,
            until: None,
        }
    }

    fn of(modes: &Modes, tool: &str, tenant: &str) -> InterceptMode {
        let (tool, tenant) = (tool.parse().unwrap(), tenant.parse().unwrap());
        modes.of("audit", &tool, &tenant, Instant::now())
    }

    #[test]
    fn the_row_that_says_most_decides() {
        use InterceptMode::{Enforce, Observe, Off};
        let mode = |mode| ModeSaid::Mode("audit".to_owned(), mode);
        let modes = Modes::new(vec![
            row(scope(None, None), mode(Off)),
            row(scope(None, Some("acme")), mode(Enforce)),
            row(scope(Some("look"), None), mode(Observe)),
            row(scope(Some("look"), Some("acme")), mode(Off)),
            row(scope(None, None), ModeSaid::Mode("other".to_owned(), Off)),
        ]);
        for (tool, tenant, expected) in [
            ("charge", "beta", Off),
            ("charge", "acme", Enforce),
            ("look", "beta", Observe),
            ("look", "acme", Off),
        ] {
            assert_eq!(of(&modes, tool, tenant), expected, "{tool} {tenant}");
        }
        assert_eq!(of(&Modes::default(), "look", "acme"), Enforce);
    }

    #[test]
    fn a_list_leaves_the_named_ones_and_their_modes() {
        use InterceptMode::{Enforce, Observe, Off};
        let only =
            |names: &[&str]| ModeSaid::Only(names.iter().map(|name| (*name).to_owned()).collect());
        let modes = Modes::new(vec![
            row(scope(Some("look"), None), only(&["other"])),
            row(scope(Some("look"), Some("acme")), only(&["audit"])),
            row(
                scope(None, None),
                ModeSaid::Mode("audit".to_owned(), Observe),
            ),
        ]);
        assert_eq!(of(&modes, "look", "beta"), Off);
        assert_eq!(of(&modes, "look", "acme"), Observe);
        assert_eq!(of(&modes, "charge", "beta"), Observe);
        assert_eq!(
            of(
                &Modes::new(vec![row(scope(None, None), only(&["audit"]))]),
                "a",
                "b"
            ),
            Enforce
        );
    }

    #[test]
    fn what_is_over_says_nothing() {
        let over = ModeControl {
            until: Some(Instant::now()),
            ..row(
                scope(None, None),
                ModeSaid::Mode("audit".to_owned(), InterceptMode::Off),
            )
        };
        let modes = Modes::new(vec![over]);
        assert!(modes.next_end().is_some());
        let later = Instant::now() + Duration::from_millis(1);
        let (tool, tenant) = ("look".parse().unwrap(), "acme".parse().unwrap());
        assert_eq!(
            modes.of("audit", &tool, &tenant, later),
            InterceptMode::Enforce
        );
    }

    #[test]
    fn a_brake_has_modes_of_its_own_and_no_list_leaves_it_out() {
        use InterceptMode::{Enforce, Observe, Off};
        let mode = |mode| ModeSaid::Mode("breaker".to_owned(), mode);
        let modes = Modes::new(vec![
            row(scope(None, None), ModeSaid::Only(vec!["audit".to_owned()])),
            row(scope(Some("look"), None), mode(Observe)),
            row(scope(None, Some("acme")), mode(Off)),
        ]);
        let (look, charge) = ("look".parse().unwrap(), "charge".parse().unwrap());
        let (acme, beta) = ("acme".parse().unwrap(), "beta".parse().unwrap());
        let now = Instant::now();
        let of = |brake, tool, tenant| modes.of_brake(brake, tool, tenant, now);
        assert_eq!(of(Brake::Breaker, &look, Some(&beta)), Observe);
        assert_eq!(of(Brake::Breaker, &charge, Some(&acme)), Off);
        assert_eq!(of(Brake::Breaker, &charge, Some(&beta)), Enforce);
        assert_eq!(of(Brake::RateLimit, &look, Some(&acme)), Enforce);
        assert_eq!(of(Brake::Breaker, &look, None), Observe);
        assert_eq!(of(Brake::Breaker, &charge, None), Enforce);
    }

    proptest! {
        /// Whatever the rows and their order: the most specific one that fits decides, and one that does not fit changes nothing.
        #[test]
        fn precedence_is_by_scope_alone(rows in proptest::collection::vec(
            (0_u8..4, proptest::option::of(0_u8..2), proptest::option::of(0_u8..2)), 0..12,
        )) {
            let name = |n: u8| ["a", "b"][usize::from(n)];
            let mut seen = std::collections::HashMap::new();
            let mut all = Vec::new();
            for (mode, tool, tenant) in rows {
                let mode = InterceptMode::ALL[usize::from(mode) % 3];
                if seen.contains_key(&(tool, tenant)) {
                    continue;
                }
                seen.insert((tool, tenant), mode);
                let scope = scope(tool.map(name), tenant.map(name));
                all.push(row(scope, ModeSaid::Mode("audit".to_owned(), mode)));
            }
            for (tool, tenant) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let order = [(Some(tool), Some(tenant)), (Some(tool), None), (None, Some(tenant)), (None, None)];
                let expected = order.iter().find_map(|scope| seen.get(scope)).copied();
                let mut reversed = all.clone();
                reversed.reverse();
                for rows in [all.clone(), reversed] {
                    let found = of(&Modes::new(rows), name(tool), name(tenant));
                    prop_assert_eq!(found, expected.unwrap_or(InterceptMode::Enforce));
                }
            }
        }
    }
}
