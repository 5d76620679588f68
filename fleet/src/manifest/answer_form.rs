//! What the answers of a tool are.

use super::{executor::ExecutorSpec, problem::Problems};
use crate::call::words;

words! {
    /// What the answers of a tool are.
    #[derive(Default)]
    AnswerForm {
        /// Any JSON.
        #[default]
        Json = "json",
        /// Blocks: texts, images, audio and resources. See [`crate::content`].
        Content = "content",
    }
}

impl AnswerForm {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn check(self, executor: &ExecutorSpec, problems: &mut Problems) {
        if self == Self::Content && matches!(executor, ExecutorSpec::Sql(_)) {
            problems.add(
                "/output",
                "a statement answers with rows, not with blocks of content; leave output out",
            );
        }
        if self == Self::Content && matches!(executor, ExecutorSpec::Chat(_)) {
            problems.add(
                "/output",
                "the result of a chat tool has the vendor's reply as it came, not blocks of content; leave output out",
            );
        }
    }
}
