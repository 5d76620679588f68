//! What a message is, told from its bytes as they pass: of one that is too large to be kept it is still known which request it
//! answers, and whether with a result.

/// The most bytes of a name, an id or a word that are looked at.
const TOKEN_MAX: usize = 64;

/// Looks at the bytes of one JSON message. What is no JSON leads to nonsense and nothing worse.
#[derive(Debug, Default, Clone)]
pub(in crate::executors) struct Skim {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Of the outermost object, and of the object that is its `result`.
    levels: [Level; 2],
    id: Vec<u8>,
    has_result: bool,
    has_error: bool,
    has_method: bool,
    is_error: Vec<u8>,
    /// What the result is, where it says so, and whether it says more of itself.
    kind: Vec<u8>,
    has_meta: bool,
}

/// Where the reader is in an object.
#[derive(Debug, Default, Clone)]
struct Level {
    is_object: bool,
    expects_name: bool,
    name: Vec<u8>,
}

/// What a message answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::executors) enum Skimmed {
    /// A complete result that is no error, and the message has ended.
    Result,
    /// A result that says `isError`, and nothing that was not seen about what is behind it.
    IsError,
    /// An error of the protocol.
    Error,
    /// It did not come to that.
    Nothing,
}

impl Skim {
    /// Looks at the next bytes.
    pub(in crate::executors) fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.step(*byte);
        }
    }

    /// The id as it is written; empty: there was none.
    pub(super) fn id(&self) -> &[u8] {
        self.id.trim_ascii()
    }

    /// Whether it is an answer, and neither a question nor something told.
    pub(super) const fn is_answer(&self) -> bool {
        (self.has_result || self.has_error) && !self.has_method
    }

    /// What it answers with.
    pub(super) fn came(&self) -> Skimmed {
        let is_over = self.depth == 0 && !self.in_string;
        let is_complete = matches!(self.kind.trim_ascii(), b"" | b"\"complete\"");
        match (self.has_result, self.has_error) {
            // Questions, a task, or what this program does not know.
            (true, false) if !is_complete => Skimmed::Nothing,
            (true, false) if self.is_error.trim_ascii() == b"true" => match self.has_meta {
                true => Skimmed::Nothing,
                false => Skimmed::IsError,
            },
            (true, false) if is_over => Skimmed::Result,
            (false, true) => Skimmed::Error,
            (_, _) => Skimmed::Nothing,
        }
    }

    /// The object whose members are looked at here.
    fn level(&mut self) -> Option<&mut Level> {
        match self.depth {
            1 => Some(&mut self.levels[0]),
            2 if self.levels[0].name == b"result" => Some(&mut self.levels[1]),
            _ => None,
        }
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            if self.in_string
                && let Some(level) = self.level().filter(|level| level.expects_name)
                && level.name.len() < TOKEN_MAX
            {
                level.name.push(byte);
            } else {
                self.value(byte);
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                match self.level().filter(|level| level.expects_name) {
                    Some(level) => level.name.clear(),
                    None => self.value(byte),
                }
            }
            b'{' | b'[' => {
                self.depth += 1;
                if let Some(level) = self.level() {
                    *level = Level {
                        is_object: byte == b'{',
                        expects_name: byte == b'{',
                        name: Vec::new(),
                    };
                }
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b',' => {
                if let Some(level) = self.level() {
                    level.expects_name = level.is_object;
                }
            }
            b':' => {
                if let Some(level) = self.level() {
                    level.expects_name = false;
                }
                if self.depth == 2
                    && self.levels[0].name == b"result"
                    && self.levels[1].name == b"_meta"
                {
                    self.has_meta = true;
                }
                if self.depth == 1 {
                    match self.levels[0].name.as_slice() {
                        b"result" => self.has_result = true,
                        b"error" => self.has_error = true,
                        b"method" => self.has_method = true,
                        b"id" => self.id.clear(),
                        _other => {}
                    }
                }
            }
            _ => self.value(byte),
        }
    }

    /// A byte of a value that is no object and no list.
    fn value(&mut self, byte: u8) {
        let [outer, inner] = &self.levels;
        let token = match self.depth {
            1 if outer.name == b"id" && !outer.expects_name => &mut self.id,
            2 if outer.name == b"result" && inner.name == b"isError" && !inner.expects_name => {
                &mut self.is_error
            }
            2 if outer.name == b"result" && inner.name == b"resultType" && !inner.expects_name => {
                &mut self.kind
            }
            _ => return,
        };
        if token.len() < TOKEN_MAX {
            token.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_known_without_being_kept() {
        let long = "x".repeat(10_000);
        for (message, id, came) in [
            (
                format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":["{long}"]}}}}"#),
                "7",
                Skimmed::Result,
            ),
            (
                format!(
                    r#"{{"result":{{"content":[{{"isError":true,"id":3}}],"a":"\"isError\":true {long}"}} , "id" : "a\"b" }}"#
                ),
                r#""a\"b""#,
                Skimmed::Result,
            ),
            (
                format!(r#"{{"id":1,"result":{{"isError" : true,"content":["{long}"#),
                "1",
                Skimmed::IsError,
            ),
            (
                format!(r#"{{"id":1,"result":{{"isError":false,"content":"{long}"}}}}"#),
                "1",
                Skimmed::Result,
            ),
            (
                format!(r#"{{"id":1,"result":{{"content":["{long}"#),
                "1",
                Skimmed::Nothing,
            ),
            (
                format!(r#"{{"error":{{"code":-1,"message":"result: {long}"}},"id":2}}"#),
                "2",
                Skimmed::Error,
            ),
            (
                format!(
                    r#"{{"method":"x","params":{{"result":1,"error":2,"id":9,"x":"{long}"}}}}"#
                ),
                "",
                Skimmed::Nothing,
            ),
            (
                format!(r#"{{"result":[{{"isError":true}}],"id":5,"x":"{long}"}}"#),
                "5",
                Skimmed::Result,
            ),
            (format!("}}]{long}\"{{"), "", Skimmed::Nothing),
            (
                format!(r#"{{"id":1,"result":{{"resultType": "complete","x":"{long}"}}}}"#),
                "1",
                Skimmed::Result,
            ),
            (
                format!(
                    r#"{{"id":1,"result":{{"resultType":"input_required","inputRequests":{{"a":"{long}"}}}}}}"#
                ),
                "1",
                Skimmed::Nothing,
            ),
            (
                format!(r#"{{"id":1,"result":{{"isError":true,"_meta":{{"a":1}},"x":"{long}"}}}}"#),
                "1",
                Skimmed::Nothing,
            ),
        ] {
            for size in [1, 3, message.len()] {
                let mut skim = Skim::default();
                message
                    .as_bytes()
                    .chunks(size)
                    .for_each(|bytes| skim.feed(bytes));
                assert_eq!(String::from_utf8_lossy(skim.id()), id, "{}", &message[..60]);
                assert_eq!(skim.came(), came, "{}", &message[..60]);
            }
        }
    }
}
