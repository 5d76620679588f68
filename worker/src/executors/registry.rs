//! **The executors of a worker**, by the kind of tool that each runs.

use std::{fmt, time::Duration};

use fleet::{
    manifest::{ExecutorSpec, Manifest, OwnSpec},
    outcome::ToolFailure,
    said,
    wire::code::Code,
};
use tokio::time::timeout;

use super::executor::{BoxError, Executor, StartContext};

/// How long an executor may take to start.
const START_MAX: Duration = Duration::from_secs(30);
/// How long an executor may take to stop.
const STOP_MAX: Duration = Duration::from_secs(5);

/// The executors of a worker, in the order in which they start.
#[derive(Default)]
pub(crate) struct Executors(Vec<RegisteredExecutor>);

struct RegisteredExecutor {
    kind: String,
    /// Whether it belongs to the worker's own program: such a kind may have any name.
    is_own: bool,
    executor: Box<dyn Executor>,
}

/// An executor that did not start.
#[derive(Debug, thiserror::Error)]
#[error("the executor {kind} cannot start")]
pub struct ExecutorStartError {
    kind: String,
    #[source]
    source: BoxError,
}

impl fmt::Debug for Executors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.0.iter().map(|registered| &registered.kind);
        f.debug_set().entries(kinds).finish()
    }
}

impl Executors {
    /// Registers a built-in kind.
    #[must_use]
    pub(crate) fn with(mut self, kind: &str, executor: impl Executor + 'static) -> Self {
        self.0.push(RegisteredExecutor {
            kind: kind.to_owned(),
            is_own: false,
            executor: Box::new(executor),
        });
        self
    }

    /// Registers a kind of the worker's own program.
    ///
    /// # Errors
    ///
    /// A sentence: its name is not one that a manifest can write, or is registered already.
    pub(crate) fn add_own(
        &mut self,
        kind: &str,
        executor: impl Executor + 'static,
    ) -> Result<(), String> {
        if !OwnSpec::is_kind(kind) {
            return Err(format!(
                "executor {kind:?}: a kind has 1 to 64 characters of a-z, 0-9, _ and -, and a letter first"
            ));
        }
        if self.find(kind, true).is_some() {
            return Err(format!(
                "executor {kind}: it is here twice; give each kind a name of its own"
            ));
        }
        self.0.push(RegisteredExecutor {
            kind: kind.to_owned(),
            is_own: true,
            executor: Box::new(executor),
        });
        Ok(())
    }

    /// The executor of this tool.
    ///
    /// # Errors
    ///
    /// This worker has none. Another worker may have it, so the call waits.
    pub(crate) fn of(&self, manifest: &Manifest) -> Result<&dyn Executor, ToolFailure> {
        let spec = &manifest.executor;
        let (kind, is_own) = (spec.kind(), matches!(spec, ExecutorSpec::Own(_)));
        self.find(kind, is_own).ok_or_else(|| {
            let what = said!(
                "this worker has no executor of the kind {kind}",
                "这个 worker 没有 {kind} 类型的执行器"
            );
            ToolFailure::new(Code::Unavailable, what)
        })
    }

    /// Starts one after the other; if one fails, stops those that have started. Not cancel-safe.
    ///
    /// # Errors
    ///
    /// One did not start in time.
    pub(crate) async fn start(&self, worker: &StartContext) -> Result<(), ExecutorStartError> {
        for (at, RegisteredExecutor { kind, executor, .. }) in self.0.iter().enumerate() {
            let started = timeout(START_MAX, executor.start(worker)).await;
            let started = started.unwrap_or_else(|elapsed| Err(elapsed.into()));
            if let Err(source) = started {
                stop(&self.0[..at]).await;
                let kind = kind.clone();
                return Err(ExecutorStartError { kind, source });
            }
        }
        Ok(())
    }

    /// Stops them in reverse order. One that takes too long is left.
    pub(crate) async fn stop(&self) {
        stop(&self.0).await;
    }

    fn find(&self, kind: &str, is_own: bool) -> Option<&dyn Executor> {
        let mut registered = self.0.iter();
        let found = registered.find(|one| one.is_own == is_own && one.kind == kind);
        found.map(|one| &*one.executor)
    }
}

async fn stop(started: &[RegisteredExecutor]) {
    for RegisteredExecutor { kind, executor, .. } in started.iter().rev() {
        if timeout(STOP_MAX, executor.stop()).await.is_err() {
            tracing::warn!(kind, "an executor did not stop in time and is dropped");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use fleet::{fencing::StateDir, ids::WorkerId, secrets::Secrets};
    use futures_util::{FutureExt, future::BoxFuture};
    use serde_json::{Value, json};

    use super::*;
    use crate::executors::Prepared;

    /// Records what was called.
    struct Noted {
        name: &'static str,
        notes: Arc<Mutex<Vec<String>>>,
        starts: bool,
    }

    impl Noted {
        fn note(&self, what: &str) {
            let note = format!("{what} {}", self.name);
            self.notes.lock().unwrap().push(note);
        }
    }

    impl Executor for Noted {
        fn start<'a>(&'a self, _worker: &'a StartContext) -> BoxFuture<'a, Result<(), BoxError>> {
            async {
                self.note("start");
                if self.starts {
                    Ok(())
                } else {
                    Err("no".into())
                }
            }
            .boxed()
        }

        fn prepare(
            &self,
            _manifest: &Manifest,
            _arguments: &Value,
            _secrets: &Secrets,
        ) -> Result<Box<dyn Prepared>, ToolFailure> {
            unreachable!("nothing is run")
        }

        fn stop(&self) -> BoxFuture<'_, ()> {
            async {
                self.note("stop");
                // The last one hangs.
                if self.name == "c" {
                    std::future::pending::<()>().await;
                }
            }
            .boxed()
        }
    }

    fn manifest(executor: &Value) -> Manifest {
        let manifest = json!({
            "name": "t", "version": 1, "description": "d", "effect": "read",
            "input_schema": {"type": "object"}, "executor": executor,
        });
        serde_json::from_value(manifest).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn they_start_in_order_and_stop_in_the_other_however_long_one_takes() {
        let folder = tempfile::tempdir().unwrap();
        let lock = StateDir::open(&folder.path().join("locks")).unwrap();
        let worker = StartContext {
            worker: "w".to_owned(),
            lock: Arc::new(lock.hold(WorkerId::generate()).unwrap()),
        };
        let notes = Arc::default();
        let noted = |name, starts| Noted {
            name,
            notes: Arc::clone(&notes),
            starts,
        };
        let mut executors = Executors::default().with("http", noted("a", true));
        executors.add_own("b", noted("b", true)).unwrap();
        executors.add_own("c", noted("c", true)).unwrap();
        executors.start(&worker).await.unwrap();
        executors.stop().await;
        let order = [
            "start a", "start b", "start c", "stop c", "stop b", "stop a",
        ];
        assert_eq!(*notes.lock().unwrap(), order);

        notes.lock().unwrap().clear();
        executors.add_own("d", noted("d", false)).unwrap();
        executors.add_own("e", noted("e", true)).unwrap();
        let refused = executors.start(&worker).await.unwrap_err();
        assert_eq!(refused.to_string(), "the executor d cannot start");
        let order = [
            "start a", "start b", "start c", "start d", "stop c", "stop b", "stop a",
        ];
        assert_eq!(*notes.lock().unwrap(), order);
    }

    #[test]
    fn a_kind_of_ones_own_is_never_one_of_ours() {
        let notes = Arc::default();
        let noted = |name| Noted {
            name,
            notes: Arc::clone(&notes),
            starts: true,
        };
        let mut executors = Executors::default().with("http", noted("ours"));
        let own = manifest(&json!({"own": {"kind": "http"}}));
        let refused = executors.of(&own).err().unwrap();
        assert_eq!(refused.code, Code::Unavailable);
        executors.add_own("http", noted("own")).unwrap();
        assert!(executors.of(&own).is_ok());
        assert!(executors.add_own("http", noted("again")).is_err());
        for name in ["", "Journal", "1st", "a b"] {
            assert!(executors.add_own(name, noted("x")).is_err(), "{name}");
        }
        let sql = manifest(&json!({"sql": {"statement": "SELECT 1", "database": "fleet"}}));
        assert!(executors.of(&sql).is_err());
    }
}
