//! A reader of server-sent events, that reads as much as a test wants and no more.

use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};

use crate::{
    wait::LONG,
    web::{WebAnswer, WebRequest},
};

/// One stream.
#[derive(Debug)]
pub struct EventSource {
    /// The answer without its body.
    pub head: WebAnswer,
    connection: TcpStream,
    /// What came and is not decoded yet.
    raw: Vec<u8>,
    /// What came and is not read yet.
    text: String,
    /// Whether the answer has been said to be complete.
    pub is_complete: bool,
    is_over: bool,
}

/// What stands between two empty lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Block {
    /// As it came, with the empty line.
    pub text: String,
    /// Its `id`, or nothing.
    pub id: String,
    /// Its `event`, or nothing.
    pub event: String,
    /// Its `data`, or nothing.
    pub data: String,
}

impl EventSource {
    /// Sends the request and reads the head of its answer.
    ///
    /// # Panics
    ///
    /// There is none.
    pub async fn open(request: WebRequest) -> Self {
        let mut connection = request.open().await;
        let mut raw = Vec::new();
        let end = loop {
            let end = raw.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                break end + 4;
            }
            assert!(
                fill(&mut connection, &mut raw).await,
                "an answer has a head"
            );
        };
        let head = WebAnswer::read(&raw[..end]).expect("a head of HTTP");
        raw.drain(..end);
        Self {
            head,
            connection,
            raw,
            text: String::new(),
            is_complete: false,
            is_over: false,
        }
    }

    /// The next block, comments too; `None` where the stream has ended.
    ///
    /// # Panics
    ///
    /// Neither comes in time.
    pub async fn next(&mut self) -> Option<Block> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let text: String = self.text.drain(..end + 2).collect();
                return Some(Block::read(text));
            }
            if self.decode() {
                continue;
            }
            if self.is_over || !fill(&mut self.connection, &mut self.raw).await {
                return None;
            }
        }
    }

    /// The next so many blocks.
    ///
    /// # Panics
    ///
    /// The stream ends before, or they do not come in time.
    pub async fn take(&mut self, count: usize) -> Vec<Block> {
        let mut blocks = Vec::new();
        while blocks.len() < count {
            let block = self.next().await;
            blocks.push(block.unwrap_or_else(|| panic!("the stream ended behind {blocks:?}")));
        }
        blocks
    }

    /// All blocks up to the first one with this event.
    ///
    /// # Panics
    ///
    /// The stream ends before, or it does not come in time.
    pub async fn until(&mut self, event: &str) -> Vec<Block> {
        let mut blocks = Vec::new();
        while blocks.last().is_none_or(|last: &Block| last.event != event) {
            blocks.extend(self.take(1).await);
        }
        blocks
    }

    /// All blocks up to the end.
    ///
    /// # Panics
    ///
    /// It does not come in time.
    pub async fn rest(&mut self) -> Vec<Block> {
        let mut blocks = Vec::new();
        while let Some(block) = self.next().await {
            blocks.push(block);
        }
        blocks
    }

    /// Decodes the next chunk; whether there was one.
    fn decode(&mut self) -> bool {
        let Some(line) = self.raw.windows(2).position(|two| two == b"\r\n") else {
            return false;
        };
        let size = std::str::from_utf8(&self.raw[..line]).expect("the size of a chunk");
        let size = usize::from_str_radix(size, 16).expect("the size of a chunk");
        let end = line + 2 + size;
        if self.raw.len() < end + 2 {
            return false;
        }
        let chunk = std::str::from_utf8(&self.raw[line + 2..end]);
        self.text += chunk.expect("chunks end where events do");
        self.raw.drain(..end + 2);
        if size == 0 {
            self.is_complete = true;
            self.is_over = true;
        }
        size > 0
    }
}

impl Block {
    fn read(text: String) -> Self {
        let mut block = Self::default();
        for line in text.lines() {
            let Some((field, value)) = line.split_once(": ") else {
                continue;
            };
            match field {
                "id" => value.clone_into(&mut block.id),
                "event" => value.clone_into(&mut block.event),
                "data" => block.data += value,
                _ => {}
            }
        }
        Self { text, ..block }
    }

    /// Its data as JSON; `null` where it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.data).unwrap_or_default()
    }
}

/// The blocks as they came.
pub fn text(blocks: &[Block]) -> String {
    blocks.iter().map(|block| block.text.as_str()).collect()
}

/// Reads something more; whether there was something.
async fn fill(connection: &mut TcpStream, raw: &mut Vec<u8>) -> bool {
    let read = timeout(LONG, connection.read_buf(raw)).await;
    match read.expect("something comes in time") {
        Ok(bytes) => bytes > 0,
        // Cut off.
        Err(_reset) => false,
    }
}
