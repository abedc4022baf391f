//! The C compiler compares [`ffi`](super) with corosync's headers.

use super::*;
use crate::error::NAMES;
use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::{offset_of, size_of};
use std::process::{Command, Stdio};

const HEADERS: &str = "#include <stddef.h>\n#include <sys/uio.h>\n#include <corosync/cpg.h>\n#include <corosync/quorum.h>\n\
    #include <corosync/votequorum.h>\n#include <corosync/cmap.h>\n";

/// The callbacks and functions in C's basic types, as [`Functions`] and the structures have them.
/// To assign a pointer of another type is an error here.
const PROTOTYPES: &str = "
typedef unsigned int answer;
static cpg_deliver_fn_t deliver;
static cpg_confchg_fn_t confchg;
static cpg_totem_confchg_fn_t totem;
static quorum_v1_quorum_notification_fn_t quorum;
static void (**a)(uint64_t, const struct cpg_name *, uint32_t, uint32_t, void *, size_t) = &deliver;
static void (**b)(uint64_t, const struct cpg_name *, const struct cpg_address *, size_t, const struct cpg_address *, size_t,
    const struct cpg_address *, size_t) = &confchg;
static void (**c)(uint64_t, struct cpg_ring_id, uint32_t, const uint32_t *) = &totem;
static void (**d)(uint64_t, uint32_t, struct quorum_ring_id, uint32_t, const uint32_t *) = &quorum;
static answer (*e)(uint64_t *, unsigned int, cpg_model_data_t *, void *) = cpg_model_initialize;
static answer (*f)(uint64_t, unsigned int *) = cpg_local_get;
static answer (*g)(uint64_t, int *) = cpg_fd_get;
static answer (*h)(uint64_t, const struct cpg_name *) = cpg_join;
static answer (*i)(uint64_t, unsigned int, const struct iovec *, unsigned int) = cpg_mcast_joined;
static answer (*j)(uint64_t, unsigned int) = cpg_dispatch;
static answer (*k)(uint64_t) = cpg_finalize;
static answer (*l)(uint64_t *, unsigned int, quorum_model_data_t *, uint32_t *, void *) = quorum_model_initialize;
static answer (*m)(uint64_t, unsigned int) = quorum_trackstart;
static answer (*n)(uint64_t, int *) = quorum_fd_get;
static answer (*o)(uint64_t, unsigned int) = quorum_dispatch;
static answer (*p)(uint64_t) = quorum_finalize;
static answer (*q)(uint64_t *, votequorum_callbacks_t *) = votequorum_initialize;
static answer (*r)(uint64_t, unsigned int, struct votequorum_info *) = votequorum_getinfo;
static answer (*s)(uint64_t) = votequorum_finalize;
static answer (*t)(uint64_t *) = cmap_initialize;
static answer (*u)(uint64_t, const char *, uint32_t *) = cmap_get_uint32;
static answer (*v)(uint64_t) = cmap_finalize;
";

/// What the compiler says against a text behind the headers.
fn compile(text: &str) -> Result<(), String> {
    let mut cc = Command::new("cc");
    cc.args(["-fsyntax-only", "-Werror=incompatible-pointer-types", "-x", "c", "-"]);
    let mut cc = cc.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    cc.stdin.take().unwrap().write_all(format!("{HEADERS}{text}").as_bytes()).unwrap();
    let done = cc.wait_with_output().unwrap();
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned()) }
}

/// C that compiles if each expression has the value that Rust has for it.
fn equal(pairs: impl IntoIterator<Item = (String, usize)>) -> String {
    pairs.into_iter().fold(String::new(), |mut text, (expression, value)| {
        writeln!(text, "_Static_assert(({expression}) == {value}, \"{expression} is {value} in Rust\");")
            .unwrap();
        text
    })
}

/// Size and offsets of a structure: its Rust type, its C type, and both names of each member.
macro_rules! layout {
    ($rust:ty, $c:literal, $($field:ident = $member:literal),+) => {
        [
            (format!("sizeof({})", $c), size_of::<$rust>()),
            $((format!("offsetof({}, {})", $c, $member), offset_of!($rust, $field)),)+
        ]
    };
}

#[test]
fn structures_are_those_of_the_headers() {
    let mut pairs = Vec::new();
    pairs.extend(layout!(RingId, "struct cpg_ring_id", nodeid = "nodeid", seq = "seq"));
    pairs.extend(layout!(RingId, "struct quorum_ring_id", nodeid = "nodeid", seq = "seq"));
    pairs.extend(layout!(CpgName, "struct cpg_name", length = "length", value = "value"));
    pairs.extend(layout!(
        CpgAddress,
        "struct cpg_address",
        nodeid = "nodeid",
        pid = "pid",
        reason = "reason"
    ));
    pairs.extend(layout!(IoVec, "struct iovec", base = "iov_base", len = "iov_len"));
    pairs.extend(layout!(
        CpgModel,
        "cpg_model_v1_data_t",
        model = "model",
        deliver = "cpg_deliver_fn",
        confchg = "cpg_confchg_fn",
        totem_confchg = "cpg_totem_confchg_fn",
        flags = "flags"
    ));
    pairs.extend(layout!(
        QuorumModel,
        "quorum_model_v1_data_t",
        model = "model",
        quorum = "quorum_notify_fn",
        nodelist = "nodelist_notify_fn"
    ));
    pairs.extend(layout!(
        VoteCallbacks,
        "votequorum_callbacks_t",
        quorum = "votequorum_quorum_notify_fn",
        expected_votes = "votequorum_expectedvotes_notify_fn",
        nodelist = "votequorum_nodelist_notify_fn"
    ));
    pairs.extend(layout!(
        RawVoteInfo,
        "struct votequorum_info",
        node_id = "node_id",
        node_state = "node_state",
        node_votes = "node_votes",
        node_expected_votes = "node_expected_votes",
        highest_expected = "highest_expected",
        total_votes = "total_votes",
        quorum = "quorum",
        flags = "flags",
        qdevice_votes = "qdevice_votes",
        qdevice_name = "qdevice_name"
    ));
    compile(&equal(pairs)).unwrap();
}

#[test]
fn constants_are_those_of_the_headers() {
    let mut pairs: Vec<_> =
        NAMES.iter().map(|(number, name)| ((*name).to_owned(), *number as usize)).collect();
    for (name, value) in [
        ("CS_DISPATCH_ONE_NONBLOCKING", DISPATCH_ONE_NONBLOCKING as usize),
        ("CS_TRACK_CHANGES", TRACK_CHANGES as usize),
        ("CPG_MODEL_V1", CPG_MODEL_V1 as usize),
        ("CPG_TYPE_AGREED", CPG_TYPE_AGREED as usize),
        ("CPG_MAX_NAME_LENGTH", CPG_MAX_NAME_LENGTH),
        ("QUORUM_MODEL_V1", QUORUM_MODEL_V1 as usize),
        ("QUORUM_SET", QUORUM_SET as usize),
        ("VOTEQUORUM_INFO_QDEVICE_CAST_VOTE", INFO_QDEVICE_CAST_VOTE as usize),
        ("VOTEQUORUM_QDEVICE_MAX_NAME_LEN", QDEVICE_MAX_NAME_LEN),
    ] {
        pairs.push((name.to_owned(), value));
    }
    compile(&equal(pairs)).unwrap();
}

#[test]
fn functions_have_the_headers_types() {
    compile(PROTOTYPES).unwrap();
}

/// The comparisons can fail.
#[test]
fn what_differs_from_the_headers_does_not_compile() {
    let wrong = equal([("offsetof(struct cpg_address, pid)".to_owned(), 8)]);
    let error = compile(&wrong).unwrap_err();
    assert!(error.contains("offsetof(struct cpg_address, pid) is 8 in Rust"), "{error}");
    let error = compile("static unsigned int (*join)(uint32_t) = cpg_join;\n").unwrap_err();
    assert!(error.contains("incompatible pointer type"), "{error}");
}
