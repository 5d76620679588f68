//! `toolfleet call`: one request, as any client in any language would send it; or a file of them, in batches.

mod bulk;
mod flags;
pub(super) mod pair;
pub(super) mod request;

use std::process::ExitCode;

use fleet::wire::code::Code;
use fleet_client::calls::Submission;

pub(super) use self::flags::Call;
use super::{
    ask::{advice, unanswered},
    connect,
    files::upload::{Upload, upload},
    output,
};

impl Call {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        if self.bulk.is_asked() {
            return Box::pin(bulk::run(&self)).await;
        }
        let mut submission = Submission {
            tenant: self.tenant.clone(),
            tool: self.tool.clone().expect("clap asks for it without --bulk"),
            args: request::body(&self)?.into(),
            options: request::options(&self),
        };
        let client = connect::client(&self.bus).await?;
        for path in &self.paths {
            let wanted = Upload {
                tenant: &self.tenant,
                path,
                name: None,
                mime: None,
            };
            let (file, _) = Box::pin(upload(&client, &wanted)).await?;
            submission.options.files.push(file);
        }
        let answer = client
            .submit(submission)
            .await
            .map_err(|problem| unanswered(problem, advice(self.key.is_some())))?;
        let (head, envelope) = (answer.head()?, answer.text()?);
        output::print_text(envelope, self.json)?;
        if head.code() == Code::MissingIdempotencyKey.as_str() {
            output::warn(
                "give the key with --key: a value that stands for what is wanted, such as an order number, and the same one with \
                 every repetition",
            );
        }
        Ok(ExitCode::from(u8::from(head.is_error)))
    }
}
