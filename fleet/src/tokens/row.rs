//! What a token allows. Pure.

use time::OffsetDateTime;

use crate::{
    call::words,
    ids::{Label, ToolName},
};

words! {
    /// What a token is good for.
    Scope {
        /// Submit calls, cancel them, hand in what they wait for as their caller.
        Call = "call",
        /// Read calls and their history.
        Read = "read",
        /// Say yes or no to calls that wait for it.
        Approve = "approve",
        /// Say what became of a call in doubt.
        Settle = "settle",
        /// Set controls and take them away.
        Admin = "admin",
    }
}

/// A token that holds: neither revoked nor expired.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// Its id, the second part of its text.
    pub token_id: String,
    /// Whose it is: the actor of what is decided with it, and the principal of its calls.
    pub name: String,
    /// SHA-256 of its secret.
    pub hash: [u8; 32],
    /// Its tenant; `None`: every tenant.
    pub tenant: Option<Label>,
    /// What it is good for.
    pub scopes: Vec<Scope>,
    /// The tools that it may call: names in which `*` stands for any letters. At least one.
    pub tools: Vec<String>,
    /// When it is over by itself.
    pub expires_at: Option<OffsetDateTime>,
}

/// All tokens that held at a moment.
#[derive(Debug, Clone)]
pub struct LiveTokens {
    /// The tokens.
    pub rows: Vec<TokenRow>,
    /// That moment, by the clock of the ledger.
    pub at: OffsetDateTime,
}

impl TokenRow {
    /// Whether it is good for that.
    pub fn has(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope)
    }

    /// Whether it is of this tenant, or of all.
    pub fn is_of(&self, tenant: &Label) -> bool {
        self.tenant.as_ref().is_none_or(|own| own == tenant)
    }

    /// Whether one of its patterns fits this tool.
    pub fn covers(&self, tool: &ToolName) -> bool {
        self.tools
            .iter()
            .any(|pattern| fits(pattern, tool.as_str()))
    }

    /// The same patterns for `LIKE` of SQL.
    pub fn tools_like(&self) -> Vec<String> {
        let patterns = self.tools.iter();
        let like = |pattern: &String| pattern.replace('_', "\\_").replace('*', "%");
        patterns.map(like).collect()
    }
}

/// Without the hash: it is no secret, but nobody needs it in a log.
impl std::fmt::Debug for TokenRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenant = self.tenant.as_ref().map_or("*", Label::as_str);
        f.debug_struct("TokenRow")
            .field("token_id", &self.token_id)
            .field("name", &self.name)
            .field("tenant", &tenant)
            .field("scopes", &self.scopes)
            .field("tools", &self.tools)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// Whether a text may stand among the tools of a token: letters of a tool's name, and `*`. The ledger says the same.
pub fn is_pattern(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'*'))
}

/// Whether the name is the pattern, with any letters, or none, for each `*`. Takes the first place for each piece in between, which leaves
/// the most for those behind it; so it never goes back.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((begins, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let (between, ends) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inner = name
        .strip_prefix(begins)
        .and_then(|name| name.strip_suffix(ends));
    let Some(mut inner) = inner else {
        return false;
    };
    for piece in between.split('*') {
        let Some(at) = inner.find(piece) else {
            return false;
        };
        inner = &inner[at + piece.len()..];
    }
    true
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A token of all tenants, for calls of any tool.
    pub(in crate::tokens) fn row(token_id: &str, hash: [u8; 32]) -> TokenRow {
        TokenRow {
            token_id: token_id.to_owned(),
            name: "ann".to_owned(),
            hash,
            tenant: None,
            scopes: vec![Scope::Call],
            tools: vec!["*".to_owned()],
            expires_at: None,
        }
    }

    #[test]
    fn a_star_stands_for_any_letters_and_nothing_else_does() {
        for (pattern, fit, unfit) in [
            ("*", &["a", "get_weather", "x"][..], &[][..]),
            ("pay", &["pay"], &["pays", "repay", "pa"]),
            (
                "pay_*",
                &["pay_", "pay_out", "pay_pay_"],
                &["pay", "repay_x"],
            ),
            ("*_read", &["_read", "file_read"], &["read", "file_reads"]),
            (
                "a*b*c",
                &["abc", "a1b2c", "abbc", "abcbc"],
                &["ac", "acb", "ab"],
            ),
            ("a*a", &["aa", "aba"], &["a"]),
            ("a**b", &["ab", "axxb"], &["a", "b"]),
            ("*x*", &["x", "axb"], &["a"]),
        ] {
            for name in fit {
                assert!(fits(pattern, name), "{pattern} {name}");
            }
            for name in unfit {
                assert!(!fits(pattern, name), "{pattern} {name}");
            }
        }
    }

    #[test]
    fn a_token_is_of_its_tenant_its_scopes_and_its_tools() {
        let label = |text: &str| text.parse::<Label>().unwrap();
        let of_all = row("a", [0; 32]);
        let narrow = TokenRow {
            tenant: Some(label("acme")),
            scopes: vec![Scope::Read, Scope::Approve],
            tools: vec!["pay_*".to_owned(), "look_up".to_owned()],
            ..of_all.clone()
        };
        assert!(of_all.is_of(&label("acme")) && of_all.is_of(&label("beta")));
        assert!(narrow.is_of(&label("acme")) && !narrow.is_of(&label("Acme")));
        assert!(narrow.has(Scope::Approve) && !narrow.has(Scope::Call));
        for (tool, may) in [("pay_out", true), ("look_up", true), ("look", false)] {
            assert_eq!(narrow.covers(&tool.parse().unwrap()), may, "{tool}");
        }
        assert_eq!(narrow.tools_like(), ["pay\\_%", "look\\_up"]);
        let none = TokenRow {
            tools: Vec::new(),
            ..of_all
        };
        assert!(!none.covers(&"look_up".parse().unwrap()));
    }

    #[test]
    fn a_pattern_has_the_letters_of_tools() {
        for text in ["*", "a", "pay_*", &"a".repeat(64)] {
            assert!(is_pattern(text), "{text}");
        }
        for text in ["", "Pay", "a-b", "a.b", "a,b", "a b", "?", &"a".repeat(65)] {
            assert!(!is_pattern(text), "{text}");
        }
    }
}
