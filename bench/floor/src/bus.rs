//! The connections to NATS, the subjects, and the stream of pointers.

use anyhow::Context;
use async_nats::{
    Client, ConnectOptions, ServerAddr,
    jetstream::{
        self, ErrorCode,
        consumer::{AckPolicy, pull},
        context::DeleteStreamErrorKind,
        stream::{Config, DiscardPolicy, RetentionPolicy, StorageType},
    },
};
use percent_encoding::percent_decode_str;

/// The subject for callers.
pub const CALLS: &str = "toolfleet_floor.calls";
/// Where the worker reports completed calls.
pub const DONE: &str = "toolfleet_floor.done";
/// Pointers, one subject for each call.
pub const JOBS: &str = "toolfleet_floor.jobs";
/// Where the worker requests pointers.
pub const PULL: &str = "$JS.API.CONSUMER.MSG.NEXT.TOOLFLEET_FLOOR.worker";
const STREAM: &str = "TOOLFLEET_FLOOR";

/// A connection of its own.
///
/// # Errors
///
/// No server answers.
pub async fn connect(url: &str, part: &str) -> anyhow::Result<Client> {
    // The error would quote the URL, which may contain a password.
    let address: ServerAddr = url
        .parse()
        .ok()
        .context("read the URL of NATS: it is not a nats:// URL")?;
    let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let options = match (address.username().map(plain), address.password().map(plain)) {
        (Some(user), Some(password)) => ConnectOptions::with_user_and_password(user, password),
        (Some(token), None) => ConnectOptions::with_token(token),
        (None, _) => ConnectOptions::new(),
    };
    let options = options
        .name(format!("toolfleet-floor {part}"))
        .client_capacity(8192);
    options.connect(address).await.context("connect to NATS")
}

/// Makes the stream again: pointers in files, one for each subject, removed when acknowledged.
///
/// # Errors
///
/// NATS refuses, or has no `JetStream`.
pub async fn make_stream(client: &Client) -> anyhow::Result<()> {
    remove_stream(client).await?;
    let jetstream = jetstream::new(client.clone());
    let making = jetstream.create_stream(Config {
        name: STREAM.to_owned(),
        subjects: vec![format!("{JOBS}.*")],
        retention: RetentionPolicy::WorkQueue,
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        discard_new_per_subject: true,
        max_messages_per_subject: 1,
        ..Config::default()
    });
    let stream = making.await.context("make the stream of pointers")?;
    let making = stream.create_consumer_strict(pull::Config {
        durable_name: Some("worker".to_owned()),
        ack_policy: AckPolicy::Explicit,
        max_ack_pending: 20_000,
        max_waiting: 8192,
        ..pull::Config::default()
    });
    making.await.context("make the consumer of pointers")?;
    Ok(())
}

/// Removes the stream, if it is there.
///
/// # Errors
///
/// NATS does not answer.
pub async fn remove_stream(client: &Client) -> anyhow::Result<()> {
    let jetstream = jetstream::new(client.clone());
    match jetstream.delete_stream(STREAM).await {
        Ok(_deleted) => Ok(()),
        Err(error)
            if matches!(error.kind(), DeleteStreamErrorKind::JetStream(answer)
                if answer.error_code() == ErrorCode::STREAM_NOT_FOUND) =>
        {
            Ok(())
        }
        Err(error) => Err(error).context("remove the stream of pointers"),
    }
}
