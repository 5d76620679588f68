//! Who asks, and what they may.

use fleet::{
    ids::{Label, ToolName},
    wire::{code::Code, message::Message},
};

use super::{Scope, pattern::Pattern};
use crate::refusal::Refused;

/// Who asks, as a token says it.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    /// By which name the history knows it; `None` where nobody is asked for a token.
    pub(crate) name: Option<String>,
    /// For whom; `None`: for any tenant.
    pub(crate) tenant: Option<Label>,
    /// What it may do.
    pub(crate) scopes: Vec<Scope>,
    /// With which tools.
    pub(crate) tools: Vec<Pattern>,
}

impl Principal {
    /// Whoever reaches a gateway that asks for no token.
    pub(crate) fn anyone() -> Self {
        Self {
            name: None,
            tenant: None,
            scopes: Scope::ALL.to_vec(),
            tools: vec![Pattern::every()],
        }
    }

    /// Whether it may do one of these.
    ///
    /// # Errors
    ///
    /// `forbidden`.
    pub(crate) fn may(&self, one_of: &[Scope]) -> Result<(), Refused> {
        if one_of.iter().any(|scope| self.scopes.contains(scope)) {
            return Ok(());
        }
        let words: Vec<&str> = one_of.iter().map(|scope| scope.as_str()).collect();
        let (english, chinese) = (words.join(" or "), words.join(" 或 "));
        let what = Message::new(
            format!("the token has not the scope {english}"),
            format!("这个 token 没有权限 {chinese}"),
        );
        Err(Refused::new(Code::Forbidden, what))
    }

    /// Whether it may use this tool.
    pub(crate) fn may_use(&self, tool: &str) -> bool {
        self.tools.iter().any(|pattern| pattern.fits(tool))
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

    /// Whether it may use every tool there is.
    pub(crate) fn has_all_tools(&self) -> bool {
        self.tools.iter().any(Pattern::is_every)
    }

    /// The tenant of a request that names this one, or none: the token's own, else `default`.
    ///
    /// # Errors
    ///
    /// The token is another tenant's.
    pub(crate) fn tenant(&self, named: Option<Label>) -> Result<Label, Refused> {
        match (&self.tenant, named) {
            (Some(own), Some(named)) if *own != named => {
                let what = Message::fixed(
                    "the token is not for this tenant",
                    "这个 token 不能用于这个租户",
                );
                Err(Refused::new(Code::Forbidden, what))
            }
            (Some(own), _) => Ok(own.clone()),
            (None, Some(named)) => Ok(named),
            (None, None) => Ok("default".parse().expect("a tenant's name")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tenant: Option<&str>, scopes: &[Scope], tools: &[&str]) -> Principal {
        Principal {
            name: Some("n".to_owned()),
            tenant: tenant.map(|tenant| tenant.parse().unwrap()),
            scopes: scopes.to_vec(),
            tools: tools.iter().map(|tool| Pattern::new(tool)).collect(),
        }
    }

    #[test]
    fn a_token_is_for_its_tenant_or_for_the_one_that_is_named() {
        let label = |text: &str| Some(text.parse::<Label>().unwrap());
        let (own, any) = (of(Some("acme"), &[], &[]), of(None, &[], &[]));
        assert_eq!(own.tenant(None).unwrap().as_str(), "acme");
        assert_eq!(own.tenant(label("acme")).unwrap().as_str(), "acme");
        assert!(own.tenant(label("beta")).is_err());
        assert_eq!(any.tenant(None).unwrap().as_str(), "default");
        assert_eq!(any.tenant(label("beta")).unwrap().as_str(), "beta");
    }

    #[test]
    fn a_token_does_what_its_scopes_and_tools_say() {
        let reader = of(None, &[Scope::Read], &["get_*"]);
        assert!(reader.may(&[Scope::Call]).is_err());
        assert!(reader.may(&[Scope::Call, Scope::Read]).is_ok());
        assert!(reader.may_call(&"get_weather".parse().unwrap()).is_ok());
        assert!(reader.may_call(&"charge".parse().unwrap()).is_err());
        assert!(!reader.has_all_tools() && Principal::anyone().has_all_tools());
    }
}
