//! Every user against every subject, as `matrix.txt` says, with the configuration that is shipped.

use std::{collections::BTreeSet, fs, path::Path};

use fleet::{
    bus::excess::covers,
    ids::{CallId, DispatcherId, Label, QueueName, WorkerId},
    wire::subjects::Subjects,
};
use fleet_tests::{
    raw::RawClient,
    shipped::{Shipped, User},
};

const MATRIX: &str = include_str!("matrix.txt");
const SUBJECTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fleet/src/wire/subjects.rs");
/// The subscription of the raw client.
const SID: &str = "7";

/// One line of the table.
struct Row {
    subject: &'static str,
    cells: &'static str,
    function: Option<&'static str>,
}

fn rows() -> Vec<Row> {
    let lines = MATRIX
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let row = |line: &'static str| {
        let mut words = line.split_ascii_whitespace();
        let row = Row {
            subject: words.next().expect("a subject"),
            cells: words.next().expect("a cell for each user"),
            function: words.next(),
        };
        assert_eq!(row.cells.len(), User::ALL.len(), "{line}");
        assert!(
            row.cells.bytes().all(|cell| b".psb".contains(&cell)),
            "{line}"
        );
        row
    };
    lines.map(row).collect()
}

#[tokio::test]
async fn every_user_may_do_what_the_table_says_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let server = Shipped::start(folder.path()).await;
    let rows = rows();
    assert!(rows.len() >= 60 && User::ALL.len() >= 8);
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for (n, user) in User::ALL.into_iter().enumerate() {
        let mut client = RawClient::connect(server.port(), &user.login()).await;
        for row in &rows {
            let subject = row.subject;
            let publish = format!("PUB {subject} 0\r\n\r\n");
            let may_publish = !client.is_denied(publish.as_bytes()).await;
            let subscribe = format!("SUB {subject} {SID}\r\n");
            let may_subscribe = !client.is_denied(subscribe.as_bytes()).await;
            client.send(format!("UNSUB {SID}\r\n").as_bytes()).await;
            let found = match (may_publish, may_subscribe) {
                (false, false) => '.',
                (true, false) => 'p',
                (false, true) => 's',
                (true, true) => 'b',
            };
            let wanted = char::from(row.cells.as_bytes()[n]);
            tried += 2;
            if found != wanted {
                wrong.push(format!("{} {subject}: {found}, not {wanted}", user.name()));
            }
        }
    }
    println!(
        "{tried} tries: {} users, {} subjects",
        User::ALL.len(),
        rows.len()
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Every function of `Subjects` that makes a subject, and one that it makes.
fn made() -> Vec<(&'static str, String)> {
    let subjects = Subjects::new("toolfleet".parse().unwrap());
    let acme: Label = "acme".parse().unwrap();
    let session: Label = "s".parse().unwrap();
    let queue: QueueName = "default".parse().unwrap();
    let call = CallId::generate();
    let dispatcher = DispatcherId::generate();
    vec![
        ("call_endpoint", subjects.call_endpoint()),
        ("batch_endpoint", subjects.batch_endpoint()),
        ("batch", subjects.batch(&acme)),
        ("get_endpoint", subjects.get_endpoint()),
        ("get", subjects.get(&acme)),
        ("check_endpoint", subjects.check_endpoint()),
        ("check", subjects.check(&acme, "look")),
        ("checks", subjects.checks(&acme)),
        ("file_endpoint", subjects.file_endpoint()),
        ("file", subjects.file(&acme)),
        ("tools_endpoint", subjects.tools_endpoint()),
        ("tools", subjects.tools(&acme)),
        ("cancel_endpoint", subjects.cancel_endpoint()),
        ("output_endpoint", subjects.output_endpoint()),
        ("output", subjects.output(&acme)),
        ("approve_endpoint", subjects.approve_endpoint()),
        ("approve", subjects.approve(&acme)),
        ("admin_approve_endpoint", subjects.admin_approve_endpoint()),
        ("admin_approve", subjects.admin_approve(&acme)),
        ("admin_preview_endpoint", subjects.admin_preview_endpoint()),
        ("admin_preview", subjects.admin_preview(&acme)),
        ("settle_endpoint", subjects.settle_endpoint()),
        ("cancel", subjects.cancel(&acme)),
        ("settle", subjects.settle(&acme)),
        ("control_endpoint", subjects.control_endpoint()),
        ("control", subjects.control(&acme)),
        ("control_of_all", subjects.control_of_all()),
        ("call", subjects.call(&acme, "look")),
        ("calls", subjects.calls(&acme)),
        ("job", subjects.job(&queue, call, 1)),
        ("jobs_of_queue", subjects.jobs_of_queue(&queue)),
        ("jobs_of_every_queue", subjects.jobs_of_every_queue()),
        ("jobs", subjects.jobs()),
        ("jobs_stream", subjects.jobs_stream()),
        ("event", subjects.event(&acme, &session, call)),
        (
            "events_of_session",
            subjects.events_of_session(&acme, &session),
        ),
        ("turn", subjects.turn(&acme, &session)),
        ("every_turn", subjects.every_turn()),
        ("events_of_tenant", subjects.events_of_tenant(&acme)),
        ("events", subjects.events()),
        ("events_stream", subjects.events_stream()),
        ("watermark", subjects.watermark()),
        ("watermark_stream", subjects.watermark_stream()),
        ("jobs_consumer", Subjects::jobs_consumer(&queue)),
        ("done", subjects.done(dispatcher, call)),
        ("done_together", subjects.done_together(dispatcher)),
        ("done_elsewhere", subjects.done_elsewhere(call)),
        (
            "done_of_dispatcher",
            subjects.done_of_dispatcher(dispatcher),
        ),
        ("done_of_call", subjects.done_of_call(call)),
        ("every_done", subjects.every_done()),
        (
            "info_of_dispatchers",
            Subjects::info_of_dispatchers().to_owned(),
        ),
        (
            "cancel_of_worker",
            subjects.cancel_of_worker(WorkerId::generate()),
        ),
        ("every_cancel", subjects.every_cancel()),
        ("every_tool_cancel", subjects.every_tool_cancel()),
        ("tool_cancel", subjects.tool_cancel(call)),
        ("every_tool_event", subjects.every_tool_event()),
        ("tool_event", subjects.tool_event(call)),
        ("control_changed", subjects.control_changed()),
        ("room", subjects.room()),
        ("repeats", subjects.repeats()),
        ("counted", subjects.counted()),
    ]
}

/// Public functions of the source that return a subject, or a name that stands in one.
fn in_the_source() -> BTreeSet<String> {
    let source = fs::read_to_string(Path::new(SUBJECTS)).unwrap();
    let (source, _tests) = source.split_once("#[cfg(test)]").unwrap();
    let functions = source.split("    pub ").skip(1);
    let named = functions.filter_map(|function| {
        let (signature, _) = function.split_once('{')?;
        let makes = ["-> String", "-> &'static str"];
        let name = signature.split("fn ").nth(1)?.split(['(', '<']).next()?;
        let is_one = makes
            .iter()
            .any(|made| signature.trim_end().ends_with(made));
        is_one.then(|| name.to_owned())
    });
    named.collect()
}

#[test]
fn every_subject_has_a_row() {
    let made = made();
    let known: BTreeSet<String> = made.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(
        in_the_source(),
        known,
        "a subject is new or gone: give it a line in fleet/src/bus/rights.rs, in matrix.txt, and in this test"
    );
    let rows = rows();
    for (name, subject) in made {
        let row = rows.iter().find(|row| row.function == Some(name));
        let row = row.unwrap_or_else(|| panic!("matrix.txt has no row for {name}: {subject}"));
        // Ids are other ones there; a stream and a consumer are part of a longer subject.
        let shape: Vec<&str> = subject.split('.').collect();
        let same = row.subject.split('.').count() == shape.len()
            && row.subject.split('.').zip(&shape).all(|(there, here)| {
                there == *here || here.len() == 36 && !there.contains(['*', '>'])
            });
        let names_it = covers(row.subject, &subject) || row.subject.ends_with(&subject);
        assert!(
            same || names_it,
            "{name} makes {subject}, its row has {}",
            row.subject
        );
    }
}
