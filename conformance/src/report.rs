//! The results, for people.

use std::{
    collections::BTreeSet,
    fmt::{self, Write},
};

use fleet::call::Effect;

use crate::behaviour::Behaviour;

/// The results of an executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    name: String,
    cells: Vec<(Behaviour, Effect, Cell)>,
}

/// The result of one behaviour under one effect class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// It kept its promise.
    Kept,
    /// It cannot be tested, for this reason.
    NotApplicable(String),
    /// It broke its promise, in this way.
    Broken(String),
}

impl Report {
    pub(crate) fn of(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            cells: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, behaviour: Behaviour, effect: Effect, cell: Cell) {
        self.cells.push((behaviour, effect, cell));
    }

    /// The column's heading.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Every cell.
    pub fn cells(&self) -> &[(Behaviour, Effect, Cell)] {
        &self.cells
    }

    /// Whether every promise that could be tested was kept.
    pub fn is_kept(&self) -> bool {
        !self.broken().any(|_| true)
    }

    /// The promises that were broken.
    pub fn broken(&self) -> impl Iterator<Item = (Behaviour, Effect, &str)> {
        self.cells
            .iter()
            .filter_map(|(behaviour, effect, cell)| match cell {
                Cell::Broken(why) => Some((*behaviour, *effect, why.as_str())),
                Cell::Kept | Cell::NotApplicable(_) => None,
            })
    }

    /// The word for a behaviour under all effect classes: the worst result counts.
    fn word(&self, behaviour: Behaviour) -> &'static str {
        let cells = || self.cells.iter().filter(|(of, _, _)| *of == behaviour);
        let any = |is: fn(&Cell) -> bool| cells().any(|(_, _, cell)| is(cell));
        if any(|cell| matches!(cell, Cell::Broken(_))) {
            "BROKEN"
        } else if any(|cell| matches!(cell, Cell::Kept)) {
            "kept"
        } else {
            "-"
        }
    }

    /// The reasons why it was not tested, once for all effect classes with the same reason.
    fn reasons(&self) -> BTreeSet<(Behaviour, &str)> {
        let cells = self.cells.iter();
        let reasons = cells.filter_map(|(behaviour, _, cell)| match cell {
            Cell::NotApplicable(why) => Some((*behaviour, why.as_str())),
            Cell::Kept | Cell::Broken(_) => None,
        });
        reasons.collect()
    }
}

/// One column, with the reasons.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (behaviour, effect, cell) in &self.cells {
            let name = behaviour.name();
            match cell {
                Cell::Kept => writeln!(f, "{}: {name} ({effect}): kept", self.name)?,
                Cell::NotApplicable(why) => {
                    writeln!(f, "{}: {name} ({effect}): - {why}", self.name)?
                }
                Cell::Broken(why) => writeln!(f, "{}: {name} ({effect}): BROKEN {why}", self.name)?,
            }
        }
        Ok(())
    }
}

/// Executors side by side: `kept`, `BROKEN`, or `-` where there is nothing to test; the reasons below.
pub fn table(reports: &[Report]) -> String {
    let heads = Behaviour::ALL
        .iter()
        .map(|behaviour| behaviour.name().len());
    let first = heads.max().unwrap_or(0);
    let width = |report: &Report| report.name.len().max("BROKEN".len());
    let mut text = String::new();
    let mut line = |head: &str, cells: &dyn Fn(&Report) -> String| {
        let cells = reports
            .iter()
            .map(|report| format!("  {:<1$}", cells(report), width(report)));
        let row = format!("{head:<first$}{}", cells.collect::<String>());
        writeln!(text, "{}", row.trim_end()).expect("a String takes everything");
    };
    line("", &|report| report.name.clone());
    for behaviour in Behaviour::ALL {
        line(behaviour.name(), &|report| {
            report.word(*behaviour).to_owned()
        });
    }
    for report in reports {
        for (behaviour, effect, why) in report.broken() {
            let (name, what) = (&report.name, behaviour.name());
            writeln!(text, "\n{name} ({effect}), {what}: {why}")
                .expect("a String takes everything");
        }
    }
    text.push('\n');
    for report in reports {
        for (behaviour, why) in report.reasons() {
            let (name, what) = (&report.name, behaviour.name());
            writeln!(text, "- {name}, {what}: {why}").expect("a String takes everything");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_effect_class_decides_a_cell() {
        let mut report = Report::of("x");
        let [first, second, third, ..] = Behaviour::ALL else {
            panic!()
        };
        report.add(*first, Effect::Read, Cell::Kept);
        report.add(*first, Effect::Once, Cell::Broken("lost it".into()));
        report.add(*second, Effect::Read, Cell::Kept);
        report.add(*second, Effect::Once, Cell::NotApplicable("why".into()));
        report.add(*third, Effect::Read, Cell::NotApplicable("why".into()));
        assert_eq!(
            [first, second, third].map(|behaviour| report.word(*behaviour)),
            ["BROKEN", "kept", "-"]
        );
        assert!(!report.is_kept());
        assert!(table(&[report]).contains(&format!("x (once), {}: lost it", first.name())));
    }
}
