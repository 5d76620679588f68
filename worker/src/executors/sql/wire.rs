//! Messages to a Postgres server, gathered and sent in one write, and its answers one after the other.
//!
//! The extended protocol takes any number of statements before one `Sync`. The server answers them all at the `Sync`, and after an
//! error it skips what is left up to there: no statement is ever run behind one that failed, not even behind a failed `BEGIN`.
//!
//! Dropping a [`Wire`], or a future of it, closes the connection.

use std::{collections::HashMap, io, pin::pin, sync::Arc};

use bytes::{Buf as _, BufMut as _, BytesMut};
use fallible_iterator::FallibleIterator as _;
use fleet::wire::message::Message as Words;
use futures_util::poll;
use postgres_protocol::{
    IsNull,
    message::{
        backend::{
            CommandCompleteBody, DATA_ROW_TAG, DataRowBody, ERROR_RESPONSE_TAG, ErrorFields,
            Header, Message, NOTICE_RESPONSE_TAG, NOTIFICATION_RESPONSE_TAG, PARAMETER_STATUS_TAG,
            RowDescriptionBody,
        },
        frontend::{self, BindError},
    },
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::not_committed::{NotCommitted, ServerRefusal};

/// Statements that a connection keeps prepared.
const PREPARED_MAX: usize = 32;
/// So many bytes are asked of the connection at a time.
const READ: usize = 8 * 1024;
/// The longest message that answers a question of ours, in bytes; and all rows of such an answer together.
const MESSAGE_MAX: usize = 1024 * 1024;
const OWN_ROWS_MAX: usize = 8 * 1024 * 1024;
/// So much is kept of an error, in bytes: its code and severity stand first.
const ERROR_MAX: usize = 64 * 1024;
/// How much longer than its JSON a row can be: a column of one digit is 12 bytes there and 6 here.
const ROW_FACTOR: usize = 4;
const ROW_SLACK: usize = 64 * 1024;

/// Type numbers of the server, which never change.
pub(super) const UUID: u32 = 2950;
pub(super) const JSON: u32 = 114;
const TEXT: u32 = 25;

/// A connection to a server, plain or in TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// What a cancel request has to name: a process of the server, and a secret of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CancelKey {
    pub(super) pid: i32,
    pub(super) secret: i32,
}

/// How values and columns are written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Format {
    Text = 0,
    Binary = 1,
}

/// An answer of the server.
pub(super) enum WireReply {
    /// What columns the rows of the statement have that was described; `None`: it returns no rows.
    Columns(Option<RowDescriptionBody>),
    /// A row.
    Row(DataRowBody),
    /// A statement was executed.
    Complete(CommandCompleteBody),
    /// All up to a `Sync` or a `Query` was answered.
    Ready,
}

/// A connection that speaks Postgres's protocol.
pub(super) struct Wire {
    stream: Box<dyn Stream>,
    out: BytesMut,
    input: BytesMut,
    /// So many [`WireReply::Ready`] are to come.
    awaited: u32,
    prepared: HashMap<Arc<str>, KeptStatement>,
    /// Counts what was prepared and what was used.
    clock: u64,
    /// The longest message with a row of the tool's statement; `None`: what comes answers a question of ours.
    row_max: Option<usize>,
    key: CancelKey,
}

/// A statement that the server keeps.
struct KeptStatement {
    name: String,
    used: u64,
}

impl Wire {
    /// Over a connection on which nothing was said yet.
    pub(super) fn over(stream: Box<dyn Stream>) -> Self {
        Self {
            stream,
            out: BytesMut::new(),
            input: BytesMut::new(),
            awaited: 0,
            prepared: HashMap::new(),
            clock: 0,
            row_max: None,
            key: CancelKey::default(),
        }
    }

    /// What ends a statement of this connection.
    pub(super) const fn key(&self) -> CancelKey {
        self.key
    }

    /// The server has told it, as it does once, at the start of a session.
    pub(super) const fn set_key(&mut self, key: CancelKey) {
        self.key = key;
    }

    /// How many statements are prepared here by us.
    pub(super) fn prepared(&self) -> usize {
        self.prepared.len()
    }

    /// From now on a message is too large whose row cannot fit into so many bytes of JSON.
    pub(super) const fn bound_rows(&mut self, output_limit: usize) {
        let longest = output_limit
            .saturating_mul(ROW_FACTOR)
            .saturating_add(ROW_SLACK);
        self.row_max = Some(longest);
    }

    /// From now on what comes answers a question of ours: an answer that is too long is none.
    pub(super) const fn bound_own(&mut self) {
        self.row_max = None;
    }

    /// The messages that are sent with the next [`Self::flush`].
    pub(super) const fn out(&mut self) -> &mut BytesMut {
        &mut self.out
    }

    /// The name under which a statement is prepared here. `true`: it is prepared, and described, by this very message.
    pub(super) fn prepare(&mut self, text: &Arc<str>) -> Result<(String, bool), NotCommitted> {
        self.clock += 1;
        if let Some(known) = self.prepared.get_mut(text) {
            known.used = self.clock;
            return Ok((known.name.clone(), false));
        }
        if self.prepared.len() >= PREPARED_MAX
            && let Some(oldest) = self.prepared.iter().min_by_key(|(_, known)| known.used)
        {
            let text = Arc::clone(oldest.0);
            if let Some(oldest) = self.prepared.remove(&text) {
                frontend::close(b'S', &oldest.name, &mut self.out).map_err(unsendable)?;
            }
        }
        let name = format!("toolfleet_{}", self.clock);
        frontend::parse(&name, text, [], &mut self.out).map_err(unsendable)?;
        frontend::describe(b'S', &name, &mut self.out).map_err(unsendable)?;
        let known = KeptStatement {
            name: name.clone(),
            used: self.clock,
        };
        self.prepared.insert(Arc::clone(text), known);
        Ok((name, true))
    }

    /// Gives up all that was prepared, whether the server still has it or not.
    pub(super) fn close_prepared(&mut self) -> Result<(), NotCommitted> {
        for (_, known) in self.prepared.drain() {
            frontend::close(b'S', &known.name, &mut self.out).map_err(unsendable)?;
        }
        Ok(())
    }

    /// A statement that is not kept, with the types of its parameters; they are bound in the binary format.
    pub(super) fn execute_once(
        &mut self,
        sql: &str,
        types: &[u32],
        values: &[Option<&[u8]>],
    ) -> Result<(), NotCommitted> {
        frontend::parse("", sql, types.iter().copied(), &mut self.out).map_err(unsendable)?;
        self.execute("", Format::Binary, values)
    }

    /// Binds a prepared statement to values and executes it; its columns are to come in the binary format.
    pub(super) fn execute(
        &mut self,
        name: &str,
        format: Format,
        values: &[Option<impl AsRef<[u8]>>],
    ) -> Result<(), NotCommitted> {
        let write = |value: &Option<_>, out: &mut BytesMut| match value {
            None => Ok(IsNull::Yes),
            Some(value) => {
                out.extend_from_slice(AsRef::<[u8]>::as_ref(value));
                Ok(IsNull::No)
            }
        };
        let formats = [format as i16];
        let columns = [Format::Binary as i16];
        let bound = frontend::bind("", name, formats, values, write, columns, &mut self.out);
        bound.map_err(|error| match error {
            BindError::Serialization(error) => unsendable(error),
            BindError::Conversion(_) => NotCommitted::Lost,
        })?;
        frontend::execute("", 0, &mut self.out).map_err(unsendable)
    }

    /// A statement that nothing is bound to and that returns no rows.
    pub(super) fn command(&mut self, sql: &str) -> Result<(), NotCommitted> {
        frontend::parse("", sql, [], &mut self.out).map_err(unsendable)?;
        self.execute("", Format::Text, &[None::<&str>; 0])
    }

    /// The end of what is skipped after an error.
    pub(super) fn sync(&mut self) {
        frontend::sync(&mut self.out);
        self.awaited += 1;
    }

    /// Statements of ours in the simple protocol.
    pub(super) fn query(&mut self, sql: &str) -> Result<(), NotCommitted> {
        frontend::query(sql, &mut self.out).map_err(unsendable)?;
        self.awaited += 1;
        Ok(())
    }

    /// Sends all that was gathered.
    pub(super) async fn flush(&mut self) -> Result<(), NotCommitted> {
        let sent = self.stream.write_all_buf(&mut self.out).await;
        sent.map_err(|_broken| NotCommitted::Lost)?;
        let flushed = self.stream.flush().await;
        flushed.map_err(|_broken| NotCommitted::Lost)
    }

    /// The next answer that says something. An error of the server ends its message: only [`WireReply::Ready`] follows.
    pub(super) async fn reply(&mut self) -> Result<WireReply, NotCommitted> {
        loop {
            match self.message().await? {
                Message::RowDescription(columns) => return Ok(WireReply::Columns(Some(columns))),
                Message::NoData => return Ok(WireReply::Columns(None)),
                Message::DataRow(row) => return Ok(WireReply::Row(row)),
                Message::CommandComplete(tag) => return Ok(WireReply::Complete(tag)),
                Message::ReadyForQuery(_) => {
                    self.awaited = self.awaited.saturating_sub(1);
                    return Ok(WireReply::Ready);
                }
                Message::ErrorResponse(error) => {
                    return Err(NotCommitted::Refused(refusal(error.fields())));
                }
                Message::ParseComplete
                | Message::BindComplete
                | Message::CloseComplete
                | Message::ParameterDescription(_) => {}
                _others => return Err(NotCommitted::Lost),
            }
        }
    }

    /// Reads up to the last [`WireReply::Ready`] that is awaited.
    pub(super) async fn until_ready(&mut self) -> Result<(), NotCommitted> {
        while self.awaited > 0 {
            self.reply().await?;
        }
        Ok(())
    }

    /// The rows of a question of ours, whose parameters and columns are all text. It is asked by itself.
    pub(super) async fn rows(
        &mut self,
        sql: &str,
        values: &[&str],
    ) -> Result<Vec<Vec<String>>, NotCommitted> {
        let types = values.iter().map(|_| TEXT);
        frontend::parse("", sql, types, &mut self.out).map_err(unsendable)?;
        let values: Vec<_> = values.iter().copied().map(Some).collect();
        self.execute("", Format::Text, &values)?;
        self.sync();
        self.flush().await?;
        let (mut rows, mut bytes) = (Vec::new(), 0);
        loop {
            match self.reply().await? {
                WireReply::Row(row) => {
                    bytes += row.buffer().len().max(size_of::<Vec<String>>());
                    if bytes > OWN_ROWS_MAX {
                        return Err(NotCommitted::Lost);
                    }
                    let columns: Vec<_> = columns(&row)?.collect();
                    let texts = columns.into_iter().map(|column| {
                        let text = str::from_utf8(column.unwrap_or_default());
                        text.map(str::to_owned).map_err(|_other| NotCommitted::Lost)
                    });
                    rows.push(texts.collect::<Result<_, _>>()?);
                }
                WireReply::Ready => return Ok(rows),
                WireReply::Columns(_) | WireReply::Complete(_) => {}
            }
        }
    }

    /// The names of a statement's columns and the numbers of their types. Nothing is run.
    pub(super) async fn describe(&mut self, sql: &str) -> Result<Vec<(String, u32)>, NotCommitted> {
        frontend::parse("", sql, [], &mut self.out).map_err(unsendable)?;
        frontend::describe(b'S', "", &mut self.out).map_err(unsendable)?;
        self.sync();
        self.flush().await?;
        let mut described = Vec::new();
        loop {
            match self.reply().await? {
                WireReply::Columns(Some(columns)) => {
                    let columns = columns.fields();
                    let named =
                        columns.map(|column| Ok((column.name().to_owned(), column.type_oid())));
                    described = named.collect().map_err(|_garbage| NotCommitted::Lost)?;
                }
                WireReply::Ready => return Ok(described),
                WireReply::Columns(None) | WireReply::Row(_) | WireReply::Complete(_) => {}
            }
        }
    }

    /// Whether the connection is open and the server has nothing to say, which it would not say unasked if all were well.
    pub(super) async fn is_quiet(&mut self) -> bool {
        self.awaited == 0
            && self.input.is_empty()
            && poll!(pin!(self.stream.read_u8())).is_pending()
    }

    /// Tells the server that nothing follows, and waits until it has closed the connection.
    pub(super) async fn close(mut self) -> Result<(), NotCommitted> {
        frontend::terminate(&mut self.out);
        self.flush().await?;
        loop {
            self.input.clear();
            if self.receive().await? == 0 {
                return Ok(());
            }
        }
    }

    /// As the server says at the start of a session, or wherever a message is read that [`Self::reply`] does not know.
    ///
    /// A message is refused by the length in its header, before its body is read. An error is cut instead, and what asks for no
    /// answer is passed over: a tool's statement can make them as long as it likes, even while it is being committed.
    pub(super) async fn message(&mut self) -> Result<Message, NotCommitted> {
        loop {
            let header = Header::parse(&self.input).map_err(|_garbage| NotCommitted::Lost)?;
            if let Some(header) = header {
                let length = usize::try_from(header.len()).map_err(|_never| NotCommitted::Lost)?;
                match header.tag() {
                    ERROR_RESPONSE_TAG if length > ERROR_MAX => {
                        return self.beginning_of_error(length).await;
                    }
                    NOTICE_RESPONSE_TAG | NOTIFICATION_RESPONSE_TAG | PARAMETER_STATUS_TAG => {
                        self.pass_over(1 + length).await?;
                        continue;
                    }
                    DATA_ROW_TAG if self.row_max.is_some_and(|most| length > most) => {
                        return Err(NotCommitted::TooLarge(Words::fixed(
                            "it has a row that is larger than its output_limit allows",
                            "它有一行超过了 output_limit",
                        )));
                    }
                    DATA_ROW_TAG if self.row_max.is_some() => {}
                    _ if length > MESSAGE_MAX => return Err(NotCommitted::Lost),
                    _ => {}
                }
            }
            let message = Message::parse(&mut self.input);
            match message.map_err(|_garbage| NotCommitted::Lost)? {
                Some(message) => return Ok(message),
                None => self.receive_some().await?,
            }
        }
    }

    /// An error of which only the beginning is kept.
    async fn beginning_of_error(&mut self, length: usize) -> Result<Message, NotCommitted> {
        while self.input.len() < 1 + ERROR_MAX {
            self.receive_some().await?;
        }
        let kept = self.input.split_to(1 + ERROR_MAX);
        self.pass_over(length - ERROR_MAX).await?;
        // The end of the text that was cut, and the end of all fields.
        let mut whole = BytesMut::with_capacity(kept.len() + 2);
        whole.put_u8(ERROR_RESPONSE_TAG);
        whole.put_u32(u32::try_from(ERROR_MAX + 2).map_err(|_never| NotCommitted::Lost)?);
        whole.put_slice(&kept[5..]);
        whole.put_slice(&[0, 0]);
        let message = Message::parse(&mut whole).map_err(|_garbage| NotCommitted::Lost)?;
        message.ok_or(NotCommitted::Lost)
    }

    /// Reads so many bytes and keeps none.
    async fn pass_over(&mut self, mut bytes: usize) -> Result<(), NotCommitted> {
        loop {
            let here = bytes.min(self.input.len());
            self.input.advance(here);
            bytes -= here;
            if bytes == 0 {
                return Ok(());
            }
            self.receive_some().await?;
        }
    }

    async fn receive_some(&mut self) -> Result<(), NotCommitted> {
        match self.receive().await? {
            0 => Err(NotCommitted::Lost),
            _some => Ok(()),
        }
    }

    async fn receive(&mut self) -> Result<usize, NotCommitted> {
        self.input.reserve(READ);
        let read = self.stream.read_buf(&mut self.input).await;
        read.map_err(|_broken| NotCommitted::Lost)
    }
}

/// The columns of a row; `None` is NULL.
pub(super) fn columns(
    row: &DataRowBody,
) -> Result<impl Iterator<Item = Option<&[u8]>>, NotCommitted> {
    let ranges: Vec<_> = row
        .ranges()
        .collect()
        .map_err(|_garbage| NotCommitted::Lost)?;
    let bytes = row.buffer();
    Ok(ranges
        .into_iter()
        .map(|range| range.and_then(|range| bytes.get(range))))
}

/// An error as the server says it.
pub(super) fn refusal(mut fields: ErrorFields<'_>) -> ServerRefusal {
    let (mut severity, mut localized) = (None, None);
    let mut refusal = ServerRefusal {
        sqlstate: String::new(),
        message: String::new(),
        is_fatal: true,
        constraint: None,
    };
    while let Ok(Some(field)) = fields.next() {
        let value = String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'V' => severity = Some(value),
            b'S' => localized = Some(value),
            b'C' => refusal.sqlstate = value,
            b'M' => refusal.message = value,
            b'n' => refusal.constraint = Some(value),
            _others => {}
        }
    }
    // A severity that is not known, in another language, may be the end of the session.
    refusal.is_fatal = severity.or(localized).as_deref() != Some("ERROR");
    refusal
}

/// The protocol has no way to say it: a NUL in the text, or too much.
fn unsendable(_error: io::Error) -> NotCommitted {
    NotCommitted::Flaw(Words::fixed(
        "the statement or its parameters cannot be sent to the server",
        "语句或它的参数无法发送给服务器",
    ))
}
