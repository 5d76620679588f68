//! The promise that every native tool keeps by itself: it ends when it is told to. The suite of the executors asks for it.

use conformance::{Behaviour, BoxFuture, Case, Manifest, Rig, Secrets, Watch};
use example_make_image::{Answer, MakeImage, Picture};
use serde_json::json;
use tokio_util::task::TaskTracker;
use worker::{
    Effect, Tool, ToolContext, ToolError,
    executors::{Executor, native::NativeExecutor},
    tool::Settings,
};

/// The tool, with a tracker of what of it is running.
struct Watched(TaskTracker);

impl Tool for Watched {
    type Args = Picture;
    type Output = Answer;
    const NAME: &'static str = MakeImage::NAME;
    const VERSION: i32 = MakeImage::VERSION;
    const EFFECT: Effect = MakeImage::EFFECT;
    const DESCRIPTION: &'static str = MakeImage::DESCRIPTION;

    fn settings(&self) -> Settings {
        MakeImage.settings()
    }

    async fn call(&self, asked: Picture, told: ToolContext) -> Result<Answer, ToolError> {
        let _at_work = self.0.token();
        MakeImage.call(asked, told).await
    }
}

struct Own {
    executor: NativeExecutor,
    manifest: Manifest,
    running: TaskTracker,
}

impl Rig for Own {
    fn name(&self) -> &str {
        MakeImage::NAME
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
            // Within the set each pixel takes all of its steps: the slowest picture there is.
            let slowest =
                json!({"kind": "fractal", "x": -0.1, "y": 0, "zoom": 100, "detail": 2000});
            Case::Tool(Box::new(conformance::Tool {
                manifest: self.manifest.clone(),
                arguments: json!({"width": 1600, "height": 1200, "drawing": slowest}),
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
async fn the_slowest_picture_ends_when_it_must() {
    let (mut executor, running) = (NativeExecutor::default(), TaskTracker::new());
    let manifest = executor.add(Watched(running.clone())).unwrap();
    let own = Own {
        executor,
        manifest,
        running,
    };
    let report = conformance::exercise(&own).await;
    assert!(report.is_kept(), "{report}");
    assert!(own.running.is_empty(), "it holds its thread");
}
