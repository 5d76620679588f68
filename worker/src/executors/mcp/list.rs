//! The list of a server's tools, read page by page: what is kept of each tool, and the bounds of all of it.

use std::fmt;

use fleet::{
    outcome::ToolFailure,
    said,
    wire::{code::Code, message::Message},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{aside::aside, definition::ToolDefinition};

/// The most bytes of one page.
const PAGE_MAX: usize = 8 * MIB;
/// The most bytes of all pages.
const BYTES_MAX: usize = 32 * MIB;
/// The most pages.
const PAGES_MAX: usize = 200;
/// The most tools.
const TOOLS_MAX: usize = 10_000;
/// The most bytes of a cursor, which goes back to the server.
const CURSOR_MAX: usize = 16 * 1024;

const MIB: usize = 1024 * 1024;

/// What is kept of each tool.
pub(super) trait KeptTools: fmt::Debug + Default + Send + 'static {
    fn keep(&mut self, definition: &ToolDefinition<'_>);
}

/// A list that has begun.
#[derive(Debug, Default)]
pub(super) struct ToolList<K> {
    pub(super) kept: K,
    tools: usize,
    bytes: usize,
    pages: usize,
}

/// A page that was read.
#[derive(Debug)]
pub(super) struct ToolsPage {
    /// Where the next one begins, if there is one.
    pub(super) next: Option<String>,
    /// Whether it says what the newer revision has results say.
    pub(super) is_modern: bool,
}

impl<K: KeptTools> ToolList<K> {
    /// The most bytes that the next page may have.
    pub(super) fn room(&self) -> usize {
        PAGE_MAX.min(BYTES_MAX.saturating_sub(self.bytes))
    }

    /// Reads the next page, on a blocking thread: a long list takes a while.
    ///
    /// # Errors
    ///
    /// It is no page of tools, or one too many.
    pub(super) async fn with(
        mut self,
        result: Box<RawValue>,
    ) -> Result<(Self, ToolsPage), ToolFailure> {
        let reading = aside(move || self.read(result.get()).map(|page| (self, page)));
        reading.await.unwrap_or_else(|| Err(unfit_list()))
    }

    fn read(&mut self, result: &str) -> Result<ToolsPage, ToolFailure> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ListResult<'a> {
            #[serde(borrow)]
            tools: &'a RawValue,
            #[serde(default)]
            next_cursor: Option<String>,
            #[serde(default)]
            result_type: Option<String>,
        }
        self.pages += 1;
        self.bytes = self.bytes.saturating_add(result.len());
        if self.bytes > BYTES_MAX {
            return Err(too_large());
        }
        // A list would be read as the fields in their order.
        let text = Some(result).filter(|text| text.trim_start().starts_with('{'));
        let page = text.and_then(|text| serde_json::from_str::<ListResult<'_>>(text).ok());
        let page = page.ok_or_else(unfit_list)?;
        let mut tools = serde_json::Deserializer::from_str(page.tools.get());
        let read = EachTool(self).deserialize(&mut tools);
        if self.tools > TOOLS_MAX {
            return Err(unavailable(said!(
                "the MCP server lists more than {TOOLS_MAX} tools",
                "MCP 服务器列出的工具超过 {TOOLS_MAX} 个"
            )));
        }
        read.map_err(|_unfit| unfit_list())?;
        let next = page.next_cursor;
        if next.is_some() && self.pages >= PAGES_MAX {
            return Err(unavailable(said!(
                "the MCP server's list of tools goes on after {PAGES_MAX} pages",
                "MCP 服务器的工具列表超过 {PAGES_MAX} 页"
            )));
        }
        if next.as_ref().is_some_and(|next| next.len() > CURSOR_MAX) {
            return Err(unfit_list());
        }
        Ok(ToolsPage {
            next,
            is_modern: page.result_type.is_some(),
        })
    }
}

/// Takes one tool after the other, up to the most.
struct EachTool<'l, K>(&'l mut ToolList<K>);

impl<'de, K: KeptTools> DeserializeSeed<'de> for EachTool<'_, K> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, tools: D) -> Result<(), D::Error> {
        tools.deserialize_seq(self)
    }
}

impl<'de, K: KeptTools> Visitor<'de> for EachTool<'_, K> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tools")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut tools: A) -> Result<(), A::Error> {
        while let Some(tool) = tools.next_element::<&RawValue>()? {
            self.0.tools += 1;
            if self.0.tools > TOOLS_MAX {
                return Err(serde::de::Error::custom("too many"));
            }
            self.0.kept.keep(&ToolDefinition::read(tool));
        }
        Ok(())
    }
}

fn unavailable(what: Message) -> ToolFailure {
    ToolFailure::new(Code::Unavailable, what)
}

/// What a server lists is no list.
pub(super) fn unfit_list() -> ToolFailure {
    unavailable(Message::fixed(
        "the MCP server's list of tools is not what the protocol says",
        "MCP 服务器的工具列表不符合协议",
    ))
}

/// A page or all of them are too large.
pub(super) fn too_large() -> ToolFailure {
    let (page, all) = (PAGE_MAX / MIB, BYTES_MAX / MIB);
    unavailable(said!(
        "the MCP server's list of tools is too large: a page may have {page} MiB, and all of them {all} MiB",
        "MCP 服务器的工具列表过大：一页最多 {page} MiB，全部最多 {all} MiB"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Count(usize);

    impl KeptTools for Count {
        fn keep(&mut self, _definition: &ToolDefinition<'_>) {
            self.0 += 1;
        }
    }

    fn list() -> ToolList<Count> {
        ToolList::default()
    }

    fn told(read: Result<ToolsPage, ToolFailure>) -> String {
        read.unwrap_err().message.english().to_owned()
    }

    fn page(tools: usize, next: &str) -> String {
        let tools = vec![r#"{"name":"t"}"#; tools].join(",");
        format!(r#"{{"tools":[{tools}]{next}}}"#)
    }

    #[test]
    fn the_bounds_hold_over_all_pages() {
        let mut most = list();
        let next = r#","nextCursor":"a","resultType":"complete""#;
        let read = most.read(&page(TOOLS_MAX - 1, next)).unwrap();
        assert_eq!((read.next.as_deref(), read.is_modern), (Some("a"), true));
        most.read(&page(1, "")).unwrap();
        assert_eq!(most.kept.0, TOOLS_MAX);
        assert!(told(most.read(&page(1, ""))).contains("more than 10000 tools"));
        assert_eq!(most.kept.0, TOOLS_MAX);

        let mut pages = list();
        for _page in 1..PAGES_MAX {
            pages.read(&page(0, next)).unwrap();
        }
        assert!(told(pages.read(&page(0, next))).contains("after 200 pages"));

        let mut large = list();
        let padding = format!(r#","x":"{}""#, "x".repeat(PAGE_MAX - 100));
        for _page in 0..4 {
            assert_eq!(large.room(), PAGE_MAX);
            large.read(&page(1, &padding)).unwrap();
        }
        assert!(large.room() < 1_000);
        assert!(told(large.read(&page(1, &padding))).contains("32 MiB"));
    }

    #[test]
    fn a_page_of_millions_of_values_is_given_up_at_the_bound() {
        let zeros = vec!["0"; 4_000_000].join(",");
        let mut read = list();
        let page = read.read(&format!(r#"{{"tools":[{zeros}]}}"#));
        assert!(told(page).contains("more than 10000 tools"));
        assert_eq!(read.kept.0, TOOLS_MAX);
        for unfit in [
            "{}",
            r#"{"tools":{}}"#,
            r#"{"tools":7}"#,
            r#"[[]]"#,
            &page_with_cursor(CURSOR_MAX + 1),
        ] {
            assert!(told(list().read(unfit)).contains("not what the protocol says"));
        }
    }

    fn page_with_cursor(bytes: usize) -> String {
        page(1, &format!(r#","nextCursor":"{}""#, "c".repeat(bytes)))
    }
}
