//! The names of the fleet's own tools: every worker has them, so no other tool may have their names.

use super::{
    executor::ExecutorSpec, large_result::READ_RESULT, problem::Problems,
    tool_selection::FIND_TOOLS, version::Manifest,
};

/// The name of the tool that changes todo lists.
pub const TODO_WRITE: &str = "todo_write";

/// Each with what it does.
const BUILT_IN: [(&str, &str); 3] = [
    (READ_RESULT, "reads large results"),
    (FIND_TOOLS, "finds other tools"),
    (TODO_WRITE, "changes todo lists"),
];

/// Whether it is the name of one of the fleet's own tools.
pub fn is_built_in(name: &str) -> bool {
    BUILT_IN.iter().any(|(own, _)| *own == name)
}

/// That the name is not one of these, unless it is that tool: a handler of every worker.
pub(super) fn check(manifest: &Manifest, problems: &mut Problems) {
    if matches!(manifest.executor, ExecutorSpec::Native(_)) {
        return;
    }
    for (name, does) in BUILT_IN {
        if manifest.name.as_str() == name {
            problems.add(
                "/name",
                format!("{name} is the fleet's own tool, which {does}; write another name"),
            );
        }
    }
}
