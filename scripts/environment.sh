# Sourced by the other scripts: the place, the path, the user, the tools.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PATH:/usr/sbin:/sbin:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin"

# Namespaces, BPF and packet capture need root.
need_root() {
    if ((EUID != 0)); then
        echo "$0: must run as root (network namespaces, BPF, capture)" >&2
        exit 1
    fi
}

# Debian 12's own Rust is too old; rustup brings the version that rust-toolchain.toml names.
need_rust() {
    if cargo --version >/dev/null 2>&1; then
        return
    fi
    if ! command -v rustup >/dev/null; then
        install_rustup
    fi
    # Without a name it installs what rust-toolchain.toml asks for.
    rustup toolchain install
    cargo --version
}

# From rustup's own archive, into CARGO_HOME and RUSTUP_HOME (by default ~/.cargo and ~/.rustup); no shell profile is touched.
install_rustup() {
    local archive dir
    archive=https://static.rust-lang.org/rustup/dist/$(uname -m)-unknown-linux-gnu
    echo "Installing rustup from $archive"
    dir=$(mktemp -d)
    if ! (cd "$dir" && curl --proto '=https' --tlsv1.2 --fail --silent --show-error \
        --remote-name "$archive/rustup-init" --remote-name "$archive/rustup-init.sha256" &&
        echo "$(head -c 64 rustup-init.sha256)  rustup-init" | sha256sum --check --quiet &&
        chmod +x rustup-init &&
        ./rustup-init -y --quiet --no-modify-path --profile minimal --default-toolchain none); then
        rm -rf "$dir"
        echo "$0: there is no Rust here, and rustup could not be installed; see https://rustup.rs" >&2
        exit 1
    fi
    rm -rf "$dir"
}
