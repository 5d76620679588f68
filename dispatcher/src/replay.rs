//! A call that is there already: whose key it is, where it stands, and waiting for it.

use std::time::Duration;

use fleet::{
    call::Language,
    ids::{CallId, Label},
    store::{
        accept::NewCall,
        read::{self, CallRow, KeyRow},
    },
    wire::{code::Code, envelope::Envelope, headers::Prefer, message::Message},
};

use crate::{
    accept::Door,
    answer::{Answer, Refusal},
    check::Submission,
};

const UNKNOWN_VERSION: Message = Message::fixed(
    "this idempotency key names a call of a version of the tool that this dispatcher has not read yet",
    "这个幂等键属于该工具某个版本的调用，而这个 dispatcher 还没有读到那个版本",
);

fn reused() -> Refusal {
    let what = Message::fixed(
        "this idempotency key already names a call with another tool or other arguments",
        "这个幂等键已经用于另一个工具或另一组参数的调用",
    );
    Refusal::new(Code::IdempotencyKeyReused, what)
}

impl Door {
    /// Whether a submission asks for the very call that its key names: the same bytes, or the same arguments as the tool's
    /// version that took the call gets them.
    pub(crate) async fn is_call_of(
        &self,
        submission: &Submission,
        key: &KeyRow,
    ) -> Result<(), Refusal> {
        // A key that was made of arguments is theirs alone, whatever the call's own version would make of what was sent.
        if submission.headers.key.is_none() {
            return Ok(());
        }
        if key.tool != submission.tool.as_str() {
            return Err(reused());
        }
        if key.original_hash == submission.original_hash {
            return Ok(());
        }
        let tool = self.registry.version(&submission.tool, key.tool_version);
        let is_known = tool.is_some();
        match submission.hash_for(tool).await {
            Some(hash) if key.args_hash == hash => Ok(()),
            Some(_) | None if is_known => Err(reused()),
            Some(_) | None => Err(Refusal::new(Code::StoreUnavailable, UNKNOWN_VERSION)),
        }
    }

    /// Answers with the call that a key names.
    pub(crate) async fn replay(
        &self,
        submission: &Submission,
        found: &KeyRow,
    ) -> Result<Answer, Refusal> {
        self.is_call_of(submission, found).await?;
        self.attach(submission, found.call_id, true).await
    }

    pub(crate) async fn attach(
        &self,
        submission: &Submission,
        call: CallId,
        replayed: bool,
    ) -> Result<Answer, Refusal> {
        match submission.headers.prefer {
            Prefer::RespondAsync => self.as_it_stands(call, &submission.tenant, replayed).await,
            Prefer::Wait(wait) => {
                self.wait_for(call, &submission.tenant, wait, replayed)
                    .await
            }
        }
    }

    /// Waits for a call that another submission made, perhaps at another dispatcher: subscribe, flush, look, then wait.
    pub(crate) async fn wait_for(
        &self,
        call: CallId,
        tenant: &Label,
        wait: Duration,
        replayed: bool,
    ) -> Result<Answer, Refusal> {
        let mut waiting = self.waiters.register(call);
        let elsewhere = self
            .bus
            .client
            .subscribe(self.bus.subjects.done_of_call(call))
            .await
            .ok();
        // In place before the row is read. Without it the poll finds out within a second.
        self.bus.flush().await;
        let row = self.find(call, tenant).await?;
        if !row.state.answers_waiters()
            && let Some(envelope) = waiting.decided(wait, row.left, elsewhere).await
            && let Ok(envelope) = envelope.decode()
        {
            let envelope = Envelope {
                replayed,
                ..envelope
            };
            return Ok(self.result(envelope, row.language));
        }
        self.as_it_stands(call, tenant, replayed).await
    }

    /// The result envelope of a call that is decided, the accepted envelope of one that is not.
    pub(crate) async fn as_it_stands(
        &self,
        call: CallId,
        tenant: &Label,
        replayed: bool,
    ) -> Result<Answer, Refusal> {
        let row = self.find(call, tenant).await?;
        match row
            .envelope(replayed)
            .map_err(|error| Refusal::unreadable(&error))?
        {
            Some(envelope) => Ok(self.result(envelope, row.language)),
            None => Ok(Answer::accepted(&row.accepted(replayed))),
        }
    }

    /// The most bytes of an answer, with room for headers and protocol.
    pub(crate) fn payload_max(&self) -> usize {
        self.bus.payload_max().saturating_sub(4 * 1024)
    }

    /// A result, as large as NATS carries it.
    pub(crate) fn result(&self, envelope: Envelope, language: Language) -> Answer {
        Answer::result(envelope, self.payload_max(), language)
    }

    /// The call, if it is this tenant's: a foreign one answers exactly like one that does not exist.
    async fn find(&self, call: CallId, tenant: &Label) -> Result<CallRow, Refusal> {
        let row = read::find(&self.pool, call)
            .await
            .map_err(|error| Refusal::unreadable(&error))?;
        row.filter(|row| row.tenant == *tenant)
            .ok_or_else(Refusal::not_found)
    }

    pub(crate) async fn find_key(
        &self,
        tenant: &Label,
        key_hash: &[u8; 32],
    ) -> Result<Option<KeyRow>, Refusal> {
        let found = read::find_key(&self.pool, tenant, key_hash).await;
        found.map_err(|error| Refusal::unreadable(&error))
    }

    pub(crate) async fn find_taken_key(&self, call: &NewCall) -> Result<Option<KeyRow>, Refusal> {
        match &call.key {
            Some(key) => self.find_key(&call.tenant, &key.hash).await,
            None => Ok(None),
        }
    }
}
