//! Programs, which find a folder.

use std::path::{Path, PathBuf};

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use serde_json::json;

use super::{change, keep, named, sha256};

/// A tool that says of its folder what it sees. `more` is more of the program.
fn program(name: &str, more: &str, manifest: &str) -> String {
    let source = format!(
        "import hashlib, json, os, stat, sys, time\n\
         folder = os.environ.get('TOOLFLEET_FILES')\n\
         listed = json.load(open(folder + '/files.json')) if folder else []\n\
         mode = lambda path: oct(stat.S_IMODE(os.stat(path).st_mode))\n\
         for one in listed:\n\
         \x20   data = open(one['path'], 'rb').read()\n\
         \x20   one['read'] = hashlib.sha256(data).hexdigest()\n\
         \x20   one['mode'] = mode(one['path'])\n\
         {more}\n\
         print(json.dumps({{'folder': folder, 'mode': mode(folder) if folder else None, 'files': listed}}))\n"
    );
    let command = json!(["python3", "-c", source]);
    format!(
        "name: {name}\nversion: 1\ndescription: Looks at its files.\neffect: read\nretry: {{strategy: none}}\ntimeout: 60s\n\
         input_schema: {{type: object}}\nfiles: {{max: 3}}\nexecutor: {{process: {{command: {command}}}}}\n{manifest}"
    )
}

#[tokio::test]
async fn a_program_finds_its_files_with_a_sandbox_and_without() {
    let witness = Witness::start().await;
    let tools = [
        program("free", "", ""),
        program("strict", "", "sandbox: strict\n"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let long: String = (0..40_000).map(|n| format!("{n:08}\n")).collect();
    let texts = ["short", long.as_str(), "short"];
    let mut files = Vec::new();
    for (name, text) in ["same.txt", "\u{62a5} \u{544a}.pdf", "same.txt"]
        .iter()
        .zip(texts)
    {
        files.push(keep(&fleet, name, text).await);
    }
    for tool in ["free", "strict"] {
        let call = fleet.submit(tool, &json!({})).key(tool);
        let answer = call.header("Toolfleet-Files", &named(&files)).wait().await;
        assert_eq!(answer["state"], "succeeded", "{}", *answer);
        let (result, mut paths) = (&answer["result"], Vec::new());
        assert_eq!(result["mode"], "0o500");
        for (at, (one, text)) in result["files"]
            .as_array()
            .unwrap()
            .iter()
            .zip(texts)
            .enumerate()
        {
            assert_eq!(one["file_id"], files[at].to_string());
            assert_eq!(one["mime"], "text/plain");
            assert_eq!(one["bytes"], text.len());
            assert_eq!(one["sha256"], sha256(text));
            assert_eq!(one["read"], sha256(text));
            assert_eq!(one["mode"], "0o400");
            paths.push(PathBuf::from(one["path"].as_str().unwrap()));
        }
        let names: Vec<&str> = paths
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap())
            .collect();
        assert_eq!(
            names,
            ["1-same.txt", "2-\u{62a5} \u{544a}.pdf", "3-same.txt"]
        );
        let folder = Path::new(result["folder"].as_str().unwrap());
        assert!(paths.iter().all(|path| path.parent() == Some(folder)));
        until_so("the folder to be removed", async || !folder.exists()).await;
    }
    let without = fleet.submit("free", &json!({})).key("without").wait().await;
    assert_eq!(
        without["result"],
        json!({"folder": null, "mode": null, "files": []})
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_file_that_is_not_what_it_was_ends_the_call_before_its_program_starts() {
    let witness = Witness::start().await;
    let trace = tempfile::tempdir().unwrap();
    let trace = trace.path().join("started");
    let more = format!("open({trace:?}, 'w').close()");
    let fleet = Fleet::start(Spec::with([program("free", &more, "")])).await;
    let file = keep(&fleet, "a.txt", "what it was").await;
    change(&fleet, file).await;
    let call = fleet.submit("free", &json!({})).key("k");
    let answer = call.header("Toolfleet-Files", &named(&[file])).wait().await;
    assert_eq!(
        (answer["state"].as_str(), answer.code()),
        (Some("failed"), "not_found"),
        "{}",
        *answer
    );
    assert_eq!(answer["effect"], "none");
    let details = &answer["error"]["details"];
    assert_eq!(
        *details,
        json!({"file_id": file.to_string(), "problem": "changed"})
    );
    assert!(!trace.exists());
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_worker_that_is_killed_leaves_no_folder_behind_when_the_next_one_starts() {
    let witness = Witness::start().await;
    let tools = [program(
        "free",
        "open(folder + '/../../seen', 'w').write(folder)\ntime.sleep(60)",
        "",
    )];
    let mut fleet = Fleet::start(Spec::with(tools).workers(0, &[])).await;
    let temporary = tempfile::tempdir().unwrap();
    let left = || {
        let entries = std::fs::read_dir(temporary.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names: Vec<String> = names
            .filter(|name| name.starts_with("toolfleet-files"))
            .collect();
        names
    };
    let start = |name: &str| {
        let mut command =
            tokio::process::Command::new(fleet_tests::fleet::built("fleet_tests_toolfleet"));
        command.arg("worker").env("TMPDIR", temporary.path());
        fleet.start_program(command, "worker", name, &[], None)
    };
    let mut first = start("first");
    first.ready().await;
    let file = keep(&fleet, "a.txt", "text").await;
    let call = fleet.submit("free", &json!({})).key("k");
    call.header("Toolfleet-Files", &named(&[file]))
        .asynchronous()
        .await;
    let seen = temporary.path().join("seen");
    until_so("the program to see its folder", async || {
        std::fs::read_to_string(&seen).is_ok_and(|folder| !folder.is_empty())
    })
    .await;
    let folder = PathBuf::from(std::fs::read_to_string(&seen).unwrap());
    assert!(folder.exists());
    first.kill().await;
    // The guard of the program removes it when the program is gone.
    until_so("the folder of the attempt to be removed", async || {
        !folder.exists()
    })
    .await;
    assert_eq!(left().len(), 1, "{:?}", left());
    let mut second = start("second");
    second.ready().await;
    assert_eq!(left(), Vec::<String>::new());
    second.terminate().await;
    drop(witness);
    fleet.workers.clear();
}
