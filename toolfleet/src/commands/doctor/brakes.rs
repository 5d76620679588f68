//! What an operator has set that keeps calls from running: easily forgotten, and no fault.

use std::time::Duration;

use fleet::store::{
    StoreError,
    controls::ControlKind,
    session::{Postgres, within},
};
use fleet_history::{
    Row,
    controls::{ListedControl, controls},
};

use super::check::{Check, count};
use crate::commands::control::in_words;

const NAME: &str = "brakes";
/// How long reading them may take.
const READ_MAX: Duration = Duration::from_secs(5);
/// How many are named.
const NAMED_MAX: usize = 3;

/// `None`: they could not be read, which other lines say.
pub(super) async fn look(postgres: &Postgres) -> Option<Check> {
    let rows = within("list controls", READ_MAX, read(postgres))
        .await
        .ok()?;
    let read = Row::read_all(&rows).ok()?;
    Some(judge(&read))
}

async fn read(postgres: &Postgres) -> Result<Vec<Row<ListedControl>>, StoreError> {
    controls(&postgres.pool_for_reading(1)).await
}

/// A pause that lets calls wait has an alert of its own, and a mode only lets more calls run.
fn judge(controls: &[ListedControl]) -> Check {
    let brakes = controls.iter().filter(|control| {
        let kind = control.scope.kind.as_str();
        kind == ControlKind::Breaker.as_str()
            || kind == ControlKind::Limit.as_str()
            || kind == ControlKind::Pause.as_str() && control.scope.setting == "refuse"
    });
    let told: Vec<String> = brakes
        .map(|control| format!("{} ({})", in_words(control), control.control_id))
        .collect();
    if told.is_empty() {
        return Check::ok(
            NAME,
            "no pause refuses calls, no breaker is forced and no limit set by hand",
        );
    }
    let more = match told.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let named = told.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
    Check::warn(
        NAME,
        format!(
            "operators have set {}: {}{more}",
            count(told.len(), "brake"),
            named.join(", ")
        ),
        "If one of them is forgotten, end it: toolfleet control list says who set it, why and until when",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::check::Status, *};

    fn control(id: i64, scope: &Value) -> ListedControl {
        let mut row = json!({
            "control_id": id, "tool": null, "queue": null, "tenant": null, "pointer": null, "value": null, "subject": null,
            "actor": "ada", "note": "n", "set_at": "2026-11-20T12:00:00Z", "expires_at": null});
        for (name, value) in scope.as_object().unwrap() {
            row[name] = value.clone();
        }
        serde_json::from_value(row).unwrap()
    }

    #[test]
    fn what_keeps_calls_from_running_is_named_and_what_does_not_is_no_warning() {
        let harmless = [
            control(
                1,
                &json!({"kind": "mode", "subject": "audit", "setting": "off"}),
            ),
            control(
                2,
                &json!({"kind": "pause", "tool": "charge", "setting": "wait"}),
            ),
        ];
        assert_eq!(judge(&harmless).status, Status::Ok);
        let brakes = [
            control(
                3,
                &json!({"kind": "pause", "tool": "charge", "setting": "refuse"}),
            ),
            control(
                4,
                &json!({"kind": "breaker", "tool": "look", "setting": "open"}),
            ),
            control(
                5,
                &json!({"kind": "limit", "subject": "bank", "setting": {"calls": 5, "per_ms": 1000, "burst": 1}}),
            ),
            control(
                6,
                &json!({"kind": "breaker", "tool": "other", "setting": "closed"}),
            ),
        ];
        let check = judge(&brakes);
        assert_eq!(check.status, Status::Warn);
        assert_eq!(
            check.found,
            "operators have set 4 brakes: pause refuse for tool charge (3), breaker open for tool look (4), \
             limit 5/1s burst 1 for bank (5), and 1 more"
        );
    }
}
