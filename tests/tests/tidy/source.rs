//! Rust source as tokens, as far as imports and names need it: without comments, literals, and what is compiled for tests only.

/// The tokens of a file: identifiers, `::`, and every other mark alone.
pub(crate) fn tokens(text: &str) -> Vec<String> {
    without_tests(split(&without_literals(text)))
}

/// The text with a space in the place of every comment, string and character.
fn without_literals(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let (mut code, mut at) = (String::with_capacity(text.len()), 0);
    while at < letters.len() {
        let end = comment(&letters, at)
            .or_else(|| string(&letters, at))
            .or_else(|| character(&letters, at));
        match end {
            Some(end) => {
                code.push(' ');
                at = end;
            }
            None => {
                code.push(letters[at]);
                at += 1;
            }
        }
    }
    code
}

/// Where the comment ends that begins here.
fn comment(letters: &[char], at: usize) -> Option<usize> {
    match letters.get(at..at + 2)? {
        ['/', '/'] => {
            let line = letters[at..].iter().position(|letter| *letter == '\n');
            Some(line.map_or(letters.len(), |line| at + line))
        }
        ['/', '*'] => {
            let (mut depth, mut end) = (1, at + 2);
            while depth > 0 && end < letters.len() {
                match letters.get(end..end + 2) {
                    Some(['/', '*']) => (depth, end) = (depth + 1, end + 2),
                    Some(['*', '/']) => (depth, end) = (depth - 1, end + 2),
                    _other => end += 1,
                }
            }
            Some(end)
        }
        _code => None,
    }
}

/// Where the string ends that begins here, raw or not.
fn string(letters: &[char], at: usize) -> Option<usize> {
    if letters[at] == '"' {
        let mut end = at + 1;
        while end < letters.len() && letters[end] != '"' {
            end += if letters[end] == '\\' { 2 } else { 1 };
        }
        return Some(end + 1);
    }
    let is_word = at > 0 && is_of_word(letters[at - 1]) && letters[at - 1] != 'b';
    if letters[at] != 'r' || is_word {
        return None;
    }
    let hashes = letters[at + 1..]
        .iter()
        .take_while(|one| **one == '#')
        .count();
    if letters.get(at + 1 + hashes) != Some(&'"') {
        return None;
    }
    let mut end = at + 2 + hashes;
    while end < letters.len() {
        let closing = letters.get(end + 1..=end + hashes);
        let is_closed = closing.is_some_and(|marks| marks.iter().all(|one| *one == '#'));
        end += 1;
        if letters[end - 1] == '"' && is_closed {
            return Some(end + hashes);
        }
    }
    Some(end)
}

/// Where the character ends that begins here; a lifetime is none.
fn character(letters: &[char], at: usize) -> Option<usize> {
    if letters[at] != '\'' {
        return None;
    }
    if letters.get(at + 1) == Some(&'\\') {
        let closing = letters[at + 3..].iter().position(|letter| *letter == '\'');
        return Some(at + 4 + closing?);
    }
    (letters.get(at + 2) == Some(&'\'')).then_some(at + 3)
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn split(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_of_word(first) {
            rest.find(|letter| !is_of_word(letter))
                .unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (token, behind) = rest.split_at(length);
        tokens.push(token.to_owned());
        rest = behind.trim_start();
    }
    tokens
}

/// Without every item under `#[cfg(test)]`, or `#[cfg(all(test, …))]`.
fn without_tests(tokens: Vec<String>) -> Vec<String> {
    let (mut kept, mut at) = (Vec::with_capacity(tokens.len()), 0);
    while at < tokens.len() {
        let attribute = (tokens[at] == "#")
            .then(|| closing(&tokens, at + 1))
            .flatten();
        match attribute {
            Some(end) if is_for_tests(&tokens[at..=end]) => at = item_end(&tokens, end + 1),
            _other => {
                kept.push(tokens[at].clone());
                at += 1;
            }
        }
    }
    kept
}

fn is_for_tests(attribute: &[String]) -> bool {
    let words: Vec<&str> = attribute.iter().map(String::as_str).collect();
    words.starts_with(&["#", "[", "cfg", "(", "test", ")"])
        || words.starts_with(&["#", "[", "cfg", "(", "all", "(", "test"])
}

/// Behind the item that begins here, its further attributes included.
fn item_end(tokens: &[String], mut at: usize) -> usize {
    while at < tokens.len() {
        match tokens[at].as_str() {
            ";" => return at + 1,
            "{" => {
                let end = closing(tokens, at).unwrap_or(tokens.len());
                // That of a list of imports.
                let semicolon = tokens.get(end + 1).is_some_and(|next| next == ";");
                return end + 1 + usize::from(semicolon);
            }
            "[" | "(" => at = closing(tokens, at).unwrap_or(tokens.len()),
            _other => {}
        }
        at += 1;
    }
    at
}

/// Where the bracket closes that opens here.
fn closing(tokens: &[String], at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate().skip(at) {
        match token.as_str() {
            "[" | "(" | "{" => depth += 1,
            "]" | ")" | "}" => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(place);
                }
            }
            _other if depth == 0 => return None,
            _other => {}
        }
    }
    None
}

#[test]
fn comments_literals_and_tests_are_no_tokens() {
    let text = r##"
        use a::b; // use c::d;
        /* use /* e */ f; */
        const T: &str = "use g::h; \" use i;";
        const R: &str = r#"use j"; "#;
        fn f<'a>(x: &'a str) -> char { '"' }
        #[cfg(test)]
        use k::{l, m};
        #[cfg(test)]
        #[expect(dead_code)]
        mod tests { use n::o; fn g() { } }
        struct After;
    "##;
    let tokens = tokens(text).join(" ");
    assert_eq!(
        tokens,
        "use a :: b ; const T : & str = ; const R : & str = ; \
         fn f < ' a > ( x : & ' a str ) -> char { } struct After ;"
            .replace("->", "- >")
    );
}
