//! What an item shows of the arguments of its call. What is not there, or of another type, is not shown.

use serde_json::Value;

/// The arguments of a call, taken apart.
#[derive(Debug)]
pub(super) struct ShownArguments(Value);

/// What a search of the web does.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WebAction<'a> {
    Search { queries: Vec<&'a str> },
    OpenPage { url: &'a str },
    FindInPage { url: &'a str, pattern: &'a str },
}

impl ShownArguments {
    /// Those of this JSON text; none, where it is no JSON.
    pub(super) fn read(json: &str) -> Self {
        Self(serde_json::from_str(json).unwrap_or_default())
    }

    /// What is searched for: `queries`, or `query`.
    pub(super) fn queries(&self) -> Vec<&str> {
        self.texts("queries", "query")
    }

    /// What is done on the web: by `url` and `pattern`, by `url`, or by what is searched for.
    pub(super) fn web_action(&self) -> WebAction<'_> {
        let queries = self.queries();
        match (self.text("url"), self.text("pattern")) {
            (Some(url), Some(pattern)) => WebAction::FindInPage { url, pattern },
            (Some(url), None) if queries.is_empty() => WebAction::OpenPage { url },
            (_, _) => WebAction::Search { queries },
        }
    }

    /// What code is run.
    pub(super) fn code(&self) -> Option<&str> {
        self.text("code")
    }

    /// The commands for a shell: `commands`, or `command`, which may be a list of words.
    pub(super) fn commands(&self) -> Vec<String> {
        if let Some(Value::Array(_)) = self.0.get("command") {
            return vec![self.texts("command", "").join(" ")];
        }
        let commands = self.texts("commands", "command");
        commands.into_iter().map(ToOwned::to_owned).collect()
    }

    /// The input of a custom tool: the text of its only argument.
    pub(super) fn only_text(&self) -> Option<&str> {
        let fields = self.0.as_object().filter(|fields| fields.len() == 1)?;
        fields.values().next()?.as_str()
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.0.get(field)?.as_str()
    }

    fn texts(&self, many: &str, one: &str) -> Vec<&str> {
        match self.0.get(many) {
            Some(Value::Array(texts)) => texts.iter().filter_map(Value::as_str).collect(),
            _other => self.text(one).into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> ShownArguments {
        ShownArguments::read(json)
    }

    #[test]
    fn what_is_there_is_shown_and_what_is_not_is_not() {
        assert_eq!(read(r#"{"queries":["a",1,"b"]}"#).queries(), ["a", "b"]);
        assert_eq!(read(r#"{"query":"a"}"#).queries(), ["a"]);
        assert_eq!(read("[1]").queries(), [""; 0]);
        assert_eq!(read("{").queries(), [""; 0]);
        assert_eq!(read(r#"{"command":["ls","-l"]}"#).commands(), ["ls -l"]);
        assert_eq!(read(r#"{"command":"ls"}"#).commands(), ["ls"]);
        assert_eq!(read(r#"{"commands":["a","b"]}"#).commands(), ["a", "b"]);
        assert_eq!(read(r#"{"x":"patch"}"#).only_text(), Some("patch"));
        assert_eq!(read(r#"{"x":"a","y":"b"}"#).only_text(), None);
        assert_eq!(read(r#"{"x":1}"#).only_text(), None);
        assert_eq!(read(r#"{"code":"1+1"}"#).code(), Some("1+1"));
    }

    #[test]
    fn a_page_is_opened_or_looked_through_where_its_address_is_given() {
        let url = "https://a.example";
        assert_eq!(
            read(r#"{"url":"https://a.example"}"#).web_action(),
            WebAction::OpenPage { url }
        );
        let pattern = "b";
        assert_eq!(
            read(r#"{"url":"https://a.example","pattern":"b"}"#).web_action(),
            WebAction::FindInPage { url, pattern }
        );
        let queries = vec!["q"];
        assert_eq!(
            read(r#"{"query":"q"}"#).web_action(),
            WebAction::Search { queries }
        );
    }
}
