//! `docs/chaos.md` says which rules, counters and mistakes there are; this holds it to that.

use fleet_chaos::{
    mutants,
    oracle::{rules, sometimes, tightness},
};

const PAGE: &str = include_str!("../../../docs/chaos.md");

fn rows_with(names: impl Iterator<Item = &'static str>) -> (Vec<&'static str>, usize) {
    let (there, missing): (Vec<_>, Vec<_>) = names.partition(|name| {
        PAGE.lines()
            .any(|line| line.starts_with(&format!("| `{name}` |")))
    });
    (missing, there.len())
}

#[test]
fn the_page_names_every_rule_counter_and_mistake_and_nothing_else() {
    let rules = rules::ALL.iter().map(|(name, _)| *name);
    let names = rules
        .chain(tightness::NAMES.iter().copied())
        .chain(sometimes::COUNTERS.iter().map(|counter| counter.name))
        .chain(mutants::ALL.iter().map(|mutant| mutant.name));
    let (missing, there) = rows_with(names);
    assert!(
        missing.is_empty(),
        "docs/chaos.md does not know {missing:?}"
    );
    let rows = PAGE.lines().filter(|line| {
        line.starts_with("| `") && !line.contains("`make ") && !line.contains("`chaos ")
    });
    assert_eq!(
        rows.count(),
        there,
        "docs/chaos.md knows something that is not there"
    );
}

#[test]
fn every_mistake_is_noticed_by_a_rule_that_there_is() {
    for mutant in mutants::ALL {
        let known = rules::ALL.iter().any(|(name, _)| *name == mutant.rule)
            || tightness::NAMES.contains(&mutant.rule);
        assert!(known, "{}: no rule is called {}", mutant.name, mutant.rule);
    }
}
