//! What seccomp takes: other ways to a network than TCP, the kernel's doors, and what reaches other processes of this user.
//!
//! A call that is refused fails with EPERM; one that programs have another way for, with ENOSYS. What a kernel itself may leave
//! undone without saying so is left undone. Calls of other processors' sets end the process.

use std::collections::BTreeMap;

use fleet::manifest::{Network, Sandbox};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, sock_filter,
};

/// Never a program's business: other processes' memory, mounts, namespaces, modules, keys, clocks, and memory that the guard
/// does not see.
#[rustfmt::skip]
const DOORS: [libc::c_long; 65] = [
    libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_pidfd_getfd, libc::SYS_kcmp,
    libc::SYS_process_madvise, libc::SYS_perf_event_open, libc::SYS_bpf, libc::SYS_userfaultfd,
    libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot, libc::SYS_move_mount, libc::SYS_open_tree,
    libc::SYS_fsopen, libc::SYS_fsconfig, libc::SYS_fsmount, libc::SYS_fspick, libc::SYS_mount_setattr,
    libc::SYS_unshare, libc::SYS_setns,
    libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key,
    libc::SYS_kexec_load, libc::SYS_kexec_file_load, libc::SYS_init_module, libc::SYS_finit_module, libc::SYS_delete_module,
    libc::SYS_reboot, libc::SYS_swapon, libc::SYS_swapoff, libc::SYS_acct, libc::SYS_quotactl, libc::SYS_quotactl_fd,
    libc::SYS_settimeofday, libc::SYS_clock_settime, libc::SYS_clock_adjtime, libc::SYS_adjtimex,
    libc::SYS_sethostname, libc::SYS_setdomainname, libc::SYS_syslog, libc::SYS_vhangup, libc::SYS_lookup_dcookie,
    libc::SYS_name_to_handle_at, libc::SYS_open_by_handle_at, libc::SYS_fanotify_init, libc::SYS_personality,
    libc::SYS_shmget, libc::SYS_shmat, libc::SYS_shmctl, libc::SYS_msgget, libc::SYS_msgsnd, libc::SYS_msgrcv, libc::SYS_msgctl,
    libc::SYS_semget, libc::SYS_semop, libc::SYS_semctl, libc::SYS_mq_open, libc::SYS_mq_unlink,
    libc::SYS_migrate_pages, libc::SYS_move_pages, libc::SYS_set_mempolicy, libc::SYS_nfsservctl,
];

/// What changes owners, rights, times and attributes of any file of this user: Landlock does not look at it.
#[rustfmt::skip]
const ATTRIBUTES: [libc::c_long; 11] = [
    libc::SYS_fchmod, libc::SYS_fchmodat, libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_utimensat,
    libc::SYS_setxattr, libc::SYS_lsetxattr, libc::SYS_fsetxattr,
    libc::SYS_removexattr, libc::SYS_lremovexattr, libc::SYS_fremovexattr,
];

/// The same, of which `libc` or this processor does not know all.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const MORE_ATTRIBUTES: [libc::c_long; 9] = [
    libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat,
    FCHMODAT2, SETXATTRAT, REMOVEXATTRAT,
];
#[cfg(not(target_arch = "x86_64"))]
const MORE_ATTRIBUTES: [libc::c_long; 3] = [FCHMODAT2, SETXATTRAT, REMOVEXATTRAT];
const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;

/// Programs have another way: a filter cannot look into what these are given, the guard does not see the memory, or Landlock
/// does not look at the folders whose names they tell.
const NEVER_HEARD_OF: [libc::c_long; 7] = [
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_inotify_init1,
];

/// Commands of `fcntl`: one takes the pipe memory of all of this user's processes, the others tell of what happens in a folder
/// and let other processes wait for a file.
const FILE_COMMANDS: [libc::c_int; 3] = [libc::F_SETPIPE_SZ, libc::F_NOTIFY, libc::F_SETLEASE];

/// Options of sockets that let the kernel keep more than its default for one: the guard does not see that memory.
const BUFFERS: [libc::c_int; 5] = [
    libc::SO_SNDBUF,
    libc::SO_RCVBUF,
    libc::SO_SNDBUFFORCE,
    libc::SO_RCVBUFFORCE,
    SO_RESERVE_MEM,
];
const SO_RESERVE_MEM: libc::c_int = 73;

/// The flags of `clone` that make a namespace.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Whether this kernel filters calls, for this processor.
pub(super) fn are_filtered() -> bool {
    arch().is_ok() && std::fs::exists("/proc/sys/kernel/seccomp/actions_avail").unwrap_or(false)
}

/// Filters this thread's calls from now on. After it no privilege can be gained.
pub(super) fn restrict(sandbox: &Sandbox) -> Result<(), String> {
    let refused = |error: seccompiler::Error| format!("its calls cannot be filtered: {error}");
    // The last one is looked at first, and the strictest answer counts.
    for program in [
        compile(left_undone()?, 0),
        compile(never_heard_of(), libc::ENOSYS),
        compile(doors(sandbox)?, libc::EPERM),
    ] {
        apply_filter(&program?).map_err(refused)?;
    }
    Ok(())
}

fn arch() -> Result<TargetArch, String> {
    let arch = std::env::consts::ARCH;
    TargetArch::try_from(arch).map_err(|_unknown| format!("calls of {arch} cannot be filtered"))
}

fn compile(rules: Rules, refusal: libc::c_int) -> Result<BpfProgram, String> {
    let refused = |error: seccompiler::BackendError| format!("its filter cannot be made: {error}");
    let refusal = SeccompAction::Errno(refusal.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, arch()?);
    let filter: BpfProgram = filter.and_then(TryInto::try_into).map_err(refused)?;
    Ok(without_x32(filter))
}

/// x86-64 has each call a second time, under a number that the rules do not have.
fn without_x32(filter: BpfProgram) -> BpfProgram {
    const X32: u32 = 0x4000_0000;
    if !cfg!(target_arch = "x86_64") {
        return filter;
    }
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    // Load the number; from X32 on, ENOSYS.
    let mut program = vec![
        step(0x20, 0, 0, 0),
        step(0x35, 0, 1, X32),
        step(0x06, 0, 0, 0x0005_0000 | libc::ENOSYS.unsigned_abs()),
    ];
    program.extend(filter);
    program
}

fn never_heard_of() -> Rules {
    let calls = NEVER_HEARD_OF.iter();
    #[cfg(target_arch = "x86_64")]
    let calls = calls.chain(&[libc::SYS_inotify_init]);
    calls.map(|call| (*call, Vec::new())).collect()
}

/// What succeeds and has no effect. A kernel cuts the size of a buffer down to its own bound and says nothing, so programs that
/// ask for one know that they may get less; one that is told EPERM ends.
fn left_undone() -> Result<Rules, String> {
    let options = BUFFERS.iter().map(|option| {
        rule(&[
            (1, SeccompCmpOp::Eq, number(libc::SOL_SOCKET)),
            (2, SeccompCmpOp::Eq, number(*option)),
        ])
    });
    let options = options.collect::<Result<_, _>>()?;
    Ok(Rules::from([(libc::SYS_setsockopt, options)]))
}

fn doors(sandbox: &Sandbox) -> Result<Rules, String> {
    let mut rules: Rules = DOORS.iter().map(|call| (*call, Vec::new())).collect();
    let writes = sandbox.tmp || !sandbox.write.is_empty();
    if !writes {
        let attributes = ATTRIBUTES.iter().chain(&MORE_ATTRIBUTES);
        rules.extend(attributes.map(|call| (*call, Vec::new())));
    }
    #[cfg(target_arch = "x86_64")]
    for call in [
        libc::SYS_iopl,
        libc::SYS_ioperm,
        libc::SYS_modify_ldt,
        libc::SYS_uselib,
    ] {
        rules.insert(call, Vec::new());
    }
    let namespaces = NAMESPACES.iter().map(|flag| {
        let flag = number(*flag);
        rule(&[(0, SeccompCmpOp::MaskedEq(flag), flag)])
    });
    rules.insert(libc::SYS_clone, namespaces.collect::<Result<_, _>>()?);
    let commands = FILE_COMMANDS
        .iter()
        .map(|command| rule(&[(1, SeccompCmpOp::Eq, number(*command))]));
    rules.insert(libc::SYS_fcntl, commands.collect::<Result<_, _>>()?);
    of_others(&mut rules)?;
    sockets(&sandbox.network, &mut rules)?;
    Ok(rules)
}

/// Limits, processors and priorities of any process but the caller: 0 is the caller, and a process may be of the guard, of its
/// worker, or of another tool.
fn of_others(rules: &mut Rules) -> Result<(), String> {
    const PROCESS: u64 = 0;
    const DISK_PROCESS: u64 = 1;
    for call in [
        libc::SYS_prlimit64,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
    ] {
        rules.insert(call, vec![rule(&[(0, SeccompCmpOp::Ne, 0)])?]);
    }
    for (call, process) in [
        (libc::SYS_setpriority, PROCESS),
        (libc::SYS_ioprio_set, DISK_PROCESS),
    ] {
        let others = vec![
            rule(&[(0, SeccompCmpOp::Ne, process)])?,
            rule(&[(1, SeccompCmpOp::Ne, 0)])?,
        ];
        rules.insert(call, others);
    }
    Ok(())
}

/// Which sockets are refused.
fn sockets(network: &Network, rules: &mut Rules) -> Result<(), String> {
    let not_in = |argument: u8, families: &[libc::c_int]| {
        let each = families
            .iter()
            .map(|family| (argument, SeccompCmpOp::Ne, number(*family)));
        rule(&each.collect::<Vec<_>>())
    };
    // The type without its flags.
    let of_type = |kind: libc::c_int| (1, SeccompCmpOp::MaskedEq(0xf), number(kind));
    let refused = match network {
        Network::None => Vec::new(),
        Network::Tcp(_) => {
            let mut refused = vec![
                not_in(0, &[libc::AF_INET, libc::AF_INET6])?,
                // Landlock looks at TCP itself and not at what is like it.
                not_in(2, &[0, libc::IPPROTO_TCP])?,
            ];
            for kind in (0..16).filter(|kind| *kind != libc::SOCK_STREAM) {
                refused.push(rule(&[of_type(kind)])?);
            }
            // Data in the first packet connects without asking Landlock.
            for (call, flags) in [
                (libc::SYS_sendto, 3),
                (libc::SYS_sendmsg, 2),
                (libc::SYS_sendmmsg, 3),
            ] {
                let early = number(libc::MSG_FASTOPEN);
                rules.insert(
                    call,
                    vec![rule(&[(flags, SeccompCmpOp::MaskedEq(early), early)])?],
                );
            }
            // A port that the kernel chooses is bound without asking Landlock.
            rules.insert(libc::SYS_listen, Vec::new());
            refused
        }
        Network::Host => vec![
            not_in(
                0,
                &[
                    libc::AF_UNIX,
                    libc::AF_INET,
                    libc::AF_INET6,
                    libc::AF_NETLINK,
                ],
            )?,
            rule(&[
                (0, SeccompCmpOp::Eq, number(libc::AF_INET)),
                of_type(libc::SOCK_RAW),
            ])?,
            rule(&[
                (0, SeccompCmpOp::Eq, number(libc::AF_INET6)),
                of_type(libc::SOCK_RAW),
            ])?,
        ],
    };
    rules.insert(libc::SYS_socket, refused);
    // Two ends of one's own reach no other process.
    let mut pairs = vec![not_in(0, &[libc::AF_UNIX])?];
    if *network != Network::Host {
        // One of datagrams can be given a name and then keeps messages of many, `net.unix.max_dgram_qlen` and not one buffer.
        let connected = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];
        for kind in (0..16).filter(|kind| !connected.contains(kind)) {
            pairs.push(rule(&[of_type(kind)])?);
        }
    }
    rules.insert(libc::SYS_socketpair, pairs);
    Ok(())
}

fn number(value: libc::c_int) -> u64 {
    u64::from(value.cast_unsigned())
}

/// All of these conditions: argument, comparison, value.
fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, String> {
    let refused = |error: seccompiler::BackendError| format!("its filter cannot be made: {error}");
    let conditions = conditions.iter().map(|(argument, comparison, value)| {
        SeccompCondition::new(
            *argument,
            SeccompCmpArgLen::Dword,
            comparison.clone(),
            *value,
        )
    });
    let conditions: Result<Vec<_>, _> = conditions.collect();
    SeccompRule::new(conditions.map_err(refused)?).map_err(refused)
}
