//! RFC 6570 templates, all levels but the fragment: how they are read. Workers fill them.
//!
//! Ours, because the published expander that was tried panics on `{+x}` with any text beyond ASCII, and here the text
//! comes from a model.

/// A template in pieces.
#[derive(Debug)]
pub struct UriTemplate<'a> {
    /// In their order.
    pub pieces: Vec<Piece<'a>>,
}

/// A piece of a template.
#[derive(Debug)]
pub enum Piece<'a> {
    /// Text that stands as it is.
    Literal(&'a str),
    /// What is filled.
    Expression(Expression<'a>),
}

/// One `{…}`.
#[derive(Debug)]
pub struct Expression<'a> {
    /// What stands around its values and between them.
    pub operator: Operator,
    /// At least one.
    pub variables: Vec<Variable<'a>>,
}

/// What an expression begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `{x}`
    Simple,
    /// `{+x}`: reserved characters stay.
    Reserved,
    /// `{.x}`
    Label,
    /// `{/x}`
    Segment,
    /// `{;x}`
    Parameter,
    /// `{?x}`
    Query,
    /// `{&x}`
    Continuation,
}

/// A name in an expression.
#[derive(Debug)]
pub struct Variable<'a> {
    /// The argument's.
    pub name: &'a str,
    /// Whether each item stands for itself: `{x*}`.
    pub explode: bool,
    /// The most characters to take, for `{x:3}`.
    pub prefix: Option<usize>,
}

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoTemplate {
    /// A brace stands alone, or there is a fragment, which never reaches a server.
    #[error("braces must come in pairs, and a URL has no fragment and no backslash")]
    Text,
    /// What stands between two braces is none.
    #[error("{{{0}}} is not an expression of a URL template, such as {{city}}")]
    Expression(String),
}

impl<'a> UriTemplate<'a> {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn parse(mut rest: &'a str) -> Result<Self, NoTemplate> {
        let mut pieces = Vec::new();
        while let Some(open) = rest.find(['{', '}', '#', '\\']) {
            let (literal, tail) = rest.split_at(open);
            let inside = tail.strip_prefix('{');
            let (inner, after) = inside
                .and_then(|inside| inside.split_once('}'))
                .ok_or(NoTemplate::Text)?;
            let expression = Expression::parse(inner);
            let expression = expression.ok_or_else(|| NoTemplate::Expression(inner.to_owned()))?;
            pieces.push(Piece::Literal(literal));
            pieces.push(Piece::Expression(expression));
            rest = after;
        }
        pieces.push(Piece::Literal(rest));
        Ok(Self { pieces })
    }

    /// The text before the first expression.
    pub fn beginning(&self) -> &'a str {
        match self.pieces.first() {
            Some(Piece::Literal(literal)) => literal,
            Some(Piece::Expression(_)) | None => "",
        }
    }
}

impl<'a> Expression<'a> {
    fn parse(inner: &'a str) -> Option<Self> {
        let operator = match inner.chars().next()? {
            '+' => Operator::Reserved,
            '.' => Operator::Label,
            '/' => Operator::Segment,
            ';' => Operator::Parameter,
            '?' => Operator::Query,
            '&' => Operator::Continuation,
            _ => Operator::Simple,
        };
        let list = if operator == Operator::Simple {
            inner
        } else {
            &inner[1..]
        };
        let variables = list
            .split(',')
            .map(Variable::parse)
            .collect::<Option<_>>()?;
        Some(Self {
            operator,
            variables,
        })
    }

    /// Whether it leads out of the path, into the query.
    pub const fn is_of_query(&self) -> bool {
        matches!(self.operator, Operator::Query | Operator::Continuation)
    }

    /// Whether the path means another resource without it. `{/id}` says that the segment may be missing; `/{id}` says that it
    /// is there.
    pub const fn must_stand(&self) -> bool {
        matches!(self.operator, Operator::Simple | Operator::Reserved)
    }
}

impl<'a> Variable<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (name, explode) = text
            .strip_suffix('*')
            .map_or((text, false), |name| (name, true));
        let (name, prefix) = match name.split_once(':') {
            Some((name, digits)) => {
                let prefix = digits.parse().ok();
                let fits = |n: &usize| (1..10_000).contains(n) && !explode;
                (name, Some(prefix.filter(fits)?))
            }
            None => (name, None),
        };
        let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'.';
        (!name.is_empty() && name.bytes().all(letter)).then_some(Self {
            name,
            explode,
            prefix,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_template_is_refused() {
        for wrong in ["{", "}", "{a", "a}", "{a}}", "a#b", "a\\b"] {
            let read = UriTemplate::parse(wrong);
            assert_eq!(read.unwrap_err(), NoTemplate::Text, "{wrong}");
        }
        for wrong in [
            "", "a,", "a b", "=a", "a:0", "a:10000", "a:x", "a:1*", "#a", "{a",
        ] {
            let read = UriTemplate::parse(&format!("x{{{wrong}}}")).map(drop);
            assert_eq!(read, Err(NoTemplate::Expression(wrong.to_owned())));
        }
    }
}
