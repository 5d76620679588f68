//! The origin of a URL in a manifest.

/// Scheme, host and port of a URL whose authority is literal, without the scheme's own port; in small letters.
pub(super) fn origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?', '#', '{']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let origin = format!("{scheme}://{host}").to_ascii_lowercase();
    let default = if origin.starts_with("http://") {
        ":80"
    } else {
        ":443"
    };
    origin.strip_suffix(default).unwrap_or(&origin).to_owned()
}
