//! Which of the fleet's own tools are applied: those that the tools of an operator or of a program need.

use fleet::manifest::{Manifest, ToolSelection};

use crate::{
    find_tools::FindTools,
    read_result::ReadResult,
    todo_write::TodoWrite,
    tool::{self, Tool},
};

/// The manifests of the fleet's own tools that these tools need: whoever applies them applies those too.
///
/// # Panics
///
/// Never: the manifests are constants.
pub fn built_in_of<'a>(tools: impl IntoIterator<Item = &'a Manifest>) -> Vec<Manifest> {
    let (mut reads_results, mut finds_tools, mut writes_todos) = (false, false, false);
    for tool in tools {
        let selection = tool.tool_selection.as_ref();
        reads_results |= tool.large_result.is_some();
        finds_tools |= selection.is_some_and(ToolSelection::is_from_fleet);
        writes_todos |= tool.todo.is_some();
    }
    let reader = reads_results.then(|| manifest(&ReadResult::default()));
    let finder = finds_tools.then(|| manifest(&FindTools::default()));
    let writer = writes_todos.then(|| manifest(&TodoWrite::default()));
    reader.into_iter().chain(finder).chain(writer).collect()
}

fn manifest<T: Tool>(tool: &T) -> Manifest {
    tool::manifest::manifest(tool).expect("our own manifest is valid")
}

#[cfg(test)]
mod tests {
    use fleet::manifest::{self, lint};

    use super::*;

    const MODEL: &str = "
        name: ask_model
        version: 1
        description: Answers a conversation.
        effect: read
        executor: {chat: {protocol: anthropic, routes: [{name: main, url: https://api.example.com/, model: large-1}]}}
    ";

    #[test]
    fn a_tool_brings_those_that_it_needs_and_nothing_can_be_said_against_them() {
        for (more, needed) in [
            ("", &[][..]),
            ("        large_result: {}", &["read_result"][..]),
            ("        tool_selection: {max: 5}", &[][..]),
            ("        tool_selection: {from: fleet}", &["find_tools"][..]),
            ("        todo: {}", &["todo_write"][..]),
            (
                "        large_result: {}\n        tool_selection: {from: fleet}\n        todo: {directives: true}",
                &["read_result", "find_tools", "todo_write"][..],
            ),
        ] {
            let tool = manifest::parse(&format!("{MODEL}\n{more}\n")).unwrap();
            let built_in = built_in_of([&tool]);
            let names: Vec<&str> = built_in.iter().map(|tool| tool.name.as_str()).collect();
            assert_eq!(names, needed);
            for tool in &built_in {
                assert_eq!(lint(tool), []);
                assert!(manifest::is_built_in(tool.name.as_str()));
                assert_eq!(built_in_of([tool]), []);
            }
        }
    }
}
