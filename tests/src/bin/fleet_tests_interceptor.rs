//! A worker program with an interceptor that does what a call says: the proofs look at what a fleet shows of it.

use std::{
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};

use worker::{
    Worker,
    interceptor::{About, CallView, Carried, Fails, Interceptor, Verdict},
};

/// The argument `what` of a call says what becomes of it: `refuse`, `panic`, or anything else to let it go on.
struct Obeys {
    /// A panic prints where it was: once is enough for a log.
    panicked: AtomicBool,
}

#[derive(serde::Deserialize)]
struct Asked {
    what: String,
}

impl Interceptor for Obeys {
    fn about(&self) -> About {
        About::new("obeys").fails(Fails::Open)
    }

    async fn before(&self, call: &CallView<'_>, _carried: &mut Carried) -> Verdict {
        let Ok(asked) = call.arguments_as::<Asked>() else {
            return Verdict::Continue;
        };
        match asked.what.as_str() {
            "refuse" => Verdict::refuse("as it was asked"),
            "panic" if !self.panicked.swap(true, Ordering::Relaxed) => panic!("as it was asked"),
            _ => Verdict::Continue,
        }
    }
}

fn main() -> ExitCode {
    let obeys = Obeys {
        panicked: AtomicBool::new(false),
    };
    Worker::builder().interceptor(obeys).run()
}
