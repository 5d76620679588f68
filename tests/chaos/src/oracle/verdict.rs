//! The result of a run, for people.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::Serialize;

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Breach {
    /// Which rule noticed it.
    pub rule: &'static str,
    /// Which call, where it is about one.
    pub call: Option<String>,
    /// What is wrong.
    pub text: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = self.call.as_deref().unwrap_or("-");
        write!(f, "{}: {call}: {}", self.rule, self.text)
    }
}

/// What a run has shown.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Verdict {
    /// Promises that were broken. None: the run passed.
    pub breaches: Vec<Breach>,
    /// How much there was of everything, by a short name.
    pub figures: BTreeMap<&'static str, u64>,
    /// How often what must happen sometimes did, by the names of [`super::sometimes::COUNTERS`].
    pub sometimes: BTreeMap<&'static str, u64>,
}

/// Breaches of one rule that are printed.
const SHOWN_MAX: usize = 5;

impl Verdict {
    /// Whether no promise was broken.
    pub fn holds(&self) -> bool {
        self.breaches.is_empty()
    }

    /// The rules that were broken.
    pub fn rules(&self) -> BTreeSet<&'static str> {
        self.breaches.iter().map(|breach| breach.rule).collect()
    }

    /// What never happened, though it must happen sometimes: over a set of runs there may be none of it.
    pub fn never(&self) -> Vec<&'static str> {
        let never = self.sometimes.iter().filter(|(_, times)| **times == 0);
        never.map(|(name, _)| *name).collect()
    }

    /// Adds what another run of a set has shown.
    pub fn add(&mut self, other: Self) {
        self.breaches.extend(other.breaches);
        for (mine, more) in [
            (&mut self.figures, other.figures),
            (&mut self.sometimes, other.sometimes),
        ] {
            for (name, times) in more {
                *mine.entry(name).or_default() += times;
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table(f, "figures", &self.figures)?;
        table(f, "sometimes", &self.sometimes)?;
        for rule in self.rules() {
            let of_rule: Vec<&Breach> = self.breaches.iter().filter(|b| b.rule == rule).collect();
            writeln!(f, "BROKEN {rule}: {} times", of_rule.len())?;
            for breach in of_rule.iter().take(SHOWN_MAX) {
                let call = breach.call.as_deref().unwrap_or("-");
                writeln!(f, "  {call}  {}", breach.text)?;
            }
            if of_rule.len() > SHOWN_MAX {
                writeln!(f, "  … and {} more", of_rule.len() - SHOWN_MAX)?;
            }
        }
        let word = if self.holds() { "holds" } else { "BROKEN" };
        let never = self.never().len();
        writeln!(
            f,
            "verdict: {word}; {never} of {} never happened",
            self.sometimes.len()
        )
    }
}

fn table(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    rows: &BTreeMap<&'static str, u64>,
) -> fmt::Result {
    let width = rows.keys().map(|name| name.len()).max().unwrap_or(0);
    writeln!(f, "{title}")?;
    for (name, times) in rows {
        writeln!(f, "  {name:width$}  {times:>8}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_shows_the_first_breaches_of_every_rule() {
        let breach = |rule, call: u64| Breach {
            rule,
            call: Some(call.to_string()),
            text: "it was done twice".to_owned(),
        };
        let mut verdict = Verdict {
            breaches: (0..7).map(|call| breach("once", call)).collect(),
            figures: [("calls", 7)].into(),
            sometimes: [("expired_in_the_queue", 0)].into(),
        };
        verdict.breaches.push(breach("stuck", 9));
        let text = verdict.to_string();
        assert!(text.contains("BROKEN once: 7 times"), "{text}");
        assert!(text.contains("… and 2 more"), "{text}");
        assert!(text.contains("BROKEN stuck: 1 times"), "{text}");
        assert!(
            text.ends_with("verdict: BROKEN; 1 of 1 never happened\n"),
            "{text}"
        );
    }

    #[test]
    fn verdicts_of_a_set_add_up() {
        let mut verdict = Verdict::default();
        for _ in 0..2 {
            verdict.add(Verdict {
                sometimes: [("expired_in_the_queue", 2)].into(),
                ..Verdict::default()
            });
        }
        assert_eq!(verdict.sometimes["expired_in_the_queue"], 4);
        assert!(verdict.holds() && verdict.never().is_empty());
    }
}
