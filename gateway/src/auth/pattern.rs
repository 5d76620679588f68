//! A pattern of tools' names: `*` stands for any characters, also none.

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(String);

impl Pattern {
    /// From its text.
    pub(crate) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Every tool.
    pub(crate) fn every() -> Self {
        Self("*".to_owned())
    }

    /// Whether it is for every tool.
    pub(crate) fn is_every(&self) -> bool {
        !self.0.is_empty() && self.0.bytes().all(|byte| byte == b'*')
    }

    /// Whether the name is one of those that it stands for.
    pub(crate) fn fits(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let head = parts.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(head) else {
            return false;
        };
        let Some(tail) = parts.next_back() else {
            return rest.is_empty();
        };
        // The earliest place for each part leaves the most for those behind it.
        for part in parts {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, fitting, others) in [
            ("*", vec!["", "a", "get_weather"], vec![]),
            ("get_*", vec!["get_", "get_x"], vec!["get", "forget_x"]),
            (
                "*_card",
                vec!["charge_card", "_card"],
                vec!["card", "a_cards"],
            ),
            (
                "a*b*c",
                vec!["abc", "axbxc", "abbc"],
                vec!["ab", "acb", "xabc"],
            ),
            ("charge", vec!["charge"], vec!["charges", "charg", ""]),
            ("ab*ba", vec!["abba", "ab_ba"], vec!["aba"]),
            ("", vec![""], vec!["a"]),
        ] {
            let pattern = Pattern::new(pattern);
            assert!(fitting.iter().all(|name| pattern.fits(name)), "{pattern:?}");
            assert!(!others.iter().any(|name| pattern.fits(name)), "{pattern:?}");
        }
        assert!(Pattern::every().is_every() && Pattern::new("**").is_every());
        assert!(!Pattern::new("").is_every() && !Pattern::new("a*").is_every());
    }
}
