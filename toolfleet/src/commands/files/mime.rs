//! The type of a file, by the end of its name.

use std::path::Path;

/// What is said of a file whose name says nothing.
const UNKNOWN: &str = "application/octet-stream";

/// Ends of names and their types.
const TYPES: [(&str, &str); 25] = [
    ("avif", "image/avif"),
    ("csv", "text/csv"),
    (
        "docx",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ),
    ("gif", "image/gif"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("json", "application/json"),
    ("md", "text/markdown"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("ogg", "audio/ogg"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    (
        "pptx",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ),
    ("svg", "image/svg+xml"),
    ("tif", "image/tiff"),
    ("txt", "text/plain"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    (
        "xlsx",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ),
    ("xml", "application/xml"),
    ("zip", "application/zip"),
];

/// Its type, as far as its name says one.
pub(super) fn of(path: &Path) -> &'static str {
    let end = path.extension().and_then(|end| end.to_str());
    let end = end.unwrap_or_default().to_ascii_lowercase();
    let found = TYPES.iter().find(|(known, _)| *known == end);
    found.map_or(UNKNOWN, |(_, mime)| mime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_name_says_the_type_and_every_type_is_one() {
        assert_eq!(of(Path::new("a/report.PDF")), "application/pdf");
        assert_eq!(of(Path::new("report")), UNKNOWN);
        assert_eq!(of(Path::new("report.tar.xz")), UNKNOWN);
        for (_, mime) in TYPES {
            assert!(mime.parse::<fleet::files::MimeType>().is_ok(), "{mime}");
        }
    }
}
