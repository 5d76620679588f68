//! What a manifest may not say of how its calls are shown, because nobody would see it.

use super::{approval::ApprovedBy, problem::Problems, shown::Visibility, version::Manifest};

pub(super) fn check(manifest: &Manifest, problems: &mut Problems) {
    let is_hidden = manifest.visibility == Visibility::Hidden;
    let asks_its_caller =
        (manifest.approval.as_ref()).is_some_and(|approval| approval.by == ApprovedBy::Caller);
    if is_hidden && asks_its_caller {
        problems.add(
            "/visibility",
            "whoever makes a call may decide about it, and is asked in its session, where a hidden tool says nothing; \
             write approval.by: operator, or leave visibility out",
        );
    }
    if manifest.is_run_by_client() {
        clients(manifest, problems);
        return;
    }
    if is_hidden {
        let says_nothing = [
            ("presents", manifest.presents.is_some()),
            ("final", manifest.is_final),
        ];
        for (field, _) in says_nothing.iter().filter(|(_, is_written)| *is_written) {
            problems.add(
                format!("/{field}"),
                format!("no turn shows the calls of a hidden tool, so {field} would change nothing; leave it or visibility out"),
            );
        }
    }
}

/// Those of a tool that the caller's program runs.
fn clients(manifest: &Manifest, problems: &mut Problems) {
    if manifest.visibility == Visibility::Hidden {
        problems.add(
            "/visibility",
            "the caller's program runs a client tool when it is told to, and a hidden tool tells nothing; write unlisted, or \
             leave the field out",
        );
    }
    if manifest.presents.is_some() {
        problems.add(
            "/presents",
            "a client tool says it in its executor: write {client: {presents: function_call|custom_tool_call|shell_call}}",
        );
    }
    if manifest.is_final {
        problems.add(
            "/final",
            "the caller's program runs a client tool and has its answer; leave final out",
        );
    }
}
