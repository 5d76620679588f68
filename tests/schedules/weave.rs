//! Takes sources of the product as they stand and changes in them what a schedule needs: where the primitives come from,
//! how small the limits are, and, for each *mistake*, one line that is wrong while the mistake is planted.
//!
//! Every place must occur exactly once, or the build ends and says which: nothing here can silently stop to apply.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// A piece of a source, and what stands there instead.
type Change = (&'static str, &'static str);

struct Source {
    /// From the root of the repository.
    file: &'static str,
    /// What the primitives, the servers and the limits are here.
    world: &'static [Change],
    /// Each may be wrong: `planted` says whether it is.
    mistakes: &'static [Change],
    /// For a test to look inside.
    window: &'static str,
}

/// Wherever they occur.
const EVERYWHERE: [Change; 2] = [("tokio::", "crate::world::tokio::"), ("//!", "//")];

const SOURCES: [Source; 8] = [
    LANE, WAITERS, PULL, INTAKE, SLOTS, COUNTS, REPORTER, BUDGETS,
];

const LANE: Source = Source {
    file: "fleet/src/store/lane.rs",
    world: &[
        (
            "use sqlx::PgConnection;",
            "use crate::world::{ledger::PgConnection, planted, tokio::ReceiveMany as _};",
        ),
        (
            "use super::{answer::listen, answered, passes, session::Postgres};",
            "use crate::world::ledger::{Postgres, listen}; use fleet::store::{answered, passes};",
        ),
        (
            "use crate::{\n    checkpoint::{self, Checkpoint},\n    delay::{Reconnect, SOON},\n    telemetry::metrics,\n};",
            "use fleet::{checkpoint::{self, Checkpoint}, delay::SOON, telemetry::metrics}; use crate::world::delay::Reconnect;",
        ),
        ("crate::telemetry::report", "fleet::telemetry::report"),
        (
            "pub const BATCH_ROWS_MAX: usize = 500;",
            "pub const BATCH_ROWS_MAX: usize = 3;",
        ),
        (
            "const WAITING_MAX: usize = 8 * BATCH_ROWS_MAX;",
            "const WAITING_MAX: usize = 2;",
        ),
        (
            "let mut arrived = std::mem::take(&mut self.held_back);",
            "let mut arrived = std::mem::take(&mut self.held_back); assert!(arrived.len() <= BATCH_ROWS_MAX, \"more is held back than a batch has rows\");",
        ),
    ],
    mistakes: &[
        (
            "self.held_back.push(unit);",
            "if !planted(\"what did not fit is forgotten\") { self.held_back.push(unit); }",
        ),
        (
            "parts.push((later_rows, later_answers, locks));",
            "if !planted(\"the later half is forgotten\") { parts.push((later_rows, later_answers, locks)); }",
        ),
        (
            "if keys.insert(S::key(&row)) {",
            "if keys.insert(S::key(&row)) || planted(\"a key is twice in a batch\") {",
        ),
        (
            "                    return None;\n",
            "                    return planted(\"a silent connection is used again\").then_some(connection);\n",
        ),
        (
            "tell(answer, Reply::Unknown);",
            "tell(answer, if planted(\"silence counts as not sent\") { Reply::NotSent } else { Reply::Unknown });",
        ),
        (
            "        answered.await.unwrap_or(Reply::Unknown)\n",
            "        answered.await.unwrap_or(if planted(\"an end counts as not sent\") { Reply::NotSent } else { Reply::Unknown })\n",
        ),
        (
            "            arrived.push(unit);\n",
            "            if planted(\"what was held back goes last\") { arrived.insert(0, unit); } else { arrived.push(unit); }\n",
        ),
    ],
    window: "",
};

const WAITERS: Source = Source {
    file: "dispatcher/src/waiters.rs",
    world: &[
        (
            "    collections::HashMap,\n    sync::{Arc, Mutex},\n",
            "    collections::BTreeMap as HashMap, sync::Arc,\n",
        ),
        (
            "use async_nats::Subscriber;",
            "use shuttle::sync::Mutex; use crate::world::{calls::{PgPool, read}, nats::{Bus, Subscriber}, planted};",
        ),
        ("bus::{BusError, connect::Bus},", "bus::BusError,"),
        ("    store::{PgPool, read},\n", ""),
        (
            "use crate::{expiry::Expiry, running::Running};",
            "use crate::world::{expiry::Expiry, running::Running};",
        ),
        ("std::sync::MutexGuard", "shuttle::sync::MutexGuard"),
        (
            "watch::Sender::new(Known::Open)",
            "watch::channel(Known::Open).0",
        ),
    ],
    mistakes: &[
        (
            "        let awaited = waiters.calls.entry(call)",
            "        if planted(\"the last to come is the only one\") { waiters.calls.remove(&call); }\n        let awaited = waiters.calls.entry(call)",
        ),
        (
            "        let call = Subjects::call_of_done(subject);\n",
            "        let call = Subjects::call_of_done(subject);\n        if planted(\"a word about another call is believed\") && let Some(wrong) = crate::waiters::as_of_another(&payload) && let Some(call) = call && let Some(waiting) = self.lock().calls.get(&call) { waiting.decided.send_replace(Known::Decided(wrong)); }\n",
        ),
        (
            "                Ok(Some(envelope)) => {\n",
            "                Ok(_) if planted(\"the poll tells nobody\") => {}\n                Ok(Some(envelope)) => {\n",
        ),
        (
            "awaited.secret.map(|secret| word.proven_by(secret))",
            "if planted(\"a word is believed without a proof\") { Some(EncodedEnvelope::read(word.into_message())) } else { awaited.secret.map(|secret| word.proven_by(secret)) }",
        ),
        (
            "        let mut waiters = self.waiters.lock();\n        // Under the lock",
            "        if planted(\"who leaves counts himself\") {\n            let mut waiters = self.waiters.lock();\n            if waiters.calls.get(&self.call).is_some_and(|awaited| awaited.decided.receiver_count() == 1) { waiters.calls.remove(&self.call); }\n            drop(waiters); shuttle::thread::yield_now(); return;\n        }\n        let mut waiters = self.waiters.lock();\n        // Under the lock",
        ),
    ],
    window: "impl Waiters { pub(crate) fn is_empty(&self) -> bool { self.lock().calls.is_empty() } }",
};

const PULL: Source = Source {
    file: "fleet/src/bus/pull.rs",
    world: &[
        (
            "use async_nats::{Client, Message, StatusCode, Subscriber};",
            "use crate::world::{nats::{Bus, Client, Message, StatusCode, Subject, Subscriber}, planted};",
        ),
        ("Option<async_nats::Subject>", "Option<Subject>"),
        (
            "use super::{BusError, connect::Bus};\nuse crate::{ids::QueueName, wire::subjects::Subjects};",
            "use fleet::{bus::BusError, ids::QueueName, wire::subjects::Subjects};",
        ),
    ],
    mistakes: &[
        (
            "Semaphore::new(slots)",
            "Semaphore::new(slots + usize::from(planted(\"there is a slot too many\")))",
        ),
        (
            "                    acker.again_after(Duration::ZERO).await;\n                }",
            "                    if !planted(\"what comes at the end is kept\") { acker.again_after(Duration::ZERO).await; }\n                }",
        ),
        (
            "None => acker.again_after(Self::PAUSE).await,",
            "None => if !planted(\"what is too much is kept\") { acker.again_after(Self::PAUSE).await },",
        ),
    ],
    window: "",
};

const INTAKE: Source = Source {
    file: "worker/src/intake.rs",
    world: &[
        (
            "    bus::pull::{Delivered, Puller},\n    telemetry::report,\n",
            "    telemetry::report,\n",
        ),
        (
            "use crate::{attempt, config::Config, worker::WorkerProcess};",
            "use crate::{permits::{Config, WorkerProcess, attempt}, woven::pull::{Delivered, Puller}, world::planted};",
        ),
    ],
    mistakes: &[
        (
            "Some(message) if intake.is_cancelled() =>",
            "Some(message) if intake.is_cancelled() && planted(\"a permit is lost at the end\") => message.permit.forget(),\n Some(message) if intake.is_cancelled() =>",
        ),
        (
            "    while attempts.join_next().await.is_some() {}\n",
            "    while !planted(\"nobody waits for attempts\") && attempts.join_next().await.is_some() {}\n",
        ),
    ],
    window: "",
};

const SLOTS: Source = Source {
    file: "dispatcher/src/slots.rs",
    world: &[(
        "use std::{\n    collections::HashMap,\n    sync::{Arc, Mutex, MutexGuard, PoisonError},\n};",
        "use std::{collections::BTreeMap as HashMap, sync::{Arc, PoisonError}}; use shuttle::sync::{Mutex, MutexGuard}; use crate::world::planted;",
    )],
    mistakes: &[
        (
            "        may_take(all, taken.all, tenants, has.slots, 1)?;\n",
            "        if !planted(\"a full house lets one in\") || taken.all < all { may_take(all, taken.all, tenants, has.slots, 1)?; }\n",
        ),
        (
            "        taken.all -= self.count;\n",
            "        if !planted(\"what a batch took beyond its first is forgotten\") || self.count == 1 { taken.all -= self.count; }\n",
        ),
        (
            "        let tenants = taken.tenants(has);\n",
            "        if planted(\"what a tenant has is read too early\") { drop(taken); shuttle::thread::yield_now(); taken = self.inner.taken(); }\n        let tenants = taken.tenants(has);\n",
        ),
    ],
    window: "impl Slots { pub(crate) fn free(&self) -> usize { let taken = self.inner.taken(); assert!(taken.by.values().map(|has| has.slots).sum::<usize>() == taken.all, \"a slot is nobody's\"); self.inner.all - taken.all } }",
};

const COUNTS: Source = Source {
    file: "worker/src/breaker/counts.rs",
    world: &[(
        "use std::{\n    collections::{HashMap, VecDeque},\n    sync::{Mutex, MutexGuard},\n    time::Duration,\n};",
        "use std::{collections::{HashMap, VecDeque}, time::Duration}; use shuttle::sync::{Mutex, MutexGuard}; use crate::world::planted;",
    )],
    mistakes: &[
        (
            "                one.reported = sent.counted;\n",
            "                one.reported = if planted(\"what came during a report is taken for reported\") { one.counted } else { sent.counted };\n",
        ),
        (
            "        std::mem::take(&mut *unused)\n",
            "        if planted(\"a permit is given back again\") { unused.clone() } else { std::mem::take(&mut *unused) }\n",
        ),
        (
            "            Some(last) => last.counted = last.counted.and(one),\n",
            "            Some(last) if planted(\"two of one second count as one\") => last.counted = one,\n            Some(last) => last.counted = last.counted.and(one),\n",
        ),
    ],
    window: "impl BreakerCounts { pub(crate) fn count_one(&self, circuit: &Circuit, one: Counted, terms: &BreakerTerms) { self.count(circuit, 7, Duration::from_secs(86_400), one, terms); } pub(crate) fn give_one_back(&self, circuit: &Circuit) { self.give_back(circuit.clone(), 7); } }",
};

const REPORTER: Source = Source {
    file: "worker/src/breaker/reporter.rs",
    world: &[
        (
            "    breaker::ReportVerdict,\n    checkpoint::{Checkpoint, reached},\n    delay::Reconnect,\n    registry::Registry,\n    store::{\n        PgConnection, StoreError,\n        breakers::{self, CountedSecond, REPORT_MAX, ReportAnswer},\n        session::within,\n    },\n",
            "    breaker::ReportVerdict, checkpoint::{Checkpoint, reached}, store::{StoreError, breakers::{CountedSecond, REPORT_MAX, ReportAnswer}},\n",
        ),
        (
            "use crate::worker::WorkerProcess;",
            "use crate::{reports::{PgConnection, Registry, WorkerProcess, breakers, within}, world::{delay::Reconnect, planted}};",
        ),
        ("Reconnect::up_to(PAUSE_MAX)", "Reconnect::default()"),
    ],
    mistakes: &[
        (
            "                worker.breakers.again();\n                stop",
            "                if !planted(\"silence ends the telling\") { worker.breakers.again(); }\n                stop",
        ),
        (
            "                worker.breakers.again();\n                connected",
            "                if !planted(\"what was counted before there was a connection is forgotten\") { worker.breakers.again(); }\n                connected",
        ),
        (
            "                connection = None;\n",
            "                if !planted(\"a broken connection is used again\") { connection = None; }\n",
        ),
        (
            "seconds.into_iter().partition(is_unsure);",
            "seconds.into_iter().partition(|one| !planted(\"what is undecided is not told again\") && is_unsure(one));",
        ),
        (
            "    if let Err(error) = tell(&worker, &mut connection).await {\n        tracing::debug!(",
            "    if !planted(\"the end tells nothing\") && let Err(error) = tell(&worker, &mut connection).await {\n        tracing::debug!(",
        ),
    ],
    window: "",
};

const BUDGETS: Source = Source {
    file: "worker/src/retry_budgets.rs",
    world: &[(
        "use std::{\n    collections::{HashMap, VecDeque},\n    sync::Mutex,\n};",
        "use std::collections::{HashMap, VecDeque}; use shuttle::sync::Mutex; use crate::world::planted;",
    )],
    mistakes: &[(
        "            tools.insert(tool.clone(), Bucket::new());\n",
        "            if planted(\"two make a bucket\") { drop(tools); shuttle::thread::yield_now(); tools = self.tools.lock().expect(\"nobody panics\"); }\n            tools.insert(tool.clone(), Bucket::new());\n",
    )],
    window: "",
};

#[expect(clippy::print_stdout, reason = "so a build script speaks to cargo")]
fn main() {
    println!("cargo::rerun-if-changed=weave.rs");
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    for source in &SOURCES {
        let path = here.join("../..").join(source.file);
        println!("cargo::rerun-if-changed={}", path.display());
        let name = Path::new(source.file)
            .file_name()
            .expect("a source is a file");
        fs::write(out.join(name), woven(source, &path))
            .expect("the build's own folder is writable");
    }
}

fn woven(source: &Source, path: &Path) -> String {
    let file = source.file;
    let mut text = fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{file} cannot be read; see tests/schedules: {error}"));
    if let Some((code, _tests)) = text.split_once("#[cfg(test)]\nmod tests {") {
        text.truncate(code.len());
    }
    for (place, instead) in EVERYWHERE {
        text = text.replace(place, instead);
    }
    for (place, instead) in source.world.iter().chain(source.mistakes) {
        let found = text.matches(place).count();
        assert!(
            found == 1,
            "{file} has {found} times what tests/schedules/weave.rs changes once:\n{place}"
        );
        text = text.replace(place, instead);
    }
    text + source.window
}

#[expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build where it is like that"
)]
fn variable(name: &str) -> String {
    env::var(name).expect("cargo sets it for a build")
}
