//! The key of a new call's start times, as a fact of its admission.

use std::sync::Arc;

use fleet::{controls::LazyArguments, ids::Label, rate_key::RateKey};

use crate::{
    arguments::{SHORT, aside},
    check::Checked,
    refusal::Refusal,
};

/// The key, where each value of an argument has start times of its own, by the newest version of the tool. Where it has none, this
/// costs a look at its manifest.
pub(super) async fn of(tenant: &Label, checked: &Checked) -> Result<Option<RateKey>, Refusal> {
    let Some(pointer) = checked.newest.manifest.rate_pointer() else {
        return Ok(None);
    };
    let arguments = &checked.arguments;
    // What is parsed already is only looked into.
    if arguments.text.len() <= SHORT || arguments.whole.is_some() {
        return Ok(Some(RateKey::of(tenant, pointer, &arguments.seen())));
    }
    let (newest, tenant) = (Arc::clone(&checked.newest), tenant.clone());
    let text = arguments.text.clone();
    let reading = move || {
        let pointer = newest.manifest.rate_pointer();
        let seen = LazyArguments::new(&text);
        Ok(pointer.map(|pointer| RateKey::of(&tenant, pointer, &seen)))
    };
    Box::pin(aside(reading)).await
}
