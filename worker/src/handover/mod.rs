//! Hands the files of a call over to its tool, before anything of the tool is started: a program gets a folder, a tool over HTTP or NATS
//! URLs of a gateway, a handler or an executor of the program's own reads them itself. Only calls with files come here.
//!
//! `names` makes names for a folder, `folder` writes one and has it gone in the end, `urls` signs; `handed` is what the attempt has of
//! either, `failures` why it has not.

mod failures;
pub(crate) mod folder;
mod handed;
mod names;
pub(crate) mod urls;

use fleet::{manifest::ExecutorSpec, outcome::ToolFailure};
use tokio::time::timeout_at;

use self::{folder::FileFolders, urls::FileUrls};
pub use self::{handed::HandedFiles, urls::GatewayUrl};
use crate::executors::AttemptContext;

/// Hands files over, for one worker.
#[derive(Debug)]
pub(crate) struct Handover {
    folders: FileFolders,
    urls: FileUrls,
}

impl Handover {
    /// With these.
    pub(crate) const fn new(folders: FileFolders, urls: FileUrls) -> Self {
        Self { folders, urls }
    }

    /// What a tool of this kind gets, within the time of its attempt. Nothing is started yet, so it may take a part of that.
    ///
    /// # Errors
    ///
    /// Why its attempt cannot begin: a file is gone or is not what it was, the ledger or the machine does not give it, this worker knows no
    /// gateway, or the attempt has to end. What is there of a folder is gone.
    pub(crate) async fn hand_over(
        &self,
        executor: &ExecutorSpec,
        context: &AttemptContext,
    ) -> Result<HandedFiles, ToolFailure> {
        let handing = async {
            match executor {
                ExecutorSpec::Process(_) => {
                    let folder = self.folders.write(&context.files).await;
                    folder.map(HandedFiles::in_folder)
                }
                ExecutorSpec::Http(_) | ExecutorSpec::Nats(_) => {
                    let (tenant, over_at) = (&context.tenant, context.deadline_at);
                    let signed = self.urls.sign(context.files.list(), tenant, over_at).await;
                    signed.map(HandedFiles::at_urls)
                }
                ExecutorSpec::Native(_)
                | ExecutorSpec::Own(_)
                | ExecutorSpec::Sql(_)
                | ExecutorSpec::Mcp(_)
                | ExecutorSpec::Chat(_)
                | ExecutorSpec::Client(_) => Ok(HandedFiles::default()),
            }
        };
        tokio::select! {
            biased;
            reason = context.stop.told() => Err(reason.before_anything_was_sent()),
            handed = timeout_at(context.until, handing) => handed.unwrap_or_else(|_elapsed| Err(failures::too_late())),
        }
    }
}
