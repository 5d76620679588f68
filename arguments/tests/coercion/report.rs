//! What a run counted, as a table.

use std::fmt;

use arguments::{Coercion, Level};
use serde_json::Value;

use crate::{
    damage::{KINDS, Mends},
    judge::Verdict,
};

/// The levels in the order of the columns.
pub(crate) const LEVELS: [Level; 3] = [Level::Off, Level::Safe, Level::Read];
/// Of one kind, as many are kept to be shown.
const THIRDS_OF_A_KIND: usize = 3;
const THIRDS_SHOWN: usize = 20;

/// How often which verdict was given, by the order of [`Verdict`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts([usize; 5]);

impl Counts {
    pub(crate) const fn of(&self, verdict: Verdict) -> usize {
        self.0[verdict as usize]
    }

    pub(crate) fn cases(&self) -> usize {
        self.0.iter().sum()
    }

    /// Of those that do not fit as they are, and are nothing else either, how many in a hundred were mended; `None` when there were none.
    pub(crate) fn recovered_percent(&self) -> Option<usize> {
        let unfit = self.cases() - self.of(Verdict::StillValid) - self.of(Verdict::Variant);
        (unfit > 0).then(|| self.of(Verdict::Recovered) * 100 / unfit)
    }
}

/// A case that went wrong.
#[derive(Debug)]
pub(crate) struct Third {
    pub(crate) kind: usize,
    pub(crate) level: Level,
    pub(crate) tool: String,
    pub(crate) schema: Value,
    pub(crate) gold: Value,
    pub(crate) damaged: Value,
    pub(crate) got: Value,
    pub(crate) coercions: Vec<Coercion>,
}

impl fmt::Display for Third {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} ({}, {}):",
            KINDS[self.kind].name, self.level, self.tool
        )?;
        writeln!(f, "  schema    {}", self.schema)?;
        writeln!(f, "  gold      {}", self.gold)?;
        writeln!(f, "  damaged   {}", self.damaged)?;
        writeln!(f, "  got       {}", self.got)?;
        let coercions: Vec<_> = self
            .coercions
            .iter()
            .map(|c| format!("{} {}", c.path, c.rule))
            .collect();
        writeln!(f, "  coercions {}", coercions.join(", "))
    }
}

/// All that was counted.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) tools: usize,
    pub(crate) golds: usize,
    /// By kind, by the order of [`LEVELS`].
    pub(crate) counts: Vec<[Counts; 3]>,
    /// Gold that did not come out as it went in.
    pub(crate) touched: Vec<String>,
    pub(crate) thirds: Vec<Third>,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            tools: 0,
            golds: 0,
            counts: vec![[Counts::default(); 3]; KINDS.len()],
            touched: Vec::new(),
            thirds: Vec::new(),
        }
    }
}

impl Report {
    pub(crate) fn count(&mut self, kind: usize, level: usize, verdict: Verdict) {
        self.counts[kind][level].0[verdict as usize] += 1;
    }

    pub(crate) fn cases(&self) -> usize {
        self.counts.iter().map(|levels| levels[0].cases()).sum()
    }

    pub(crate) fn total(&self, verdict: Verdict) -> usize {
        self.counts
            .iter()
            .flatten()
            .map(|counts| counts.of(verdict))
            .sum()
    }

    /// All kinds and levels in one line.
    pub(crate) fn summary(&self) -> String {
        let [recovered, refused, third] = [Verdict::Recovered, Verdict::Refused, Verdict::Third]
            .map(|verdict| self.total(verdict));
        let cases = self.cases();
        format!(
            "{cases} damaged; at all levels {recovered} recovered, {refused} refused, {third} third values"
        )
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.tools += other.tools;
        self.golds += other.golds;
        for (mine, others) in self
            .counts
            .iter_mut()
            .flatten()
            .zip(other.counts.iter().flatten())
        {
            for (count, more) in mine.0.iter_mut().zip(others.0) {
                *count += more;
            }
        }
        self.touched.extend(other.touched);
        self.thirds.extend(other.thirds);
    }

    /// The first cases that went wrong, some of each kind, the shortest first.
    pub(crate) fn shown(&self) -> Vec<&Third> {
        let mut thirds: Vec<&Third> = self.thirds.iter().collect();
        thirds
            .sort_by_key(|third| third.schema.to_string().len() + third.damaged.to_string().len());
        let mut seen = vec![0; KINDS.len()];
        thirds.retain(|third| {
            seen[third.kind] += 1;
            seen[third.kind] <= THIRDS_OF_A_KIND
        });
        thirds.truncate(THIRDS_SHOWN);
        thirds
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} schemas, {} valid objects, {} damaged",
            self.tools,
            self.golds,
            self.cases()
        )?;
        writeln!(
            f,
            "{:31} | {:7} | {:>5} {:>5} | {:>9} {:>4} {:>4} {:>5} {:>5} | {:>9} {:>4} {:>4} {:>5} {:>5}",
            "damage",
            "mended",
            "cases",
            "valid",
            "safe: rec",
            "%",
            "var",
            "ref",
            "third",
            "read: rec",
            "%",
            "var",
            "ref",
            "third",
        )?;
        for (kind, [off, safe, read]) in KINDS.iter().zip(&self.counts) {
            let mends = match kind.mends {
                Mends::Always => "always",
                Mends::Read => "read",
                Mends::Never => "never",
                Mends::Either => "either",
            };
            let valid = off.of(Verdict::StillValid);
            write!(
                f,
                "{:31} | {mends:7} | {:5} {valid:5}",
                kind.name,
                off.cases()
            )?;
            for counts in [safe, read] {
                let percent = counts
                    .recovered_percent()
                    .map_or_else(String::new, |p| p.to_string());
                write!(
                    f,
                    " | {:9} {percent:>4} {:4} {:5} {:5}",
                    counts.of(Verdict::Recovered),
                    counts.of(Verdict::Variant),
                    counts.of(Verdict::Refused),
                    counts.of(Verdict::Third)
                )?;
            }
            writeln!(f)?;
        }
        writeln!(f, "{}", self.summary())
    }
}
