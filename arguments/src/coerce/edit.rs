//! One change to the arguments, and arguments with some changes.

use serde_json::Value;

use super::{coercion::Coercion, rule::Rule};
use crate::{limits::Limits, pointer, shorten::shorten};

/// The most changes to one call's arguments.
pub(super) const CHANGES_MAX: usize = 64;

/// A change that could be made to the value at one place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Edit {
    /// JSON pointer.
    pub(super) place: String,
    /// `None` removes the property.
    pub(super) value: Option<Value>,
    pub(super) rule: Rule,
}

/// Arguments, and the changes that were made to them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Draft {
    pub(super) args: Value,
    /// In the order in which they were made.
    pub(super) changes: Vec<(String, Rule)>,
}

impl Draft {
    pub(super) const fn of(args: Value) -> Self {
        Self {
            args,
            changes: Vec::new(),
        }
    }

    /// The same with these changes too; `None` if there are too many, or if one may not be combined with an earlier one.
    pub(super) fn with(mut self, edits: &[Edit]) -> Option<Self> {
        for edit in edits {
            let mut before = self.changes.iter();
            if self.changes.len() == CHANGES_MAX || before.any(|before| collide(before, edit)) {
                return None;
            }
            match &edit.value {
                Some(value) => *self.args.pointer_mut(&edit.place)? = value.clone(),
                None => {
                    let (parent, name) = pointer::split(&edit.place)?;
                    let object = self.args.pointer_mut(parent)?.as_object_mut()?;
                    object.remove(&*name)?;
                }
            }
            self.changes.push((edit.place.clone(), edit.rule));
        }
        Some(self)
    }

    /// Whether one of the changes is by such a rule.
    pub(super) fn any(&self, is: impl Fn(Rule) -> bool) -> bool {
        self.changes.iter().any(|(_, rule)| is(*rule))
    }

    /// The arguments, and the changes for the report: sorted by place, those at one place in the order in which they were made.
    pub(super) fn into_parts(self) -> (Value, Vec<Coercion>) {
        let mut changes = self.changes;
        changes.sort_by(|(a, _), (b, _)| a.cmp(b));
        let told = |(place, rule): (String, Rule)| Coercion {
            path: shorten(&place, Limits::PATH_BYTES).into_owned(),
            rule,
        };
        (self.args, changes.into_iter().map(told).collect())
    }
}

/// Whether a change would move an earlier one, or be a second change to a value whose brackets were added or removed.
fn collide((changed, rule): &(String, Rule), edit: &Edit) -> bool {
    let is_bracket = |rule| matches!(rule, Rule::ValueToArray | Rule::ArrayToValue);
    let moves = pointer::is_within(changed, &edit.place);
    let is_inside = pointer::is_within(&edit.place, changed);
    (moves && (changed != &edit.place || is_bracket(edit.rule))) || (is_inside && is_bracket(*rule))
}
