//! Whether a SQL tool is one statement that a tool may run, and how its placeholders get their types.
//!
//! This is the first of three checks. It reads the text alone and gives the operator a sentence. The server's own grammar
//! (`PREPARE`) refuses the same and more before a statement first runs. And whatever a statement does, it does with the rights
//! of its role. A function of that database can still do all that its owner may: the text does not show that.

mod functions;
mod token;

use serde_json::Value;

use self::token::{Token, TokenKind};
use super::{
    executor::{RowBounds, SqlSpec},
    problem::Problems,
    request::{check_text, embedded, placeholder},
    version::Manifest,
};
use crate::{arguments::pointer_segment, call::Effect, secrets::Secrets};

/// What a statement may begin with.
const STARTS: [&str; 7] = [
    "select", "insert", "update", "delete", "merge", "values", "with",
];
const WRITES: [&str; 4] = ["insert", "update", "delete", "merge"];
/// The fleet's own schemas.
const OURS: [&str; 2] = ["toolfleet", "toolfleet_tool"];

/// Everything that is wrong with a statement and its parameters.
pub(super) fn check(spec: &SqlSpec, manifest: &Manifest, problems: &mut Problems) {
    let place = "/executor/sql/statement";
    match token::tokens(&spec.statement) {
        Ok(mut tokens) => {
            if tokens.last().is_some_and(|last| symbol(last) == Some(b';')) {
                tokens.pop();
            }
            let statement = Pieces { tokens };
            statement.check_kind(manifest.effect, |message| problems.add(place, message));
            statement.check_names(|message| problems.add(place, message));
            statement.check_placeholders(spec.params.len(), |message| problems.add(place, message));
        }
        Err(message) => problems.add(place, message),
    }
    if let Some(rows) = spec.rows {
        check_rows(rows, |message| problems.add("/executor/sql/rows", message));
    }
    for (index, param) in spec.params.iter().enumerate() {
        let path = format!("/executor/sql/params/{index}");
        match param {
            Value::String(text) => {
                check_text(&path, text, manifest, problems);
                if text.starts_with(Secrets::SCHEME) {
                    problems.add(
                        path,
                        "a secret stands only in database, as the URL; a parameter can be seen in the server's logs",
                    );
                }
            }
            Value::Array(_) | Value::Object(_) => check_literal(&path, param, manifest, problems),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// The schema checks already that each bound is at most [`SqlSpec::ROWS_MAX`].
fn check_rows(rows: RowBounds, mut refuse: impl FnMut(String)) {
    match (rows.min, rows.max) {
        (Some(min), Some(max)) if min > max => refuse(format!(
            "no number of rows is at least {min} and at most {max}; write min <= max"
        )),
        (None | Some(0), None) => refuse(
            "any number of rows has at least 0; write {min: 1}, add max, or leave rows out"
                .to_owned(),
        ),
        (_, _) => {}
    }
}

/// A literal array or object is sent as it is.
fn check_literal(path: &str, value: &Value, manifest: &Manifest, problems: &mut Problems) {
    match value {
        Value::String(text)
            if embedded(text, manifest).is_some() || placeholder(text).is_some() =>
        {
            problems.add(
                path,
                "a placeholder is a parameter of its own, not a part of one; build the value in the statement",
            );
        }
        Value::String(text) if text.starts_with(Secrets::SCHEME) => {
            problems.add(path, "a secret stands only in database, as the URL");
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                check_literal(&format!("{path}/{index}"), item, manifest, problems);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                let path = format!("{path}/{}", pointer_segment(name));
                check_literal(&path, member, manifest, problems);
            }
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A statement's pieces, without the `;` at its end.
struct Pieces {
    tokens: Vec<Token>,
}

impl Pieces {
    fn check_kind(&self, effect: Effect, mut refuse: impl FnMut(String)) {
        let mut opening = self
            .tokens
            .iter()
            .skip_while(|token| symbol(token) == Some(b'('));
        let first = opening.next().and_then(word);
        if !first.is_some_and(|word| STARTS.contains(&word)) {
            refuse(
                "a statement begins with SELECT, INSERT, UPDATE, DELETE, MERGE, VALUES or WITH; \
                 nothing else is run by a tool"
                    .to_owned(),
            );
        }
        if self.tokens.iter().any(|token| symbol(token) == Some(b';')) {
            refuse("a tool is one statement; take out everything after the first ;".to_owned());
        }
        if self.selects_into() {
            refuse("SELECT INTO creates a table; write INSERT INTO … SELECT".to_owned());
        }
        for (index, found) in self.words() {
            let before = index
                .checked_sub(1)
                .and_then(|at| self.tokens.get(at))
                .and_then(word);
            if effect != Effect::Read {
                continue;
            }
            let locks = found == "for"
                && (matches!(self.word_at(index + 1), Some("update" | "share" | "key"))
                    || (self.word_at(index + 1) == Some("no")
                        && self.word_at(index + 2) == Some("key")));
            if locks {
                refuse("a read takes no row locks; leave out FOR UPDATE or FOR SHARE, or declare another effect".to_owned());
            } else if WRITES.contains(&found) && before != Some("for") && before != Some("key") {
                refuse(format!(
                    "{} writes and the effect is read; declare another effect, or write the word in double quotes if it is a name",
                    found.to_ascii_uppercase()
                ));
            }
        }
    }

    fn selects_into(&self) -> bool {
        self.words().any(|(index, found)| {
            let before = index.checked_sub(1).and_then(|at| self.word_at(at));
            found == "into" && !matches!(before, Some("insert" | "merge"))
        })
    }

    fn check_names(&self, mut refuse: impl FnMut(String)) {
        for (index, token) in self.tokens.iter().enumerate() {
            let (TokenKind::Word(name) | TokenKind::Quoted(name)) = &token.kind else {
                continue;
            };
            let next = self.tokens.get(index + 1).and_then(symbol);
            if next == Some(b'.') && OURS.contains(&name.as_str()) {
                refuse(format!(
                    "the schema {name} is the fleet's own; a tool has tables of its own schema"
                ));
            }
            if next == Some(b'(')
                && let Some(why) = functions::refused(name)
            {
                refuse(format!("a tool may not call {name}: {why}"));
            }
        }
    }

    fn check_placeholders(&self, params: usize, mut refuse: impl FnMut(String)) {
        let used = |number: usize| {
            self.tokens.iter().any(|token| {
                matches!(token.kind, TokenKind::Placeholder(Some(n)) if usize::try_from(n) == Ok(number))
            })
        };
        for number in (1..=params).filter(|number| !used(*number)) {
            refuse(format!(
                "params has {params} values and ${number} stands nowhere; write it where the value belongs, or leave the value out"
            ));
        }
        let beyond = self.tokens.iter().find_map(|token| match token.kind {
            TokenKind::Placeholder(Some(n))
                if n == 0 || usize::try_from(n).is_ok_and(|n| n > params) =>
            {
                Some(format!("${n}"))
            }
            TokenKind::Placeholder(None) => Some("a placeholder with so many digits".to_owned()),
            _ => None,
        });
        if let Some(placeholder) = beyond {
            refuse(format!(
                "{placeholder} has no value: params has {params}, and the first is $1; add what it stands for to params"
            ));
        }
    }

    fn words(&self) -> impl Iterator<Item = (usize, &str)> {
        let words = self.tokens.iter().enumerate();
        words.filter_map(|(index, token)| Some((index, word(token)?)))
    }

    fn word_at(&self, index: usize) -> Option<&str> {
        self.tokens.get(index).and_then(word)
    }
}

fn word(token: &Token) -> Option<&str> {
    match &token.kind {
        TokenKind::Word(word) => Some(word),
        TokenKind::Quoted(_)
        | TokenKind::Placeholder(_)
        | TokenKind::Text
        | TokenKind::Number
        | TokenKind::Symbol(_) => None,
    }
}

fn symbol(token: &Token) -> Option<u8> {
    match token.kind {
        TokenKind::Symbol(symbol) => Some(symbol),
        TokenKind::Word(_)
        | TokenKind::Quoted(_)
        | TokenKind::Placeholder(_)
        | TokenKind::Text
        | TokenKind::Number => None,
    }
}

/// Whether it creates a table by `SELECT INTO`, which the server prepares like any other `SELECT`. True also for a text that
/// cannot be read.
pub fn selects_into(statement: &str) -> bool {
    token::tokens(statement).map_or(true, |tokens| Pieces { tokens }.selects_into())
}

/// The statement without a `;` at its end, each placeholder replaced; `None` if it cannot be read.
pub fn with_placeholders(statement: &str, replacement: impl Fn(u32) -> String) -> Option<String> {
    let tokens = token::tokens(statement).ok()?;
    let mut text = String::with_capacity(statement.len());
    let mut copied = 0;
    for (index, token) in tokens.iter().enumerate() {
        let instead = match token.kind {
            TokenKind::Placeholder(number) => replacement(number?),
            TokenKind::Symbol(b';') if index + 1 == tokens.len() => String::new(),
            _ => continue,
        };
        text.push_str(&statement[copied..token.place.start]);
        text.push_str(&instead);
        copied = token.place.end;
    }
    text.push_str(&statement[copied..]);
    Some(text)
}
