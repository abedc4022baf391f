#!/bin/bash
# Installs the packages of packages.txt that are missing. No service that comes with them is started
# or left enabled.
source "$(dirname "$0")/environment.sh"

services=(nginx.service strongswan.service strongswan-starter.service iperf3.service corosync.service
    corosync-qnetd.service corosync-qdevice.service bird.service ssh.service)
# Tests keep the system's files in a directory of their own.
system=${TESTUDO_SYSTEM:-}
policy=$system/usr/sbin/policy-rc.d
apt=(apt-get --quiet=1 --option DPkg::Lock::Timeout=600 --option Acquire::Retries=3)
export DEBIAN_FRONTEND=noninteractive

# os KEY: what the system says about itself (os-release(5)).
os() {
    (source "$system/etc/os-release" 2>/dev/null && key=$1 && echo "${!key:-unknown}") || echo unknown
}

# The packages of the list, for this architecture.
wanted() {
    local name only architecture
    architecture=$(dpkg --print-architecture)
    while read -r name only; do
        case $name in '' | '#'*) continue ;; esac
        if [[ -z $only || $only == "[$architecture]" ]]; then echo "$name"; fi
    done <scripts/packages.txt
}

installed() {
    dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p'
}

# without FILE: the lines of standard input that FILE has not.
without() {
    grep -vxFf "$1" || (($? == 1))
}

is_enabled() {
    compgen -G "$system/etc/systemd/system/*.wants/$1" >/dev/null
}

# unknown PACKAGE...: those that no archive of apt's has.
unknown() {
    printf '%s\n' "$@" | without <(apt-cache policy "$@" |
        awk '/^[^ ].*:$/ { name = substr($0, 1, length($0) - 1) } /^  Candidate: / && $2 != "(none)" { print name }')
}

# Megabytes that the packages take with all that they depend on, as archives and installed.
# Only a simulation is safe to ask: --assume-no installs when apt sees nothing to ask about.
size_of() {
    "${apt[@]}" install --simulate --no-install-recommends "$@" | awk '/^Inst / { print $2 }' |
        xargs --no-run-if-empty apt-cache show --no-all-versions |
        awk '/^Installed-Size: / { kilobytes += $2 } /^Size: / { kilobytes += $2 / 1024 } END { printf "%d\n", kilobytes / 1024 + 1 }'
}

# install PACKAGE...: its output is the log of the phase.
install() {
    local updated=0 strange=() needed free
    # Without the option apt only warns of an archive that it cannot reach. If one fails, the lists
    # of an earlier update may still have every package.
    "${apt[@]}" --option APT::Update::Error-Mode=any update || updated=$?
    mapfile -t strange < <(unknown "$@")
    if ((${#strange[@]} > 0)); then
        if ((updated != 0)); then return "$updated"; fi
        fail "apt on $(os PRETTY_NAME) does not know ${strange[*]}; use Debian 12 with its section main"
    fi
    needed=$(size_of "$@")
    free=$(free_megabytes /usr)
    if ((free < needed)); then fail "the packages need $needed MB at /usr, but only $free MB are free; make room"; fi
    "${apt[@]}" install --assume-yes --no-install-recommends "$@"
}

need_64_bit
if ! command -v dpkg-query >/dev/null; then
    fail "needs Debian 12, but this is $(os PRETTY_NAME); install the like of scripts/packages.txt by hand and set TESTUDO_PACKAGES=present"
fi
if [[ $(os ID) == debian && $(os VERSION_ID) =~ ^[0-9]+$ ]] && (($(os VERSION_ID) < 12)); then
    fail "needs Debian 12, but this is $(os PRETTY_NAME), whose packages are too old"
fi
mapfile -t missing < <(wanted | without <(installed))
if ((${#missing[@]} == 0)); then
    phase_skip "packages: all installed"
    exit 0
fi
if ((EUID != 0)); then
    fail "${#missing[@]} packages are missing, and only root can install them; as root: scripts/install-packages.sh"
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
phase "packages: ${#missing[@]} to install" install "${missing[@]}"
for service in "${services[@]}"; do
    if is_enabled "$service" && [[ " ${enabled_before[*]} " != *" $service "* ]]; then
        # What "systemctl disable" does, to aliases too; systemctl itself need not be there.
        rm -f "$system"/etc/systemd/system/*.wants/"$service"
        find "$system/etc/systemd/system" -maxdepth 1 -type l -lname "*/$service" -delete
    fi
done
