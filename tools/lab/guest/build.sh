#!/bin/bash
# Makes DIR/vmlinuz and DIR/initrd for a guest that speaks IPsec: Debian's cloud kernel, which apt
# fetches, with the strongSwan of this host and what both need. DIR holds init, ciphers, count,
# wake and strongswan.conf. Nothing on the host changes.
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C.UTF-8
dir=$1
root=$dir/root
kernel=$dir/kernel

programs=(busybox dash ip kmod perl)
plugins=(
    random nonce openssl aes sha1 sha2 hmac kdf gcm ccm ctr chapoly cmac xcbc drbg curve25519 gmp mgf1
    x509 pubkey pkcs1 pkcs8 pem revocation constraints kernel-netlink socket-default vici counters
)
# Only virtio, ESP and AH are loaded by name; the kernel asks for the ciphers when an SA wants them
# (see ciphers), and for drbg with its jitterentropy_rng when it makes an IV.
modules=(
    virtio_pci virtio_net
    xfrm_user esp4 esp6 ah4 ah6 esp4_offload esp6_offload
    drbg jitterentropy_rng gcm ccm ctr cbc ecb hmac cmac xcbc seqiv echainiv authenc authencesn ghash-generic
    des_generic md5 sha1_generic sha256_generic sha512_generic chacha20poly1305 chacha_generic poly1305_generic
    aesni-intel ghash-clmulni-intel sha1-ssse3 sha256-ssse3 sha512-ssse3 chacha-x86_64 poly1305-x86_64
)

apt() {
    # apt's own user may not write here.
    apt-get --quiet=2 --option APT::Sandbox::User=root --option Acquire::Retries=3 "$@"
}

# Into the current directory. awk reads to the end here and below: whoever writes into a pipe that
# is closed fails.
download_kernel() {
    local package
    package=$(apt-cache depends linux-image-cloud-amd64 | awk '$1 == "Depends:" && !seen++ { print $2 }')
    [[ -n $package ]] && apt download "$package"
}

unpack_kernel() {
    mkdir "$dir/download"
    cd "$dir/download"
    if ! download_kernel; then
        # Lists that are older than the archive name files that are gone.
        apt update
        download_kernel
    fi
    dpkg -x ./*.deb "$kernel"
    cd "$dir"
}

copy_programs() {
    local name file files=(/usr/lib/ipsec/charon) libraries
    for name in "${programs[@]}"; do
        files+=("$(command -v "$name")")
    done
    for name in "${plugins[@]}"; do
        files+=("/usr/lib/ipsec/plugins/libstrongswan-$name.so")
    done
    mapfile -t libraries < <(
        for file in "${files[@]}"; do
            ldd "$file" 2>/dev/null | grep -oE '/[^ ]+' || true
        done | sort -u
    )
    # Threads load it when they end; nothing links to it.
    libraries+=("$(ldconfig -p | awk '$1 == "libgcc_s.so.1" && !seen++ { print $NF }')")
    for file in "${files[@]}" "${libraries[@]}"; do
        mkdir -p "$root${file%/*}"
        cp --dereference "$file" "$root$file"
    done
    ln -s ../bin/kmod "$root/sbin/modprobe"
    ln -s dash "$root/bin/sh"
    busybox --list | while read -r name; do
        ln -s ../../bin/busybox "$root/usr/local/bin/$name"
    done
}

copy_modules() {
    local version name file
    version=$(ls "$kernel/lib/modules")
    depmod -b "$kernel" "$version"
    for name in "${modules[@]}"; do
        modprobe --dirname "$kernel" --set-version "$version" --show-depends "$name"
    done | awk '$1 == "insmod" { print $2 }' | sort -u | while read -r file; do
        name=${file#"$kernel"}
        mkdir -p "$root${name%/*}"
        cp "$file" "$root$name"
    done
    cp "$kernel/lib/modules/$version/"modules.{builtin,builtin.modinfo,order} "$root/lib/modules/$version/"
    depmod -b "$root" "$version"
    cp "$kernel/boot/vmlinuz-$version" "$dir/vmlinuz"
}

mkdir -p "$root"/{usr/{bin,sbin,lib,lib64,local/bin},proc,sys,dev,run,tmp,var,etc/swanctl}
ln -s usr/{bin,sbin,lib,lib64} "$root"
ln -s ../run "$root/var/run"
unpack_kernel
copy_programs
copy_modules
cp "$dir/strongswan.conf" "$root/etc/strongswan.conf"
install -m 755 "$dir/init" "$root/init"
install -m 755 "$dir/ciphers" "$dir/count" "$dir/wake" "$root/usr/bin/"
(cd "$root" && find . | sort | cpio --quiet --create --format newc --owner 0:0 | gzip -1) >"$dir/initrd"
rm -rf "$dir/download" "$kernel" "$root"
