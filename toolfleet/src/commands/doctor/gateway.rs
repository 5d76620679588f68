//! What a gateway stands on, seen with its own role in Postgres and its own user of NATS.

use std::time::Duration;

use fleet::{
    bus::{excess, kept, rights::NatsRole},
    config::{BusArgs, ConfigError, StoreArgs},
    explain::Servers,
    store::{
        StoreError,
        rights::{self, Duty},
        server_check::Finding,
        session::Postgres,
    },
};
use fleet_client::{FleetClient, Question};

use super::check::Check;
use crate::commands::connect;

/// How long the server may take to say how the stream of events stands.
const STREAM_MAX: Duration = Duration::from_secs(2);
/// How long a dispatcher may take to say which tools there are.
const TOOLS_MAX: Duration = Duration::from_secs(5);

/// Looks at all of it.
///
/// # Errors
///
/// A URL cannot be read.
pub(super) async fn examine(
    store: &StoreArgs,
    bus: &BusArgs,
    servers: &Servers,
) -> Result<Vec<Check>, ConfigError> {
    let postgres = connect::postgres(&store.database_url)?;
    let mut checks = Vec::new();
    if let Err(problem) = ledger(&postgres, &mut checks).await {
        let name = match problem {
            StoreError::UnknownSchema(_) => "schema",
            _ => "postgres",
        };
        checks.push(Check::error(name, problem, servers));
    }
    if rights::has_example_password(&store.database_url) {
        let found = "DATABASE_URL has the password of the example";
        checks.push(Check::warn("rights", found, "Choose one of your own"));
    }
    nats(bus, servers, &mut checks).await;
    Ok(checks)
}

async fn ledger(postgres: &Postgres, checks: &mut Vec<Check>) -> Result<(), StoreError> {
    let mut connection = postgres.connect_to_look().await?;
    checks.push(Check::ok("postgres", "it answers"));
    connect::known_schema(postgres).await?;
    checks.push(Check::ok("schema", "as this program knows it"));
    let lacking = rights::unreadable(&mut connection, Duty::Gateway).await?;
    checks.push(views(lacking));
    let beyond = rights::beyond(&mut connection, Duty::Gateway).await?;
    checks.push(if beyond.is_empty() {
        let found = "this role may do what a gateway needs, and no more";
        Check::ok("rights", found)
    } else {
        let found = format!("the role of DATABASE_URL {}", beyond.join(", "));
        let advice = "Give gateways the role toolfleet_gateway of deploy/postgres/roles.sql";
        Check::warn("rights", found, advice)
    });
    Ok(())
}

/// Whether it may read what a gateway reads; `None`: nobody knows what that is.
fn views(unreadable: Option<Vec<String>>) -> Check {
    let name = "views";
    match unreadable {
        None => Check::warn(
            name,
            "there is no role toolfleet_gateway to compare with",
            "Run `toolfleet migrate --grant` as the owner of the tables",
        ),
        Some(unreadable) if unreadable.is_empty() => {
            Check::ok(name, "this role may read what a gateway reads")
        }
        Some(unreadable) => Check::fail(
            name,
            format!("this role may not read {}", unreadable.join(", ")),
            "Give gateways the role toolfleet_gateway, and run `toolfleet migrate --grant` again after an upgrade",
        ),
    }
}

async fn nats(args: &BusArgs, servers: &Servers, checks: &mut Vec<Check>) {
    let bus = match connect::bus(args).await {
        Ok(bus) => bus,
        Err(problem) => {
            checks.push(Check::error("nats", problem, servers));
            return;
        }
    };
    let version = bus.client.server_info().version;
    checks.push(Check::ok("nats", format!("nats-server {version}")));
    let found = excess::look(&bus, args, NatsRole::Gateway).await;
    if found.is_empty() {
        checks.push(Check::ok("nats_rights", "no more than a gateway needs"));
    }
    let warn = |Finding { what, advice }| Check::warn("nats_rights", what, advice);
    checks.extend(found.into_iter().map(warn));
    match FleetClient::of(&bus).await {
        Ok(client) => {
            checks.push(events(&client).await);
            checks.push(dispatchers(&client).await);
        }
        Err(problem) => checks.push(Check::error("nats", problem, servers)),
    }
}

/// Whether it hears of the stream of events, without which it follows nothing.
async fn events(client: &FleetClient) -> Check {
    let name = "events";
    let question = kept::ask_stands(client.subjects());
    let question = Question {
        patience: STREAM_MAX,
        ..Question::new(question.subject, question.body)
    };
    let missing = "Start a dispatcher, which makes it";
    let Ok(answer) = client.ask(question).await else {
        let found = "the stream of events does not answer this user";
        let advice =
            "Give it the user gateway of `toolfleet nats-config`, and its inbox (NATS_INBOX)";
        return Check::fail(name, found, advice);
    };
    match kept::read_stands(answer.bytes()) {
        Ok(_stands) => Check::ok(name, "the stream of events answers"),
        Err(problem) => Check::warn(name, problem.to_string(), missing),
    }
}

/// Whether dispatchers answer it.
async fn dispatchers(client: &FleetClient) -> Check {
    let name = "dispatchers";
    let default = "default".parse();
    let tenant = default.expect("the default tenant has a valid name");
    let question = Question {
        patience: TOOLS_MAX,
        ..Question::new(client.subjects().tools(&tenant), "{}")
    };
    match client.ask(question).await {
        Ok(_listing) => Check::ok(name, "one answers"),
        Err(problem) => Check::fail(
            name,
            problem.to_string(),
            "Start one, or give this user the rights of the user gateway of `toolfleet nats-config`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::check::Status;

    #[test]
    fn a_role_that_may_not_read_what_a_gateway_reads_fails() {
        assert_eq!(views(None).status, Status::Warn);
        assert_eq!(views(Some(Vec::new())).status, Status::Ok);
        let judged = views(Some(vec!["calls".to_owned(), "token_hashes".to_owned()]));
        assert_eq!(judged.status, Status::Fail);
        assert_eq!(judged.found, "this role may not read calls, token_hashes");
    }
}
