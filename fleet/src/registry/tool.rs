//! A version of a tool, ready to be called: its schemas compiled, and what they say of answers.

use serde_json::{Value, value::RawValue};

use crate::{
    arguments::{self, Limits, Schema, SchemaProblem},
    call::Language,
    content::{self, NoContent},
    manifest::{AnswerForm, Manifest},
    outcome::ToolFailure,
    said,
    wire::{code::Code, message::Message},
};

/// One version of one tool, with its schemas compiled.
#[derive(Debug)]
pub struct Tool {
    /// What was applied.
    pub manifest: Manifest,
    /// Its input schema, compiled.
    pub schema: Schema,
    /// Its output schema, compiled, if it has one.
    pub output: Option<Schema>,
}

impl Tool {
    /// Reads a manifest as the ledger has it.
    pub(super) fn read(manifest: &str) -> Result<Self, String> {
        let manifest: Manifest =
            serde_json::from_str(manifest).map_err(|error| error.to_string())?;
        let first = |problems: Vec<SchemaProblem>| {
            let first = problems.into_iter().next();
            first.map(|problem| problem.message).unwrap_or_default()
        };
        let schema = Schema::compile_input(&manifest.caller_schema()).map_err(first)?;
        let output = manifest.output_schema.as_ref().map(Schema::compile);
        Ok(Self {
            output: output.transpose().map_err(first)?,
            manifest,
            schema,
        })
    }

    /// Whether there are answers that do not fit: [`Self::answer_problem`] finds out.
    pub fn is_choosy(&self) -> bool {
        self.output.is_some() || self.manifest.output == AnswerForm::Content
    }

    /// Why an answer is none of blocks, where it has to be one, or does not fit the tool's `output_schema`; `None` where it fits, or where
    /// any does.
    ///
    /// The reason quotes no value of the answer. Takes long for a large answer: do not run it on a thread of the runtime.
    pub fn answer_problem(&self, answer: &RawValue) -> Option<ToolFailure> {
        if !self.is_choosy() {
            return None;
        }
        let problem = match arguments::parse_any(answer.get().as_bytes(), &Limits::ANSWER) {
            Ok(value) => match self.manifest.output {
                AnswerForm::Json => self.violations(&value)?,
                AnswerForm::Content => match content::flaw(&value) {
                    Some(flaw) => return Some(no_content(&flaw)),
                    None => self.violations(content::structured(&value).unwrap_or(&Value::Null))?,
                },
            },
            Err(error) => error.message,
        };
        let message = Message::new(
            format!(
                "the tool's answer does not fit its output_schema: {}",
                problem.told(Language::En)
            ),
            format!(
                "工具返回的结果不符合它的 output_schema：{}",
                problem.told(Language::Zh)
            ),
        );
        Some(ToolFailure::new(Code::OutputInvalid, message))
    }

    /// Why a value does not fit the `output_schema`, without any of it.
    fn violations(&self, value: &Value) -> Option<Message> {
        let violations = self.output.as_ref()?.validate(value);
        if violations.is_empty() {
            return None;
        }
        let shown = match self.manifest.output {
            AnswerForm::Json => Message::fixed("the answer", "结果"),
            AnswerForm::Content => Message::fixed("structured", "structured"),
        };
        let violations = violations.without_values(|_everything| true);
        Some(violations.summary_of(&shown))
    }
}

fn no_content(flaw: &NoContent) -> ToolFailure {
    let (path, why) = (&flaw.path, &flaw.why);
    let message = if path.is_empty() {
        said!(
            "the tool's answer is not content: {why}",
            "工具返回的结果不是 content：{why}",
            why
        )
    } else {
        said!(
            "the tool's answer is not content: {path}: {why}",
            "工具返回的结果不是 content：{path}：{why}",
            why
        )
    };
    ToolFailure::new(Code::OutputInvalid, message)
}

#[cfg(test)]
mod tests;
