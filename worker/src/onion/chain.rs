//! The list of a program's interceptors, in their order.

use std::{fmt, sync::Arc};

use fleet::{
    ids::{Label, ToolName},
    modes::{InterceptMode, Modes},
};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::{
    hook::{Fault, Hook, Hooks, run},
    tally::Tally,
};
use crate::interceptor::{About, Interceptor};

/// One interceptor of this worker.
pub(crate) struct Active {
    pub(crate) about: About,
    pub(super) hooks: Box<dyn Hooks>,
    pub(crate) tally: Tally,
}

/// An interceptor in the list of a call.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) active: Arc<Active>,
    /// Whether what it says is counted and not done.
    pub(super) is_observed: bool,
}

/// Those of a program, as it adds them.
#[derive(Default)]
pub(crate) struct Chain(Vec<Active>);

impl fmt::Debug for Active {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.about.fmt(f)
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

impl Active {
    /// Runs a hook within its budget, and at most until this moment.
    pub(super) async fn timed<T>(
        &self,
        hook: Hook,
        until: Instant,
        running: BoxFuture<'_, T>,
    ) -> Result<T, Fault> {
        let began = Instant::now();
        let budget = self
            .about
            .budget
            .min(until.saturating_duration_since(began));
        let returned = run(running, budget).await;
        self.tally.ran(
            &self.about.name,
            hook,
            began.elapsed(),
            returned.as_ref().err(),
        );
        returned
    }
}

impl Chain {
    /// Adds one. Returns what is wrong with it, also beside those that were added before.
    pub(crate) fn add(&mut self, interceptor: impl Interceptor) -> Vec<String> {
        let about = interceptor.about();
        let (name, order) = (&about.name, about.order);
        let others = self.0.iter().map(|active| &active.about);
        let clashes = others.filter_map(|other| {
            if other.name == *name {
                let before = other.order;
                Some(format!(
                    "two interceptors are called {name}, with the orders {before} and {order}; give one another name"
                ))
            } else if other.order == order {
                let other = &other.name;
                Some(format!(
                    "the interceptors {other} and {name} both have the order {order}; give one another"
                ))
            } else {
                None
            }
        });
        let wrong = about.problem().into_iter().chain(clashes).collect();
        self.0.push(Active {
            about,
            hooks: Box::new(interceptor),
            tally: Tally::default(),
        });
        wrong
    }

    /// All of them, by their order.
    pub(crate) fn in_order(mut self) -> Arc<[Link]> {
        self.0.sort_by_key(|active| active.about.order);
        let links = self.0.into_iter().map(|active| Link {
            active: Arc::new(active),
            is_observed: false,
        });
        links.collect()
    }
}

/// The list of a call of this tool and tenant: all of them, or what operators have left of them.
pub(crate) fn under(
    all: &Arc<[Link]>,
    modes: &Modes,
    tool: &ToolName,
    tenant: &Label,
) -> Arc<[Link]> {
    if modes.are_none() {
        return Arc::clone(all);
    }
    let now = Instant::now();
    let left = all.iter().filter_map(|link| {
        let about = &link.active.about;
        let mode = if about.is_mandatory {
            InterceptMode::Enforce
        } else {
            modes.of(&about.name, tool, tenant, now)
        };
        (mode != InterceptMode::Off).then(|| Link {
            active: Arc::clone(&link.active),
            is_observed: mode == InterceptMode::Observe,
        })
    });
    left.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fleet::modes::{ModeControl, ModeSaid, ModeScope};

    use super::*;

    struct Named(About);

    impl Interceptor for Named {
        fn about(&self) -> About {
            self.0.clone()
        }
    }

    fn problems(all: &[About]) -> Vec<String> {
        let mut chain = Chain::default();
        let all = all.iter().cloned();
        all.flat_map(|about| chain.add(Named(about))).collect()
    }

    #[test]
    fn equal_names_and_orders_are_refused_with_both_named() {
        let of = |name: &str, order| About::new(name).order(order);
        assert!(problems(&[of("a", 100), of("b", 799)]).is_empty());
        assert_eq!(
            problems(&[of("audit", 500), of("redact", 500)]),
            ["the interceptors audit and redact both have the order 500; give one another"]
        );
        assert_eq!(
            problems(&[of("audit", 500), of("audit", 300)]),
            [
                "two interceptors are called audit, with the orders 500 and 300; give one another name"
            ]
        );
    }

    #[test]
    fn what_an_interceptor_says_of_itself_has_bounds() {
        let ms = Duration::from_millis;
        for (about, says) in [
            (About::new("Audit"), "its interceptor name must be 1 to 64"),
            (About::new("1st"), "beginning with a letter"),
            (About::new("breaker"), "the name is the engine's own"),
            (About::new("a").order(99), "its order is 99"),
            (About::new("a").order(800), "have 100 to 799"),
            (About::new("a").budget(ms(0)), "its budget is 0ns"),
            (About::new("a").budget(ms(5_001)), "1 ms to 5 s"),
        ] {
            let [problem] = problems(&[about]).try_into().unwrap();
            assert!(problem.contains(says), "{problem}");
        }
    }

    #[test]
    fn the_order_is_that_of_the_numbers() {
        let mut chain = Chain::default();
        for (name, order) in [("c", 700), ("a", 100), ("b", 500)] {
            assert!(chain.add(Named(About::new(name).order(order))).is_empty());
        }
        let chain = chain.in_order();
        let names: Vec<&str> = chain
            .iter()
            .map(|one| one.active.about.name.as_str())
            .collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn a_mandatory_one_has_its_say_whatever_the_rows_are() {
        let mut chain = Chain::default();
        let audit = About::new("audit").order(100).mandatory();
        for about in [
            audit,
            About::new("b").order(200),
            About::new("c").order(300),
        ] {
            assert!(chain.add(Named(about)).is_empty());
        }
        let all = chain.in_order();
        let row = |says| ModeControl {
            scope: ModeScope::default(),
            says,
            until: None,
        };
        let left = |says: Vec<ModeSaid>| {
            let modes = Modes::new(says.into_iter().map(row).collect());
            let (tool, tenant) = ("t".parse().unwrap(), "x".parse().unwrap());
            let left = under(&all, &modes, &tool, &tenant);
            let told = left
                .iter()
                .map(|link| (link.active.about.name.clone(), link.is_observed));
            told.collect::<Vec<_>>()
        };
        let of = |name: &str, is_observed| (name.to_owned(), is_observed);
        let mode = |name: &str, mode| ModeSaid::Mode(name.to_owned(), mode);
        assert_eq!(left(vec![]).len(), 3);
        let off = vec![
            mode("audit", InterceptMode::Off),
            mode("b", InterceptMode::Observe),
            mode("c", InterceptMode::Off),
        ];
        assert_eq!(left(off), [of("audit", false), of("b", true)]);
        let only = ModeSaid::Only(vec!["c".to_owned()]);
        assert_eq!(left(vec![only]), [of("audit", false), of("c", false)]);
    }
}
