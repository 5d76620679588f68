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

    /// The language that it asks for, if that can be read, whatever else is wrong with the request.
    pub(crate) fn language(&self) -> Option<Language> {
        RequestHeaders::language_of(&self.headers)
    }
}

const BAD_TENANT: Message = Message::fixed(
    "a tenant has 1 to 64 characters of A-Z, a-z, 0-9, _ and -",
    "租户名必须是 1 到 64 个字符，只能用 A-Z、a-z、0-9、_ 和 -",
);
pub(crate) const BAD_TOOL_NAME: Message = Message::fixed(
    "a tool name has 1 to 64 characters of a-z, 0-9 and _",
    "工具名必须是 1 到 64 个字符，只能用 a-z、0-9 和 _",
);
