//! Reads the body of a request: so many bytes, in so much time.

use std::time::Duration;

use axum::{
    body::Body,
    http::{
        HeaderMap, StatusCode,
        header::{CONTENT_ENCODING, CONTENT_LENGTH},
    },
};
use bytes::{Bytes, BytesMut};
use fleet::{
    arguments::Limits,
    said,
    wire::{code::Code, message::Message},
};
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::refusal::Refused;

/// Arguments of a call, as over NATS.
pub(crate) const CALL_MAX: usize = Limits::DEFAULT.bytes;
/// A batch, as over NATS.
pub(crate) const BATCH_MAX: usize = 8 * 1024 * 1024;
/// What is handed in for a call, with the form around the largest answer.
pub(crate) const OUTPUT_MAX: usize = Limits::ANSWER.bytes + 16 * 1024;
/// A reason, and what stands around it.
pub(crate) const FORM_MAX: usize = 32 * 1024;
/// A control, as over NATS.
pub(crate) const CONTROL_MAX: usize = 64 * 1024;
/// Room that is made before a body has come.
const AT_FIRST: usize = 16 * 1024;
/// How long a body may take.
const TIME_MAX: Duration = Duration::from_secs(30);

/// All of a body.
///
/// # Errors
///
/// It is larger than this, takes too long, is compressed, or breaks off.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
) -> Result<Bytes, Refused> {
    let encoding = headers.get(CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| encoding != "identity") {
        return Err(compressed());
    }
    let announced = headers.get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > bytes_max) {
        return Err(too_large(bytes_max));
    }
    let reading = gather(body, bytes_max, announced.unwrap_or_default().min(AT_FIRST));
    timeout(TIME_MAX, reading).await.unwrap_or_else(|_elapsed| {
        let seconds = TIME_MAX.as_secs();
        let what = said!(
            "the body did not come within {seconds} s",
            "请求体没有在 {seconds} 秒内到达"
        );
        let refused = Refused::new(Code::TruncatedArguments, what);
        Err(refused.status(StatusCode::REQUEST_TIMEOUT))
    })
}

async fn gather(body: Body, bytes_max: usize, room: usize) -> Result<Bytes, Refused> {
    let mut pieces = body.into_data_stream();
    let mut whole = BytesMut::with_capacity(room);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_broken| {
            let what = Message::fixed("the body broke off", "请求体中途断开");
            Refused::new(Code::TruncatedArguments, what)
        })?;
        if whole.len() + piece.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

/// The body is not as it is.
pub(crate) fn compressed() -> Refused {
    let what = Message::fixed(
        "the body must not be compressed: leave out Content-Encoding",
        "请求体不能压缩：请去掉 Content-Encoding",
    );
    let refused = Refused::new(Code::HeaderInvalid, what);
    refused.status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
}

fn too_large(bytes_max: usize) -> Refused {
    let what = said!(
        "the body may have {bytes_max} bytes",
        "请求体最多 {bytes_max} 字节"
    );
    Refused::new(Code::PayloadTooLarge, what)
}
