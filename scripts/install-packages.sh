#!/bin/bash
# Installs the packages of packages.txt that are missing. No service that comes with them is started or left enabled.
set -euo pipefail
cd "$(dirname "$0")"
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C.UTF-8

services=(nginx.service strongswan.service strongswan-starter.service iperf3.service corosync.service
    corosync-qnetd.service corosync-qdevice.service)
policy=/usr/sbin/policy-rc.d

wanted() {
    local name architecture
    while read -r name architecture; do
        case $name in '' | '#'*) continue ;; esac
        if [[ -z $architecture || $architecture == "[$(dpkg --print-architecture)]" ]]; then
            echo "$name"
        fi
    done <packages.txt
}

is_installed() {
    [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

is_enabled() {
    compgen -G "/etc/systemd/system/*.wants/$1" >/dev/null
}

if ! command -v dpkg-query >/dev/null; then
    echo "install-packages: this is no Debian; install the equivalents of scripts/packages.txt by hand" >&2
    exit 1
fi
missing=()
for package in $(wanted); do
    is_installed "$package" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
    exit 0
fi
echo "Installing ${#missing[@]} packages: ${missing[*]}"
if ((EUID != 0)); then
    echo "install-packages: only root can; as root: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
fi

enabled_before=()
for service in "${services[@]}"; do
    if is_enabled "$service"; then enabled_before+=("$service"); fi
done
# One that an interrupted run of ours has left is ours to take away.
mark="# of Testudo's install-packages.sh"
if [[ ! -e $policy ]] || grep -qF "$mark" "$policy"; then
    # Debian asks this file before it starts a service (invoke-rc.d(8)); 101 forbids.
    printf '#!/bin/sh\n%s\nexit 101\n' "$mark" >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt=(apt-get --quiet=2 --option DPkg::Lock::Timeout=600 --option Acquire::Retries=3)
"${apt[@]}" update
"${apt[@]}" install --no-install-recommends "${missing[@]}" </dev/null
for service in "${services[@]}"; do
    if is_enabled "$service" && [[ " ${enabled_before[*]} " != *" $service "* ]]; then
        # What "systemctl disable" does; systemctl itself need not be there.
        rm -f /etc/systemd/system/*.wants/"$service"
    fi
done
