//! How large a body may be: in bytes, in depth, in number of values and in the length of each.

/// How large one body may be. Every limit is inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the whole body; beyond: `payload_too_large`.
    pub bytes: usize,
    /// Arrays and objects inside one another, the outermost counted; beyond: `depth_exceeded`. Keep it below 500.
    pub depth: usize,
    /// Values in all, containers counted; beyond: `too_many_nodes`.
    pub nodes: usize,
    /// Keys of one object; beyond: `too_many_nodes`.
    pub keys: usize,
    /// Bytes of one key, unescaped; beyond: `key_too_long`.
    pub key_bytes: usize,
    /// Bytes of one string, unescaped; beyond: `string_too_long`.
    pub string_bytes: usize,
    /// Characters of one number; beyond: `number_too_long`.
    pub number_chars: usize,
}

impl Limits {
    /// How large the arguments of a call may be, of most tools.
    pub const DEFAULT: Self = Self {
        bytes: 256 * 1024,
        depth: 64,
        nodes: 10_000,
        keys: 1_000,
        key_bytes: 256,
        string_bytes: 128 * 1024,
        number_chars: 64,
    };

    /// How large the arguments of a call of a model may be: a conversation is long, and most of it is texts.
    pub const CONVERSATION: Self = Self {
        bytes: 1024 * 1024,
        nodes: 100_000,
        string_bytes: 1024 * 1024,
        ..Self::DEFAULT
    };

    /// The limits of a tool's answer that is checked against an output schema: 8 MiB, and as many values as fit into them.
    pub const ANSWER: Self = Self {
        bytes: 8 * 1024 * 1024,
        depth: 128,
        nodes: usize::MAX,
        keys: usize::MAX,
        key_bytes: usize::MAX,
        string_bytes: usize::MAX,
        number_chars: 1_024,
    };

    /// The largest exponent of a number, either way: a double holds it, and a database does not expand it to megabytes.
    pub const EXPONENT_MAX: u32 = 308;

    /// Bytes of the pointer in an error; a longer one is cut and ends in an ellipsis.
    pub const PATH_BYTES: usize = 512;
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
