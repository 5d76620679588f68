//! From the validator's errors to possible changes.

use std::{collections::BTreeMap, mem};

use jsonschema::{
    JsonType, ValidationError,
    error::{TypeKind, ValidationErrorKind as Kind},
};
use serde_json::{Map, Value};

use super::{
    edit::{CHANGES_MAX, Draft, Edit},
    formats::WRAPPERS,
    readings::{self, Reading},
    removal,
    rule::Rule,
    single::is_none_or_all,
    wanted::Wanted,
};
use crate::{
    kind,
    limits::Limits,
    pointer,
    schema::{count, places},
};

/// The most ways of mending one place that are tried.
const WAYS_MAX: usize = 16;

/// Changes that belong together.
pub(super) type Way = Vec<Edit>;

/// A place where something does not fit, and the possible changes.
#[derive(Debug)]
pub(super) struct Misfit {
    pub(super) place: String,
    /// Whether only the branches of a union say what is wanted.
    pub(super) of_union: bool,
    /// Empty if nothing can be changed here.
    pub(super) ways: Vec<Way>,
}

/// Finds the possible changes of a draft.
pub(super) struct Finder<'a> {
    pub(super) root: &'a Value,
    pub(super) draft: &'a Draft,
}

/// The errors of one branch of a union for a value.
type Branch = Vec<ValidationError<'static>>;

impl Finder<'_> {
    /// Every place where something does not fit, those with a certain want first; `None` if one of them is hopeless.
    pub(super) fn misfits<'e, 'i: 'e>(
        &self,
        errors: impl Iterator<Item = &'e ValidationError<'i>>,
    ) -> Option<Vec<Misfit>> {
        let mut at: BTreeMap<&str, Vec<&'e ValidationError<'i>>> = BTreeMap::new();
        for error in errors {
            at.entry(error.instance_path().as_str())
                .or_default()
                .push(error);
        }
        if at.len() > CHANGES_MAX {
            return None;
        }
        let mut misfits: Vec<Misfit> = at
            .into_iter()
            .map(|(place, errors)| self.misfit(place, &errors))
            .collect();
        // A change around or inside a place may help it too.
        let is_hopeful = |misfit: &Misfit| {
            misfits.iter().any(|other| {
                !other.ways.is_empty() && pointer::is_related(&other.place, &misfit.place)
            })
        };
        if !misfits.iter().all(is_hopeful) {
            return None;
        }
        misfits.retain(|misfit| !misfit.ways.is_empty());
        misfits.sort_by(|a, b| (a.of_union, &a.place).cmp(&(b.of_union, &b.place)));
        Some(misfits)
    }

    fn misfit(&self, place: &str, errors: &[&ValidationError<'_>]) -> Misfit {
        let value = self.draft.args.pointer(place);
        let wanted = value.and_then(|value| Some((value, Wanted::of(errors)?)));
        let (of_union, ways) = match wanted {
            None => (false, Vec::new()),
            Some((value, wanted)) => match removal::of(self.root, self.draft, place) {
                Some(edit) => (false, vec![vec![edit]]),
                None => self.instead(place, value, &wanted),
            },
        };
        Misfit {
            place: place.to_owned(),
            of_union,
            ways,
        }
    }

    /// Other values that this one can mean, and whether only a union wants them.
    fn instead(&self, place: &str, value: &Value, wanted: &Wanted<'_>) -> (bool, Vec<Way>) {
        let changed = match wanted {
            _ if self.is_alone(place, value) => Vec::new(),
            Wanted::OneOf(options) => readings::to_option(value, options),
            Wanted::Type(kind) => self.types(place, value, kind),
            Wanted::AnyOf(branches) => return (true, self.branches(place, value, branches)),
        };
        let certain = changed
            .into_iter()
            .filter(|(made, _)| !self.is_part(place, made));
        (false, single(place, certain.collect()))
    }

    fn types(&self, place: &str, value: &Value, wanted: &TypeKind) -> Vec<Reading> {
        let kinds: Vec<JsonType> = match wanted {
            TypeKind::Single(kind) => vec![*kind],
            TypeKind::Multiple(kinds) => kinds
                .iter()
                // Every integer is a number; a number keeps its form.
                .filter(|kind| *kind != JsonType::Integer || !kinds.contains(JsonType::Number))
                .collect(),
        };
        // The schema wants another number than this one.
        if kinds.iter().any(|kind| kind::is_alike(*kind, value)) {
            return Vec::new();
        }
        let limits = self.limits(place);
        kinds
            .into_iter()
            .filter_map(|kind| readings::to_type(value, kind, &limits))
            .filter(|(made, rule)| self.is_certain(place, value, made, *rule))
            .collect()
    }

    /// Whether the made value can only be meant as it is: a text or an object may be an item, or a list of its own.
    fn is_certain(&self, place: &str, value: &Value, made: &Value, rule: Rule) -> bool {
        let here = || places::schemas_at(self.root, &self.draft.args, place);
        let items = || places::of_items(self.root, &here());
        match (rule, value, made) {
            (Rule::ValueToArray, ..) if !pointer::is_property(&self.draft.args, place) => false,
            (Rule::ValueToArray, Value::Object(_), _) => is_known(value, &items()),
            // Where null is allowed, a word may mean it.
            (Rule::ValueToArray, Value::String(_), _) => !self.may_be(&here(), JsonType::Null),
            (Rule::ValueToArray, ..) => true,
            (Rule::ArrayToValue, _, object @ Value::Object(_)) => is_known(object, &here()),
            // It may be the value that the text should contain.
            (Rule::ArrayToValue, ..) => !here().iter().any(|schema| holds_json(schema)),
            (Rule::IntegerToString, ..) => {
                let of_list = || {
                    let here = places::outermost_at(self.root, &self.draft.args, place);
                    self.may_be(&here, JsonType::Array)
                };
                // In a list, the other items may be the wrong ones.
                let is_item = !pointer::is_property(&self.draft.args, place);
                !(here().iter().any(|schema| is_no_integer(schema))
                    || (is_item && self.may_be(&here(), JsonType::Integer))
                    || (value.as_number().is_some_and(is_none_or_all) && of_list()))
            }
            (_, _, Value::Object(made)) => !is_in_wrapper(place, made, &here()),
            // A value that could itself be an item becomes only an array whose items could be items too.
            (_, text, Value::Array(made)) => {
                let items = items();
                let may_be = |item: &Value| self.may_be(&items, kind::kind_of(item));
                !may_be(text) || made.iter().all(may_be)
            }
            _other => true,
        }
    }

    fn may_be(&self, schemas: &[&Value], kind: JsonType) -> bool {
        let may_be = |schema: &&Value| places::may_be(self.root, schema, kind, None);
        schemas.iter().any(may_be)
    }

    /// Whether a scalar was made where an object is allowed: it may be one of the object's properties, sent in its place. For
    /// example `"5"`, sent for `{"days": 5}`, must not become `5`.
    fn is_part(&self, place: &str, made: &Value) -> bool {
        let wanted = places::outermost_at(self.root, &self.draft.args, place);
        !(made.is_object() || made.is_array()) && self.may_be(&wanted, JsonType::Object)
    }

    /// Whether a value is the only one of an array, and would fit without its brackets.
    fn is_alone(&self, place: &str, value: &Value) -> bool {
        let args = &self.draft.args;
        pointer::split(place).is_some_and(|(outer, _)| {
            let around = args.pointer(outer).and_then(Value::as_array);
            around.is_some_and(|items| items.len() == 1) && {
                let schemas = places::outermost_at(self.root, args, outer);
                let kind = kind::kind_of(value);
                let fits = |s: &&Value| places::may_be(self.root, s, kind, Some(value));
                schemas.iter().any(fits)
            }
        })
    }

    /// The limits of arguments, less what is there already.
    fn limits(&self, place: &str) -> Limits {
        let nodes = usize::try_from(count(&self.draft.args)).unwrap_or(usize::MAX);
        let whole = Limits::DEFAULT;
        Limits {
            depth: whole.depth.saturating_sub(pointer::segments(place).count()),
            nodes: whole.nodes.saturating_sub(nodes),
            ..whole
        }
    }

    /// What each branch of a union would take; only the branches that take such a value, if there are any. Nothing if that is
    /// too much to try.
    fn branches(&self, place: &str, value: &Value, branches: &[Branch]) -> Vec<Way> {
        let has_its_own = branches.iter().any(|branch| takes(branch, place, value));
        let mut ways: Vec<Way> = Vec::new();
        for errors in branches {
            if has_its_own && !takes(errors, place, value) {
                continue;
            }
            for way in self.branch(errors) {
                if !ways.contains(&way) {
                    ways.push(way);
                }
            }
            if ways.len() > WAYS_MAX {
                return Vec::new();
            }
        }
        ways
    }

    fn branch(&self, errors: &[ValidationError<'static>]) -> Vec<Way> {
        let Some(misfits) = self.misfits(errors.iter()) else {
            return Vec::new();
        };
        let mut ways = vec![Way::new()];
        for misfit in independent(&misfits) {
            ways = ways
                .iter()
                .flat_map(|way| misfit.ways.iter().map(|more| [&way[..], more].concat()))
                .take(WAYS_MAX + 1)
                .collect();
        }
        ways.retain(|way| !way.is_empty());
        ways
    }
}

/// Whether the object in a text has only a property with the name of its own place, or of a wrapper, that these schemas do not
/// declare: it contains the value a second time.
fn is_in_wrapper(place: &str, made: &Map<String, Value>, here: &[&Value]) -> bool {
    let own = pointer::split(place).map(|(_, name)| name);
    let is_word = |key: &str| own.as_deref() == Some(key) || WRAPPERS.contains(&key);
    let declared = places::declared(here);
    let mut keys = made.keys().map(String::as_str);
    made.len() == 1 && keys.any(|key| is_word(key) && !declared.contains_key(key))
}

/// Whether a schema says that a text contains a value of another kind.
fn holds_json(schema: &Value) -> bool {
    ["contentMediaType", "contentSchema"]
        .iter()
        .any(|keyword| schema.get(keyword).is_some())
}

/// Whether a schema says that a text is no integer: a date, an address, or what its allowed texts show.
fn is_no_integer(schema: &Value) -> bool {
    let examples = schema.get("examples").and_then(Value::as_array);
    let shown = ["default", "const"]
        .iter()
        .filter_map(|keyword| schema.get(keyword));
    let mut shown = shown.chain(examples.into_iter().flatten());
    let is_other = |shown: &Value| {
        shown
            .as_str()
            .is_some_and(|text| !readings::is_integer_text(text))
    };
    schema.get("format").is_some() || shown.any(is_other)
}

/// Whether an object has properties and these schemas declare all of them. Any other object may be a map, or pairs of one.
fn is_known(object: &Value, schemas: &[&Value]) -> bool {
    let declared = places::declared(schemas);
    object.as_object().is_some_and(|entries| {
        !entries.is_empty() && entries.keys().all(|name| declared.contains_key(&**name))
    })
}

/// Whether a branch of a union accepts a value, or a value of its type.
fn takes(branch: &Branch, place: &str, value: &Value) -> bool {
    // The text of a number is not a misspelt word.
    let is_one = |option: &Value| {
        mem::discriminant(option) == mem::discriminant(value)
            && (readings::is_scalar(option) || !readings::is_scalar(value))
    };
    let refuses = |error: &ValidationError<'_>| match error.kind() {
        Kind::Type { kind } => match kind {
            TypeKind::Single(kind) => !kind::is_alike(*kind, value),
            TypeKind::Multiple(kinds) => !kinds.iter().any(|kind| kind::is_alike(kind, value)),
        },
        Kind::Enum { options } => !options.as_array().is_some_and(|all| all.iter().any(is_one)),
        Kind::Constant { expected_value } => !is_one(expected_value),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            !context.iter().any(|inner| takes(inner, place, value))
        }
        Kind::FalseSchema => true,
        _about_its_content => false,
    };
    let mut here = branch
        .iter()
        .filter(|error| error.instance_path().as_str() == place);
    !here.any(refuses)
}

fn single(place: &str, changed: Vec<Reading>) -> Vec<Way> {
    let mut ways: Vec<Way> = Vec::new();
    for (value, rule) in changed {
        let edit = Edit {
            place: place.to_owned(),
            value: Some(value),
            rule,
        };
        if !ways.iter().any(|way| way[0].value == edit.value) {
            ways.push(vec![edit]);
        }
    }
    ways
}

/// The misfits that can be mended at once: of two of which one is inside the other, the first.
pub(super) fn independent(misfits: &[Misfit]) -> Vec<&Misfit> {
    let mut chosen: Vec<&Misfit> = Vec::new();
    for misfit in misfits {
        if !chosen
            .iter()
            .any(|other| pointer::is_related(&other.place, &misfit.place))
        {
            chosen.push(misfit);
        }
    }
    chosen
}
