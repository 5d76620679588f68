//! `POST /v1/files`, `GET` and `DELETE /v1/files/{file}`: the files of a tenant, byte for byte and never as a whole in this process. And
//! `GET /v1/files/{file}/signed`, where the signature in the URL is the right.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    http::{
        HeaderValue, StatusCode,
        header::{CONTENT_ENCODING, CONTENT_LENGTH, LOCATION},
    },
    response::Response,
};
use fleet::{
    ids::{FileId, Label},
    said,
    store::file_keys::KnownFileKeys,
    tokens::Scope,
    wire::{code::Code, file_url::FileGrant, message::Message},
};

use super::named;
use crate::{
    answer,
    asked::Asked,
    body,
    edge::{guard::too_many, peers::TooMany},
    files::{
        digest,
        door::{FileDoor, NewFile, NoFile},
        download, naming,
        upload::upload,
    },
    headers::Speaker,
    query::Query,
    refusal::Refused,
    state::Gateway,
};

/// Where files are found.
const FILES: &str = "/v1/files";
/// Who may look at files.
const READERS: [Scope; 2] = [Scope::Call, Scope::Read];
/// What a signed URL says.
const SIGNED: [&str; 3] = ["tenant", "until", "signature"];

/// Makes a file of the body.
pub(super) async fn upload_one(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    let principal = asked.by(&[Scope::Call])?;
    let tenant = asked.tenant(principal)?;
    asked.query(&[])?;
    let file = NewFile {
        name: naming::name(&asked.headers)?,
        mime: naming::mime(&asked.headers)?,
        bytes: length(&asked, gateway.files.bytes_max)?,
    };
    let announced = digest::announced(&asked.headers)?;
    let _place = gateway.files.place(&tenant)?;
    let door = FileDoor::of(&gateway.dispatchers, &tenant);
    match upload(&door, &gateway.tasks, file, announced, body).await {
        Ok((file, ready)) => {
            let made = ready.bytes().clone();
            let mut response = answer::plain(made, Speaker::Door, StatusCode::CREATED);
            let place = HeaderValue::try_from(format!("{FILES}/{file}"));
            let place = place.expect("an id is plain text");
            response.headers_mut().insert(LOCATION, place);
            Ok(response)
        }
        Err(why) => told(why),
    }
}

/// The bytes of a file.
pub(super) async fn download_one(
    State(gateway): State<Arc<Gateway>>,
    file: Result<Path<String>, PathRejection>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&READERS)?;
    let file = file_id(&named(file))?;
    let tenant = asked.tenant(principal)?;
    asked.query(&[])?;
    send(&gateway, &tenant, file, &asked).await
}

/// Deletes a file.
pub(super) async fn delete_one(
    State(gateway): State<Arc<Gateway>>,
    file: Result<Path<String>, PathRejection>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&[Scope::Call])?;
    let file = file_id(&named(file))?;
    let tenant = asked.tenant(principal)?;
    asked.query(&[])?;
    let door = FileDoor::of(&gateway.dispatchers, &tenant);
    match door.delete(file).await {
        Ok(deleted) => Ok(answer::of_door(&deleted)),
        Err(why) => told(why),
    }
}

/// The bytes of a file, for who has a URL that a worker has signed. What is wrong with it is not said: whoever guesses learns nothing.
pub(super) async fn signed(
    State(gateway): State<Arc<Gateway>>,
    file: Result<Path<String>, PathRejection>,
    asked: Asked,
) -> Result<Response, Refused> {
    let query = asked.query(&SIGNED)?;
    let (file, tenant) = granted(&gateway, &named(file), &query).await?;
    let peer = asked.peer();
    peer.has_signed_url().map_err(|TooMany| too_many())?;
    let sent = send(&gateway, &tenant, file, &asked).await?;
    if sent.status() == StatusCode::NOT_FOUND {
        return Err(nothing());
    }
    Ok(sent)
}

/// What a signed URL is for, if it holds.
async fn granted(gateway: &Gateway, file: &str, query: &Query) -> Result<(FileId, Label), Refused> {
    let read = || {
        let file: FileId = file.parse().ok()?;
        let tenant: Label = query.text("tenant")?.parse().ok()?;
        let said = query.text("until")?;
        let until: i64 = said
            .parse()
            .ok()
            .filter(|until: &i64| until.to_string() == said)?;
        Some((file, tenant, until, query.text("signature")?))
    };
    let (file, tenant, until, signature) = read().ok_or_else(nothing)?;
    let grant = FileGrant {
        tenant: &tenant,
        file,
        until,
    };
    let known = &gateway.files.keys;
    let mut keys = known.get(KnownFileKeys::FRESH).await.ok_or_else(later)?;
    if !keys.keys.have_signed(&grant, signature) {
        // It may be signed with a key that is newer than what is known.
        keys = known.get(KnownFileKeys::PAUSE).await.ok_or_else(later)?;
        if !keys.keys.have_signed(&grant, signature) {
            return Err(nothing());
        }
    }
    if keys.now().unix_timestamp() >= until {
        return Err(nothing());
    }
    Ok((file, tenant))
}

/// Sends a file.
async fn send(
    gateway: &Gateway,
    tenant: &Label,
    file: FileId,
    asked: &Asked,
) -> Result<Response, Refused> {
    let place = gateway.files.place(tenant)?;
    let door = FileDoor::of(&gateway.dispatchers, tenant);
    match door.describe(file).await {
        Ok(ready) => {
            let time = download::bounded(&gateway.tasks, asked.peer());
            download::response(door, ready, &asked.headers, (place, time))
        }
        Err(why) => told(why),
    }
}

/// How many bytes the body has: what is announced is what is kept.
fn length(asked: &Asked, bytes_max: u64) -> Result<u64, Refused> {
    if asked
        .headers
        .get(CONTENT_ENCODING)
        .is_some_and(|encoding| encoding != "identity")
    {
        return Err(body::compressed());
    }
    let announced = asked.headers.get(CONTENT_LENGTH);
    let bytes = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let Some(bytes) = bytes else {
        let what = Message::fixed(
            "a file needs Content-Length: it is announced before it is sent",
            "上传文件需要 Content-Length：文件在发送之前要先声明长度",
        );
        let refused = Refused::new(Code::HeaderInvalid, what);
        return Err(refused.status(StatusCode::LENGTH_REQUIRED));
    };
    if bytes == 0 {
        let what = Message::fixed("a file has at least one byte", "文件至少有一个字节");
        return Err(Refused::of_file(Code::InvalidArguments, what));
    }
    if bytes > bytes_max {
        let what = said!(
            "a file may have {bytes_max} bytes",
            "文件最多 {bytes_max} 字节"
        );
        return Err(Refused::of_file(Code::PayloadTooLarge, what));
    }
    Ok(bytes)
}

fn file_id(text: &str) -> Result<FileId, Refused> {
    text.parse()
        .map_err(|bad| Refused::name(Code::InvalidId, &bad))
}

/// The door's own refusal as it is, or the gateway's.
fn told(why: NoFile) -> Result<Response, Refused> {
    match why {
        NoFile::Refused(answer) => Ok(answer::of_door(&answer)),
        NoFile::Gateway(refused) => Err(refused),
    }
}

/// Whatever is wrong with a signed URL.
fn nothing() -> Refused {
    let what = Message::fixed(
        "there is no file at this URL, or not any more",
        "这个 URL 没有文件，或者文件已不存在",
    );
    Refused::of_file(Code::NotFound, what)
}

fn later() -> Refused {
    let what = Message::fixed(
        "signed URLs cannot be looked at at the moment",
        "目前无法检查签名的 URL",
    );
    Refused::later(Code::StoreUnavailable, what)
}
