//! Whether two alternatives of a union can ever both fit one value.

use serde_json::{Map, Value};

use crate::arguments::keywords::{required, resolve, types, values};

/// Whether no value fits two of these schemas. `false` also where that is not obvious.
pub(super) fn are_disjoint(branches: &[Value], root: &Value) -> bool {
    let branches: Vec<&Value> = branches
        .iter()
        .map(|branch| resolve(branch, root))
        .collect();
    branches.iter().enumerate().all(|(at, one)| {
        branches[at + 1..]
            .iter()
            .all(|other| differ(one, other, root))
    })
}

fn differ(one: &Value, other: &Value, root: &Value) -> bool {
    if let (Some(one), Some(other)) = (values(one), values(other)) {
        return !one.iter().any(|value| other.contains(value));
    }
    let (kinds, others) = (types(one), types(other));
    // Every integer is a number.
    let alike = |a: &str, b: &str| {
        a == b || (a, b) == ("integer", "number") || (a, b) == ("number", "integer")
    };
    let overlap = kinds.iter().any(|a| others.iter().any(|b| alike(a, b)));
    if !kinds.is_empty() && !others.is_empty() && !overlap {
        return true;
    }
    kinds == ["object"] && others == ["object"] && have_discriminator(one, other, root)
}

/// Whether both require a property for which they take different values.
fn have_discriminator(one: &Value, other: &Value, root: &Value) -> bool {
    let properties = |schema: &'_ Value| -> Map<String, Value> {
        let all = schema.get("properties").and_then(Value::as_object);
        all.cloned().unwrap_or_default()
    };
    let demands = |schema: &Value, name: &str| required(schema).contains(&name);
    let others = properties(other);
    properties(one).iter().any(|(name, here)| {
        let Some(there) = others.get(name) else {
            return false;
        };
        let (here, there) = (resolve(here, root), resolve(there, root));
        let differ = match (values(here), values(there)) {
            (Some(here), Some(there)) => !here.iter().any(|value| there.contains(value)),
            (_, _) => false,
        };
        differ && demands(one, name) && demands(other, name)
    })
}
