//! What keeps calls from running: what operators have set, which is easily forgotten, and what nobody has said, which nobody sees.

use std::time::Duration;

use fleet::store::{
    StoreError,
    controls::ControlKind,
    session::{Postgres, within},
};
use fleet_history::{
    Row,
    controls::{ListedControl, Standstill, StandstillCause, controls, standstills},
    instant,
};

use super::check::{Check, NAMED_MAX, count, some};
use crate::commands::{control::in_words, plain::plain};

const NAME: &str = "brakes";
/// How long reading them may take.
const READ_MAX: Duration = Duration::from_secs(5);

/// `None`: they could not be read, which other lines say.
pub(super) async fn look(postgres: &Postgres) -> Option<Check> {
    let (rows, stands) = within("list controls", READ_MAX, read(postgres))
        .await
        .ok()?;
    let (read, stands) = (Row::read_all(&rows).ok()?, Row::read_all(&stands).ok()?);
    Some(judge(&read, &stands))
}

type Rows = (Vec<Row<ListedControl>>, Vec<Row<Standstill>>);

async fn read(postgres: &Postgres) -> Result<Rows, StoreError> {
    let pool = postgres.pool_for_reading(1);
    Ok((controls(&pool).await?, standstills(&pool).await?))
}

/// A pause that lets calls wait is named once it has held them for long, and a mode only lets more calls run.
fn judge(controls: &[ListedControl], stands: &[Standstill]) -> Check {
    let brakes = controls.iter().filter(|control| {
        let kind = control.scope.kind.as_str();
        kind == ControlKind::Breaker.as_str()
            || kind == ControlKind::Limit.as_str()
            || kind == ControlKind::Pause.as_str() && control.scope.setting == "refuse"
    });
    let told: Vec<String> = brakes
        .map(|control| format!("{} ({})", in_words(control), control.control_id))
        .collect();
    if told.is_empty() && stands.is_empty() {
        return Check::ok(
            NAME,
            "no pause refuses calls or holds them for long, no breaker is forced, no limit set by hand, and none keeps calls waiting",
        );
    }
    let (mut found, mut advice) = (Vec::new(), Vec::new());
    if !stands.is_empty() {
        let named: Vec<String> = stands.iter().map(standing).collect();
        found.push(format!("calls do not run: {}", some(&named)));
        let mut commands: Vec<String> = stands.iter().take(NAMED_MAX).map(mends).collect();
        commands.dedup();
        advice.extend(commands);
    }
    if !told.is_empty() {
        let brakes = count(told.len(), "brake");
        found.push(format!("operators have set {brakes}: {}", some(&told)));
        advice.push(
            "If one of them is forgotten, end it: toolfleet control list says who set it, why and until when"
                .to_owned(),
        );
    }
    Check::warn(NAME, found.join("; "), advice.join(". "))
}

fn standing(stand: &Standstill) -> String {
    let waiting = stand.waiting.and_then(|calls| usize::try_from(calls).ok());
    let waiting = count(waiting.unwrap_or_default(), "call");
    plain(&match &stand.cause {
        StandstillCause::NoNumbers { name } => {
            format!("the shared limit {name} has no numbers and keeps {waiting} waiting")
        }
        StandstillCause::Closed {
            name,
            tenant,
            until,
        } => {
            let of = tenant.as_ref().map(|tenant| format!(" of {tenant}"));
            let until = instant(*until);
            format!(
                "a remote has closed the limit {name}{} until {until}",
                of.unwrap_or_default()
            )
        }
        StandstillCause::Breaker { name, target } => {
            format!("the breaker of {name} at {target} is open and keeps {waiting} waiting")
        }
        StandstillCause::Pause { control_id, since } => {
            let since = instant(*since);
            format!("pause {control_id} lasts since {since} and keeps {waiting} waiting")
        }
    })
}

fn mends(stand: &Standstill) -> String {
    match &stand.cause {
        StandstillCause::NoNumbers { name } => {
            format!("Set numbers: toolfleet control limit {name} CALLS/TIME --note WHY")
        }
        StandstillCause::Closed { name, .. } => format!(
            "Wait, or open it if the remote bears it: toolfleet control limit {name} CALLS/TIME --note WHY"
        ),
        StandstillCause::Breaker { .. } => {
            "Repair the target: SELECT * FROM toolfleet.breakers says what was counted".to_owned()
        }
        StandstillCause::Pause { control_id, .. } => format!(
            "Ask who set it whether it is still needed: toolfleet control resume {control_id} --note WHY"
        ),
    }
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
        assert_eq!(judge(&harmless, &[]).status, Status::Ok);
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
        let check = judge(&brakes, &[]);
        assert_eq!(check.status, Status::Warn);
        assert_eq!(
            check.found,
            "operators have set 4 brakes: pause refuse for tool charge (3), breaker open for tool look (4), \
             limit 5/1s burst 1 for bank (5), and 1 more"
        );
    }
    #[test]
    fn what_stands_still_is_named_with_how_many_calls_wait_and_what_to_do() {
        let stands = [
            json!({"cause": "no_numbers", "name": "bank", "waiting": 4}),
            json!({"cause": "closed", "name": "look", "tenant": "acme", "until": "2026-11-20T12:00:00Z"}),
            json!({"cause": "breaker", "name": "quote", "target": "https://bank.example.com", "waiting": 1}),
            json!({"cause": "pause", "control_id": 7, "since": "2026-11-20T12:00:00Z", "waiting": 2}),
        ];
        let stands = stands.map(|stand| serde_json::from_value(stand).unwrap());
        let check = judge(&[], &stands);
        assert_eq!(check.status, Status::Warn);
        assert_eq!(
            check.found,
            "calls do not run: the shared limit bank has no numbers and keeps 4 calls waiting, a remote has closed the limit look of acme \
             until 2026-11-20T12:00:00.000Z, the breaker of quote at https://bank.example.com is open and keeps 1 call waiting, and 1 more"
        );
        assert_eq!(
            check.advice.unwrap(),
            "Set numbers: toolfleet control limit bank CALLS/TIME --note WHY. Wait, or open it if the remote bears it: toolfleet \
             control limit look CALLS/TIME --note WHY. Repair the target: SELECT * FROM toolfleet.breakers says what was counted"
        );
        let check = judge(&[], &stands[3..]);
        assert_eq!(
            check.found,
            "calls do not run: pause 7 lasts since 2026-11-20T12:00:00.000Z and keeps 2 calls waiting"
        );
    }
}
