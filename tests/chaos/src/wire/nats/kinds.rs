//! The kind of each message.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use super::{Message, words::Envelope};

/// The subjects of the fleet, under its default prefix.
const FLEET: &str = "toolfleet.";
const ACKS: &str = "$JS.ACK.";
/// Inboxes that are remembered at most. The oldest are forgotten first: no request waits there any more.
const AWAITED_MAX: usize = 65_536;

/// Tells messages apart, and remembers where answers will come.
#[derive(Debug, Default)]
pub(super) struct Kinds(Mutex<Awaited>);

#[derive(Debug, Default)]
struct Awaited {
    /// What an answer to this inbox is. A client keeps its inboxes when it connects again, so they are the wire's.
    kinds: HashMap<Box<str>, Message>,
    order: VecDeque<Box<str>>,
}

impl Kinds {
    /// What this is.
    pub(super) fn kind(&self, message: &Envelope<'_>) -> Message {
        if message.is_status {
            return Message::Other;
        }
        let (kind, answer) = match of_subject(message) {
            Some(known) => known,
            None => match self.awaited(message.subject) {
                Some(answer) => (answer, None),
                None => of_others(message),
            },
        };
        if let (Some(reply), Some(answer)) = (message.reply, answer) {
            self.await_at(reply, answer);
        }
        kind
    }

    fn awaited(&self, inbox: &str) -> Option<Message> {
        let awaited = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        awaited.kinds.get(inbox).copied()
    }

    fn await_at(&self, inbox: &str, answer: Message) {
        let mut awaited = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if awaited.kinds.insert(inbox.into(), answer).is_none() {
            awaited.order.push_back(inbox.into());
        }
        if awaited.order.len() > AWAITED_MAX
            && let Some(oldest) = awaited.order.pop_front()
        {
            awaited.kinds.remove(&oldest);
        }
    }
}

/// What a message is by its subject, and what its answer is. `None`: the subject does not say.
fn of_subject(message: &Envelope<'_>) -> Option<(Message, Option<Message>)> {
    if message.subject.starts_with(ACKS) && message.to_server {
        return Some((Message::Ack, None));
    }
    let words = message.subject.strip_prefix(FLEET)?;
    let mut words = words.split('.');
    Some(match (words.next(), words.nth(1)) {
        (Some("jobs"), _) if message.to_server => (Message::Publish, Some(Message::PubAck)),
        (Some("jobs"), _) if message.reply.is_some() => (Message::Deliver, None),
        (Some("done"), _) => (Message::Reply, None),
        (Some("v1"), Some("event")) => (Message::Other, None),
        (Some("v1"), Some(_)) => (Message::Request, Some(Message::Reply)),
        _others => (Message::Other, None),
    })
}

/// A message on a subject that neither the fleet uses nor a request named for its answer: a question to a tool.
fn of_others(message: &Envelope<'_>) -> (Message, Option<Message>) {
    let servers = message.subject.starts_with('$') || message.subject.starts_with("_INBOX");
    if message.reply.is_some() && !servers {
        (Message::Tool, Some(Message::Tool))
    } else {
        (Message::Other, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said<'a>(to_server: bool, subject: &'a str, reply: Option<&'a str>) -> Envelope<'a> {
        Envelope {
            to_server,
            subject,
            reply,
            is_status: false,
            length: 0,
        }
    }

    #[test]
    fn a_message_is_known_by_its_subject_and_an_answer_by_its_question() {
        let kinds = Kinds::default();
        let sent = |subject, reply| kinds.kind(&said(true, subject, reply));
        let told = |subject, reply| kinds.kind(&said(false, subject, reply));
        // A dispatcher.
        assert_eq!(told("_INBOX.a.1", None), Message::Other);
        assert_eq!(
            sent("toolfleet.jobs.default.c.1", Some("_INBOX.a.1")),
            Message::Publish
        );
        assert_eq!(told("_INBOX.a.1", None), Message::PubAck);
        assert_eq!(
            told("toolfleet.v1.acme.call.charge", Some("_INBOX.b.1")),
            Message::Request
        );
        assert_eq!(sent("_INBOX.b.1", None), Message::Reply);
        assert_eq!(told("toolfleet.done.d.c", None), Message::Reply);
        assert_eq!(sent("toolfleet.v1.acme.event.s.c", None), Message::Other);
        // A worker.
        let ack = "$JS.ACK.TOOLFLEET_JOBS.q_default.1.2.3.4.5";
        assert_eq!(
            told("toolfleet.jobs.default.c.1", Some(ack)),
            Message::Deliver
        );
        assert_eq!(sent(ack, None), Message::Ack);
        assert_eq!(sent("tools.translate", Some("_INBOX.c.1")), Message::Tool);
        assert_eq!(told("_INBOX.c.1", None), Message::Tool);
        let pull = "$JS.API.CONSUMER.MSG.NEXT.TOOLFLEET_JOBS.q_default";
        assert_eq!(sent(pull, Some("_INBOX.d.1")), Message::Other);
        // A caller.
        assert_eq!(
            sent("toolfleet.v1.acme.batch", Some("_INBOX.e.1")),
            Message::Request
        );
        assert_eq!(told("_INBOX.e.1", None), Message::Reply);
    }

    #[test]
    fn the_server_itself_answers_nothing() {
        let kinds = Kinds::default();
        kinds.kind(&said(true, "toolfleet.v1.acme.get", Some("_INBOX.a.1")));
        let status = Envelope {
            is_status: true,
            ..said(false, "_INBOX.a.1", None)
        };
        assert_eq!(kinds.kind(&status), Message::Other);
    }

    #[test]
    fn what_is_awaited_is_bounded() {
        let kinds = Kinds::default();
        for n in 0..=AWAITED_MAX {
            kinds.await_at(&format!("_INBOX.{n}"), Message::Reply);
        }
        assert_eq!(kinds.awaited("_INBOX.0"), None);
        assert_eq!(kinds.awaited("_INBOX.1"), Some(Message::Reply));
    }
}
