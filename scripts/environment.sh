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

need_rust() {
    if cargo --version >/dev/null 2>&1; then
        return
    fi
    if command -v rustup >/dev/null; then
        # Without a name it installs what rust-toolchain.toml asks for.
        rustup toolchain install
        cargo --version
        return
    fi
    cat >&2 <<'EOF'
There is no Rust here. Install rustup; it then brings the version that rust-toolchain.toml names:
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal
EOF
    exit 1
}
