//! The wire to NATS. Messages are observed over another connection.
//!
//! The messages are numbers, told to a dispatcher that is not there.

use std::{collections::BTreeMap, time::Duration};

use async_nats::{Client, Subscriber};
use bytes::Bytes;
use fleet_chaos::wire::{
    Side,
    nats::{Fault, Message, Wire},
};
use fleet_tests::{
    run_folder::RunFolder,
    wait::{LONG, until_so},
};
use futures_util::StreamExt;
use tokio::time::{Instant, timeout};
use toolfleet::servers::{Nats, NatsOptions, nats::MAX_PAYLOAD};

const LATE: u32 = 500;

/// A server, a wire to it, and a client on either side.
struct Ward {
    wire: Wire,
    /// Through the wire.
    wired: Client,
    direct: Client,
    _server: Nats,
    // After the server: dropping it ends what still runs.
    _folder: RunFolder,
}

/// What becomes of messages on one way.
struct Way {
    from: Client,
    to: Subscriber,
}

impl Ward {
    async fn new() -> Self {
        let folder = RunFolder::create().unwrap();
        let options = NatsOptions {
            store: folder.path().join("store"),
            port: None,
            log: folder.path().join("log"),
            max_payload: MAX_PAYLOAD,
            password: None,
            further: String::new(),
        };
        let server = Nats::start(options).await.unwrap();
        let wire = Wire::to(server.port()).await.unwrap();
        let wired = format!("nats://127.0.0.1:{}", wire.port());
        Self {
            wired: async_nats::connect(wired).await.unwrap(),
            direct: async_nats::connect(server.url()).await.unwrap(),
            wire,
            _server: server,
            _folder: folder,
        }
    }

    /// From one client to the other, over the wire on the one side's end.
    async fn way(&self, side: Side) -> Way {
        let (from, to) = match side {
            Side::Client => (&self.wired, &self.direct),
            Side::Server => (&self.direct, &self.wired),
        };
        let numbers = to.subscribe("toolfleet.done.d.*").await.unwrap();
        known(to).await;
        Way {
            from: from.clone(),
            to: numbers,
        }
    }
}

/// Waits until the server knows what this client has said.
async fn known(client: &Client) {
    let inbox = client.new_inbox();
    let mut echo = client.subscribe(inbox.clone()).await.unwrap();
    client.publish(inbox, Bytes::new()).await.unwrap();
    timeout(LONG, echo.next()).await.unwrap();
}

impl Way {
    async fn send(&self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            let body = number.to_string().into();
            self.from.publish("toolfleet.done.d.c", body).await.unwrap();
        }
        self.from.flush().await.unwrap();
    }

    async fn hear(&mut self, count: usize) -> Vec<u64> {
        let mut heard = Vec::new();
        while heard.len() < count {
            let next = timeout(LONG, self.to.next()).await;
            let next = next.unwrap_or_else(|_late| panic!("nothing after {heard:?}"));
            let text = String::from_utf8(next.unwrap().payload.to_vec()).unwrap();
            heard.push(text.parse().unwrap());
        }
        heard
    }
}

#[tokio::test]
async fn every_fault_does_what_it_says_in_both_directions() {
    for side in [Side::Client, Side::Server] {
        for (fault, expected) in [
            (Fault::Drop, &[1, 3, 4][..]),
            (Fault::Duplicate, &[1, 2, 2, 3, 4]),
            (Fault::Delay(LATE), &[1, 3, 4, 2]),
            (Fault::Reorder, &[1, 3, 2, 4]),
            (Fault::RepeatLast, &[1, 2, 1, 3, 4]),
        ] {
            let ward = Ward::new().await;
            let mut way = ward.way(side).await;
            ward.wire.arm(Message::Reply, 2, fault);
            let began = Instant::now();
            way.send(1..=4).await;
            assert_eq!(
                way.hear(expected.len()).await,
                expected,
                "{side:?} {fault:?}"
            );
            let late = matches!(fault, Fault::Delay(_));
            assert!(!late || began.elapsed() >= Duration::from_millis(LATE.into()));
            assert_eq!(ward.wire.struck(), [(Message::Reply, 2, fault)]);
            assert_eq!(ward.wire.passed(Message::Reply), 4);
            // Nothing else comes behind it.
            way.send([9]).await;
            assert_eq!(way.hear(1).await, [9]);
        }
    }
}

#[tokio::test]
async fn a_message_cut_in_its_middle_is_lost_with_its_connection() {
    for side in [Side::Client, Side::Server] {
        let ward = Ward::new().await;
        let mut way = ward.way(side).await;
        ward.wire.arm(Message::Reply, 2, Fault::Cut);
        way.send([1, 2]).await;
        until_so("the cut", async || !ward.wire.struck().is_empty()).await;
        // Once it is connected again; before, its subscription is not there.
        until_so("a way through", async || {
            way.send([3]).await;
            let next = timeout(Duration::from_millis(100), way.to.next()).await;
            next.is_ok_and(|next| {
                let payload = next.unwrap().payload;
                assert_ne!(&payload[..], b"2");
                &payload[..] == b"3"
            })
        })
        .await;
    }
}

#[tokio::test]
async fn a_message_with_none_behind_it_comes_all_the_same() {
    let ward = Ward::new().await;
    let mut way = ward.way(Side::Client).await;
    ward.wire.arm(Message::Reply, 1, Fault::Reorder);
    way.send([1]).await;
    assert_eq!(way.hear(1).await, [1]);
}

#[tokio::test]
async fn large_messages_pass_struck_or_not() {
    let ward = Ward::new().await;
    for side in [Side::Client, Side::Server] {
        let mut way = ward.way(side).await;
        let nth = ward.wire.passed(Message::Reply) + 1;
        ward.wire.arm(Message::Reply, nth + 2, Fault::Duplicate);
        let large = Bytes::from(vec![b'\n'; MAX_PAYLOAD as usize]);
        for _ in 0..3 {
            let publishing = way.from.publish("toolfleet.done.d.c", large.clone());
            publishing.await.unwrap();
        }
        for _ in 0..4 {
            let message = timeout(LONG, way.to.next()).await.unwrap().unwrap();
            assert!(message.payload == large);
        }
        way.send([9]).await;
        assert_eq!(way.hear(1).await, [9]);
    }
}

#[tokio::test]
async fn noise_strikes_what_it_says_and_loses_nothing_else() {
    const COUNT: u64 = 3_000;
    let ward = Ward::new().await;
    let mut way = ward.way(Side::Client).await;
    ward.wire.noise(7, 100);
    way.send(1..=COUNT).await;
    until_so("all to pass", async || {
        ward.wire.passed(Message::Reply) == COUNT
    })
    .await;
    let struck = ward.wire.struck();
    assert!((200..400).contains(&struck.len()), "{}", struck.len());
    let mut expected: BTreeMap<u64, usize> = (1..=COUNT).map(|number| (number, 1)).collect();
    for (_, nth, fault) in &struck {
        match fault {
            Fault::Drop => drop(expected.remove(nth)),
            Fault::Duplicate => *expected.get_mut(nth).unwrap() += 1,
            _late => {}
        }
    }
    let mut heard = BTreeMap::<u64, usize>::new();
    for number in way.hear(expected.values().sum()).await {
        *heard.entry(number).or_default() += 1;
    }
    assert_eq!(heard, expected);
    ward.wire.healed();
    way.send(1..=COUNT).await;
    assert!(way.hear(COUNT as usize).await.into_iter().eq(1..=COUNT));
    assert_eq!(ward.wire.struck().len(), struck.len());
}

#[tokio::test]
async fn a_silent_wire_swallows_messages_and_connects_nobody_until_it_is_switched_off() {
    for side in [Side::Client, Side::Server] {
        let ward = Ward::new().await;
        let mut way = ward.way(side).await;
        ward.wire.silence(Some(side), true);
        way.send([1]).await;
        let silence = timeout(Duration::from_millis(200), way.to.next()).await;
        assert!(silence.is_err(), "{side:?}");
        let url = format!("nats://127.0.0.1:{}", ward.wire.port());
        let connecting = timeout(Duration::from_millis(200), async_nats::connect(&url));
        assert!(!matches!(connecting.await, Ok(Ok(_))));
        ward.wire.silence(Some(side), false);
        until_so("a way through", async || {
            way.send([2]).await;
            let next = timeout(Duration::from_millis(100), way.to.next()).await;
            next.is_ok_and(|next| {
                assert_eq!(&next.unwrap().payload[..], b"2");
                true
            })
        })
        .await;
    }
}

#[tokio::test]
async fn an_answer_is_known_by_its_question() {
    let ward = Ward::new().await;
    let mut asked = ward.direct.subscribe("toolfleet.v1.*.get").await.unwrap();
    known(&ward.direct).await;
    let answering = async {
        let question = asked.next().await.unwrap();
        let inbox = question.reply.unwrap();
        ward.direct.publish(inbox, "answer".into()).await.unwrap();
    };
    let asking = ward.wired.request("toolfleet.v1.default.get", Bytes::new());
    let (answer, ()) = tokio::join!(asking, answering);
    assert_eq!(&answer.unwrap().payload[..], b"answer");
    assert_eq!(ward.wire.passed(Message::Request), 1);
    assert_eq!(ward.wire.passed(Message::Reply), 1);
}
