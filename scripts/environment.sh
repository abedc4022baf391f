# Sourced by the other scripts: the place, the path, the language, and what a script needs before
# it starts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Messages of other programs are recognised by their English text.
export PATH="$PATH:/usr/sbin:/sbin:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin" LC_ALL=C.UTF-8
source scripts/phases.sh

# fail TEXT: ends the script with one line.
fail() {
    echo "${0##*/}: $1" >&2
    exit 1
}

# Namespaces, BPF and packet capture need root.
need_root() {
    ((EUID == 0)) || fail "must run as root (network namespaces, BPF, packet capture); repeat it as root"
}

# For labs and demos: the XDP filter needs multi-buffer support. Debian 12's first kernel is older.
need_kernel() {
    local release major minor
    release=$(uname -r)
    IFS=.- read -r major minor _ <<<"$release"
    if ((major < 6 || (major == 6 && ${minor%%[!0-9]*} < 6))); then
        fail "needs Linux 6.6 or later, but this is $release; Debian 12 has a newer one in bookworm-backports (linux-image-amd64)"
    fi
}

# AF_XDP maps its rings at offsets that only 64-bit systems can name.
need_64_bit() {
    if [[ $(getconf LONG_BIT) != 64 ]]; then
        fail "needs a 64-bit system, but this is a 32-bit one ($(uname -m)); use Debian 12 for amd64 or arm64"
    fi
}

# need_space PROFILE MEGABYTES: room for target/PROFILE, which takes MEGABYTES when it is complete.
need_space() {
    local target=${CARGO_TARGET_DIR:-target} built=0 free
    if [[ -d $target/$1 ]]; then
        # A build beside may be removing files.
        built=$(du --summarize --block-size=1M "$target/$1" 2>/dev/null | cut -f 1) || true
    fi
    free=$(free_megabytes "$target")
    if ((free + built < $2)); then
        fail "needs $(($2 - built)) MB at $target, but only $free MB are free; make room, or set CARGO_TARGET_DIR to another disk"
    fi
}

# TESTUDO_PACKAGES=present says that all is there, on systems where apt does not know it.
need_packages() {
    if [[ ${TESTUDO_PACKAGES:-} == present ]]; then
        phase_skip "packages: present, as TESTUDO_PACKAGES says"
    else
        scripts/install-packages.sh
    fi
}

# Debian 12's own Rust is too old; rustup brings the version that rust-toolchain.toml names.
need_rust() {
    local version least
    # rustup would download a missing toolchain here, where nobody sees it.
    if version=$(RUSTUP_AUTO_INSTALL=0 cargo --version 2>/dev/null); then
        version=$(cut -d ' ' -f 2 <<<"$version")
        least=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
        if [[ $(printf '%s\n' "$least" "$version" | sort --version-sort | head -n 1) != "$least" ]]; then
            fail "needs cargo $least or later, but $(command -v cargo) is $version; remove it, or put rustup's before it in PATH"
        fi
        phase_skip "rust: $version"
    else
        phase "rust: rustup installs what rust-toolchain.toml names" install_rust
    fi
}

install_rust() {
    if ! command -v rustup >/dev/null; then install_rustup || return; fi
    # Without a name it installs what rust-toolchain.toml asks for.
    rustup toolchain install && cargo --version
}

# From rustup's own archive, into CARGO_HOME and RUSTUP_HOME (by default ~/.cargo and ~/.rustup);
# no shell profile is touched.
install_rustup() {
    local archive dir machine status=0
    command -v curl >/dev/null || fail "there is no Rust here, and no curl to fetch rustup with; see https://rustup.rs"
    machine=$(uname -m)
    case $machine in
        x86_64 | aarch64 | loongarch64 | s390x) ;;
        ppc64le) machine=powerpc64le ;;
        riscv64) machine=riscv64gc ;;
        *) fail "there is no Rust here, and no rustup for $machine; see https://rustup.rs" ;;
    esac
    archive=https://static.rust-lang.org/rustup/dist/$machine-unknown-linux-gnu
    echo "Installing rustup from $archive"
    dir=$(mktemp -d) || return
    (cd "$dir" && curl --proto '=https' --tlsv1.2 --fail --silent --show-error \
        --remote-name "$archive/rustup-init" --remote-name "$archive/rustup-init.sha256" &&
        echo "$(head -c 64 rustup-init.sha256)  rustup-init" | sha256sum --check --quiet &&
        chmod +x rustup-init &&
        ./rustup-init -y --quiet --no-modify-path --profile minimal --default-toolchain none) || status=$?
    rm -rf "$dir"
    return "$status"
}

# What both demos are made of.
build_demo() {
    export PHASES="packages rust build"
    need_root
    need_kernel
    need_64_bit
    need_space release 3000
    need_packages
    need_rust
    phase "build: release, takes some minutes the first time" cargo build --release \
        --package testudo-gateway --package testudo-cli --package testudo-lab --bins
}
