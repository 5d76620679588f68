//! How large a schema may be, and how much work it may cause.

/// Bytes of a schema's canonical text.
pub(crate) const BYTES_MAX: usize = 64 * 1024;
/// Values in a schema.
pub(crate) const NODES_MAX: usize = 2_000;
/// Arrays and objects inside one another.
pub(crate) const DEPTH_MAX: usize = 32;
/// Bytes of one pattern.
pub(crate) const PATTERN_BYTES_MAX: usize = 512;
/// Patterns in all, [`LARGE_PATTERNS_MAX`] of them larger than [`PATTERN_COMPILED_SMALL`].
pub(crate) const PATTERNS_MAX: usize = 100;
/// The most bytes of one compiled pattern. The worst of this size takes a third of a second for the longest allowed string.
pub(crate) const PATTERN_COMPILED_MAX: usize = 64 * 1024;
/// The most bytes of a compiled pattern that does not count as large.
pub(crate) const PATTERN_COMPILED_SMALL: usize = 16 * 1024;
/// Large patterns in all.
pub(crate) const LARGE_PATTERNS_MAX: usize = 8;
/// Schemas that apply to the same value inside one another, by `$ref`, `allOf` and the like: bounds the stack.
pub(crate) const NESTED_MAX: usize = 16;
/// Evaluations along one path from the root of an input to a leaf.
pub(crate) const EVALUATIONS_MAX: u64 = 10_000;
/// Evaluations up to which a failed check still collects everything that is wrong; beyond, only the first violation.
pub(crate) const COLLECTED_MAX: u64 = 200_000;
