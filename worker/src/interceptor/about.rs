//! What an interceptor says of itself.

use std::time::Duration;

use fleet::{ids::InterceptorName, store::workers::InterceptorRow};

/// The name of an interceptor, its place in the order and what becomes of calls when it fails.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct About {
    pub(crate) name: String,
    pub(crate) order: u16,
    pub(crate) is_mandatory: bool,
    pub(crate) fails: Fails,
    pub(crate) budget: Duration,
}

/// What becomes of a call when `before` panics or takes too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fails {
    /// It goes on, as if the interceptor were not there.
    Open,
    /// It is put back for 2 s, and up to 30 s the longer it has waited: this or another worker may do better. It is never
    /// failed for it.
    Closed,
}

impl Fails {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

impl About {
    /// The first and the last place that a program may give; the engine's own parts have those around them.
    pub const ORDERS: std::ops::RangeInclusive<u16> = 100..=799;
    /// The longest budget of a hook.
    pub const BUDGET_MAX: Duration = Duration::from_secs(5);

    /// Of this name (1 to 64 characters of a-z, 0-9 and _, beginning with a letter), at place 500, optional, failing
    /// [closed](Fails::Closed), with a budget of one second.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            order: 500,
            is_mandatory: false,
            fails: Fails::Closed,
            budget: Duration::from_secs(1),
        }
    }

    /// At this place, 100 to 799: `before` of lower ones runs earlier, and `after` later.
    pub const fn order(mut self, order: u16) -> Self {
        self.order = order;
        self
    }

    /// No operator may switch it off.
    pub const fn mandatory(mut self) -> Self {
        self.is_mandatory = true;
        self
    }

    /// What becomes of a call when it fails.
    pub const fn fails(mut self, fails: Fails) -> Self {
        self.fails = fails;
        self
    }

    /// How long each of its hooks may take, 1 ms to 5 s.
    pub const fn budget(mut self, budget: Duration) -> Self {
        self.budget = budget;
        self
    }

    /// As the worker's row has it.
    pub(crate) fn row(&self) -> InterceptorRow {
        InterceptorRow {
            name: self.name.clone(),
            order: self.order,
            mandatory: self.is_mandatory,
            fails: self.fails.word(),
            budget_ms: u64::try_from(self.budget.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// What is wrong with it by itself.
    pub(crate) fn problem(&self) -> Option<String> {
        let (name, order, budget) = (&self.name, self.order, self.budget);
        match name.parse::<InterceptorName>() {
            Err(problem) => return Some(format!("interceptor {name:?}: its {problem}")),
            Ok(known) if known.is_of_engine() => {
                return Some(format!(
                    "interceptor {name}: the name is the engine's own; give it another"
                ));
            }
            Ok(_) => {}
        }
        if !Self::ORDERS.contains(&order) {
            return Some(format!(
                "interceptor {name}: its order is {order}; a program's own have 100 to 799"
            ));
        }
        let is_bounded = (Duration::from_millis(1)..=Self::BUDGET_MAX).contains(&budget);
        (!is_bounded).then(|| {
            format!("interceptor {name}: its budget is {budget:?}; it may have 1 ms to 5 s")
        })
    }
}
