//! The tools that the conformance suite of the Model Context Protocol calls (`tests/mcp/run.py`), as native tools of a worker.
//!
//! Names, arguments and answers are those that the suite prescribes.

use std::process::ExitCode;

use worker::Worker;

mod asking;
mod content;
mod fixture;
mod tasks;

fn main() -> ExitCode {
    Worker::builder()
        .tool(content::SimpleText)
        .tool(content::ImageContent)
        .tool(content::AudioContent)
        .tool(content::EmbeddedResource)
        .tool(content::MixedContent)
        .tool(content::ErrorHandling)
        .tool(content::WithLogging)
        .tool(content::Logging)
        .tool(content::WithProgress)
        .tool(asking::StreamingElicitation)
        .tool(asking::MissingCapability)
        .tool(content::TriggerToolChange)
        .tool(asking::Sampling)
        .tool(asking::Elicitation)
        .tool(asking::ElicitationDefaults)
        .tool(asking::ElicitationEnums)
        .tool(asking::AsksElicitation)
        .tool(asking::AsksSampling)
        .tool(asking::AsksRoots)
        .tool(asking::AsksWithState)
        .tool(asking::AsksTampered)
        .tool(asking::AsksMuch)
        .tool(asking::AsksRounds)
        .tool(asking::AsksByCapabilities)
        .tool(tasks::Greet)
        .tool(tasks::SlowCompute)
        .tool(tasks::FailingJob)
        .tool(tasks::ConfirmDelete)
        .tool(tasks::MultiInput)
        .tool(tasks::AsksThenTask)
        .run()
}
