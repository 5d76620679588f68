//! The example of docs/executors/native.md, word for word from the next line on.

use conformance::{Behaviour, BoxFuture, Case, Manifest, Rig, Secrets, Watch};
use serde_json::json;
use tokio_util::task::TaskTracker;
use worker::{
    Effect, ToolContext, ToolError,
    executors::{Executor, native::NativeExecutor},
};

/// Adds up all numbers below one. A task that holds a token of the tracker is running.
struct Sum(TaskTracker);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Below {
    below: u64,
}

impl worker::Tool for Sum {
    type Args = Below;
    type Output = u64;
    const NAME: &'static str = "sum";
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Read;
    const DESCRIPTION: &'static str = "Adds up all whole numbers below one.";

    async fn call(&self, Below { below }: Below, told: ToolContext) -> Result<u64, ToolError> {
        let _at_work = self.0.token();
        let mut sum = 0_u64;
        for number in 0..below {
            told.proceed().await?;
            sum = sum.wrapping_add(number);
        }
        Ok(sum)
    }
}

struct Own {
    executor: NativeExecutor,
    manifest: Manifest,
    running: TaskTracker,
}

impl Rig for Own {
    fn name(&self) -> &str {
        "sum"
    }

    fn executor(&self) -> &dyn Executor {
        &self.executor
    }

    fn effects(&self) -> &[Effect] {
        &[Effect::Read]
    }

    fn tool(&self, behaviour: Behaviour, _effect: Effect) -> BoxFuture<'_, Case> {
        use Behaviour::{KeepsTheDeadline, ObeysCancel, ObeysDrain};
        Box::pin(async move {
            if !matches!(behaviour, KeepsTheDeadline | ObeysCancel | ObeysDrain) {
                return Case::NotApplicable("it is the executor's to keep");
            }
            Case::Tool(Box::new(conformance::Tool {
                manifest: self.manifest.clone(),
                arguments: json!({"below": 1_000_000_000}),
                secrets: Secrets::new(None),
                watch: Box::new(Running(self.running.clone())),
            }))
        })
    }
}

struct Running(TaskTracker);

impl Watch for Running {
    fn begun(&self) -> BoxFuture<'_, usize> {
        Box::pin(async { self.0.len() })
    }

    fn at_rest(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { self.0.is_empty() })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn my_tool_ends_when_it_must() {
    let (mut executor, running) = (NativeExecutor::default(), TaskTracker::new());
    let manifest = executor.add(Sum(running.clone())).unwrap();
    let own = Own {
        executor,
        manifest,
        running,
    };
    let report = conformance::exercise(&own).await;
    assert!(report.is_kept(), "{report}");
    assert!(own.running.is_empty(), "it holds its thread");
}
