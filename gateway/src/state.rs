//! What every endpoint needs, as data. None of it decides anything: another gateway has the same.

use std::sync::Arc;

use fleet::store::PgPool;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    ask::Dispatchers,
    auth::Authority,
    body::BodyRoom,
    desk::CallDesk,
    edge::{hosts::Expected, unread::UnreadAnswers},
    events::{once::Stories, places::StreamPlaces, sessions::Sessions},
    files::Files,
    looks::Looks,
    mcp::{client_sessions::ClientSessions, tool_bell::ToolBell},
    models::smallest::WholeStreams,
    turns::waited::AnswersWaited,
};

/// What endpoints work on.
#[derive(Debug)]
pub(crate) struct Gateway {
    /// Whom everything is asked that changes something.
    pub(crate) dispatchers: Dispatchers,
    /// The documented views.
    pub(crate) views: PgPool,
    /// The same, for statements about calls that are named by their ids.
    pub(crate) views_of_calls: PgPool,
    /// By which names and from which pages it is asked.
    pub(crate) expected: Expected,
    /// Who asks.
    pub(crate) authority: Authority,
    /// The sessions that somebody follows.
    pub(crate) sessions: Sessions,
    /// The streams that are open.
    pub(crate) streams: StreamPlaces,
    /// The files that go through it.
    pub(crate) files: Files,
    /// The turns whose final call is waited for.
    pub(crate) answers_waited: AnswersWaited,
    /// What followers of turns are told.
    pub(crate) stories: Stories,
    /// Where calls are made and waited for: with the same dispatchers, stop and tasks.
    pub(crate) desk: Arc<CallDesk>,
    /// The clients of older revisions of MCP that can be asked.
    pub(crate) client_sessions: ClientSessions,
    /// Who listens for changed tools over MCP.
    pub(crate) tool_bell: Arc<ToolBell>,
    /// The room for bodies.
    pub(crate) bodies: BodyRoom,
    /// Where replies of models become streams.
    pub(crate) whole_streams: WholeStreams,
    /// The looks through the history that no index shortens.
    pub(crate) looks: Looks,
    /// Where the console leads for a trace.
    pub(crate) trace_url: Option<String>,
    /// What was answered and is not read yet.
    pub(crate) unread: UnreadAnswers,
    /// Cancelled when waiting requests are to be answered with where their calls stand.
    pub(crate) stopping: CancellationToken,
    /// What outlives its request: calls that are cancelled when their caller goes away, and what
    /// writes streams.
    pub(crate) tasks: TaskTracker,
}
