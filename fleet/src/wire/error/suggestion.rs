//! What a model should do next, in one word.

use crate::call::words;

words! {
    /// What a model should do next.
    Suggestion {
        /// Send corrected arguments, or others.
        FixArguments = "fix_arguments",
        /// The same may work later.
        RetryLater = "retry_later",
        /// Ask for less.
        Simplify = "simplify",
        /// A person has to decide, or to correct the program that calls.
        AskUser = "ask_user",
        /// Look before acting: at the list of tools, at the call, at the outside world.
        CheckState = "check_state",
        /// It must not be sent again.
        DoNotRepeat = "do_not_repeat",
    }
}
