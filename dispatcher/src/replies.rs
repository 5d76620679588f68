//! Where callers may be answered. An answer is published with the dispatcher's rights, on a subject that its caller chose: one
//! that may not be named could be a tool's, another tenant's inbox, or the fleet's own.

use std::str::FromStr;

use fleet::wire::subjects::{Subjects, is_literal};

/// Beginnings of the subjects on which callers are answered: `_INBOX.{tenant}.,_INBOX_operator.`.
///
/// Each ends with a dot, so that one does not begin another's token. `{tenant}` is the tenant that the request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replies(Vec<Beginning>);

/// One of them, as it stands around the tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Beginning {
    head: String,
    /// What stands behind `{tenant}`, where that is part of it.
    tail: Option<String>,
}

/// Why it is not a list of such beginnings.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadReplies {
    /// None is named, so no caller could be answered.
    #[error("name at least one beginning, such as _INBOX.")]
    Empty,
    /// It ends within a token.
    #[error("{0:?} has to end with a dot: it would be the beginning of other tokens too")]
    NoDot(String),
    /// It is no subject, or the server's.
    #[error(
        "{0:?} is not the beginning of a caller's subject: no wildcards, no $, and {{tenant}} once and as a whole token"
    )]
    Form(String),
}

const TENANT: &str = "{tenant}";

impl FromStr for Replies {
    type Err = BadReplies;

    fn from_str(text: &str) -> Result<Self, BadReplies> {
        let parts = text.split(',').map(str::trim).filter(|one| !one.is_empty());
        let beginnings = parts.map(Beginning::read).collect::<Result<Vec<_>, _>>()?;
        if beginnings.is_empty() {
            return Err(BadReplies::Empty);
        }
        Ok(Self(beginnings))
    }
}

impl Beginning {
    fn read(text: &str) -> Result<Self, BadReplies> {
        let Some(tokens) = text.strip_suffix('.') else {
            return Err(BadReplies::NoDot(text.to_owned()));
        };
        let stray = |token: &str| token.contains(['{', '}']) && token != TENANT;
        let tenants = tokens.split('.').filter(|token| *token == TENANT).count();
        let fits = is_literal(tokens) && !tokens.starts_with('$');
        if !fits || tokens.split('.').any(stray) || tenants > 1 {
            return Err(BadReplies::Form(text.to_owned()));
        }
        Ok(match text.split_once(TENANT) {
            Some((head, tail)) => Self {
                head: head.to_owned(),
                tail: Some(tail.to_owned()),
            },
            None => Self {
                head: text.to_owned(),
                tail: None,
            },
        })
    }

    fn begins(&self, reply: &str, tenant: &str) -> bool {
        let Some(rest) = reply.strip_prefix(self.head.as_str()) else {
            return false;
        };
        let rest = match &self.tail {
            None => Some(rest),
            Some(tail) => rest
                .strip_prefix(tenant)
                .and_then(|rest| rest.strip_prefix(tail.as_str())),
        };
        rest.is_some_and(|rest| !rest.is_empty())
    }
}

impl Replies {
    /// Far more than any inbox has, and less than makes a line that nats-server would not take from us.
    const BYTES_MAX: usize = 1024;

    /// Whether the caller who asked for this tenant may be answered there.
    pub(crate) fn allow(&self, subjects: &Subjects, tenant: &str, reply: &str) -> bool {
        let is_a_subject = reply.len() <= Self::BYTES_MAX && is_literal(reply);
        // Whatever the setting says: what the fleet itself listens on is no caller's.
        is_a_subject
            && !subjects.is_own(reply)
            && !tenant.is_empty()
            && self.0.iter().any(|one| one.begins(reply, tenant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIPPED: &str = "_INBOX.{tenant}., _INBOX_operator.,_INBOX_service.,_INBOX_gateway.,_R_.";

    fn allows(replies: &str, tenant: &str, reply: &str) -> bool {
        let subjects = Subjects::new("toolfleet".parse().unwrap());
        let replies: Replies = replies.parse().unwrap();
        replies.allow(&subjects, tenant, reply)
    }

    #[test]
    fn callers_are_answered_in_their_own_inboxes() {
        assert!(allows("_INBOX.", "acme", "_INBOX.a1B2.c3"));
        for reply in [
            "_INBOX.acme.a1B2.c3",
            "_INBOX_operator.a1B2.c3",
            "_INBOX_gateway.x",
            "_R_.a.b",
        ] {
            assert!(allows(SHIPPED, "acme", reply), "{reply}");
        }
    }

    #[test]
    fn nobody_else_is_answered() {
        for reply in [
            "_INBOX.beta.a1B2.c3",
            "_INBOX.acme2.x",
            "_INBOX.acme",
            "_INBOX.acme.",
            "_INBOX.a1B2.c3",
            "_INBOX_operator",
            "_INBOX_operators.x",
            "_inbox.acme.x",
            "tools.charge",
            "toolfleet.jobs.default.x.1",
            "toolfleet",
            "$JS.API.STREAM.DELETE.TOOLFLEET_JOBS",
            "$SRV.PING",
            "$SYS.REQ.SERVER.PING",
            "_INBOX.acme.*",
            "_INBOX.acme.>",
            "_INBOX.*.x",
            "_INBOX.>",
            ">",
            "_INBOX.acme..x",
            "_INBOX.acme.a b",
            "_INBOX.acme.a\r\nPUB tools.charge 2",
            "_INBOX.acme.a\u{a0}b",
            "_INBOX.acme.a\u{fffd}b",
            "",
        ] {
            assert!(!allows(SHIPPED, "acme", reply), "{reply:?}");
        }
        for tenant in ["*", ">", "", "a.b", "operator", "acme.x"] {
            assert!(!allows(SHIPPED, tenant, "_INBOX.acme.x"), "{tenant:?}");
        }
        let long = format!("_INBOX.acme.{}", "x".repeat(Replies::BYTES_MAX));
        assert!(!allows(SHIPPED, "acme", &long));
    }

    #[test]
    fn the_fleets_own_subjects_are_nobodys_inbox() {
        assert!(!allows("toolfleet.", "acme", "toolfleet.jobs.default.x.1"));
        assert!(allows("toolfleet2.", "acme", "toolfleet2.inbox"));
    }

    #[test]
    fn a_list_that_says_too_much_or_too_little_is_refused() {
        let refused = |text: &str| text.parse::<Replies>().unwrap_err();
        assert_eq!(refused(" , "), BadReplies::Empty);
        assert_eq!(refused("_INBOX"), BadReplies::NoDot("_INBOX".to_owned()));
        for form in [
            ".",
            "*.",
            ">.",
            "_INBOX.*.",
            "$JS.",
            "a..b.",
            "_INBOX.{tenants}.",
            "_INBOX.x{tenant}.",
            "{tenant}.{tenant}.",
            "a b.",
        ] {
            assert_eq!(refused(form), BadReplies::Form(form.to_owned()), "{form}");
        }
    }
}
