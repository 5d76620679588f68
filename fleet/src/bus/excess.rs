//! What a program may do on NATS beyond its needs, and how its connection could be overheard: it says so at its start, and
//! `doctor` does.

use std::{net::IpAddr, time::Duration};

use async_nats::{ServerAddr, StatusCode};
use secrecy::ExposeSecret;
use serde::Deserialize;
use tokio::time::timeout;

use super::{
    connect::Bus,
    login,
    rights::{NatsRole, Rights, USER_INFO},
};
use crate::{config::BusArgs, store::server_check::Finding};

/// How long the server may take to say what a user may do. One that does not allow the question does not answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// The most rights that one sentence names.
const NAMED_MAX: usize = 5;

/// Looks at the connection, its user, and what the server says that this user may do; nothing found: it is as it should be.
///
/// Asks the server one question, and waits for its answer for a second at most.
pub async fn look(bus: &Bus, args: &BusArgs, role: NatsRole<'_>) -> Vec<Finding> {
    let mut found = of_settings(args, bus.client.server_info().tls_required);
    let needs = role.needs(&bus.subjects, args.nats_inbox.as_str());
    match user_info(bus).await {
        Some(user) => found.extend(of_rights(&user, &needs, &bus.subjects)),
        // Without users, the server knows nobody.
        None if is_anonymous(args) => found.push(anonymous()),
        None => {}
    }
    found
}

/// Writes what was found into the log, a line each.
pub async fn tell(bus: &Bus, args: &BusArgs, role: NatsRole<'_>) {
    for Finding { what, advice } in look(bus, args, role).await {
        tracing::warn!(advice, "{what}");
    }
}

#[derive(Debug, Default, Deserialize)]
struct UserInfo {
    #[serde(default)]
    data: Option<User>,
}

/// What the server says of a user.
#[derive(Debug, Default, Deserialize)]
struct User {
    #[serde(default)]
    user: String,
    permissions: Option<Permissions>,
}

#[derive(Debug, Default, Deserialize)]
struct Permissions {
    publish: Option<Permission>,
    subscribe: Option<Permission>,
}

#[derive(Debug, Default, Deserialize)]
struct Permission {
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
}

/// `None`: it does not say.
async fn user_info(bus: &Bus) -> Option<User> {
    let asking = async {
        let inbox = bus.private_inbox();
        let mut answers = bus.client.subscribe(inbox.clone()).await.ok()?;
        let asked = bus.client.publish_with_reply(USER_INFO, inbox, "".into());
        asked.await.ok()?;
        let answer = futures_util::StreamExt::next(&mut answers).await?;
        if answer.status == Some(StatusCode::NO_RESPONDERS) {
            return None;
        }
        let info: UserInfo = serde_json::from_slice(&answer.payload).ok()?;
        info.data
    };
    timeout(ANSWER_MAX, asking).await.ok().flatten()
}

fn is_anonymous(args: &BusArgs) -> bool {
    let address: Result<ServerAddr, _> = args.nats_url.expose_secret().parse();
    let login = &args.login;
    let files = [&login.creds, &login.nkey, &login.cert];
    address.is_ok_and(|address| login::in_url(&address).is_none())
        && files.iter().all(|file| file.is_none())
}

fn anonymous() -> Finding {
    Finding {
        what: "NATS takes this program without a user: every program that reaches the server may publish and read everything"
            .to_owned(),
        advice: "Give nats-server the users that `toolfleet nats-config` writes".to_owned(),
    }
}

/// What the settings alone show.
fn of_settings(args: &BusArgs, server_wants_tls: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    let Ok(address) = args.nats_url.expose_secret().parse::<ServerAddr>() else {
        return found;
    };
    let login = &args.login;
    let is_encrypted =
        server_wants_tls || address.tls_required() || login.ca.is_some() || login.cert.is_some();
    if !is_encrypted && !is_loopback(address.host()) {
        found.push(Finding {
            what: format!(
                "the connection to NATS at {} is not encrypted, and leaves this machine",
                address.host()
            ),
            advice: "Give nats-server a tls block, and set NATS_CA or write tls:// in NATS_URL"
                .to_owned(),
        });
    }
    let secret = login::in_url(&address).map(|(user, password)| password.unwrap_or(user));
    if secret.is_some_and(|secret| secret.starts_with("change-me")) {
        found.push(Finding {
            what: "the password in NATS_URL is the one of an example, which everybody knows"
                .to_owned(),
            advice: "Make passwords of your own: `toolfleet nats-config` does".to_owned(),
        });
    }
    found
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// What the server's answer shows.
fn of_rights(
    user: &User,
    needs: &Rights,
    subjects: &crate::wire::subjects::Subjects,
) -> Vec<Finding> {
    let advice = "Give it the rights of its role: `toolfleet nats-config` writes them";
    let Some(permissions) = &user.permissions else {
        return vec![if user.user.is_empty() || user.user == "[default]" {
            anonymous()
        } else {
            Finding {
                what: "the NATS user may publish and read everything in its account".to_owned(),
                advice: advice.to_owned(),
            }
        }];
    };
    let ways = [
        ("publish to", &permissions.publish, &needs.publish),
        ("subscribe to", &permissions.subscribe, &needs.subscribe),
    ];
    let mut found = Vec::new();
    for (verb, given, needed) in ways {
        let beyond = beyond(given.as_ref(), needed, |subject| {
            // Which subjects the services of tools have is not known here.
            needs.is_of_worker() && subjects.may_be_a_tools(subject)
        });
        if !beyond.is_empty() {
            let more = beyond.len().saturating_sub(NAMED_MAX);
            let mut named = beyond[..beyond.len().min(NAMED_MAX)].join(", ");
            if more > 0 {
                named.push_str(&format!(" and {more} more"));
            }
            found.push(Finding {
                what: format!("the NATS user may {verb} more than its role needs: {named}"),
                advice: advice.to_owned(),
            });
        }
    }
    found
}

/// The subjects that are given and not needed. Without a list, everything is given.
fn beyond(
    given: Option<&Permission>,
    needed: &[String],
    is_fine: impl Fn(&str) -> bool,
) -> Vec<String> {
    let everything = [">".to_owned()];
    let (allow, deny) = match given {
        Some(given) => (given.allow.as_slice(), given.deny.as_slice()),
        None => (&[][..], &[][..]),
    };
    let allow = if allow.is_empty() { &everything } else { allow };
    // A permission may name a queue group behind the subject.
    let subjects = allow.iter().filter_map(|allowed| allowed.split(' ').next());
    let more = subjects.filter(|allowed| {
        let covered = |list: &[String]| list.iter().any(|pattern| covers(pattern, allowed));
        !covered(needed) && !covered(deny) && !is_fine(allowed)
    });
    let mut more: Vec<String> = more.map(str::to_owned).collect();
    // The server tells them in no order.
    more.sort();
    more
}

/// Whether every subject that the second pattern stands for is one of the first.
pub fn covers(general: &str, special: &str) -> bool {
    let (mut general, mut special) = (general.split('.'), special.split('.'));
    loop {
        match (general.next(), special.next()) {
            (None, None) => return true,
            (Some(">"), Some(_)) => return true,
            (Some("*"), Some(token)) if token != ">" => {}
            (Some(one), Some(other)) if one == other => {}
            (_, _) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ids::QueueName, wire::subjects::Subjects};

    fn subjects() -> Subjects {
        Subjects::new("toolfleet".parse().unwrap())
    }

    fn needs_of_a_worker() -> Rights {
        let queues: [QueueName; 1] = ["default".parse().unwrap()];
        let role = NatsRole::Worker {
            queues: &queues,
            services: &[],
        };
        role.needs(&subjects(), "_INBOX_worker.default")
    }

    fn said(publish: &[&str], subscribe: &[&str]) -> Vec<String> {
        let list = |list: &[&str]| list.iter().map(ToString::to_string).collect();
        let permission = |allow: &[&str]| {
            Some(Permission {
                allow: list(allow),
                deny: Vec::new(),
            })
        };
        let user = User {
            user: "worker".to_owned(),
            permissions: Some(Permissions {
                publish: permission(publish),
                subscribe: permission(subscribe),
            }),
        };
        let found = of_rights(&user, &needs_of_a_worker(), &subjects());
        found.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_pattern_covers_what_it_stands_for() {
        for (general, special, covered) in [
            ("a.*", "a.b", true),
            ("a.>", "a.b.*", true),
            (">", "$JS.API.INFO", true),
            ("a.*", "a.>", false),
            ("a.>", "a", false),
            ("a.b", "a.*", false),
            ("a.*", "a.b.c", false),
            ("a", "b", false),
        ] {
            assert_eq!(covers(general, special), covered, "{general} {special}");
        }
    }

    #[test]
    fn only_what_a_role_does_not_need_is_told() {
        let fine: [&[&str]; 2] = [
            &[
                "toolfleet.done.*.*",
                "$JS.ACK.TOOLFLEET_JOBS.q_default.>",
                "tools.translate",
                "tools.>",
            ],
            &["_INBOX_worker.default.>", "toolfleet.cancel.*"],
        ];
        assert_eq!(said(fine[0], fine[1]), Vec::<String>::new());
        let broad = said(
            &["toolfleet.>", "$JS.API.>", ">", "_INBOX.>"],
            &["_INBOX.>"],
        );
        assert_eq!(
            broad,
            [
                "the NATS user may publish to more than its role needs: $JS.API.>, >, _INBOX.>, toolfleet.>",
                "the NATS user may subscribe to more than its role needs: _INBOX.>",
            ]
        );
    }

    #[test]
    fn a_user_without_a_list_may_do_everything() {
        let named = User {
            user: "root".to_owned(),
            permissions: None,
        };
        let found = of_rights(&named, &needs_of_a_worker(), &subjects());
        assert!(
            found[0].what.contains("everything in its account"),
            "{found:?}"
        );
        let found = of_rights(&User::default(), &needs_of_a_worker(), &subjects());
        assert!(found[0].what.contains("without a user"), "{found:?}");
    }

    #[test]
    fn what_can_be_overheard_or_guessed_is_told() {
        let told = |url: &str, tls: bool| {
            let args = BusArgs::at(url.to_owned().into());
            let found = of_settings(&args, tls);
            found
                .into_iter()
                .map(|finding| finding.what)
                .collect::<Vec<_>>()
                .join("; ")
        };
        for quiet in [
            "nats://127.0.0.1:4222",
            "nats://localhost",
            "nats://[::1]:4222",
            "tls://nats.example",
        ] {
            assert_eq!(told(quiet, false), "", "{quiet}");
        }
        assert!(
            told("nats://a:b@nats.example:4222", false).contains("nats.example is not encrypted")
        );
        assert_eq!(told("nats://a:b@nats.example:4222", true), "");
        let weak = told("nats://a:change-me-a@127.0.0.1", false);
        assert!(
            weak.contains("password") && !weak.contains("change-me"),
            "{weak}"
        );
    }
}
