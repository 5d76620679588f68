//! A request: what a caller asks of the door, by whatever transport. The verb is the endpoint that heard it (`endpoints.rs`).
//! The service makes a request of a NATS message; another transport makes its own.
//!
//! The names are texts as the caller wrote them. The verb reads them in its own order, so that of several mistakes the same one
//! is reported by every transport.

use fleet::{
    call::Language,
    ids::{Label, ToolName},
    wire::{code::Code, headers::RequestHeaders, message::Message},
};

use crate::refusal::Refusal;

/// A request, borrowed from its transport.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// The caller's tenant.
    pub(crate) tenant: &'a str,
    /// The object of the verb: the tool of a `call`; empty where the verb takes no name.
    pub(crate) name: &'a str,
    /// Name and value of every header line, the value without space around it.
    pub(crate) headers: Vec<(&'a str, &'a str)>,
    pub(crate) body: &'a [u8],
    /// The first token of the subject on which the caller hears: the server let it listen there, so it tells operators from
    /// agents. `None` where the transport knows nothing of the kind.
    pub(crate) inbox: Option<&'a str>,
}

impl Request<'_> {
    /// Its tenant.
    ///
    /// # Errors
    ///
    /// `invalid_tenant`.
    pub(crate) fn tenant(&self) -> Result<Label, Refusal> {
        let tenant = self.tenant.parse();
        tenant.map_err(|_rule| Refusal::new(Code::InvalidTenant, BAD_TENANT))
    }

    /// The tool that it names.
    ///
    /// # Errors
    ///
    /// `invalid_tool_name`.
    pub(crate) fn tool(&self) -> Result<ToolName, Refusal> {
        let tool = self.name.parse();
        tool.map_err(|_rule| Refusal::new(Code::InvalidToolName, BAD_TOOL_NAME))
    }

    /// The request's headers.
    ///
    /// # Errors
    ///
    /// The first header that cannot be accepted.
    pub(crate) fn headers(&self) -> Result<RequestHeaders, Refusal> {
        let headers = RequestHeaders::read(&self.headers);
        headers.map_err(|bad| Refusal::new(bad.code, bad.message()))
    }

    /// The author of a decision, for the history: what was said, and last what is known, so that no name can pretend to it.
    pub(crate) fn author(&self, said: &str) -> String {
        let known: String = self.inbox.unwrap_or_default().chars().take(64).collect();
        // The ledger refuses these.
        let is_name = !said.trim().is_empty() && said.chars().count() <= AUTHOR_MAX;
        if known.is_empty() || !is_name {
            return said.to_owned();
        }
        let room = AUTHOR_MAX - known.chars().count() - " ()".len();
        let said: String = said.chars().take(room).collect();
        format!("{said} ({known})")
    }

    /// The language that it asks for, if that can be read, whatever else is wrong with the request.
    pub(crate) fn language(&self) -> Option<Language> {
        RequestHeaders::language_of(&self.headers)
    }
}

/// The most characters that an author may have in the ledger.
const AUTHOR_MAX: usize = 200;

const BAD_TENANT: Message = Message::fixed(
    "a tenant has 1 to 64 characters of A-Z, a-z, 0-9, _ and -",
    "租户名必须是 1 到 64 个字符，只能用 A-Z、a-z、0-9、_ 和 -",
);
pub(crate) const BAD_TOOL_NAME: Message = Message::fixed(
    "a tool name has 1 to 64 characters of a-z, 0-9 and _",
    "工具名必须是 1 到 64 个字符，只能用 a-z、0-9 和 _",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_author_ends_with_what_is_known_of_it() {
        let asked = |inbox| Request {
            tenant: "acme",
            name: "",
            headers: Vec::new(),
            body: b"",
            inbox,
        };
        let (operator, unknown) = (asked(Some("_INBOX_operator")), asked(None));
        assert_eq!(operator.author("ann"), "ann (_INBOX_operator)");
        let pretended = asked(Some("_INBOX")).author("ann (_INBOX_operator)");
        assert_eq!(pretended, "ann (_INBOX_operator) (_INBOX)");
        assert_eq!(unknown.author("ann"), "ann");
        // What the ledger refuses stays as it is.
        let long = "a".repeat(201);
        assert_eq!(
            (operator.author(" "), operator.author(&long)),
            (" ".into(), long.clone())
        );
        assert_eq!(operator.author(&long[1..]).chars().count(), 200);
    }
}
