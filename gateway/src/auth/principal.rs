//! Who asks, and what they may.

use std::sync::Arc;

use fleet::{
    ids::{Label, ToolName},
    mcp,
    tokens::{Scope, TokenRow},
    wire::{code::Code, message::Message},
};

use crate::refusal::Refused;

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) enum Principal {
    /// Whoever reaches a gateway that asks for no token: everything may be done.
    Anyone,
    /// Who has started a program that serves it and nobody else, by this name. What it may do NATS says.
    Named(Arc<str>),
    /// Who has this token.
    Token(Arc<TokenRow>),
}

impl Principal {
    /// By which name the history knows it; `None` where nobody is asked for a token.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Anyone => None,
            Self::Named(name) => Some(name),
            Self::Token(token) => Some(&token.name),
        }
    }

    /// By what it is told from others, as long as a gateway runs: the id of its token.
    pub(crate) fn token_id(&self) -> &str {
        match self {
            Self::Anyone => "",
            Self::Named(name) => name,
            Self::Token(token) => &token.token_id,
        }
    }

    /// Whether it may do one of these.
    ///
    /// # Errors
    ///
    /// `forbidden`.
    pub(crate) fn may(&self, one_of: &[Scope]) -> Result<(), Refused> {
        if self.has_one(one_of) {
            return Ok(());
        }
        let words: Vec<&str> = one_of.iter().map(|scope| scope.as_str()).collect();
        let (english, chinese) = (words.join(" or "), words.join(" 或 "));
        let what = Message::new(
            format!("the token does not have the scope {english}"),
            format!("这个 token 没有权限 {chinese}"),
        );
        Err(Refused::new(Code::Forbidden, what))
    }

    fn has_one(&self, of: &[Scope]) -> bool {
        match self {
            Self::Anyone | Self::Named(_) => true,
            Self::Token(token) => of.iter().any(|scope| token.has(*scope)),
        }
    }

    /// Whether a call of the tool of this name would be taken from it, whether there is one or not: who may look at calls alone may look at
    /// those of the tool, and makes none.
    pub(crate) fn makes_calls_of(&self, tool: &str) -> bool {
        self.has_one(&[Scope::Call]) && self.may_use(tool)
    }

    /// Whether it may use the tool of this name, whether there is one or not.
    pub(crate) fn may_use(&self, tool: &str) -> bool {
        match self {
            Self::Anyone | Self::Named(_) => true,
            Self::Token(token) => {
                let name: Option<ToolName> = tool.parse().ok();
                self.has_all_tools() || name.is_some_and(|name| token.covers(&name))
            }
        }
    }

    /// Whether it may call this tool.
    ///
    /// # Errors
    ///
    /// `forbidden`, whether the tool exists or not.
    pub(crate) fn may_call(&self, tool: &ToolName) -> Result<(), Refused> {
        if self.may_use(tool.as_str()) {
            return Ok(());
        }
        let what = Message::fixed(
            "the token is not for this tool",
            "这个 token 不能用于这个工具",
        );
        Err(Refused::new(Code::Forbidden, what).of_tool(tool.as_str()))
    }

    /// The tools that it may use, as patterns for `LIKE`; `None`: every tool.
    pub(crate) fn tools_like(&self) -> Option<Vec<String>> {
        match self {
            Self::Token(token) if !self.has_all_tools() => Some(token.tools_like()),
            Self::Anyone | Self::Named(_) | Self::Token(_) => None,
        }
    }

    /// Whether it may use every tool there is.
    pub(crate) fn has_all_tools(&self) -> bool {
        match self {
            Self::Anyone | Self::Named(_) => true,
            Self::Token(token) => token.tools.iter().any(|pattern| pattern == "*"),
        }
    }

    /// Whether it sees calls of this tenant where it looks so far: calls of operators are theirs, also where all are looked at.
    pub(crate) fn sees(&self, reached: Option<&Label>, tenant: &str) -> bool {
        match reached {
            Some(reached) => reached.as_str() == tenant,
            None => self.hidden_tenant() != Some(tenant),
        }
    }

    /// The tenant whose calls it does not see where it looks at all: that of operators, without the scope `admin`.
    pub(crate) fn hidden_tenant(&self) -> Option<&'static str> {
        (!self.has_one(&[Scope::Admin])).then_some(mcp::OPERATORS)
    }

    /// Whether there is no call that it may not see.
    pub(crate) fn sees_every_call(&self) -> bool {
        self.is_of_all_tenants() && self.has_all_tools() && self.hidden_tenant().is_none()
    }

    /// Whether it may look at every tenant.
    pub(crate) fn is_of_all_tenants(&self) -> bool {
        matches!(self.reach(None), Ok(None))
    }

    /// The tenant of a request that names this one, or none: the token's own, else `default`.
    ///
    /// # Errors
    ///
    /// The token is another tenant's.
    pub(crate) fn tenant(&self, named: Option<Label>) -> Result<Label, Refused> {
        let reached = self.reach(named)?;
        Ok(reached.unwrap_or_else(|| "default".parse().expect("a tenant's name")))
    }

    /// How far a request reaches that names this tenant, or none: to the token's own tenant, to the one that is named, else
    /// (`None`) to all.
    ///
    /// # Errors
    ///
    /// The token is another tenant's, or the tenant is that of operators and it has not the scope `admin`.
    pub(crate) fn reach(&self, named: Option<Label>) -> Result<Option<Label>, Refused> {
        let own = match self {
            Self::Anyone | Self::Named(_) => None,
            Self::Token(token) => token.tenant.as_ref(),
        };
        let reached = named.as_ref().or(own);
        if reached.is_some_and(|tenant| tenant.as_str() == mcp::OPERATORS) {
            self.may(&[Scope::Admin])?;
        }
        match (own, named) {
            (Some(own), Some(named)) if *own != named => {
                let what = Message::fixed(
                    "the token is not for this tenant",
                    "这个 token 不能用于这个租户",
                );
                Err(Refused::new(Code::Forbidden, what))
            }
            (Some(own), _) => Ok(Some(own.clone())),
            (None, named) => Ok(named),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tenant: Option<&str>, scopes: &[Scope], tools: &[&str]) -> Principal {
        Principal::Token(Arc::new(TokenRow {
            token_id: "x".to_owned(),
            name: "ann".to_owned(),
            hash: [0; 32],
            tenant: tenant.map(|tenant| tenant.parse().unwrap()),
            scopes: scopes.to_vec(),
            tools: tools.iter().map(ToString::to_string).collect(),
            expires_at: None,
        }))
    }

    #[test]
    fn a_token_is_for_its_tenant_or_for_the_one_that_is_named() {
        let label = |text: &str| Some(text.parse::<Label>().unwrap());
        let (own, any) = (of(Some("acme"), &[], &[]), of(None, &[], &[]));
        assert_eq!(own.tenant(None).unwrap().as_str(), "acme");
        assert_eq!(own.tenant(label("acme")).unwrap().as_str(), "acme");
        assert!(own.tenant(label("beta")).is_err());
        assert_eq!(own.reach(None).unwrap(), label("acme"));
        assert!(own.reach(label("beta")).is_err());
        for any in [any, Principal::Anyone] {
            assert_eq!(any.reach(None).unwrap(), None);
            assert_eq!(any.reach(label("beta")).unwrap(), label("beta"));
            assert_eq!(any.tenant(None).unwrap().as_str(), "default");
            assert_eq!(any.tenant(label("beta")).unwrap().as_str(), "beta");
        }
    }

    #[test]
    fn only_a_token_for_controls_is_for_the_tenant_of_operators() {
        let operators = Some(mcp::operators());
        for (own, named) in [(None, operators.clone()), (Some(mcp::OPERATORS), None)] {
            let others: Vec<Scope> = Scope::ALL
                .iter()
                .copied()
                .filter(|scope| *scope != Scope::Admin)
                .collect();
            assert!(of(own, &others, &["*"]).tenant(named.clone()).is_err());
            let admin = of(own, &[Scope::Admin], &["*"]).tenant(named.clone());
            assert_eq!(admin.unwrap(), mcp::operators());
        }
        assert!(
            of(Some("acme"), Scope::ALL, &["*"])
                .reach(operators.clone())
                .is_err()
        );
        assert_eq!(
            Principal::Anyone.reach(operators.clone()).unwrap(),
            operators
        );
    }

    #[test]
    fn a_token_does_what_its_scopes_and_tools_say() {
        let reader = of(None, &[Scope::Read], &["get_*"]);
        assert!(reader.may(&[Scope::Call]).is_err());
        assert!(reader.may(&[Scope::Call, Scope::Read]).is_ok());
        assert!(reader.may_call(&"get_weather".parse().unwrap()).is_ok());
        assert!(reader.may_call(&"charge".parse().unwrap()).is_err());
        let caller = of(None, &[Scope::Call], &["get_*"]);
        assert!(caller.makes_calls_of("get_weather") && !caller.makes_calls_of("charge"));
        assert!(!reader.makes_calls_of("get_weather"));
        assert!(Principal::Anyone.makes_calls_of("charge"));
        assert!(!reader.has_all_tools() && of(None, &[], &["*"]).has_all_tools());
        for odd in ["", "a.b", "get_\u{e9}"] {
            assert!(!reader.may_use(odd), "{odd}");
        }
        assert!(Principal::Anyone.may(&[Scope::Admin]).is_ok());
    }
}
