//! NATS: its server, its limits, and whether dispatchers answer.

use std::time::Duration;

use async_nats::jetstream::{self, account::Account};
use fleet::{
    arguments::Limits,
    bus::{connect::Bus, excess, rights::NatsRole},
    config::BusArgs,
    explain::Servers,
    store::server_check::Finding,
};
use futures_util::StreamExt;
use serde::Deserialize;
use tokio::time::timeout;

use super::{
    check::{Check, count},
    postgres::Ledger,
};
use crate::commands::connect;

/// How long it must be silent before no further answer is expected.
const SILENCE: Duration = Duration::from_millis(500);
/// The most answers that are counted.
const DISPATCHERS_MAX: usize = 1_000;
/// What is sent around arguments.
const AROUND_ARGUMENTS: usize = 64 * 1024;
/// What is sent around a result.
const AROUND_A_RESULT: usize = 64 * 1024;
/// How full the account may be before a person should look, in percent.
const FULL: u64 = 90;

/// Connects, and checks the server.
pub(super) async fn look(
    args: &BusArgs,
    ledger: Option<&Ledger>,
    servers: &Servers,
    checks: &mut Vec<Check>,
) -> Option<Bus> {
    let bus = match connect::bus(args).await {
        Ok(bus) => bus,
        Err(problem) => {
            checks.push(Check::error("nats", problem, servers));
            return None;
        }
    };
    let version = bus.client.server_info().version;
    checks.push(Check::ok("nats", format!("nats-server {version}")));
    checks.extend(rights(&bus, args).await);
    let output_max = ledger.map_or(0, |ledger| ledger.output_max);
    let taken = ledger.map_or(0, |ledger| ledger.arguments_max);
    checks.push(payload(bus.payload_max(), taken, output_max));
    let jetstream = jetstream::new(bus.client.clone());
    checks.push(match jetstream.query_account().await {
        Ok(account) => storage(&account),
        Err(problem) => {
            let advice =
                "It is not enabled for this account, or this user may not ask ($JS.API.INFO)";
            Check::fail(
                "jetstream",
                format!("JetStream does not answer: {problem}"),
                advice,
            )
        }
    });
    Some(bus)
}

/// What this command's own user may do beyond an operator's needs, and how its connection could be overheard.
async fn rights(bus: &Bus, args: &BusArgs) -> Vec<Check> {
    let name = "nats_rights";
    let found = excess::look(bus, args, NatsRole::Operator).await;
    if found.is_empty() {
        return vec![Check::ok(name, "no more than an operator needs")];
    }
    let warn = |Finding { what, advice }| Check::warn(name, what, advice);
    found.into_iter().map(warn).collect()
}

fn payload(may_be: usize, arguments_max: usize, output_max: usize) -> Check {
    let name = "max_payload";
    let kib = |bytes: usize| bytes / 1024;
    let found = format!("a message may have {} KiB", kib(may_be));
    let answer = output_max + AROUND_A_RESULT;
    if may_be < arguments_max.max(Limits::DEFAULT.bytes) + AROUND_ARGUMENTS {
        let advice = "Arguments may be larger: set max_payload of nats-server to 8MB";
        return Check::fail(name, found, advice);
    }
    if may_be < answer {
        let found = format!("{found}, the largest answer of a tool {} KiB", kib(answer));
        let advice = "A result that does not fit is answered without its body: raise max_payload of nats-server";
        return Check::warn(name, found, advice);
    }
    Check::ok(name, found)
}

fn storage(account: &Account) -> Check {
    let name = "jetstream";
    let used = account.storage;
    let mib = |bytes: u64| bytes / (1024 * 1024);
    let limit = account.limits.max_storage;
    let Some(limit) = limit.map(|limit| u64::try_from(limit).unwrap_or_default()) else {
        let found = format!(
            "{} MiB used, and the account has no limit of its own",
            mib(used)
        );
        return Check::ok(name, found);
    };
    let found = format!("{} of {} MiB used", mib(used), mib(limit));
    if limit == 0 && account.tiers.is_empty() {
        let found = "the account may not keep files";
        return Check::fail(name, found, "Allow it file storage (max_file)");
    }
    if limit > 0 && used.saturating_mul(100) >= limit.saturating_mul(FULL) {
        let advice = "Raise the limit: pointers that find no room wait for the sweep";
        return Check::warn(name, found, advice);
    }
    Check::ok(name, found)
}

#[derive(Deserialize)]
struct ServiceInfo {
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Deserialize)]
struct Endpoint {
    subject: String,
}

/// How many dispatchers of this fleet answer; `None` when NATS takes no question.
pub(super) async fn dispatchers(bus: &Bus) -> Option<usize> {
    let asking = async {
        let inbox = bus.client.new_inbox();
        let mut answers = bus.client.subscribe(inbox.clone()).await.ok()?;
        let question = fleet::wire::subjects::Subjects::info_of_dispatchers();
        let asked = bus.client.publish_with_reply(question, inbox, "".into());
        asked.await.ok()?;
        let mut heard = 0;
        // The number of answers is unknown, so silence ends the wait.
        while heard < DISPATCHERS_MAX
            && let Ok(Some(answer)) = timeout(SILENCE, answers.next()).await
        {
            let info: Result<ServiceInfo, _> = serde_json::from_slice(&answer.payload);
            let endpoint = bus.subjects.call_endpoint();
            let ours = |info: ServiceInfo| info.endpoints.iter().any(|one| one.subject == endpoint);
            heard += usize::from(info.is_ok_and(ours));
        }
        Some(heard)
    };
    timeout(10 * SILENCE, asking).await.ok().flatten()
}

/// Whether callers are heard.
pub(super) fn heard(dispatchers: Option<usize>) -> Check {
    let name = "dispatchers";
    match dispatchers {
        None => {
            let advice = "Let this user publish to $SRV.> and read its inbox";
            Check::fail(name, "no dispatcher can be asked", advice)
        }
        Some(0) => {
            let advice = "Start one: until then nothing is accepted, published again or swept";
            Check::warn(name, "none answers", advice)
        }
        Some(heard) => Check::ok(name, format!("{} heard", count(heard, "dispatcher"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn a_message_has_to_carry_arguments_and_should_carry_results() {
        let status = |may_be, taken, output| payload(may_be, taken, output).status;
        const MIB: usize = 1024 * 1024;
        assert_eq!(status(64 * 1024, 0, 0), Status::Fail);
        assert_eq!(status(MIB, 256 * 1024, MIB), Status::Warn);
        assert_eq!(status(8 * MIB, MIB, MIB), Status::Ok);
        assert_eq!(status(MIB, MIB, 0), Status::Fail, "a model takes more");
    }

    #[test]
    fn storage_that_is_forbidden_fails_and_nearly_full_warns() {
        let account = |used: u64, limit: i64| -> Account {
            let limits = serde_json::json!({
                "max_memory": -1, "max_storage": limit, "max_streams": -1, "max_consumers": -1,
                "max_bytes_required": false, "max_ack_pending": -1,
                "memory_max_stream_bytes": -1, "storage_max_stream_bytes": -1
            });
            let account = serde_json::json!({
                "memory": 0, "storage": used, "reserved_memory": 0, "reserved_storage": 0,
                "streams": 0, "consumers": 0, "limits": limits, "api": {"total": 0, "errors": 0}
            });
            serde_json::from_value(account).unwrap()
        };
        assert_eq!(storage(&account(5, 0)).status, Status::Fail);
        assert_eq!(storage(&account(95, 100)).status, Status::Warn);
        assert_eq!(storage(&account(50, 100)).status, Status::Ok);
        assert_eq!(storage(&account(50, -1)).status, Status::Ok);
    }
}
