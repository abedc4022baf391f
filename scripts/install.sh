#!/bin/bash
# Installs what `make build` has built: testudod, testudo and the systemd unit. The programs are
# stripped; gdb, perf and Rust's own backtraces find their symbols by the build ID, below
# /usr/lib/debug/.build-id.
#
# PREFIX   where sbin is (/usr/local)
# DESTDIR  goes before every path, for those who make packages
source "$(dirname "$0")/environment.sh"
prefix=${PREFIX:-/usr/local}
destdir=${DESTDIR:-}
release=${CARGO_TARGET_DIR:-target}/release
# The directory for what no package has brought; a package's prefix is /usr.
units=/etc/systemd/system
if [[ $prefix == /usr ]]; then units=/usr/lib/systemd/system; fi

# install_program NAME: without its symbols, and those.
install_program() {
    local built=$release/$1 id symbols
    id=$(readelf --notes "$built" | sed -n 's/^ *Build ID: //p')
    [[ $id =~ ^[0-9a-f]{8,}$ ]] || fail "$built has no build ID, by which its symbols would be found"
    symbols=$destdir/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
    mkdir -p "${symbols%/*}"
    objcopy --only-keep-debug --compress-debug-sections "$built" "$symbols"
    chmod 644 "$symbols"
    # A new file in the place of the old one: a daemon that runs keeps its own.
    install -D --mode=755 --strip "$built" "$destdir$prefix/sbin/$1"
    echo "$destdir$prefix/sbin/$1, its symbols in $symbols"
}

for program in testudod testudo; do
    [[ -x $release/$program ]] || fail "$release/$program is not there; run \"make build\" before"
done
for program in testudod testudo; do install_program "$program"; done
unit=$destdir$units/testudod.service
mkdir -p "${unit%/*}"
sed "s|/usr/local/sbin/|$prefix/sbin/|g" dist/testudod.service >"$unit"
chmod 644 "$unit"
echo "$unit"
