//! Compiles the XDP filter; `src/filter/object.rs` embeds the result.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::{Path, PathBuf};

fn main() {
    let bpf = Path::new("bpf");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    // For the BPF target clang does not look where Debian keeps asm/types.h.
    let multiarch = format!("/usr/include/{arch}-linux-gnu");
    let built = SkeletonBuilder::new()
        .source(bpf.join("filter.bpf.c"))
        .obj(out.join("filter.bpf.o"))
        .clang_args(["-O2", "-Wall", "-Wextra", "-Werror", "-idirafter", &multiarch])
        .build();
    if let Err(error) = built {
        panic!(
            "cannot compile the XDP filter (needs clang, libelf-dev, zlib1g-dev, linux-libc-dev): {error:#}"
        );
    }
    println!("cargo::rerun-if-changed=bpf");
}
