//! A server that means harm, told message by message.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;

fn target() -> Target {
    Target {
        place: ServerAddress::Tcp("db.example".to_owned(), 5432),
        user: "tool".to_owned(),
        password: "hunter2".into(),
        database: None,
        options: None,
        tls: None,
    }
}

/// A message of the server.
fn said(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[tag], &length.to_be_bytes()[..], body].concat()
}

fn asks(kind: i32, rest: &[u8]) -> Vec<u8> {
    said(b'R', &[&kind.to_be_bytes()[..], rest].concat())
}

/// The body of the client's next message.
async fn heard(server: &mut DuplexStream) -> String {
    let _tag = server.read_u8().await.unwrap();
    let length = server.read_u32().await.unwrap();
    let mut body = vec![0; usize::try_from(length).unwrap() - 4];
    server.read_exact(&mut body).await.unwrap();
    String::from_utf8_lossy(&body).into_owned()
}

/// How the client takes what a server says at once; and what it answered.
async fn told(script: &[Vec<u8>], is_trusted: bool) -> (Result<(), NoSession>, Vec<u8>) {
    let (ours, mut server) = duplex(1024 * 1024);
    server.write_all(&script.concat()).await.unwrap();
    let (mut theirs, mut writing) = tokio::io::split(server);
    let mut wire = Wire::over(Box::new(ours));
    let done = target().authenticate(&mut wire, is_trusted).await;
    drop(wire);
    writing.shutdown().await.unwrap();
    let mut answered = Vec::new();
    theirs.read_to_end(&mut answered).await.unwrap();
    (done, answered)
}

fn has_password(answered: &[u8]) -> bool {
    answered.windows(7).any(|window| window == b"hunter2")
}

#[tokio::test]
async fn a_password_goes_as_it_is_only_to_a_server_that_proved_itself() {
    let script = [asks(3, b""), asks(0, b"")];
    let (done, answered) = told(&script, false).await;
    assert!(matches!(done, Err(NoSession::Exposed)), "{done:?}");
    assert!(!has_password(&answered));
    let (done, answered) = told(&script, true).await;
    assert!(done.is_ok() && has_password(&answered), "{done:?}");
}

#[tokio::test]
async fn a_server_that_began_with_scram_gets_no_weaker_proof() {
    let scram = asks(10, b"SCRAM-SHA-256\0\0");
    for weaker in [asks(3, b""), asks(5, b"salt"), asks(0, b""), scram.clone()] {
        let script = [scram.clone(), weaker];
        let (done, answered) = told(&script, true).await;
        assert!(matches!(done, Err(NoSession::NotUnderstood)), "{done:?}");
        assert!(!has_password(&answered));
    }
    let (done, _) = told(&[asks(10, b"PLAIN\0\0")], true).await;
    assert!(matches!(done, Err(NoSession::NotUnderstood)), "{done:?}");
}

/// Goes through SCRAM up to the server's proof, which is `last`, with so many rounds.
async fn scram(rounds: &str, last: impl Fn() -> Vec<u8>) -> Result<(), NoSession> {
    let (ours, mut server) = duplex(64 * 1024);
    let mut wire = Wire::over(Box::new(ours));
    let serving = async {
        let scram = asks(10, b"SCRAM-SHA-256\0\0");
        server.write_all(&scram).await.unwrap();
        let first = heard(&mut server).await;
        let (_, nonce) = first.rsplit_once("r=").unwrap();
        let challenge = format!("r={nonce}x,s=c2FsdHNhbHQ=,i={rounds}");
        let challenge = asks(11, challenge.as_bytes());
        server.write_all(&challenge).await.unwrap();
        if rounds.len() < 6 {
            heard(&mut server).await;
            let last = [last(), asks(0, b"")].concat();
            server.write_all(&last).await.unwrap();
        }
    };
    let target = target();
    let (done, ()) = tokio::join!(target.authenticate(&mut wire, true), serving);
    done
}

#[tokio::test]
async fn a_server_that_does_not_know_the_password_is_refused() {
    let forged = asks(12, b"v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    let done = scram("4096", || forged.clone()).await;
    assert!(matches!(done, Err(NoSession::Io(_))), "{done:?}");
    let done = scram("4096", Vec::new).await;
    assert!(matches!(done, Err(NoSession::NotUnderstood)), "{done:?}");
    // Four thousand million rounds would hold a thread for an hour.
    let done = scram("4000000000", Vec::new).await;
    assert!(matches!(done, Err(NoSession::Io(_))), "{done:?}");
}

/// What a statement's answer is taken for, where rows may have so many bytes.
async fn reply(script: &[u8], limit: Option<usize>) -> Result<(), NotCommitted> {
    let (ours, mut server) = duplex(64 * 1024);
    let mut wire = Wire::over(Box::new(ours));
    if let Some(limit) = limit {
        wire.bound_rows(limit);
    }
    let script = script.to_owned();
    let serving = async move {
        drop(server.write_all(&script).await);
        server
    };
    let (reply, _server) = tokio::join!(wire.reply(), serving);
    reply.map(drop)
}

#[tokio::test]
async fn a_message_is_refused_by_its_length() {
    for length in [i32::MIN, -1, 0, 3] {
        let header = [&b"D"[..], &length.to_be_bytes()].concat();
        let refused = reply(&header, Some(1024)).await;
        assert!(matches!(refused, Err(NotCommitted::Lost)), "{refused:?}");
    }
    for tag in *b"DTCtZR1KG" {
        let header = [&[tag], &i32::MAX.to_be_bytes()[..]].concat();
        let refused = reply(&header, Some(1024)).await;
        let by_rows = matches!(refused, Err(NotCommitted::TooLarge(_)));
        assert_eq!(by_rows, tag == b'D', "{refused:?}");
        // An answer to a question of ours says nothing of the tool.
        let refused = reply(&header, None).await;
        assert!(matches!(refused, Err(NotCommitted::Lost)), "{refused:?}");
    }
}

#[tokio::test]
async fn a_long_error_is_cut_and_what_says_nothing_is_passed_over() {
    let long = "x".repeat(4 * 1024 * 1024);
    let script = [
        said(b'N', long.as_bytes()),
        said(b'S', long.as_bytes()),
        said(b'A', long.as_bytes()),
        said(
            b'E',
            format!("SERROR\0VERROR\0C23505\0M{long}\0\0").as_bytes(),
        ),
    ];
    let Err(NotCommitted::Refused(refusal)) = reply(&script.concat(), Some(1024)).await else {
        panic!("it is an error");
    };
    assert_eq!(
        (refusal.sqlstate.as_str(), refusal.is_fatal),
        ("23505", false)
    );
    assert!(refusal.message.starts_with("xxx"));
    assert!(refusal.message.len() <= 64 * 1024);
}

/// Says the same without end, and how much of it was taken.
async fn flood(message: Vec<u8>, wire: impl AsyncFnOnce(Wire)) -> usize {
    let (ours, mut server) = duplex(64 * 1024);
    let flooding = async {
        let mut taken = 0;
        while server.write_all(&message).await.is_ok() {
            taken += message.len();
        }
        taken
    };
    let ((), taken) = tokio::join!(wire(Wire::over(Box::new(ours))), flooding);
    taken
}

#[tokio::test]
async fn an_answer_to_a_question_of_ours_ends() {
    let row = said(
        b'D',
        &[
            &1_u16.to_be_bytes()[..],
            &1000_u32.to_be_bytes(),
            &[b'x'; 1000],
        ]
        .concat(),
    );
    let empty = said(b'D', &0_u16.to_be_bytes());
    for row in [row, empty] {
        let taken = flood(row, async |mut wire| {
            let refused = wire.rows("SELECT", &[]).await;
            assert!(matches!(refused, Err(NotCommitted::Lost)), "{refused:?}");
        });
        assert!(taken.await < 10 * 1024 * 1024);
    }
}

#[tokio::test]
async fn a_flood_of_notices_leaves_the_rest_of_the_process_its_turn() {
    let taken = flood(said(b'N', &[b'x'; 100]), async |mut wire| {
        let waited = tokio::time::timeout(std::time::Duration::from_millis(50), wire.reply());
        assert!(waited.await.is_err(), "it is no answer");
    });
    assert!(taken.await > 0);
}

#[tokio::test]
async fn a_key_that_comes_later_is_none() {
    let key = said(b'K', &[0; 8]);
    let refused = reply(&key, Some(1024)).await;
    assert!(matches!(refused, Err(NotCommitted::Lost)), "{refused:?}");
}
