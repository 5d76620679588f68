//! `docs/first-tool.md`, followed word for word, with a free port in place of the one of its HTTP service.

use std::{fs, path::Path, process::Stdio};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdout, Command},
    time::timeout,
};
use toolfleet::{dev::DevState, servers::free_ports};

use crate::support::{LONG, PROGRAM, folder, nats, send, wait_until};

/// The port of the HTTP service, as the page has it.
const PORT: &str = "8750";

/// A block of the page: how it is marked, the line before it, and its text.
struct Block {
    mark: String,
    before: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let (mut before, mut lines) = (String::new(), page.lines());
    while let Some(line) = lines.next() {
        if let Some(mark) = line.strip_prefix("```") {
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push(Block {
                mark: mark.to_owned(),
                before: std::mem::take(&mut before),
                text: text.join("\n") + "\n",
            });
        } else if !line.is_empty() {
            before = line.to_owned();
        }
    }
    blocks
}

/// A shell that is told a block at a time, as a person tells it.
struct Terminal {
    shell: Child,
    out: BufReader<ChildStdout>,
}

impl Terminal {
    fn open(root: &Path, folder: &Path) -> Self {
        let mut command = Command::new("bash");
        command
            .args(["--noprofile", "--norc"])
            .current_dir(folder)
            .env("PATH", path(root));
        for address in ["NATS_URL", "DATABASE_URL"] {
            command.env_remove(address);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.process_group(0).spawn().unwrap();
        let out = BufReader::new(shell.stdout.take().unwrap());
        Self { shell, out }
    }

    async fn tell(&mut self, text: &str) {
        let input = self.shell.stdin.as_mut().unwrap();
        input.write_all(text.as_bytes()).await.unwrap();
        input.flush().await.unwrap();
    }

    /// What it prints up to a line with this in it, that line included.
    async fn until(&mut self, mark: &str) -> String {
        let mut said = String::new();
        while !said.lines().last().is_some_and(|line| line.contains(mark)) {
            let read = timeout(LONG, self.out.read_line(&mut said)).await;
            let read = read.unwrap_or_else(|_| panic!("waited for {mark}: {said}"));
            assert_ne!(read.unwrap(), 0, "it ended before {mark}: {said}");
        }
        said
    }

    /// What a block prints, and the exit code of its last line.
    async fn run(&mut self, text: &str) -> (String, i32) {
        self.tell(&format!("{text}printf 'END %s\\n' $?\n")).await;
        let said = self.until("END ").await;
        let (said, code) = said.rsplit_once("END ").unwrap();
        (said.to_owned(), code.trim().parse().unwrap())
    }
}

impl Drop for Terminal {
    /// A test that broke off leaves nothing: what was started in the shell is in its group.
    fn drop(&mut self) {
        if let Some(pid) = self.shell.id() {
            let group = Pid::from_raw(i32::try_from(pid).unwrap());
            // It may have ended by itself, and then the signal has no address.
            killpg(group, Signal::SIGTERM).unwrap_or_default();
        }
    }
}

/// What the page asks for: the program, and a Python that has the NATS client.
fn path(root: &Path) -> String {
    #[expect(clippy::disallowed_methods, reason = "where the tests' programs are")]
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let python = variable("TOOLFLEET_PYTHON");
    let python = Path::new(&python).parent().unwrap_or(Path::new(""));
    let bin = root.join("bin");
    format!(
        "{}:{}:{}",
        bin.display(),
        python.display(),
        variable("PATH")
    )
}

#[tokio::test]
async fn the_page_of_the_first_tool_works_word_for_word() {
    let folder = folder(0o755);
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(PROGRAM, bin.join("toolfleet")).unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/first-tool.md");
    let port = free_ports(1).unwrap()[0];
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains(PORT));
    let page = page.replace(PORT, &port.to_string());

    let there = folder.path().join("my-tools");
    let mut first = Terminal::open(folder.path(), folder.path());
    let mut second = None;
    let (mut answers, mut files) = (0, 0);
    let mut last = (String::new(), 0);
    for block in blocks(&page) {
        let Block { mark, before, text } = &block;
        match mark.as_str() {
            "sh second" => {
                let mut terminal = Terminal::open(folder.path(), &there);
                terminal.tell(text).await;
                terminal.until("Ctrl-C stops everything").await;
                second = Some(terminal);
            }
            "sh" => {
                last = first.run(text).await;
                if text.contains("dice.py") {
                    wait_until("the HTTP service", || {
                        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
                    })
                    .await;
                } else if text.contains("shout.py") {
                    answered(&there, "$SRV.PING.shout", "shout").await;
                }
            }
            "json" => {
                let (said, code) = &last;
                let answer: Value =
                    serde_json::from_str(said).unwrap_or_else(|_| panic!("{before}: {said}"));
                let promised: Value = serde_json::from_str(text).unwrap();
                assert!(says(&answer, &promised), "{text}{answer}");
                assert_eq!(*code, i32::from(answer["is_error"] == true), "{answer}");
                answers += 1;
            }
            "python" | "yaml" => {
                let name = before.split('`').rev().nth(1).unwrap();
                fs::write(there.join(name), text).unwrap();
                if mark == "yaml" {
                    let file = Path::new(name).file_name().unwrap().to_str().unwrap();
                    // The page says no more than this, and calls it at once.
                    let applied = format!("tools: {file}: ");
                    second.as_mut().unwrap().until(&applied).await;
                }
                files += 1;
            }
            other => panic!("the test has no rule for a block of {other:?}"),
        }
    }
    assert_eq!((answers, files), (5, 6));
    let (said, code) = last;
    assert!(
        code == 0 && said.contains("3 files: 0 problems, 0 warnings"),
        "{said}"
    );
    assert_eq!(said.matches("succeeded").count(), 3, "{said}");

    first.run("kill %1 %2\n").await;
    let dev = fs::read_to_string(there.join(".toolfleet/dev.lock")).unwrap();
    send(dev.parse().unwrap(), Signal::SIGINT);
    let mut second = second.unwrap();
    second.until("stopped").await;
    for mut terminal in [first, second] {
        drop(terminal.shell.stdin.take());
        let mut rest = String::new();
        terminal.out.read_to_string(&mut rest).await.unwrap();
        timeout(LONG, terminal.shell.wait()).await.unwrap().unwrap();
    }
}

/// Waits until this request is answered with this text in it: a person would have taken longer to type.
async fn answered(there: &Path, subject: &str, text: &str) {
    let state = fs::read(there.join(".toolfleet/dev.json")).unwrap();
    let state: DevState = serde_json::from_slice(&state).unwrap();
    let client = nats(&state.nats_url).await;
    let waiting = async {
        // Without a service there it is refused at once.
        loop {
            let answer = client.request(subject.to_owned(), "{}".into()).await;
            let said = answer.map(|answer| String::from_utf8_lossy(&answer.payload).into_owned());
            if said.is_ok_and(|said| said.contains(text)) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, waiting).await.expect("an answer");
}

/// Whether an answer has all that was promised of it; it may have more.
fn says(answer: &Value, promised: &Value) -> bool {
    match (answer, promised) {
        (Value::Object(answer), Value::Object(promised)) => promised
            .iter()
            .all(|(name, value)| answer.get(name).is_some_and(|field| says(field, value))),
        _ => answer == promised,
    }
}
