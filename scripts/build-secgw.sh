#!/bin/bash
# Builds ipsec-secgw, DPDK's example gateway, for `testudo bench esp` to compare with: from Debian's
# source of the libdpdk-dev that is installed, into target/secgw. Nothing is installed, and apt's
# own lists stay as they are.
source "$(dirname "$0")/environment.sh"

# Archive, suite and component that the installed version comes from, as apt tells them:
# "bookworm/main".
origin() {
    apt-cache policy libdpdk-dev | awk '/^ \*\*\*/ { ours = 1; next } ours && /Packages$/ { print $2, $3; exit } /^     [^ ]/ { ours = 0 }'
}

# The archive's source files, fetched by the hashes of its signed lists.
fetch() {
    local version=$1 archive suite
    read -r archive suite < <(origin) || true
    [[ -n ${suite:-} ]] || fail "apt knows no archive of libdpdk-dev $version; apt-get update, or upgrade it"
    mkdir -p apt/sources apt/lists/partial || return
    echo "deb-src $archive ${suite%%/*} ${suite#*/}" >apt/sources/debian.list
    local options=(Dir::Etc::SourceList=/dev/null "Dir::Etc::SourceParts=$PWD/apt/sources" "Dir::State::Lists=$PWD/apt/lists"
        Dir::Cache::pkgcache= Dir::Cache::srcpkgcache= APT::Sandbox::User=root)
    local apt=(apt-get --quiet=2 "${options[@]/#/--option=}")
    "${apt[@]}" update &&
        "${apt[@]}" source --download-only "dpdk=$version"
}

# The example insists on a port that checks checksums, which no virtual one does, and never looks at
# what the port found: the wish goes.
soften() {
    local wish='\.offloads = RTE_ETH_RX_OFFLOAD_CHECKSUM,'
    grep -q "$wish" "$1" || fail "$1 has no line with $wish"
    sed -i "/$wish/d" "$1"
}

version=$(dpkg-query --show --showformat='${source:Version}' libdpdk-dev 2>/dev/null) ||
    fail "needs Debian's packages gcc, make, pkg-config, libdpdk-dev and dpdk-dev"
compile() {
    mkdir source &&
        tar --extract --file dpdk_*.orig.tar.xz --directory source --strip-components=1 --wildcards \
            '*/examples/common/*' '*/examples/ipsec-secgw/*' &&
        soften source/examples/ipsec-secgw/ipsec-secgw.c &&
        make --silent --directory source/examples/ipsec-secgw shared &&
        cp source/examples/ipsec-secgw/build/ipsec-secgw-shared ipsec-secgw
}

export PHASES="source compile"
mkdir -p target/secgw
[[ $LOG_DIR == /* ]] || LOG_DIR=$PWD/$LOG_DIR
cd target/secgw
rm -rf apt source dpdk_*
phase "source: DPDK $version" fetch "$version"
phase compile compile
rm -rf apt source dpdk_*
echo "$PWD/ipsec-secgw"
