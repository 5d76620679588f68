//! Whether a new call needs somebody's yes, as a fact of its admission.

use std::sync::Arc;

use fleet::{approval::is_needed, controls::LazyArguments};

use crate::{
    arguments::{SHORT, aside},
    check::Checked,
    refusal::Refusal,
};

/// Whether it does, by the newest version of its tool, whatever version its caller asks for. Where that has no approval, this costs a
/// look at its manifest.
pub(super) async fn needed(checked: &Checked) -> Result<bool, Refusal> {
    let Some(spec) = &checked.newest.manifest.approval else {
        return Ok(false);
    };
    let arguments = &checked.arguments;
    // What is parsed already is only looked into.
    if spec.when.is_empty() || arguments.text.len() <= SHORT || arguments.whole.is_some() {
        return Ok(is_needed(spec, &arguments.seen()));
    }
    let (newest, text) = (Arc::clone(&checked.newest), arguments.text.clone());
    let judging = move || {
        let spec = newest.manifest.approval.as_ref();
        Ok(spec.is_some_and(|spec| is_needed(spec, &LazyArguments::new(&text))))
    };
    Box::pin(aside(judging)).await
}
