//! Who connects: the users of a fleet, in the order in which they stand in the configuration.

use std::{collections::BTreeSet, str::FromStr};

use fleet::{
    bus::rights::{NatsRole, Rights},
    config::ConfigError,
    ids::{Label, Prefix, QueueName, ToolName},
    mcp,
    wire::subjects::Subjects,
};

/// The queues of one user, as `a+b`.
#[derive(Debug, Clone)]
pub(super) struct Queues(Vec<QueueName>);

impl FromStr for Queues {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let queues: Result<Vec<QueueName>, _> = text.split('+').map(str::parse).collect();
        queues.map(Self).map_err(|problem| problem.to_string())
    }
}

/// A program that serves tools over NATS: each as `TOOL` or `TOOL=SUBJECT`, joined by `+`.
#[derive(Debug, Clone)]
pub(super) struct Service {
    tools: Vec<String>,
    subjects: Vec<String>,
}

impl FromStr for Service {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut tools, mut subjects) = (Vec::new(), Vec::new());
        for one in text.split('+') {
            let (tool, subject) = match one.split_once('=') {
                Some((tool, subject)) => (tool, subject.to_owned()),
                None => (one, format!("tools.{one}")),
            };
            let tool: Result<ToolName, _> = tool.parse();
            tools.push(tool.map_err(|problem| problem.to_string())?.to_string());
            subjects.push(subject);
        }
        Ok(Self { tools, subjects })
    }
}

/// One user.
#[derive(Debug)]
pub(super) struct User {
    /// Its name, its file's, and its secret's.
    pub(super) name: String,
    /// What it is for, in a sentence.
    pub(super) about: String,
    /// What the inboxes of its programs begin with.
    pub(super) inbox: String,
    /// Whether it is told where callers are answered.
    pub(super) answers_callers: bool,
    /// Whether its programs are dispatchers or workers: their URL, with the password, is a file of its own.
    pub(super) is_process: bool,
    pub(super) rights: Rights,
}

/// A tenant with an account of its own.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) tenant: Label,
    /// Whether its messages may be as large as the server takes them.
    pub(super) is_large: bool,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Roster {
    pub(super) subjects: Subjects,
    pub(super) users: Vec<User>,
    pub(super) accounts: Vec<Account>,
}

impl Roster {
    /// The users for these tenants, queues and services.
    ///
    /// # Errors
    ///
    /// Something is named twice, or a tenant is set apart that is none.
    pub(super) fn new(
        prefix: Prefix,
        tenants: Vec<Label>,
        own_account: &[Label],
        large: &[Label],
        queues: Vec<Queues>,
        services: Vec<Service>,
    ) -> anyhow::Result<Self> {
        let subjects = Subjects::new(prefix);
        if tenants
            .iter()
            .any(|tenant| tenant.as_str() == mcp::OPERATORS)
        {
            return Err(wrong(format!(
                "--tenant names {}, in whose name operators ask; give the tenant another name",
                mcp::OPERATORS
            )));
        }
        for apart in own_account {
            if !tenants.contains(apart) {
                return Err(wrong(format!(
                    "--own-account names {apart}; name it in --tenant too"
                )));
            }
        }
        if let Some(other) = large.iter().find(|tenant| !own_account.contains(tenant)) {
            return Err(wrong(format!(
                "--large names {other}, which shares the fleet's account and its limits; name it in --own-account too"
            )));
        }
        let unfit = services
            .iter()
            .flat_map(|service| &service.subjects)
            .find(|subject| !subjects.is_for_tools(subject));
        if let Some(subject) = unfit {
            return Err(wrong(format!(
                "--service names the subject {subject:?}, which no tool may have"
            )));
        }
        let of_the_fleet: Vec<Label> = tenants
            .iter()
            .filter(|tenant| !own_account.contains(tenant))
            .cloned()
            .collect();
        let asked: Vec<String> = services
            .iter()
            .flat_map(|service| service.subjects.clone())
            .collect();
        let user = |name: String, about: String, role: NatsRole<'_>| {
            let inbox = role.inbox();
            User {
                rights: role.needs(&subjects, &inbox),
                answers_callers: matches!(role, NatsRole::Dispatcher { .. }),
                is_process: matches!(
                    role,
                    NatsRole::Dispatcher { .. } | NatsRole::Worker { .. } | NatsRole::Gateway
                ),
                name,
                about,
                inbox,
            }
        };
        let mut users = vec![user(
            "dispatcher".to_owned(),
            "Every dispatcher: hears callers, makes streams and consumers, answers.".to_owned(),
            NatsRole::Dispatcher {
                tenants: Some(&of_the_fleet),
            },
        )];
        for Queues(queues) in &queues {
            let role = NatsRole::Worker {
                queues,
                services: &asked,
            };
            let names: Vec<&str> = queues.iter().map(QueueName::as_str).collect();
            users.push(user(
                format!("worker-{}", names.join("+")),
                format!(
                    "The workers of {}: pull, report, ask services.",
                    names.join(" and ")
                ),
                role,
            ));
        }
        users.push(user(
            "operator".to_owned(),
            "A person with the commands `toolfleet` and `nats`: every tenant, doctor, settling."
                .to_owned(),
            NatsRole::Operator,
        ));
        users.push(user(
            "gateway".to_owned(),
            "Every gateway: asks dispatchers in the name of every tenant, as the tokens of its callers allow."
                .to_owned(),
            NatsRole::Gateway,
        ));
        for Service {
            tools,
            subjects: at,
        } in &services
        {
            users.push(user(
                format!("service-{}", tools.join("+")),
                format!(
                    "The service of {}: hears requests, answers each once.",
                    tools.join(" and ")
                ),
                NatsRole::Service { subjects: at },
            ));
        }
        for tenant in &tenants {
            users.push(user(
                format!("agent-{tenant}"),
                format!("The callers of the tenant {tenant}: nothing under `admin`, nothing of JetStream."),
                NatsRole::Agent { tenant },
            ));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = users.iter().find(|user| !seen.insert(user.name.as_str())) {
            return Err(wrong(format!("{} is named twice", twice.name)));
        }
        let accounts = tenants.into_iter().filter(|one| own_account.contains(one));
        let accounts = accounts
            .map(|tenant| Account {
                is_large: large.contains(&tenant),
                tenant,
            })
            .collect();
        Ok(Self {
            users,
            accounts,
            subjects,
        })
    }

    /// The users of the fleet's account.
    pub(super) fn of_the_fleet(&self) -> impl Iterator<Item = &User> {
        self.users.iter().filter(|user| {
            let of = |account: &Account| user.name == agent(&account.tenant);
            !self.accounts.iter().any(of)
        })
    }

    /// The user of a tenant.
    pub(super) fn agent_of(&self, tenant: &Label) -> Option<&User> {
        self.users.iter().find(|user| user.name == agent(tenant))
    }
}

fn agent(tenant: &Label) -> String {
    format!("agent-{tenant}")
}

/// A setting that cannot be used.
pub(super) fn wrong(what: String) -> anyhow::Error {
    ConfigError(vec![what]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_agent_is_of_the_tenant_of_operators() {
        let roster = |tenant: &str| {
            let tenants = vec![
                "acme".parse().expect("a tenant"),
                tenant.parse().expect("a tenant"),
            ];
            let prefix = "toolfleet".parse().expect("a prefix");
            Roster::new(prefix, tenants, &[], &[], Vec::new(), Vec::new())
        };
        assert!(roster("beta").is_ok());
        let refused = roster(mcp::OPERATORS).expect_err("it is the operators' own");
        assert!(refused.to_string().contains("_operator"), "{refused}");
    }
}
