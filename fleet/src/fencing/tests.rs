use std::{
    os::unix::fs::{PermissionsExt, symlink},
    process::{Child, Command, Stdio},
};

use super::*;

/// A process that one test starts while another lends its lock would get a share.
static STARTING: Mutex<()> = Mutex::new(());

fn state_dir() -> (tempfile::TempDir, StateDir) {
    let folder = tempfile::tempdir().unwrap();
    let state_dir = StateDir::open(&folder.path().join("state")).unwrap();
    (folder, state_dir)
}

fn is_gone(state_dir: &StateDir, worker: WorkerId) -> bool {
    state_dir.prove_gone(worker).unwrap().is_some()
}

/// Ends when its standard input ends.
fn cat() -> Command {
    let mut cat = Command::new("cat");
    cat.stdin(Stdio::piped()).stdout(Stdio::null());
    cat
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn a_worker_is_gone_when_it_has_let_go_and_not_before() {
    let (_folder, state_dir) = state_dir();
    let worker = WorkerId::generate();
    assert!(!is_gone(&state_dir, worker), "nobody knows of it");
    let lock = state_dir.hold(worker).unwrap();
    assert!(!is_gone(&state_dir, worker));
    drop(lock);
    assert!(is_gone(&state_dir, worker));
    assert!(
        is_gone(&state_dir, worker),
        "a proof that came to nothing is no loss"
    );
}

#[test]
fn a_proof_excludes_another_and_removes_the_file_when_it_is_used() {
    let (_folder, state_dir) = state_dir();
    let worker = WorkerId::generate();
    drop(state_dir.hold(worker).unwrap());
    let proof = state_dir.prove_gone(worker).unwrap().unwrap();
    assert!(!is_gone(&state_dir, worker));
    assert_eq!(state_dir.workers().unwrap(), [worker]);
    proof.remove().unwrap();
    assert!(state_dir.workers().unwrap().is_empty());
    assert!(!is_gone(&state_dir, worker));
}

#[test]
fn what_a_worker_started_holds_its_lock_when_it_was_lent() {
    let (_folder, state_dir) = state_dir();
    let worker = WorkerId::generate();
    let lock = state_dir.hold(worker).unwrap();
    let _turn = STARTING.lock().unwrap();
    let heir = lock.lend(|_descriptor| cat().spawn()).unwrap();
    let stranger = cat().spawn().unwrap();
    drop(lock);
    assert!(!is_gone(&state_dir, worker));
    end(heir);
    assert!(is_gone(&state_dir, worker), "the stranger has no share");
    end(stranger);
}

#[test]
fn unlocking_the_lent_share_releases_nobody_elses() {
    let (_folder, state_dir) = state_dir();
    let worker = WorkerId::generate();
    let lock = state_dir.hold(worker).unwrap();
    let _turn = STARTING.lock().unwrap();
    let share = lock.lend(own_share).unwrap();
    lock.lent.lock().unwrap().unlock().unwrap();
    assert!(!is_gone(&state_dir, worker), "the worker lives");
    drop(lock);
    assert!(!is_gone(&state_dir, worker), "a guard lives");
    drop(share);
    assert!(is_gone(&state_dir, worker));
}

#[test]
fn a_withdrawn_lock_proves_nothing_until_everybody_has_restored_it() {
    let (_folder, state_dir) = state_dir();
    let worker = WorkerId::generate();
    let lock = Arc::new(state_dir.hold(worker).unwrap());
    let (first, second) = (lock.withdraw(), lock.withdraw());
    first.restore();
    assert!(state_dir.workers().unwrap().is_empty());
    second.restore();
    assert_eq!(state_dir.workers().unwrap(), [worker]);
    drop(lock.withdraw());
    drop(lock);
    assert!(!is_gone(&state_dir, worker));
}

#[test]
fn a_lock_is_lent_by_many_threads_and_each_child_has_it() {
    let (_folder, state_dir) = state_dir();
    let worker = WorkerId::generate();
    let lock = state_dir.hold(worker).unwrap();
    let _turn = STARTING.lock().unwrap();
    let heirs: Vec<Child> = std::thread::scope(|scope| {
        let lend = || lock.lend(|_descriptor| cat().spawn()).unwrap();
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(lend)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    drop(lock);
    for heir in heirs {
        assert!(!is_gone(&state_dir, worker));
        end(heir);
    }
    assert!(is_gone(&state_dir, worker));
}

#[test]
fn a_folder_in_which_others_could_forge_a_proof_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let refused = |name: &str| match StateDir::open(&at(name)) {
        Err(FencingError::Unfit { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    fs::create_dir(at("open")).unwrap();
    for mode in [0o777, 0o770, 0o1777] {
        fs::set_permissions(at("open"), fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(refused("open"), "can be written by other users");
    }
    fs::set_permissions(at("open"), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(StateDir::open(&at("open")).is_ok());
    symlink(at("open"), at("link")).unwrap();
    assert_eq!(refused("link"), "is not a folder");
    assert_eq!(refused("link/"), "is not a folder");
    fs::write(at("file"), "").unwrap();
    assert_eq!(refused("file"), "is not a folder");
    assert!(StateDir::open(&at("missing/deep")).is_err());
    let made = StateDir::open(&at("made")).unwrap();
    assert_eq!(fs::metadata(made.path()).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn a_link_in_the_place_of_a_lock_proves_nothing() {
    let (folder, state_dir) = state_dir();
    let worker = WorkerId::generate();
    let target = folder.path().join("target");
    fs::write(&target, "").unwrap();
    symlink(&target, state_dir.file(worker)).unwrap();
    assert!(state_dir.prove_gone(worker).is_err());
}

#[test]
fn only_locks_are_found_in_the_folder() {
    let (_folder, state_dir) = state_dir();
    let worker = WorkerId::generate();
    let _lock = state_dir.hold(worker).unwrap();
    for other in [
        "worker-.lock",
        "worker-x.lock",
        "dev.lock",
        "worker-00000000-0000-4000-8000-000000000000.new",
    ] {
        fs::write(state_dir.path().join(other), "").unwrap();
    }
    assert_eq!(state_dir.workers().unwrap(), [worker]);
}
