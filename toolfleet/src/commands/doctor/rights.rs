//! What the role of `DATABASE_URL` may do beyond an operator's needs, and passwords of the examples.

use fleet::{
    config::{BusArgs, StoreArgs},
    store::{
        StoreError,
        rights::{self, Duty},
        session::Postgres,
    },
};

use super::check::Check;

const NAME: &str = "rights";

/// Nothing if Postgres does not answer: another check says that.
pub(super) async fn look(postgres: &Postgres, store: &StoreArgs, bus: &BusArgs) -> Vec<Check> {
    let mut checks: Vec<Check> = beyond(postgres).await.ok().map(judge).into_iter().collect();
    let urls = [
        ("DATABASE_URL", &store.database_url),
        ("NATS_URL", &bus.nats_url),
    ];
    for (name, url) in urls {
        if rights::has_example_password(url) {
            let found = format!("{name} has the password of the example");
            checks.push(Check::warn(NAME, found, "Choose one of your own"));
        }
    }
    checks
}

async fn beyond(postgres: &Postgres) -> Result<Vec<String>, StoreError> {
    let mut connection = postgres.connect_to_look().await?;
    rights::beyond(&mut connection, Duty::Operator).await
}

fn judge(beyond: Vec<String>) -> Check {
    if beyond.is_empty() {
        return Check::ok(NAME, "this role may do what an operator needs, and no more");
    }
    let found = format!("the role of DATABASE_URL {}", beyond.join(", "));
    let advice = "Give people and processes the roles of deploy/postgres/roles.sql";
    Check::warn(NAME, found, advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::check::Status;

    #[test]
    fn a_role_with_more_than_it_needs_is_a_warning() {
        assert_eq!(judge(Vec::new()).status, Status::Ok);
        let judged = judge(vec!["is a superuser".to_owned()]);
        assert_eq!(judged.status, Status::Warn);
        assert_eq!(judged.found, "the role of DATABASE_URL is a superuser");
    }
}
