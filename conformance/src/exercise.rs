//! Runs the tests of a rig.

use std::{panic::AssertUnwindSafe, time::Duration};

use fleet::call::Effect;
use futures_util::FutureExt;

use crate::{
    behaviour::Behaviour,
    checks,
    report::{Cell, Report},
    rig::{Case, Rig},
};

/// The longest that one behaviour may take before the executor counts as hanging.
const PATIENCE: Duration = Duration::from_secs(40);

/// Runs every test, one after the other.
pub async fn exercise(rig: &dyn Rig) -> Report {
    let mut report = Report::of(rig.name());
    for effect in rig.effects() {
        for behaviour in Behaviour::ALL {
            report.add(
                *behaviour,
                *effect,
                exercise_one(rig, *behaviour, *effect).await,
            );
        }
    }
    report
}

/// Runs one test.
pub async fn exercise_one(rig: &dyn Rig, behaviour: Behaviour, effect: Effect) -> Cell {
    let tool = match rig.tool(behaviour, effect).await {
        Case::Tool(tool) => *tool,
        Case::NotApplicable(reason) => return Cell::NotApplicable(reason.to_owned()),
    };
    let checking = AssertUnwindSafe(checks::check(rig, behaviour, effect, &tool)).catch_unwind();
    match tokio::time::timeout(PATIENCE, checking).await {
        Ok(Ok(Ok(()))) => Cell::Kept,
        Ok(Ok(Err(why))) => Cell::Broken(why),
        Ok(Err(_panic)) => Cell::Broken("it panicked".to_owned()),
        Err(_elapsed) => Cell::Broken(format!("it did not end within {} s", PATIENCE.as_secs())),
    }
}
