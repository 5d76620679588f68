//! Sends one request on one route, and reads its answer until the attempt must end.

use std::{
    future,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use fleet::wire::chunks::ModelChunks;
use reqwest::Client;
use secrecy::SecretString;
use tokio::time::{Instant, sleep_until, timeout};

use super::{
    class::{self, JudgedAnswer, RouteAnswer, RouteVerdict},
    dialect::{Dialect, StreamSoFar},
    stream::{self, AskedStream, StreamTimes, StreamedAnswer, StreamedEnd},
};
use crate::executors::{
    AttemptContext,
    http::{
        cut_off, is_stream, read,
        response::{BodyEnd, HttpAnswer},
        transport, unanswered,
    },
};

/// What came of a request that was sent, and when.
pub(super) struct Exchange {
    pub(super) answer: RouteAnswer,
    /// How long after the request the first chunk of its stream came.
    pub(super) first_token: Option<Duration>,
    /// What is known of the cost of a stream without a reply.
    pub(super) so_far: Option<StreamSoFar>,
}

impl From<RouteAnswer> for Exchange {
    /// Without a chunk.
    fn from(answer: RouteAnswer) -> Self {
        Self {
            answer,
            first_token: None,
            so_far: None,
        }
    }
}

/// Sends the requests of an attempt, one after the other.
pub(super) struct RequestSender {
    pub(super) client: Client,
    pub(super) dialect: &'static dyn Dialect,
    /// Of the stream that it asks for, if it does.
    pub(super) times: Option<StreamTimes>,
    /// Whether chunks of a route were told that has no answer yet.
    pub(super) has_told: AtomicBool,
    pub(super) output_limit: usize,
    /// Masked in every message.
    pub(super) secrets: Vec<SecretString>,
}

impl RequestSender {
    /// Sends a request once and reads the answer. Dropping it closes the connection.
    pub(super) async fn exchange(
        &self,
        route: &str,
        message: reqwest::Request,
        context: &AttemptContext,
    ) -> Exchange {
        let origin = message.url().origin().ascii_serialization();
        if self.has_told.swap(false, Ordering::Relaxed) {
            let restart = ModelChunks::restart(route);
            context.progress.output(restart);
        }
        let sent_at = Instant::now();
        let silence = async {
            match self.times {
                Some(times) => sleep_until(sent_at + times.first_token).await,
                None => future::pending().await,
            }
        };
        let mut cut = Box::pin(cut_off(context));
        let sent = tokio::select! {
            biased;
            sent = self.client.execute(message) => sent,
            end = &mut cut => return RouteAnswer::Over(unanswered(end, &origin)).into(),
            () = silence => {
                let limit = self.times.map(|times| times.first_token).unwrap_or_default();
                return RouteAnswer::Judged(class::silent(limit, false)).into();
            }
        };
        let response = match sent {
            Ok(response) => response,
            Err(error) => {
                let failed = transport::failed(error, &origin);
                let failed = JudgedAnswer::Failed(RouteVerdict::Next, failed, None);
                return RouteAnswer::Judged(failed).into();
            }
        };
        match self.times {
            Some(times) if is_stream(&response) => {
                let asked = AskedStream {
                    dialect: self.dialect,
                    route,
                    times,
                    sent_at,
                    output_limit: self.output_limit,
                    progress: &context.progress,
                };
                let streamed = Box::pin(stream::read(response, asked, cut)).await;
                self.streamed(streamed, &origin)
            }
            Some(StreamTimes { idle, .. }) => {
                // A plain answer to a request for a stream: it was made before its head was sent.
                let reading = Box::pin(read(response, self.output_limit, cut));
                match timeout(idle, reading).await {
                    Ok(answer) => self.answered(&answer, &origin).into(),
                    Err(_elapsed) => RouteAnswer::Judged(class::silent(idle, true)).into(),
                }
            }
            None => {
                let answer = read(response, self.output_limit, cut).await;
                self.answered(&answer, &origin).into()
            }
        }
    }

    fn answered(&self, answer: &HttpAnswer, origin: &str) -> RouteAnswer {
        match answer.end {
            BodyEnd::TimedOut | BodyEnd::Stopped(_) => {
                RouteAnswer::Over(unanswered(answer.end, origin))
            }
            BodyEnd::Whole | BodyEnd::TooLarge | BodyEnd::Broken | BodyEnd::NoResult => {
                RouteAnswer::Judged(class::judge(
                    self.dialect,
                    answer,
                    self.output_limit,
                    &self.secrets,
                ))
            }
        }
    }

    fn streamed(&self, streamed: StreamedAnswer, origin: &str) -> Exchange {
        let StreamedAnswer {
            end,
            first_token,
            mended,
            so_far,
        } = streamed;
        self.has_told
            .store(first_token.is_some(), Ordering::Relaxed);
        let mut answer = match end {
            StreamedEnd::Silent(judged) => RouteAnswer::Judged(judged),
            StreamedEnd::Over(end) => RouteAnswer::Over(unanswered(end, origin)),
            StreamedEnd::Answer(answer) => self.answered(&answer, origin),
        };
        if let RouteAnswer::Judged(JudgedAnswer::Reply(reply)) = &mut answer
            && let Some(mended) = mended
        {
            reply.flaw.get_or_insert(mended);
        }
        Exchange {
            answer,
            first_token,
            so_far,
        }
    }
}
