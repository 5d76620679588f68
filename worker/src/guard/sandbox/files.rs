//! What Landlock takes: files, TCP ports, signals to others, abstract sockets of others.

use std::{
    error::Error,
    fs::File,
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use fleet::manifest::{Network, Sandbox};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use super::Launch;

/// What a sandbox is made of; see `LANDLOCK_NEEDED`.
const NEEDED: ABI = ABI::V6;

/// The system's programs and libraries, and what those read at their start. Nothing in it is a secret of this machine.
const SYSTEM: [&str; 46] = [
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/usr",
    "/nix/store",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/protocols",
    "/etc/python3",
    "/etc/python3.11",
    "/etc/python3.12",
    "/etc/python3.13",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/meminfo",
    // Its own process, which the launcher becomes.
    "/proc/self",
    "/proc/stat",
    "/proc/sys/kernel/cap_last_cap",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu",
];

const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// The newest ABI of which this kernel gives everything, up to the one that is needed.
pub(super) fn landlock() -> u8 {
    let gives = |abi: &ABI| ruleset(*abi, &Network::None).is_ok();
    let all = [ABI::V1, ABI::V2, ABI::V3, ABI::V4, ABI::V5, ABI::V6];
    let count = all.iter().take_while(|abi| gives(abi)).count();
    u8::try_from(count).unwrap_or(0)
}

fn ruleset(abi: ABI, network: &Network) -> Result<RulesetCreated, RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))?;
    if abi >= ABI::V4 && *network != Network::Host {
        rules = rules.handle_access(AccessNet::from_all(abi))?;
    }
    if abi >= ABI::V6 {
        rules = rules.scope(Scope::Signal)?;
        if *network != Network::Host {
            rules = rules.scope(Scope::AbstractUnixSocket)?;
        }
    }
    rules.create()
}

/// Takes from this thread all that the sandbox does not give. Fails rather than take less.
pub(super) fn restrict(launch: &Launch, program: &str) -> Result<(), String> {
    let sandbox = &launch.sandbox;
    let (read, write) = (AccessFs::from_read(NEEDED), written());
    let refused = |error: RulesetError| format!("its sandbox cannot be made: {error}");
    let mut rules = ruleset(NEEDED, &sandbox.network).map_err(refused)?;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    let system = SYSTEM.iter().map(|path| (path, read));
    for (path, access) in system.chain(DEVICES.iter().map(|path| (path, device))) {
        // What this machine does not have is not given.
        if let Ok(opened) = open(Path::new(path)) {
            rules = add(rules, opened, access).map_err(|error| named(Path::new(path), &*error))?;
        }
    }
    for path in read_too(launch, program) {
        rules = allow(rules, &path, read)?;
    }
    for path in &sandbox.write {
        rules = allow(rules, Path::new(path), read | write)?;
    }
    if let Some(tmp) = &launch.tmp {
        rules = allow(rules, tmp, read | write)?;
    }
    if let Some(files) = &launch.files {
        rules = allow(rules, files, read)?;
    }
    if let Some(fifo) = &launch.fifo {
        rules = allow(rules, fifo, device)?;
    }
    rules = allow_ports(rules, sandbox).map_err(refused)?;
    let status = rules.restrict_self().map_err(refused)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => {
            Err("the kernel does not enforce its sandbox".to_owned())
        }
    }
}

/// Everything that changes files, but for making devices.
fn written() -> BitFlags<AccessFs> {
    AccessFs::from_write(NEEDED) & !(AccessFs::MakeChar | AccessFs::MakeBlock)
}

/// The manifest's list, its folder, and the program itself, where it is named by a path. A program that is looked for in `PATH`
/// is found where the system has its programs.
fn read_too(launch: &Launch, program: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = launch.sandbox.read.iter().map(PathBuf::from).collect();
    // The guard has entered it.
    paths.extend(launch.cwd.as_ref().map(|_entered| PathBuf::from(".")));
    if program.contains('/') && Path::new(program).exists() {
        paths.push(PathBuf::from(program));
    }
    paths
}

/// Gives what the manifest names: without it the program does not start.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, String> {
    let opened = open(path).map_err(|error| named(path, &error))?;
    add(rules, opened, access).map_err(|error| named(path, &*error))
}

fn named(path: &Path, error: &dyn Error) -> String {
    let shown = path.display();
    format!("its sandbox names {shown}, which cannot be opened: {error}")
}

/// Opens a file or folder only to name it: it need not be readable, and opening a pipe or a device has no effect.
fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_PATH);
    options.open(path)
}

fn add(
    rules: RulesetCreated,
    opened: File,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, Box<dyn Error>> {
    let access = if opened.metadata()?.is_dir() {
        access
    } else {
        access & AccessFs::from_file(NEEDED)
    };
    Ok(rules.add_rule(PathBeneath::new(opened, access))?)
}

fn allow_ports(
    mut rules: RulesetCreated,
    sandbox: &Sandbox,
) -> Result<RulesetCreated, RulesetError> {
    if let Network::Tcp(ports) = &sandbox.network {
        for port in ports {
            rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
        }
    }
    Ok(rules)
}
