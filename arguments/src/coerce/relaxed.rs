//! JSON as people and programs write it loosely: in a code fence, as JSON5, as a literal of Python.
//!
//! The text is only rewritten, token by token, and then read by the strict parser under its limits. A text without one meaning
//! in all of these languages is given up: hexadecimal numbers, tuples, bare words, unfinished text.

/// The same text as JSON, if every token of it has a JSON form.
pub(super) fn to_json(text: &str) -> Option<String> {
    let mut respelling = Respelling {
        rest: without_fence(text.trim_ascii())?,
        json: String::with_capacity(text.len() + 16),
    };
    while respelling.token()? {}
    Some(respelling.json)
}

/// The content of a markdown code fence, if the whole text is one.
fn without_fence(text: &str) -> Option<&str> {
    let Some(fenced) = text.strip_prefix("```") else {
        return Some(text);
    };
    let (language, body) = fenced.split_once('\n')?;
    let language = language.trim_ascii().to_ascii_lowercase();
    matches!(
        language.as_str(),
        "" | "json" | "json5" | "jsonc" | "python"
    )
    .then_some(())?;
    let body = body.strip_suffix("```")?;
    (!body.contains("```")).then(|| body.trim_ascii())
}

struct Respelling<'t> {
    rest: &'t str,
    json: String,
}

impl Respelling<'_> {
    /// Rewrites the next token; `Some(false)` at the end, `None` if it has no JSON form.
    fn token(&mut self) -> Option<bool> {
        self.skip_space()?;
        let Some(first) = self.rest.bytes().next() else {
            return Some(false);
        };
        match first {
            b'{' | b'}' | b'[' | b']' | b':' => self.copy(1),
            b',' => self.comma()?,
            b'"' | b'\'' => self.string(first)?,
            b'-' | b'0'..=b'9' => self.number()?,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' => self.word()?,
            _no_token => return None,
        }
        Some(true)
    }

    fn copy(&mut self, length: usize) {
        let (token, rest) = self.rest.split_at(length);
        self.json.push_str(token);
        self.rest = rest;
    }

    /// Skips white space and comments.
    fn skip_space(&mut self) -> Option<()> {
        loop {
            self.rest = self.rest.trim_ascii_start();
            self.rest = if let Some(comment) = self.rest.strip_prefix("//") {
                &comment[comment.find('\n').unwrap_or(comment.len())..]
            } else if let Some(comment) = self.rest.strip_prefix("/*") {
                comment.split_once("*/")?.1
            } else {
                return Some(());
            };
        }
    }

    /// A comma after the last item or entry is dropped.
    fn comma(&mut self) -> Option<()> {
        let follows_value = !self.json.ends_with(['[', '{', ',', ':']);
        self.rest = &self.rest[1..];
        self.skip_space()?;
        if !(follows_value && self.rest.starts_with(['}', ']'])) {
            self.json.push(',');
        }
        Some(())
    }

    fn string(&mut self, quote: u8) -> Option<()> {
        self.copy_as("\"", 1);
        loop {
            let run = self
                .rest
                .bytes()
                .position(|byte| byte == quote || matches!(byte, b'\\' | b'"'))?;
            self.copy(run);
            match self.rest.as_bytes() {
                [b'\\', escaped, ..] => match escaped {
                    b'\'' => self.copy_as("'", 2),
                    // In Python `\/` is two characters.
                    b'/' if quote == b'\'' => return None,
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' | b'u' => self.copy(2),
                    _differs_between_languages => return None,
                },
                [closing, ..] if *closing == quote => {
                    self.copy_as("\"", 1);
                    return Some(());
                }
                [b'"', ..] => self.copy_as("\\\"", 1),
                _ends_in_an_escape => return None,
            }
        }
    }

    fn copy_as(&mut self, spelling: &str, length: usize) {
        self.json.push_str(spelling);
        self.rest = &self.rest[length..];
    }

    fn number(&mut self) -> Option<()> {
        let is_part = |c: char| matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E');
        // Two adjacent tokens must not become one.
        self.json.push(' ');
        self.copy(self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len()));
        let goes_on = self
            .rest
            .starts_with(|c: char| c.is_alphanumeric() || c == '_');
        (!goes_on).then_some(())
    }

    /// A key without quotes, or one of the words for true, false and null.
    fn word(&mut self) -> Option<()> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$');
        let (word, rest) = self
            .rest
            .split_at(self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len()));
        let literal = match word {
            "true" | "True" => Some("true"),
            "false" | "False" => Some("false"),
            "null" | "None" => Some("null"),
            _other => None,
        };
        self.rest = rest;
        self.skip_space()?;
        let is_key = self.rest.starts_with(':') && self.json.ends_with(['{', ',']);
        match literal {
            // In Python such a key is no string.
            Some(_) if is_key => None,
            Some(literal) => {
                self.json.push(' ');
                self.json.push_str(literal);
                Some(())
            }
            None if is_key => {
                self.json.extend(["\"", word, "\""]);
                Some(())
            }
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::{limits::Limits, parse::parse_any};

    fn read(text: &str) -> Option<Value> {
        parse_any(to_json(text)?.as_bytes(), &Limits::DEFAULT).ok()
    }

    #[test]
    fn it_reads_what_has_one_meaning() {
        let rows = [
            ("```json\n{\"a\": 1}\n```", r#"{"a":1}"#),
            ("  ```\n[1]\n```  ", "[1]"),
            ("```python\n{'a': True}\n```", r#"{"a":true}"#),
            (
                "{'a': True, 'b': False, 'c': None}",
                r#"{"a":true,"b":false,"c":null}"#,
            ),
            ("{a: 1, $b_2: true}", r#"{"$b_2":true,"a":1}"#),
            ("[1, 2,]", "[1,2]"),
            (
                "{\"a\": 1, // one\n \"b\": /* two */ 2, }",
                r#"{"a":1,"b":2}"#,
            ),
            ("[1] // done", "[1]"),
            (
                r#"['it\'s', "it's", 'say "hi"', "a\'b"]"#,
                r#"["it's","it's","say \"hi\"","a'b"]"#,
            ),
            (
                r"['a\nb', 'c\\d', '\u00e9', 'é 😀']",
                r#"["a\nb","c\\d","é","é 😀"]"#,
            ),
            (
                r#"["a // b", 'c, }', "d /* e */"]"#,
                r#"["a // b","c, }","d /* e */"]"#,
            ),
            (
                "[9007199254740993, 1.10, -0, 1E+2]",
                "[9007199254740993,1.10,-0,1E+2]",
            ),
            ("[[], {}, [{}, ], ]", "[[],{},[{}]]"),
        ];
        for (text, expected) in rows {
            let found = read(text).map(|value| value.to_string());
            assert_eq!(found.as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn it_gives_up_what_has_none_or_several() {
        let rows = [
            "",
            " ",
            "{'a': 1",
            "['a",
            "['a]",
            "[1, 2",
            "{\"a\": \"b",
            "[1, /* 2]",
            "```json\n{}",
            "```json\n{",
            "```json {} ```",
            "```\n[1]\n```\n```\n[2]\n```",
            "```yaml\n{}\n```",
            "Here: [1]",
            "[1] and more",
            "[0x10]",
            "[+1]",
            "[.5]",
            "[5.]",
            "[01]",
            "[1_000]",
            "[NaN]",
            "[Infinity]",
            "[-Infinity]",
            "[nan]",
            "(1, 2)",
            "[(1, 2)]",
            "{1, 2}",
            "{1: 2}",
            "{True: 1}",
            "{true: 1}",
            "{None: 1}",
            "[a]",
            "[yes]",
            "{a: b}",
            "['a' 'b']",
            "[b'a']",
            "[f'a']",
            "[1 2]",
            "[True False]",
            "[TrueFalse]",
            "[,]",
            "[1,,]",
            "{,}",
            "[,1]",
            "{a: 1, 'a': 2}",
            "{a:}",
            "{a}",
            "{:1}",
            r"['\x41']",
            r"['\d']",
            r"['\/']",
            "['a\nb']",
            "['a\\\nb']",
            r"['\u00e']",
            r"['\ud800']",
            r"['\u0000']",
            "[undefined]",
            "[1]#",
            "# a\n[1]",
            "[...]",
            "[1, …]",
            "{é: 1}",
            "[‘a’]",
            "[“a”]",
            "['it's']",
            "[1]\u{a0}",
            "\u{feff}[1]",
            "[tru]",
            "[nul]",
            "{a = 1}",
            "{'a' => 1}",
            "[None_]",
            "[1a]",
            "[1é]",
            "[--1]",
        ];
        for text in rows {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn strict_json_keeps_its_meaning(text in r#"[\[\]{}",:0-9a-e.\\u/ \-]{0,40}"#) {
            if let Ok(value) = parse_any(text.as_bytes(), &Limits::DEFAULT) {
                proptest::prop_assert_eq!(read(&text), Some(value));
            }
        }

        #[test]
        fn nothing_is_closed_that_was_cut(cut in 1_usize..60) {
            let whole = "{'a': [1, {b: \"c\"}], /* d */ 'e': 'f', g: True,}";
            let cut = whole.len().saturating_sub(cut);
            proptest::prop_assert_eq!(read(&whole[..cut]), None);
        }
    }
}
