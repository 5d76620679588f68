//! Validates, changes what is wrong, validates again.

use serde_json::Value;

use super::{
    coercion::Coercing,
    crossed::{VISITS_MAX, is_crossed},
    doubt,
    edit::Draft,
    rule::{Level, Rule},
    size,
    ways::{Finder, Misfit, independent},
    wrapper,
};
use crate::{
    pointer,
    schema::{Schema, bounds::COLLECTED_MAX},
};

/// How often changed values are validated again: a text may contain an object that contains a text.
const ROUNDS_MAX: usize = 3;
/// The most validations of one call's arguments.
const CHECKS_MAX: usize = 64;
/// The most evaluations in all these validations.
const WORK_MAX: u64 = 10 * COLLECTED_MAX;

/// The only arguments that fit and that these can mean, where these do not fit or stand in a wrapper.
pub(super) fn mend(schema: &Schema, args: &Value, how: Coercing<'_>) -> Option<Draft> {
    if how.level == Level::Off || schema.work(args) > COLLECTED_MAX {
        return None;
    }
    let draft = wrapper::taken_off(schema, args, how.tool)?;
    let sent = draft.args.clone();
    let mut mender = Mender {
        schema,
        checks: CHECKS_MAX,
        work: WORK_MAX,
        visits: VISITS_MAX,
    };
    // Every rule is tried for every tool: where two of them read a value differently, it is certain for no tool.
    match mender.read(draft, "", ROUNDS_MAX) {
        Meaning::One(mended) => {
            let is_certain = !doubt::remains(schema.source(), &sent, &mended);
            (is_certain && may_be_used(&mended, how.level)).then_some(mended)
        }
        Meaning::None | Meaning::Several => None,
    }
}

fn may_be_used(mended: &Draft, level: Level) -> bool {
    let is_allowed = |rule: Rule| rule.is_safe() || level == Level::Read;
    mended.changes.iter().all(|(_, rule)| is_allowed(*rule)) && size::is_admitted(&mended.args)
}

/// What a value that does not fit can mean.
enum Meaning {
    None,
    One(Draft),
    Several,
}

struct Mender<'a> {
    schema: &'a Schema,
    checks: usize,
    work: u64,
    /// How many values were compared for crossed ones.
    visits: usize,
}

impl Mender<'_> {
    /// What the value at `place` can mean, such that everything there fits.
    fn read(&mut self, mut draft: Draft, place: &str, rounds: usize) -> Meaning {
        let misfits = match self.misfits(&draft, place) {
            Some(misfits) if misfits.is_empty() => return Meaning::One(draft),
            Some(misfits) if rounds > 0 => misfits,
            Some(_) | None => return Meaning::None,
        };
        for misfit in independent(&misfits) {
            draft = match self.choose(draft, misfit, rounds - 1) {
                Meaning::One(draft) => draft,
                none_or_several => return none_or_several,
            };
        }
        self.read(draft, place, rounds - 1)
    }

    /// Makes the change for one misfit. With several ways, only if all of them lead to the same value.
    fn choose(&mut self, draft: Draft, misfit: &Misfit, rounds: usize) -> Meaning {
        let root = self.schema.source();
        let mut edits = misfit.ways.iter().flatten();
        let visits = &mut self.visits;
        if edits.any(|edit| is_crossed(root, &draft.args, &edit.place, visits)) {
            return Meaning::Several;
        }
        if let [way] = misfit.ways.as_slice() {
            return draft.with(way).map_or(Meaning::None, Meaning::One);
        }
        let mut chosen: Option<Draft> = None;
        for way in &misfit.ways {
            let Some(tried) = draft.clone().with(way) else {
                continue;
            };
            match (self.read(tried, &misfit.place, rounds), &chosen) {
                (Meaning::None, _) => {}
                (Meaning::One(found), None) => chosen = Some(found),
                (Meaning::One(found), Some(other)) if found.args == other.args => {}
                (Meaning::One(_), Some(_)) | (Meaning::Several, _) => return Meaning::Several,
            }
        }
        chosen.map_or(Meaning::None, Meaning::One)
    }

    /// What does not fit at `place`; `None` if nothing can be done about it.
    fn misfits(&mut self, draft: &Draft, place: &str) -> Option<Vec<Misfit>> {
        self.checks = self.checks.checked_sub(1)?;
        self.work = self.work.checked_sub(self.schema.work(&draft.args))?;
        let finder = Finder {
            root: self.schema.source(),
            draft,
        };
        let errors: Vec<_> = self
            .schema
            .errors(&draft.args)
            .filter(|error| pointer::is_within(error.instance_path().as_str(), place))
            .collect();
        finder.misfits(errors.iter())
    }
}
