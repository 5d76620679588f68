//! The URLs at which a tool fetches the files of its call from a gateway.

use std::{str::FromStr, time::Duration};

use fleet::{
    files::CallFile,
    ids::{FileId, Label},
    outcome::ToolFailure,
    store::file_keys::KnownFileKeys,
    wire::{code::Code, file_url::FileGrant, message::Message},
};
use reqwest::Url;
use secrecy::SecretString;
use serde_json::json;
use time::OffsetDateTime;

use super::failures::silent;

/// How long a URL holds beyond the time of its attempt: a tool that has begun to fetch is not cut off by a clock.
const GRACE: Duration = Duration::from_secs(30);
/// The most bytes of a gateway's own URL: there is one in a header for each file.
const URL_MAX: usize = 256;

/// Where tools find a gateway, without a slash at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayUrl(String);

impl FromStr for GatewayUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rule =
            || format!("must be http://HOST or https://HOST, of at most {URL_MAX} characters");
        let url = Url::parse(text).map_err(|_no_url| rule())?;
        let is_bare = url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        let text = url.as_str().trim_end_matches('/');
        let fits = ["http", "https"].contains(&url.scheme())
            && url.has_host()
            && is_bare
            && text.len() <= URL_MAX;
        fits.then(|| Self(text.to_owned())).ok_or_else(rule)
    }
}

/// Signs URLs.
#[derive(Debug)]
pub(crate) struct FileUrls {
    gateway: Option<GatewayUrl>,
    keys: KnownFileKeys,
}

/// The URL of one file.
#[derive(Debug)]
pub(crate) struct FileUrl {
    /// The file.
    pub(crate) file: FileId,
    /// Where it is; a secret until it is over.
    pub(crate) url: SecretString,
    /// What makes it one.
    pub(crate) signature: SecretString,
}

impl FileUrls {
    /// At this gateway, if there is one.
    pub(crate) const fn new(gateway: Option<GatewayUrl>, keys: KnownFileKeys) -> Self {
        Self { gateway, keys }
    }

    /// The URLs of these files, until an attempt must be over and a little longer.
    ///
    /// # Errors
    ///
    /// This worker knows no gateway, or the ledger does not give the key.
    pub(super) async fn sign(
        &self,
        files: &[CallFile],
        tenant: &Label,
        over_at: OffsetDateTime,
    ) -> Result<Vec<FileUrl>, ToolFailure> {
        let GatewayUrl(gateway) = self.gateway.as_ref().ok_or_else(no_gateway)?;
        let keys = self.keys.get(KnownFileKeys::FRESH).await;
        let keys = keys.ok_or_else(silent)?;
        let until = (over_at + GRACE).unix_timestamp() + 1;
        let signed = files.iter().map(|file| {
            let grant = FileGrant {
                tenant,
                file: file.file_id,
                until,
            };
            let signature = keys.keys.sign(&grant);
            FileUrl {
                file: file.file_id,
                url: format!("{gateway}{}", grant.path(&signature)).into(),
                signature: signature.into(),
            }
        });
        Ok(signed.collect())
    }
}

fn no_gateway() -> ToolFailure {
    let what = Message::fixed(
        "this worker has no WORKER_GATEWAY_URL, so it can give the tool no URLs of the call's files",
        "这个 worker 没有设置 WORKER_GATEWAY_URL，无法把文件的 URL 交给工具",
    );
    ToolFailure::new(Code::ToolGone, what).with_details(json!({ "setting": "WORKER_GATEWAY_URL" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_named_by_its_host_and_perhaps_a_path() {
        for (text, is) in [
            ("http://127.0.0.1:8233", Some("http://127.0.0.1:8233")),
            ("https://Tools.example/", Some("https://tools.example")),
            ("https://x.example/fleet/", Some("https://x.example/fleet")),
            ("ftp://x.example", None),
            ("x.example", None),
            ("http://", None),
            ("http://u:p@x.example", None),
            ("http://x.example/?a=b", None),
            ("http://x.example/#a", None),
        ] {
            let read = text.parse::<GatewayUrl>().ok();
            assert_eq!(read.map(|url| url.0).as_deref(), is, "{text}");
        }
        let long = format!("http://x.example/{}", "a".repeat(256));
        assert!(long.parse::<GatewayUrl>().is_err());
    }
}
