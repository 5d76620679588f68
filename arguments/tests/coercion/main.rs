//! Thousands of valid arguments, damaged in the ways in which models damage them, and what `Schema::fit` makes of each.
//!
//! `no_damage_becomes_a_third_value` prints a table (`cargo test -p arguments --test coercion -- --nocapture no_damage`), a row for
//! each kind of damage:
//!
//! - `mended`: the level from which on a rule is there (`always`, `read`); such a kind must be mended at least as often as its
//!   floor in `damage/kinds.rs` says, or the rule has stopped working. `never`: it must not be mended, even if it would come
//!   out right, for that would be a guess. `either`: mended and refused are both right.
//! - `cases`: how many objects were damaged so; `valid`: how many of them fit all the same, and came out as they went in.
//! - Of the others, at the levels `safe` (every tool) and `read` (tools that only read): `rec` came out as what was there
//!   before the damage, numbers being compared as the decimals they are, with defaults filled in on both sides; `%` is
//!   their share. `var` came out as something that fits and may have been meant as well, see `judge::Case::variants`.
//!   `ref` were refused, with what is wrong with what was sent. `third` became something else: 0 in every row.
//!
//! `MUTATION_SEEDS=10` runs ten seeds, one after the other, and counts them together.
//!
//! What is lost before anything is sent, no rule can know, and is not among the kinds: the zeros of `007` sent as 7, `1.234`
//! for 1234 where a decimal may stand, a null or an empty text for an optional value that was meant, two words
//! joined by `_` or by nothing.
//!
//! `wrong` holds the same judge against rules that are wrong on purpose, for a judge that never says no proves nothing.

#![expect(
    clippy::print_stdout,
    reason = "the table is what a reader wants to see"
)]

mod bounds;
mod damage;
mod gold;
mod grow;
mod judge;
mod laws;
mod leaves;
mod mutation;
mod pointer;
mod properties;
mod random;
mod report;
mod tools;
mod wrapped;
mod wrong;
