//! Reads PostgreSQL text into words, placeholders and symbols, by the rules of its own scanner.
//!
//! Strings and comments are dropped, so nothing inside them is taken for code. It assumes `standard_conforming_strings`, which
//! every session of ours switches on.

use std::ops::Range;

/// A piece of a statement, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) place: Range<usize>,
}

/// The kind of a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A keyword or a name, in small letters as the server reads it.
    Word(String),
    /// A name in double quotes, without them.
    Quoted(String),
    /// `$1`, or `None` if the number is absurd.
    Placeholder(Option<u32>),
    /// A string of any kind.
    Text,
    /// A number.
    Number,
    /// One character of punctuation or of an operator.
    Symbol(u8),
}

/// Every piece of a statement, in order; or a sentence that says why it cannot be read.
pub(super) fn tokens(statement: &str) -> Result<Vec<Token>, &'static str> {
    if statement.contains('\0') {
        return Err("a statement holds no NUL character; take it out");
    }
    let mut reader = Reader {
        text: statement,
        at: 0,
    };
    let mut tokens = Vec::new();
    loop {
        reader.skip_blank()?;
        let from = reader.at;
        let Some(byte) = reader.peek(0) else {
            return Ok(tokens);
        };
        let kind = reader.read(byte)?;
        let place = from..reader.at;
        tokens.push(Token { kind, place });
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// White space and comments; comments nest.
    fn skip_blank(&mut self) -> Result<(), &'static str> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c), _) => self.at += 1,
                (Some(b'-'), Some(b'-')) => {
                    self.at += self.rest().find(['\n', '\r']).unwrap_or(self.rest().len());
                }
                (Some(b'/'), Some(b'*')) => self.skip_comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn skip_comment(&mut self) -> Result<(), &'static str> {
        let mut depth = 0_usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'/'), Some(b'*')) => {
                    depth += 1;
                    self.at += 2;
                }
                (Some(b'*'), Some(b'/')) => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                (Some(_), _) => self.at += 1,
                (None, _) => return Err("a comment does not end; close it with */"),
            }
        }
    }

    fn read(&mut self, byte: u8) -> Result<TokenKind, &'static str> {
        let next = self.peek(1);
        let quote = next == Some(b'\'');
        match byte {
            b'\'' => self.text(1, Escapes::None),
            b'e' | b'E' if quote => self.text(2, Escapes::Backslash),
            b'b' | b'B' | b'x' | b'X' | b'n' | b'N' if quote => self.text(2, Escapes::None),
            b'u' | b'U' if next == Some(b'&') && matches!(self.peek(2), Some(b'\'' | b'"')) => {
                Err("U& hides what a name or a text says; write the characters themselves")
            }
            b'"' => self.quoted(),
            b'$' => self.dollar(),
            b'0'..=b'9' => Ok(self.number()),
            b'.' if next.is_some_and(|next| next.is_ascii_digit()) => Ok(self.number()),
            _ if starts_word(byte) => {
                let word = self.take(continues_word);
                Ok(TokenKind::Word(word.to_ascii_lowercase()))
            }
            _ => {
                self.at += 1;
                Ok(TokenKind::Symbol(byte))
            }
        }
    }

    fn take(&mut self, belongs: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.bytes().position(|byte| !belongs(byte));
        let (taken, _) = rest.split_at(end.unwrap_or(rest.len()));
        self.at += taken.len();
        taken
    }

    fn text(&mut self, opening: usize, escapes: Escapes) -> Result<TokenKind, &'static str> {
        self.at += opening;
        loop {
            match self.peek(0) {
                Some(b'\'') if self.peek(1) == Some(b'\'') => self.at += 2,
                Some(b'\'') => {
                    self.at += 1;
                    return Ok(TokenKind::Text);
                }
                Some(b'\\') if matches!(escapes, Escapes::Backslash) => self.at += 2,
                Some(_) => self.at += 1,
                None => return Err("a text does not end; close it with '"),
            }
        }
    }

    fn quoted(&mut self) -> Result<TokenKind, &'static str> {
        self.at += 1;
        let from = self.at;
        loop {
            match self.peek(0) {
                Some(b'"') if self.peek(1) == Some(b'"') => self.at += 2,
                Some(b'"') => {
                    let name = self.text[from..self.at].replace("\"\"", "\"");
                    self.at += 1;
                    return Ok(TokenKind::Quoted(name));
                }
                Some(_) => self.at += 1,
                None => return Err("a name does not end; close it with \""),
            }
        }
    }

    /// `$1`, `$$…$$` or `$tag$…$tag$`; else a symbol.
    fn dollar(&mut self) -> Result<TokenKind, &'static str> {
        let from = self.at;
        self.at += 1;
        let digits = self.take(|byte| byte.is_ascii_digit());
        if !digits.is_empty() {
            return Ok(TokenKind::Placeholder(digits.parse().ok()));
        }
        if self
            .peek(0)
            .is_some_and(|byte| starts_word(byte) || byte == b'$')
        {
            self.take(|byte| continues_word(byte) && byte != b'$');
        }
        if self.peek(0) != Some(b'$') {
            self.at = from + 1;
            return Ok(TokenKind::Symbol(b'$'));
        }
        self.at += 1;
        let tag = &self.text[from..self.at];
        let Some(length) = self.rest().find(tag) else {
            return Err("a text in dollar quotes does not end; repeat its opening quote");
        };
        self.at += length + tag.len();
        Ok(TokenKind::Text)
    }

    /// Where the server stops reading a number, only a number or a word could follow without space, and it takes neither.
    fn number(&mut self) -> TokenKind {
        self.take(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.');
        TokenKind::Number
    }
}

#[derive(Clone, Copy)]
enum Escapes {
    None,
    Backslash,
}

fn starts_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || !byte.is_ascii()
}

fn continues_word(byte: u8) -> bool {
    starts_word(byte) || byte.is_ascii_digit() || byte == b'$'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(statement: &str) -> String {
        let tokens = tokens(statement).unwrap();
        let shown = tokens.iter().map(|token| match &token.kind {
            TokenKind::Word(word) => word.clone(),
            TokenKind::Quoted(name) => format!("\"{name}\""),
            TokenKind::Placeholder(number) => format!("${}", number.unwrap_or(0)),
            TokenKind::Text => "'".to_owned(),
            TokenKind::Number => "0".to_owned(),
            TokenKind::Symbol(symbol) => char::from(*symbol).to_string(),
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_texts_hide_what_they_hold() {
        for (statement, read) in [
            ("SELECT 'a;b' -- ; $1\n, $2", "select ' , $2"),
            ("a /* ; /* ; */ $1 */ b", "a b"),
            (r"E'\'; $1' x", "' x"),
            (r"'\' ; x", "' ; x"),
            ("'it''s;' y", "' y"),
            ("$$ ; $1 $$ z", "' z"),
            ("$a$ ; $$ $b$ $a$ z", "' z"),
            ("$é$ ; $é$ z", "' z"),
            ("\"a;\"\"b\".c", "\"a;\"b\" . c"),
            ("a$1 $2a", "a$1 $2 a"),
            ("1.5e10 .5 1..2 x1", "0 0 0 x1"),
            ("a+--b\nc", "a + c"),
            ("a/*x*/b", "a b"),
            ("n'x' b'1' X'f' e", "' ' ' e"),
            ("GROß", "groß"),
            ("$ x", "$ x"),
            ("$99999999999", "$0"),
        ] {
            assert_eq!(words(statement), read, "{statement}");
        }
    }

    #[test]
    fn what_does_not_end_or_hides_is_refused() {
        for statement in [
            "/* x",
            "/* /* */ x",
            "'x",
            "e'x\\'",
            "\"x",
            "$$ x",
            "$a$ x $b$",
            "U&'x'",
            "u&\"x\"",
            "a\0b",
        ] {
            assert!(tokens(statement).is_err(), "{statement}");
        }
    }
}
