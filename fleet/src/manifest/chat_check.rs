//! Whether the fields of a chat tool fit together.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{
    chat::{ChatRoute, ChatSpec},
    delegate::Delegate,
    problem::Problems,
    request,
    secret::secret,
    version::Manifest,
};
use crate::{arguments::pointer_segment, call::Effect, secrets::Secrets};

const SILENCE_MIN: Duration = Duration::from_millis(100);
const SILENCE_MAX: Duration = Duration::from_secs(3_600);

/// Everything that is wrong with the fields that only models have, of any tool.
pub(super) fn of_models(manifest: &Manifest, problems: &mut Problems) {
    if let Some(budget) = &manifest.budget {
        budget.check_for(&manifest.executor, problems);
    }
    if let Some(context) = &manifest.context {
        context.check(&manifest.executor, manifest.sensitive.is_some(), problems);
    }
    let (name, executor) = (&manifest.name, &manifest.executor);
    if let Some(selection) = &manifest.tool_selection {
        selection.check(name, executor, problems);
    }
    Delegate::check_all(&manifest.delegates, name, executor, problems);
    if let Some(todo) = manifest.todo {
        let (is_sensitive, has_cache) = (manifest.sensitive.is_some(), manifest.cache.is_some());
        todo.check(&manifest.executor, is_sensitive, has_cache, problems);
    }
}

/// Everything that is wrong with a chat tool.
pub(super) fn check(spec: &ChatSpec, manifest: &Manifest, problems: &mut Problems) {
    if manifest.effect != Effect::Read {
        problems.add(
            "/effect",
            "a model call changes nothing and may be repeated, so a chat tool has effect read; write read",
        );
    }
    for (field, is_written, why) in [
        (
            "files",
            manifest.files.is_some(),
            "a model gets its request and nothing beside it; put images and documents into messages",
        ),
        (
            "idempotency",
            manifest.idempotency.is_some(),
            "every request to a model has the header Idempotency-Key",
        ),
        (
            "baggage",
            manifest.baggage,
            "a vendor is told nothing of the caller",
        ),
    ] {
        if is_written {
            problems.add(format!("/{field}"), format!("{why}; leave {field} out"));
        }
    }
    for (index, route) in spec.routes.iter().enumerate() {
        let place = format!("/executor/chat/routes/{index}");
        if let Some(first) = spec.routes[..index]
            .iter()
            .position(|other| other.name == route.name)
        {
            problems.add(
                format!("{place}/name"),
                format!(
                    "route {first} has the name {:?} too; give each route a name of its own",
                    route.name
                ),
            );
        }
        check_route(route, &place, problems);
    }
    for (field, silence) in [("first_token", spec.first_token), ("idle", spec.idle)] {
        if !(SILENCE_MIN..=SILENCE_MAX).contains(&silence) {
            problems.add(
                format!("/executor/chat/{field}"),
                "a stream may be silent for 100ms to 1h; write a duration between",
            );
        }
    }
    let is_sensitive = manifest.sensitive.is_some();
    for (field, members) in [("defaults", &spec.defaults), ("fixed", &spec.fixed)] {
        let place = format!("/executor/chat/{field}");
        check_members(&place, members, is_sensitive, problems);
    }
}

fn check_route(route: &ChatRoute, place: &str, problems: &mut Problems) {
    if let Err(message) = request::check_literal_url(&route.url) {
        problems.add(format!("{place}/url"), message);
    }
    for (name, value) in &route.headers {
        let path = format!("{place}/headers/{}", pointer_segment(name));
        if let Err(message) = request::check_header_name(name) {
            problems.add(&*path, message);
        }
        let is_twice = |other: &String| other < name && other.eq_ignore_ascii_case(name);
        if route.headers.keys().any(is_twice) {
            problems.add(
                &*path,
                "the same header stands twice; case does not tell headers apart",
            );
        }
        if request::placeholder(value).is_some() {
            problems.add(
                &*path,
                "no argument stands in a header of a route; write text or secret://NAME",
            );
        }
        secret(path, value, problems);
    }
}

/// Members that every request of the tool has, or may have.
fn check_members(
    place: &str,
    members: &Map<String, Value>,
    is_sensitive: bool,
    problems: &mut Problems,
) {
    for (name, value) in members {
        let path = format!("{place}/{}", pointer_segment(name));
        let is_on = !matches!(value, Value::Null | Value::Bool(false));
        match name.as_str() {
            "model" => problems.add(
                &*path,
                "each route names its model; write it there, and leave model out",
            ),
            "stream" if is_on && !value.is_boolean() => {
                problems.add(&*path, "a request is a stream or is not; write true or false");
            }
            "stream" if is_on && is_sensitive => problems.add(
                &*path,
                "chunks of a stream are told as they come, and sensitive values in them are not known; leave stream out",
            ),
            "background" | "previous_response_id" | "conversation" if is_on => problems.add(
                &*path,
                format!(
                    "the fleet keeps what was said, and the vendor keeps nothing; leave {name} out"
                ),
            ),
            _others => {}
        }
        no_secrets(&path, value, problems);
    }
}

fn no_secrets(path: &str, value: &Value, problems: &mut Problems) {
    match value {
        Value::String(text) if text.starts_with(Secrets::SCHEME) => problems.add(
            path,
            "a secret can stand in a header of a route, not in the request",
        ),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                no_secrets(&format!("{path}/{index}"), item, problems);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                no_secrets(
                    &format!("{path}/{}", pointer_segment(name)),
                    member,
                    problems,
                );
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests;
