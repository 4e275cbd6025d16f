//! The system calls that a program may not make, as a seccomp filter. A denied call fails with an ordinary error
//! number, so that the program continues as on a machine without the feature.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// Calls that read other processes, change mounts, make namespaces or use kernel keys, and the parts of the
/// kernel in which most security holes were found.
const DENIED: [libc::c_long; 44] = [
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

/// Flags of `clone` that make a namespace.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// On x86-64 every call has a second number (the x32 ABI), with this bit set.
#[cfg(target_arch = "x86_64")]
const NUMBER_BITS: [libc::c_long; 2] = [0, 0x4000_0000];
#[cfg(not(target_arch = "x86_64"))]
const NUMBER_BITS: [libc::c_long; 1] = [0];

/// Applies the filter to this process and every process it will start. Returns what was applied, as text.
pub(super) fn apply(network: bool) -> Result<String, Error> {
    let mut rules: BTreeMap<libc::c_long, Vec<SeccompRule>> = BTreeMap::new();
    for call in DENIED {
        rules.insert(call, Vec::new());
    }
    let flags = NAMESPACES.into_iter().map(|flag| {
        let flag = u64::from(flag.unsigned_abs());
        SeccompRule::new(vec![condition(SeccompCmpOp::MaskedEq(flag), flag)?])
    });
    rules.insert(libc::SYS_clone, flags.collect::<Result<_, _>>()?);
    // A rule list without conditions denies every call: no socket of any family.
    let mut sockets = Vec::new();
    if network {
        let other = [libc::AF_INET, libc::AF_INET6]
            .map(|family| condition(SeccompCmpOp::Ne, u64::from(family.unsigned_abs())));
        sockets.push(SeccompRule::new(other.into_iter().collect::<Result<_, _>>()?)?);
    }
    rules.insert(libc::SYS_socket, sockets);
    let denied = rules.len();
    apply_filter(&compile(rules, libc::EPERM)?)?;
    // The flags of `clone3` are in memory, which a filter can't read; without `clone3`, libraries use `clone`.
    apply_filter(&compile(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)?)?;
    let sockets = if network { "all sockets except IPv4 and IPv6" } else { "all sockets" };
    Ok(format!("{denied} system calls denied, among them {sockets}"))
}

/// A condition on the first argument of a call.
fn condition(comparison: SeccompCmpOp, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(0, SeccompCmpArgLen::Dword, comparison, value)
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
