//! The routes of models: whether what they are asked with is right, by what their servers answer.

use std::time::Duration;

use fleet::store::session::{Postgres, within};
use fleet_history::{
    Row, instant,
    models::{WrongRoute, wrong_routes},
};

use super::check::{Check, some};
use crate::commands::plain::plain;

const NAME: &str = "model_routes";
/// How long reading them may take.
const READ_MAX: Duration = Duration::from_secs(5);

/// `None`: they could not be read, which other lines say.
pub(super) async fn look(postgres: &Postgres) -> Option<Check> {
    let pool = postgres.pool_for_reading(1);
    let rows = within(
        "look for routes that are wrong",
        READ_MAX,
        wrong_routes(&pool),
    );
    let wrong = Row::read_all(&rows.await.ok()?).ok()?;
    Some(judge(&wrong))
}

fn judge(wrong: &[WrongRoute]) -> Check {
    if wrong.is_empty() {
        return Check::ok(
            NAME,
            "none has answered within the last hour that its key, model or URL is wrong",
        );
    }
    let named: Vec<String> = wrong.iter().map(named).collect();
    let found = format!(
        "servers of models say that a key, a model or a URL is wrong: {}",
        some(&named)
    );
    let advice = "With 401 or 403 store the right secret where workers find it; with 404 or a redirect apply a version of the tool with \
                  the right model or URL";
    Check::warn(NAME, found, advice)
}

fn named(route: &WrongRoute) -> String {
    let WrongRoute {
        tool,
        route,
        model_asked,
        status,
        started_at,
    } = route;
    let at = instant(*started_at);
    plain(&format!(
        "{tool}, route {route} ({model_asked}): status {status} at {at}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::check::Status, *};

    #[test]
    fn wrong_routes_are_named_with_what_their_server_says() {
        assert_eq!(judge(&[]).status, Status::Ok);
        let route = |name: &str| {
            let row = json!({"tool": "ask_model", "route": name, "model_asked": "large", "status": 401,
                             "started_at": "2026-11-20T12:00:00Z"});
            serde_json::from_value(row).unwrap()
        };
        let check = judge(&["a", "b", "c", "d"].map(route));
        assert_eq!(check.status, Status::Warn);
        assert_eq!(
            check.found,
            "servers of models say that a key, a model or a URL is wrong: \
             ask_model, route a (large): status 401 at 2026-11-20T12:00:00.000Z, \
             ask_model, route b (large): status 401 at 2026-11-20T12:00:00.000Z, \
             ask_model, route c (large): status 401 at 2026-11-20T12:00:00.000Z, and 1 more"
        );
    }
}
