//! Which part of a file is wanted: the header `Range` with one range of bytes. Pure.

use axum::http::{
    HeaderMap,
    header::{IF_RANGE, RANGE},
};

/// What is wanted of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WantedRange {
    /// All of it: there is no `Range`, or one that need not be understood.
    All,
    /// From the first byte on up to the second one, which is not wanted any more.
    Part(u64, u64),
    /// Bytes that it does not have.
    Nothing,
}

/// What is wanted of a file of so many bytes with this entity tag.
pub(crate) fn wanted(headers: &HeaderMap, bytes: u64, tag: &str) -> WantedRange {
    let mut lines = headers.get_all(RANGE).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return WantedRange::All;
    };
    // Where the file is another one than the caller has a part of, it gets the whole.
    let is_of = |tags: &axum::http::HeaderValue| tags.as_bytes() == tag.as_bytes();
    if !headers.get(IF_RANGE).is_none_or(is_of) {
        return WantedRange::All;
    }
    let Some(range) = line
        .to_str()
        .ok()
        .and_then(|line| line.strip_prefix("bytes="))
    else {
        return WantedRange::All;
    };
    let Some((first, last)) = range.split_once('-') else {
        return WantedRange::All;
    };
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().unwrap_or(u64::MAX))
    };
    match (number(first), number(last)) {
        (Some(first), None) if last.is_empty() => part(first, bytes),
        (Some(first), Some(last)) if first <= last => {
            part(first, last.saturating_add(1).min(bytes))
        }
        (None, Some(count)) if first.is_empty() => part(bytes - count.min(bytes), bytes),
        _ => WantedRange::All,
    }
}

const fn part(first: u64, end: u64) -> WantedRange {
    if first < end {
        WantedRange::Part(first, end)
    } else {
        WantedRange::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_read_and_what_is_odd_means_the_whole() {
        let read = |range: &str| {
            let mut headers = HeaderMap::new();
            headers.append(RANGE, range.parse().unwrap());
            wanted(&headers, 10, "\"x\"")
        };
        for (range, is) in [
            ("bytes=0-", WantedRange::Part(0, 10)),
            ("bytes=0-0", WantedRange::Part(0, 1)),
            ("bytes=3-5", WantedRange::Part(3, 6)),
            ("bytes=3-99", WantedRange::Part(3, 10)),
            ("bytes=9-", WantedRange::Part(9, 10)),
            ("bytes=-4", WantedRange::Part(6, 10)),
            ("bytes=-99", WantedRange::Part(0, 10)),
            ("bytes=0-99999999999999999999999", WantedRange::Part(0, 10)),
            ("bytes=10-", WantedRange::Nothing),
            ("bytes=10-20", WantedRange::Nothing),
            ("bytes=-0", WantedRange::Nothing),
            ("bytes=5-3", WantedRange::All),
            ("bytes=0-1,3-4", WantedRange::All),
            ("bytes=-", WantedRange::All),
            ("bytes=+1-2", WantedRange::All),
            ("lines=0-1", WantedRange::All),
        ] {
            assert_eq!(read(range), is, "{range}");
        }
        let mut headers = HeaderMap::new();
        assert_eq!(wanted(&headers, 10, "\"x\""), WantedRange::All);
        headers.append(RANGE, "bytes=1-".parse().unwrap());
        headers.append(IF_RANGE, "\"y\"".parse().unwrap());
        assert_eq!(wanted(&headers, 10, "\"x\""), WantedRange::All);
        headers.insert(IF_RANGE, "\"x\"".parse().unwrap());
        assert_eq!(wanted(&headers, 10, "\"x\""), WantedRange::Part(1, 10));
    }
}
