//! The script and the style sheet: in the program, under names that change with them, so that a browser keeps each for ever.

use std::sync::LazyLock;

use axum::{
    body::Body,
    extract::Path,
    http::{
        HeaderValue, StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::Response,
};
use sha2::{Digest, Sha256};

/// Where they are.
pub(super) const PATH: &str = "/console/assets/{name}";
/// A year.
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new(
        "js",
        "text/javascript; charset=utf-8",
        include_str!("assets/console.js"),
    )
});
static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new(
        "css",
        "text/css; charset=utf-8",
        include_str!("assets/console.css"),
    )
});

#[derive(Debug)]
struct Asset {
    name: String,
    kind: &'static str,
    text: &'static str,
}

impl Asset {
    fn new(ending: &str, kind: &'static str, text: &'static str) -> Self {
        let hash = hex::encode(&Sha256::digest(text)[..8]);
        Self {
            name: format!("console-{hash}.{ending}"),
            kind,
            text,
        }
    }

    fn path(&self) -> String {
        PATH.replace("{name}", &self.name)
    }
}

/// Where the script is.
pub(super) fn script() -> String {
    SCRIPT.path()
}

/// Where the style sheet is.
pub(super) fn style() -> String {
    STYLE.path()
}

/// The one of this name.
pub(super) async fn asset(Path(name): Path<String>) -> Response {
    let found = [&*SCRIPT, &*STYLE]
        .into_iter()
        .find(|asset| asset.name == name);
    let Some(asset) = found else {
        // Of another release: the page that asks for it is loaded anew by whoever reads it.
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    };
    let mut response = Response::new(Body::from(asset.text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    headers.insert(CACHE_CONTROL, FOR_EVER);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_page_is_small_and_loads_nothing_from_elsewhere() {
        // With 30 KiB left for the page itself: docs/console.md promises 150 KB.
        assert!(SCRIPT.text.len() + STYLE.text.len() < 120_000);
        assert!(SCRIPT.text.lines().count() <= 400);
        for asset in [&*SCRIPT, &*STYLE] {
            let lower = asset.text.to_lowercase();
            for outside in [
                "http://",
                "https://",
                "@import",
                "url(",
                "eval(",
                "innerhtml",
                "document.write",
            ] {
                assert!(!lower.contains(outside), "{}: {outside}", asset.name);
            }
        }
    }
}
