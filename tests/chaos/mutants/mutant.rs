//! Known mistakes: this file and the lines that ask it stand only in a copy of the tree that `chaos plant` has made.

/// Whether this process makes this mistake: the variable `TOOLFLEET_MUTANT` names it.
#[expect(
    clippy::disallowed_methods,
    reason = "not a setting: no released program knows it"
)]
pub fn on(mistake: &str) -> bool {
    static NAMED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let named = NAMED.get_or_init(|| std::env::var("TOOLFLEET_MUTANT").ok());
    named.as_deref() == Some(mistake)
}
