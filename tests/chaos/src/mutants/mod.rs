//! Known mistakes that a run must notice: who judges the fleet is judged by them.
//!
//! A mutant is made of at most three things. *Edits* change statements on their way to Postgres, in the wire of each
//! process; a *planting* changes a function or a table of the database after migrating; a change of a *source* is made in a
//! copy of the tree (`plant`), which is built and run instead. A run with a mutant proves something only if every edit was
//! applied.
//! What is not among them, because another line of defence keeps it from being seen, stands at the end of `list`.

mod list;
mod plant;
#[cfg(test)]
mod tests;

use anyhow::{Result, ensure};

pub use self::list::ALL;
use self::plant::Source;
pub(crate) use self::plant::plant;
use crate::wire::postgres::Rewrite;

/// Whether this program, and with it the fleet beside it, was built from a copy of the tree that has the mistakes.
const PLANTED: bool = false;

/// A mistake.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// Its name, on the command line and in reports.
    pub name: &'static str,
    /// What is left out or done wrong.
    pub mistake: &'static str,
    /// The rule of the oracle that notices it first; of a masked one, that would.
    pub rule: &'static str,
    /// What has to happen in a run for it to be noticed.
    pub needs: &'static str,
    /// How soon it is noticed.
    pub sight: Sight,
    /// What it changes in statements.
    edits: &'static [Edit],
    /// What it changes in the database.
    planting: Option<Planting>,
    /// What it changes in the product's sources.
    sources: &'static [Source],
}

/// How soon a mutant is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// By almost every run that has what it needs.
    Plain,
    /// By some: two things have to meet.
    Rare,
    /// Never: another line of defence holds. A run that notices it has found that the other one is gone.
    Masked,
}

/// A change of a statement.
#[derive(Debug, Clone, Copy)]
struct Edit {
    /// Which statement of the product, as the tests call it.
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests look it up by it"))]
    statement: &'static str,
    find: &'static str,
    replace: &'static str,
}

/// A change in the database.
#[derive(Debug, Clone, Copy)]
enum Planting {
    /// A piece of a function becomes another.
    Function {
        name: &'static str,
        find: &'static str,
        replace: &'static str,
    },
    /// Statements of its own.
    Statements(&'static str),
}

impl Mutant {
    /// The mutant of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|mutant| mutant.name == name)
    }

    /// What the wires change in statements: for [`crate::wire::postgres`], on the wire of every process.
    pub fn rewrites(&self) -> Vec<Rewrite> {
        let rewrite = |edit: &Edit| Rewrite {
            find: edit.find.to_owned(),
            replace: edit.replace.to_owned(),
        };
        self.edits.iter().map(rewrite).collect()
    }

    /// SQL to be run once by the owner of the schema, after migrating and before any process starts. It fails when it finds
    /// nothing to change.
    pub fn sql(&self) -> Option<String> {
        Some(match self.planting? {
            Planting::Statements(sql) => sql.to_owned(),
            Planting::Function {
                name,
                find,
                replace,
            } => format!(
                "DO $plant$
                 DECLARE
                     was text := pg_get_functiondef('{name}'::regproc);
                     becomes text := replace(was, $find${find}$find$, $replace${replace}$replace$);
                 BEGIN
                     IF becomes = was THEN
                         RAISE EXCEPTION 'function {name} does not say what the mutant changes';
                     END IF;
                     EXECUTE becomes;
                 END $plant$"
            ),
        })
    }

    /// Makes sure that the programs can make it.
    ///
    /// # Errors
    ///
    /// It is a mistake in sources, and these programs were built from the tree as it stands.
    pub fn is_planted(&self) -> Result<()> {
        ensure!(
            PLANTED || self.sources.is_empty(),
            "{} is a mistake in sources, and this program was built without them: `make chaos-mutants` plants them",
            self.name
        );
        Ok(())
    }

    /// The variable that every process of the fleet is to be started with, and its value.
    pub fn variable(&self) -> Option<(&'static str, &'static str)> {
        (!self.sources.is_empty()).then_some(("TOOLFLEET_MUTANT", self.name))
    }
}
