//! The system calls that a program may not make, as a seccomp filter. A denied call fails with an ordinary error
//! number, so that the program continues as on a machine without the feature.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// Denied are calls that read other processes, change mounts, create namespaces or use kernel keys.
/// Also denied are memory that no limit counts or that outlives its process, and the parts of the
/// kernel with most security holes.
const DENIED: [libc::c_long; 55] = [
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_mq_open,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
];

/// Flags of `clone` that create a namespace.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// A single process, for `ioprio_set`.
const IOPRIO_WHO_PROCESS: u64 = 1;

/// On x86-64 every call has a second number (the x32 ABI), with this bit set.
#[cfg(target_arch = "x86_64")]
const NUMBER_BITS: [libc::c_long; 2] = [0, 0x4000_0000];
#[cfg(not(target_arch = "x86_64"))]
const NUMBER_BITS: [libc::c_long; 1] = [0];

/// Applies the filter to this process and every process that it will start. Returns a description
/// of the filter.
///
/// `counts_shared`: the kernel counts shared memory that no process has mapped.
pub(super) fn apply(network: bool, counts_shared: bool) -> Result<String, Error> {
    let mut rules: BTreeMap<libc::c_long, Vec<SeccompRule>> = BTreeMap::new();
    for call in DENIED {
        rules.insert(call, Vec::new());
    }
    let flags = NAMESPACES.into_iter().map(|flag| {
        let flag = u64::from(flag.unsigned_abs());
        rule(&[(0, SeccompCmpOp::MaskedEq(flag), flag)])
    });
    rules.insert(libc::SYS_clone, flags.collect::<Result<_, _>>()?);
    // A rule list without conditions denies every call: no socket of any family.
    let mut sockets = Vec::new();
    if network {
        let other = [libc::AF_INET, libc::AF_INET6].map(|family| (0, SeccompCmpOp::Ne, number(family)));
        sockets.push(rule(&other)?);
    }
    rules.insert(libc::SYS_socket, sockets);
    if !network {
        // Open files that are sent through a pair of sockets would be hidden from the watch.
        rules.insert(libc::SYS_sendmsg, Vec::new());
        rules.insert(libc::SYS_sendmmsg, Vec::new());
    }
    // A process that is not dumpable hides its open files from the watch.
    rules.insert(libc::SYS_prctl, vec![rule(&[(0, SeccompCmpOp::Eq, number(libc::PR_SET_DUMPABLE))])?]);
    // With the limits of other processes a program could take the open files from its worker, or
    // from the watch.
    rules.insert(libc::SYS_prlimit64, vec![rule(&[(0, SeccompCmpOp::Ne, 0)])?]);
    // With the priority of other processes it could keep the watch from running.
    for call in [
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
    ] {
        rules.insert(call, vec![rule(&[(0, SeccompCmpOp::Ne, 0)])?]);
    }
    for (call, process) in [(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS)] {
        let others = [(0, SeccompCmpOp::Ne, process), (1, SeccompCmpOp::Ne, 0)];
        rules.insert(
            call,
            others.iter().map(|other| rule(std::slice::from_ref(other))).collect::<Result<_, _>>()?,
        );
    }
    // The watch assumes that a socket's buffer has its usual size.
    let larger = [libc::SO_SNDBUF, libc::SO_SNDBUFFORCE].map(|option| {
        rule(&[(1, SeccompCmpOp::Eq, number(libc::SOL_SOCKET)), (2, SeccompCmpOp::Eq, number(option))])
    });
    rules.insert(libc::SYS_setsockopt, larger.into_iter().collect::<Result<_, _>>()?);
    if !counts_shared {
        // Pages of this memory stay until the last mapping ends, even if they are in the resident
        // memory of no process.
        let mask = SeccompCmpOp::MaskedEq(number(libc::MAP_TYPE | libc::MAP_ANONYMOUS));
        let shared = rule(&[(3, mask, number(libc::MAP_SHARED | libc::MAP_ANONYMOUS))])?;
        rules.insert(libc::SYS_mmap, vec![shared]);
    }
    let denied = rules.len();
    apply_filter(&compile(rules, libc::EPERM)?)?;
    // The flags of `clone3` are in memory, which a filter can't read; without `clone3`, libraries use `clone`.
    apply_filter(&compile(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)?)?;
    let sockets = if network { "all sockets except IPv4 and IPv6" } else { "all sockets" };
    Ok(format!("{denied} system calls denied, among them {sockets}"))
}

/// Denies a call whose arguments, by index, meet all these conditions.
fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, seccompiler::BackendError> {
    let condition = |(argument, comparison, value): &(u8, SeccompCmpOp, u64)| {
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, comparison.clone(), *value)
    };
    SeccompRule::new(conditions.iter().map(condition).collect::<Result<_, _>>()?)
}

/// A constant of the C library in the type of the kernel.
fn number(constant: libc::c_int) -> u64 {
    u64::from(constant.unsigned_abs())
}

fn compile(
    rules: BTreeMap<libc::c_long, Vec<SeccompRule>>,
    errno: libc::c_int,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let every_number =
        |(call, rules): (libc::c_long, Vec<SeccompRule>)| NUMBER_BITS.map(|bit| (call | bit, rules.clone()));
    SeccompFilter::new(
        rules.into_iter().flat_map(every_number).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno.unsigned_abs()),
        std::env::consts::ARCH.try_into()?,
    )?
    .try_into()
}
