//! How the files read. What is in `deploy/nats` is written here, for an example.

use std::{fmt::Write as _, path::Path};

use fleet::bus::rights::Rights;

use super::{
    secrets::{Kind, UserSecret},
    users::{Account, Roster, User},
};

/// The largest message of a tenant with an account of its own: arguments of a model, 1 MiB, with everything around them. The server ends
/// the connection of a larger one.
const PAYLOAD: &str = "1280KB";
/// Programs of one tenant, far more than a small team has.
const CONNECTIONS: u32 = 256;
/// Subscriptions of all of them: an inbox each, and the sessions that they follow.
const SUBSCRIPTIONS: u32 = 4096;
/// How long a caller of another account may wait for its answer: `Prefer: wait` is at most 300 s.
const ANSWER_MAX: &str = "10m";
/// Where dispatchers answer, which are the inboxes that they may publish to.
const REPLIES: &str = "_INBOX.{tenant}.,_INBOX_operator.,_INBOX_service.,_INBOX_gateway.,_R_.";
/// The account of dispatchers, workers, operators, services, and of tenants without one of their own.
const FLEET: &str = "fleet";

/// The server's own settings.
pub(super) const SERVER: &str = r#"# One nats-server with JetStream for Toolfleet. Needs nats-server 2.12.6 or newer.
# Check with `nats-server -t -c nats-server.conf`. What is here is the machine's: `toolfleet nats-config` leaves it as it is.

listen: 127.0.0.1:4222
http: 127.0.0.1:8222
server_name: toolfleet-1

# Before it listens on another address: a certificate, and with `verify` one of each client (--nats-ca, --nats-cert, --nats-key).
#tls {
#  cert_file: /etc/toolfleet/nats/server.pem
#  key_file: /etc/toolfleet/nats/server.key
#  ca_file: /etc/toolfleet/nats/authority.pem
#  verify: true
#}

# Arguments are at most 256 KiB, of a model 1 MiB; an answer is as large as a manifest's `output_limit`, at most 8 MiB.
# A result that does not fit is answered without its body, which stays readable in Postgres.
max_payload: 8MB
# What the server keeps for a client that does not read, before it cuts that client off; the default of 64 MB lets sixty
# connections of one user take 4 GB. Not below max_payload. A user of the fleet's account has no bound of connections: the server
# knows one for accounts alone (`toolfleet nats-config` writes it for tenants with an account of their own) and for all together.
max_pending: 32MB
max_connections: 4096
# Notice a vanished process sooner than the two minutes of the default.
ping_interval: 20s
ping_max: 3

jetstream {
  store_dir: /var/lib/nats
  # The stream holds pointers to what may run now, not the backlog: that is in Postgres.
  max_file_store: 10GB
  max_memory_store: 256MB
  # Nothing depends on JetStream's disk: whatever it loses, the sweep publishes again.
  # `always` costs a factor of 45 on a single server and little on three (2.15 and newer).
  sync_interval: 10s
}

include ./users.conf
"#;

const HEAD: &str = "\
# Written by `toolfleet nats-config`, which writes it anew: change the command instead.
#
# Each user may do what its role needs and nothing else. Answers go to inboxes within these lasting rights: what
# `allow_responses` gives for a request is gone with the connection, and only services have it. No agent may publish in the API
# of JetStream: the server itself sends what that answers, to any subject that the question names, and asks for no permission.

include ./secrets.conf
";

/// The accounts and users.
pub(super) fn users(roster: &Roster, kind: Kind) -> String {
    let mut text = format!("{HEAD}\naccounts {{\n  {FLEET} {{\n    jetstream: enabled\n");
    if !roster.accounts.is_empty() {
        text.push_str(
            "    # What tenants with an account of their own reach of this one.\n    exports: [\n",
        );
        for account in &roster.accounts {
            let name = name_of(account);
            for subject in asked(roster, account) {
                line(
                    &mut text,
                    &format!(
                        "      {{ service: \"{subject}\", accounts: [\"{name}\"], threshold: \"{ANSWER_MAX}\" }}"
                    ),
                );
            }
            let events = roster.subjects.events_of_tenant(&account.tenant);
            line(
                &mut text,
                &format!("      {{ stream: \"{events}\", accounts: [\"{name}\"] }}"),
            );
        }
        text.push_str("    ]\n");
    }
    text.push_str("    users: [\n");
    for user in roster.of_the_fleet() {
        one(&mut text, user, kind);
    }
    text.push_str("    ]\n  }\n");
    for account in &roster.accounts {
        own(&mut text, roster, account, kind);
    }
    text.push_str("}\n");
    text
}

/// The account of one tenant.
fn own(text: &mut String, roster: &Roster, account: &Account, kind: Kind) {
    line(text, &format!("  \"{}\" {{", name_of(account)));
    let payload = if account.is_large {
        String::new()
    } else {
        format!("max_payload: {PAYLOAD}, ")
    };
    line(
        text,
        &format!(
            "    limits: {{ {payload}max_connections: {CONNECTIONS}, max_subscriptions: {SUBSCRIPTIONS} }}"
        ),
    );
    text.push_str("    imports: [\n");
    for subject in asked(roster, account) {
        line(
            text,
            &format!("      {{ service: {{ account: \"{FLEET}\", subject: \"{subject}\" }} }}"),
        );
    }
    let events = roster.subjects.events_of_tenant(&account.tenant);
    line(
        text,
        &format!("      {{ stream: {{ account: \"{FLEET}\", subject: \"{events}\" }} }}"),
    );
    text.push_str("    ]\n    users: [\n");
    if let Some(user) = roster.agent_of(&account.tenant) {
        one(text, user, kind);
    }
    text.push_str("    ]\n  }\n");
}

fn name_of(account: &Account) -> String {
    format!("tenant-{}", account.tenant)
}

/// What a tenant asks: the subjects that its agent may publish to.
fn asked<'a>(roster: &'a Roster, account: &Account) -> &'a [String] {
    let user = roster.agent_of(&account.tenant);
    user.map_or(&[], |user| user.rights.publish.as_slice())
}

fn one(text: &mut String, user: &User, kind: Kind) {
    let variable = kind.variable(&user.name);
    line(text, &format!("      # {}", user.about));
    line(
        text,
        &match kind {
            Kind::Password => format!("      {{ user: \"{}\", password: ${variable}", user.name),
            Kind::Nkey => format!("      {{ nkey: ${variable}"),
        },
    );
    text.push_str("        permissions: {\n");
    let Rights {
        publish,
        subscribe,
        answers,
    } = &user.rights;
    list(text, "publish", publish);
    list(text, "subscribe", subscribe);
    if *answers {
        line(
            text,
            &format!("          allow_responses: {{ max: 1, expires: \"{ANSWER_MAX}\" }}"),
        );
    }
    text.push_str("        }\n      }\n");
}

fn list(text: &mut String, verb: &str, subjects: &[String]) {
    if subjects.is_empty() {
        return;
    }
    line(text, &format!("          {verb}: {{ allow: ["));
    for subject in subjects {
        line(text, &format!("            \"{subject}\","));
    }
    text.push_str("          ] }\n");
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Where a user connects, with its password where it has one.
pub(super) fn url(user: &User, login: &UserSecret, url: &str) -> String {
    match login {
        UserSecret::Password(password) => {
            let (scheme, rest) = url.split_once("://").unwrap_or(("nats", url));
            format!("{scheme}://{}:{password}@{rest}", user.name)
        }
        UserSecret::Nkey { .. } => url.to_owned(),
    }
}

/// What programs of a user set. `url`: its URL, or `file:` and the path of the file with that.
pub(super) fn env(user: &User, login: &UserSecret, url: &str, key: &Path) -> String {
    let mut text = format!("# Written by `toolfleet nats-config`. {}\n", user.about);
    // Writing to a string cannot fail.
    let mut set = |name: &str, value: &dyn std::fmt::Display| {
        writeln!(text, "{name}={value}").unwrap_or_default();
    };
    set("NATS_URL", &url);
    if let UserSecret::Nkey { .. } = login {
        set("NATS_NKEY", &key.display());
    }
    set("NATS_INBOX", &user.inbox);
    if user.answers_callers {
        set("DISPATCHER_REPLIES", &REPLIES);
    }
    text
}
