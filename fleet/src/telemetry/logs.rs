//! Log lines on stderr: one line per event, whatever it contains.
//!
//! A message may quote what a tool or a server said. A line break in it would forge a line, an escape sequence would
//! reach a terminal, a very long one would fill a disk. So every line passes through [`escape`] and is bounded.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, Write},
};

use tracing::{
    Level, Metadata, Subscriber,
    span::{Attributes, Id, Record},
    subscriber::Interest,
};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::LevelFilter,
    fmt::{self, MakeWriter},
    layer::{Context, Filter},
    registry::LookupSpan,
};

use super::{error::TelemetryError, options::LogFormat};
use crate::invisible::is_invisible;

/// The most bytes of one line; a longer one is cut, or in JSON replaced by a line that says so.
const LINE_MAX: usize = 32 * 1024;

/// Whether this is a valid filter.
pub(super) fn check(filter: &str) -> Result<(), TelemetryError> {
    parsed(filter).map(drop)
}

/// The filter as it is meant. At `info` the client of NATS has lines for each of its tries to connect, several a second; the
/// process says once that NATS does not answer.
fn meant(filter: &str) -> String {
    let is_info = |part: &str| part.trim().eq_ignore_ascii_case("info");
    let is_silenced = filter.split(',').any(is_info) && !filter.contains("async_nats");
    let silence = if is_silenced { "async_nats=warn," } else { "" };
    format!("{silence}{filter}")
}

fn parsed(filter: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::builder()
        .parse(meant(filter))
        .map_err(TelemetryError::Filter)
}

/// Whether a line of this kind may be written at all. The client of NATS writes its password at `debug`, and at `trace` it and those
/// of HTTP and Postgres write what passes: arguments, results and tokens.
fn is_discreet(metadata: &Metadata<'_>) -> bool {
    let least = |module: &str| match module {
        "async_nats" => Level::INFO,
        "h2" | "hyper" | "hyper_util" | "reqwest" | "rustls" | "sqlx" | "sqlx_core"
        | "sqlx_postgres" => Level::DEBUG,
        _ => Level::TRACE,
    };
    let module = metadata.target().split("::").next().unwrap_or_default();
    *metadata.level() <= least(module)
}

/// Lets through what its filter does, unless that is never a line.
///
/// It says what the filter says of its greatest level and of each place in the source: `FilterExt::and` forgets the former, and then
/// every call pays for spans that no line has.
struct Discreet(EnvFilter);

impl<S: Subscriber> Filter<S> for Discreet {
    fn enabled(&self, metadata: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        is_discreet(metadata) && Filter::enabled(&self.0, metadata, context)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_discreet(metadata) {
            Filter::<S>::callsite_enabled(&self.0, metadata)
        } else {
            Interest::never()
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Filter::<S>::max_level_hint(&self.0)
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        Filter::on_new_span(&self.0, attributes, id, context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        Filter::on_record(&self.0, id, values, context);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        Filter::on_enter(&self.0, id, context);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        Filter::on_exit(&self.0, id, context);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        Filter::on_close(&self.0, id, context);
    }
}

/// The layer that writes lines to the writers of `writer`.
pub(super) fn layer<S, W>(
    format: LogFormat,
    filter: &str,
    writer: W,
) -> Result<Box<dyn Layer<S> + Send + Sync>, TelemetryError>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'line> MakeWriter<'line> + Send + Sync + 'static,
{
    let filter = Discreet(parsed(filter)?);
    let lines = fmt::layer()
        .with_ansi(false)
        .with_writer(Lines { writer, format });
    Ok(match format {
        LogFormat::Text => lines.with_filter(filter).boxed(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_filter(filter)
            .boxed(),
    })
}

/// Makes writers that take a whole line at once, as the layer above writes it.
struct Lines<W> {
    writer: W,
    format: LogFormat,
}

impl<'line, W: MakeWriter<'line>> MakeWriter<'line> for Lines<W> {
    type Writer = LogLine<W::Writer>;

    fn make_writer(&'line self) -> Self::Writer {
        LogLine {
            writer: self.writer.make_writer(),
            format: self.format,
        }
    }
}

struct LogLine<W> {
    writer: W,
    format: LogFormat,
}

impl<W: Write> Write for LogLine<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let text = bound(text.strip_suffix('\n').unwrap_or(&text), self.format);
        // One write per line, so that lines of several processes on one stderr do not mix.
        self.writer
            .write_all(format!("{}\n", escape(&text)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

fn bound(text: &str, format: LogFormat) -> Cow<'_, str> {
    if text.len() <= LINE_MAX {
        return Cow::Borrowed(text);
    }
    let bytes = text.len();
    Cow::Owned(match format {
        LogFormat::Text => format!(
            "{} … cut, {bytes} bytes",
            &text[..text.floor_char_boundary(LINE_MAX)]
        ),
        LogFormat::Json => {
            format!(
                r#"{{"level":"WARN","message":"a log line of {bytes} bytes was left out","target":"fleet"}}"#
            )
        }
    })
}

/// Escapes characters that would break the line or reach a terminal. The escapes are those of JSON, so an escaped line of JSON
/// is still JSON with the same meaning.
fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(hostile) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push_str("\\t"),
            other if hostile(other) => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    write!(safe, "\\u{unit:04x}").expect("a String takes everything");
                }
            }
            other => safe.push(other),
        }
    }
    Cow::Owned(safe)
}

/// Control characters, and what is not seen. Joiners stay: they change nothing of the line.
fn hostile(character: char) -> bool {
    let joins = matches!(character, '\u{200c}' | '\u{200d}');
    character.is_control() || !joins && is_invisible(None, character)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, filter: &str, work: impl FnOnce()) -> String {
        let kept = Kept::default();
        let writer = kept.clone();
        let layer = layer(format, filter, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    const HOSTILE: &str = "a\nERROR forged\r\u{1b}[2J\u{202e}\0 \u{9b}31m 天气";

    #[test]
    fn an_event_is_one_line_whatever_it_says() {
        let text = logged(LogFormat::Text, "info", || {
            let span = tracing::info_span!("attempt", said = HOSTILE);
            span.in_scope(|| tracing::warn!(quoted = %HOSTILE, "tool said {HOSTILE}"));
        });
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert!(!text.trim_end().contains(hostile), "{text:?}");
        assert!(text.contains("天气") && text.contains("WARN"), "{text}");
    }

    #[test]
    fn a_json_line_means_what_was_logged() {
        let text = logged(LogFormat::Json, "info", || {
            let span = tracing::info_span!("attempt", toolfleet.attempt = 2);
            span.in_scope(|| tracing::warn!(quoted = %HOSTILE, "tool spoke"));
        });
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        assert!(!text.trim_end().contains(hostile), "{text:?}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["quoted"], HOSTILE);
        assert_eq!(line["message"], "tool spoke");
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["spans"][0]["name"], "attempt");
        assert_eq!(line["spans"][0]["toolfleet.attempt"], 2);
    }

    #[test]
    fn a_line_is_bounded() {
        let long = "长".repeat(LINE_MAX);
        for format in [LogFormat::Text, LogFormat::Json] {
            let text = logged(format, "info", || tracing::info!("{long}"));
            assert!(text.len() < LINE_MAX + 64, "{}", text.len());
            assert_eq!(text.matches('\n').count(), 1);
        }
        let json = logged(LogFormat::Json, "info", || tracing::info!("{long}"));
        assert!(
            serde_json::from_str::<serde_json::Value>(&json).is_ok(),
            "{json}"
        );
    }

    #[test]
    fn the_tries_of_the_client_of_nats_are_no_lines_at_info() {
        let work = || tracing::info!(target: "async_nats::connector", "try");
        for (filter, is_logged) in [
            ("info", false),
            ("worker=debug,info", false),
            ("info,async_nats=info", true),
            ("debug", true),
            ("off", false),
        ] {
            let said = logged(LogFormat::Text, filter, work);
            assert_eq!(said.contains("try"), is_logged, "{filter}: {said}");
        }
    }

    #[test]
    fn what_libraries_say_of_passwords_and_of_what_passes_is_never_a_line() {
        let work = || {
            tracing::debug!(target: "async_nats::connector", password = "hunter2", "attempting");
            tracing::trace!(target: "hyper::proto", header = "hunter2");
            tracing::trace!(target: "my_worker", "own");
        };
        for filter in ["trace", "async_nats=trace,hyper=trace,my_worker=trace"] {
            let said = logged(LogFormat::Text, filter, work);
            assert!(!said.contains("hunter2"), "{filter}: {said}");
            assert!(said.contains("own"), "{filter}: {said}");
        }
    }

    #[test]
    fn a_span_that_is_in_no_line_is_not_made() {
        for (filter, steps) in [("info", 0), ("debug", 1), ("info,fleet=debug", 1)] {
            let layer = layer(LogFormat::Text, filter, io::sink).unwrap();
            // As where no collector of spans is named.
            let registry = tracing_subscriber::registry()
                .with(layer)
                .with(None::<LevelFilter>);
            tracing::subscriber::with_default(registry, || {
                let made = [tracing::debug_span!("step"), tracing::trace_span!("less")];
                let made = made.iter().filter(|span| !span.is_disabled()).count();
                assert_eq!(made, steps, "{filter}");
            });
        }
    }

    #[test]
    fn the_filter_decides_what_is_logged() {
        let text = logged(LogFormat::Text, "warn,fleet::telemetry=debug", || {
            tracing::debug!("kept");
            tracing::info!(target: "elsewhere", "dropped");
        });
        assert!(text.contains("kept") && !text.contains("dropped"), "{text}");
    }
}
