//! The todo list of a session: a model is told of it, and changes it.

use serde::{Deserialize, Serialize};

use super::{executor::ExecutorSpec, problem::Problems};

/// That requests of a session are told its todo list, and who changes it beside `todo_write`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TodoSpec {
    /// Whether lines of the model's own text change it as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub directives: bool,
}

impl TodoSpec {
    /// Everything that is wrong with the list of a tool that is run so.
    pub(super) fn check(
        self,
        executor: &ExecutorSpec,
        is_sensitive: bool,
        has_cache: bool,
        problems: &mut Problems,
    ) {
        if !matches!(executor, ExecutorSpec::Chat(_)) {
            problems.add(
                "/todo",
                "a todo list is told to a model, which a chat tool alone asks; leave todo out",
            );
            return;
        }
        if has_cache {
            problems.add(
                "/cache",
                "the todo list is a part of what the model is asked, and equal calls of two sessions have two lists; \
                 leave cache or todo out",
            );
        }
        if self.directives && is_sensitive {
            problems.add(
                "/todo/directives",
                "the title of an item is kept as the model wrote it, and nothing in it would be masked; \
                 leave directives or sensitive out",
            );
        }
    }
}
