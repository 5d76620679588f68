//! The meaning of each mode.

use super::Mode;

/// What a tool does and says in one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) applies: Applies,
    pub(super) says: Says,
}

/// When its effect takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Applies {
    Never,
    Now,
    /// When its attempt is over.
    Late,
}

/// What it says, after its effect if that takes place now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    Done,
    /// The same, a second later.
    DoneSlowly,
    /// That it starts nothing now, and may be asked again.
    NotNow,
    /// No, in words for a model.
    No,
    /// That something broke.
    Broken,
    /// Nothing: its connection or its process ends.
    End,
    /// Nothing, and stays.
    Nothing,
    /// Something that is no answer.
    Garbage,
    /// More than the limit.
    Huge,
}

/// What a tool does and says in this attempt.
pub(super) fn script(mode: Mode, attempt: u32) -> Script {
    let (applies, says) = match mode {
        Mode::Ok | Mode::Escape => (Applies::Now, Says::Done),
        Mode::Slow => (Applies::Now, Says::DoneSlowly),
        Mode::Business => (Applies::Never, Says::No),
        Mode::Garbage => (Applies::Now, Says::Garbage),
        Mode::Huge => (Applies::Now, Says::Huge),
        Mode::Refuse
        | Mode::ErrorBefore
        | Mode::ErrorAfter
        | Mode::ResetAfter
        | Mode::HangBefore
        | Mode::HangAfter
        | Mode::Late
            if attempt > 1 =>
        {
            (Applies::Now, Says::Done)
        }
        Mode::Refuse => (Applies::Never, Says::NotNow),
        Mode::ErrorBefore => (Applies::Never, Says::Broken),
        Mode::ErrorAfter => (Applies::Now, Says::Broken),
        Mode::ResetAfter => (Applies::Now, Says::End),
        Mode::HangBefore => (Applies::Never, Says::Nothing),
        Mode::HangAfter => (Applies::Now, Says::Nothing),
        Mode::Late => (Applies::Late, Says::Nothing),
    };
    Script { applies, says }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misbehaviour_of_the_first_attempt_is_over_with_the_second() {
        for mode in [Mode::Refuse, Mode::ErrorAfter, Mode::HangBefore, Mode::Late] {
            let (first, second) = (script(mode, 1), script(mode, 2));
            assert_ne!(first, second, "{mode:?}");
            assert_eq!(second, script(Mode::Ok, 1), "{mode:?}");
        }
        assert_eq!(script(Mode::Business, 3).says, Says::No);
    }
}
