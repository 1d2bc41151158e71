# shellcheck shell=bash
# Work inside a guest's root directory (ROOT): mounts, apt, and the things that change a disk from week to week.
#
# What the guest needs of the host (apt's settings, certificates, the mirror's address, name resolution)
# lies in a tmpfs at its /run or is bind-mounted, so nothing of it is ever written to the image.

HOST_SIDE=/run/make-images

enter_guest() {
    local file
    mount -t proc proc "$ROOT/proc"
    mount -t sysfs -o ro sysfs "$ROOT/sys"
    mount --rbind /dev "$ROOT/dev"
    mount -t tmpfs -o mode=0755 tmpfs "$ROOT/run"
    mkdir -p "$ROOT$HOST_SIDE/archives" "$ROOT/run/lock"
    mount --bind "$(debs_dir)" "$ROOT$HOST_SIDE/archives"
    for file in resolv.conf hosts; do
        [[ -e $ROOT/etc/$file ]] || : >"$ROOT/etc/$file"
        mount --bind "/etc/$file" "$ROOT/etc/$file"
    done
    printf '#!/bin/sh\nexit 101\n' >"$ROOT/usr/sbin/policy-rc.d"
    chmod 755 "$ROOT/usr/sbin/policy-rc.d"
    write_apt_conf
}

# Ends what still runs in the guest and unmounts everything below and at ROOT.
leave_guest() {
    local attempt
    rm -f "$ROOT/usr/sbin/policy-rc.d"
    for attempt in 1 2 3 4 5; do
        end_guest_processes
        umount -R "$ROOT" && break
        ((attempt < 5)) || return 1
        sleep 1
    done
}

end_guest_processes() {
    local process
    for process in /proc/[0-9]*; do
        [[ $(readlink "$process/root") == "$ROOT" ]] && kill -KILL "${process#/proc/}"
    done 2>/dev/null
    return 0
}

write_apt_conf() {
    local side=$ROOT$HOST_SIDE bundle='' path
    eval "$(apt-config shell bundle Acquire::https::CaInfo)"
    bundle=${bundle:-/etc/ssl/certs/ca-certificates.crt}
    [[ ! -e $bundle ]] || cp "$bundle" "$side/ca.crt"
    cp "$KEYRING" "$side/keyring.gpg"
    for path in /etc/apt/auth.conf /etc/apt/auth.conf.d; do
        [[ ! -e $path ]] || cp -r "$path" "$side/"
    done
    {
        apt-config dump | grep -E '^Acquire::(Check-|.*[Pp]roxy|.*::Verify-)' || true
        cat <<CONF
Dir::Etc::sourcelist "$HOST_SIDE/sources.list";
Dir::Etc::sourceparts "-";
Dir::Etc::netrc "$HOST_SIDE/auth.conf";
Dir::Etc::netrcparts "$HOST_SIDE/auth.conf.d";
Dir::Cache::archives "$HOST_SIDE/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Acquire::https::CaInfo "$HOST_SIDE/ca.crt";
Acquire::Languages "none";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
Dpkg::Options { "--force-confold"; "--force-unsafe-io"; };
CONF
    } >"$side/apt.conf"
}

# guest COMMAND…: runs it in the guest.
guest() {
    chroot "$ROOT" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TZ=UTC \
        DEBIAN_FRONTEND=noninteractive APT_CONFIG=$HOST_SIDE/apt.conf "$@" </dev/null
}

# Runs the script on standard input in the guest.
guest_sh() {
    local script
    script=$(cat)
    guest bash -euo pipefail -c "$script"
}

# Only one apt at a time may use the directory of packages.
guest_apt() (
    flock 8
    guest apt-get -y -q "$@"
) 8<"$(debs_dir)"

# sources PART…: apt's sources from here on (main, updates, security, backports), and an update.
sources() {
    local part line="deb [signed-by=$HOST_SIDE/keyring.gpg]"
    for part; do
        case $part in
        main) echo "$line $MIRROR $SUITE main" ;;
        security) echo "$line $MIRROR_SECURITY $SUITE-security main" ;;
        *) echo "$line $MIRROR $SUITE-$part main" ;;
        esac
    done >"$ROOT$HOST_SIDE/sources.list"
    guest_apt update
}

install() { guest_apt install "$@"; }
purge() { guest_apt purge --autoremove "$@"; }

upgrade() { guest_apt_tolerant upgrade --with-new-pkgs; }

# Mirrors sometimes lack a package that their index lists: upgrades pass over it, and apt fails when all else is done.
guest_apt_tolerant() {
    # shellcheck disable=SC2016 # the guest's shell runs it
    guest_apt --fix-missing "$@" || guest sh -c 'test -z "$(dpkg --audit)"'
}

# upgrade_some COUNT: the first so many of the packages that have upgrades, as a careful administrator does;
# kernels wait for upgrade.
upgrade_some() {
    local packages
    packages=$(guest_apt -s upgrade | awk '$1 == "Inst" && $2 !~ /^linux-/ { print $2 }' | sort | sed -n "1,$1p")
    # shellcheck disable=SC2086 # one word a package
    [[ -z $packages ]] || guest_apt_tolerant install --only-upgrade $packages
}

# What every guest has, whatever its name.
guest_settle() {
    : >"$ROOT/etc/machine-id"
    echo '# Set a mirror here.' >"$ROOT/etc/apt/sources.list"
    printf 'auto lo\niface lo inet loopback\n\nallow-hotplug eth0\niface eth0 inet dhcp\n' >"$ROOT/etc/network/interfaces"
    echo 'root:guest' | chroot "$ROOT" chpasswd
}

# fetch_source DIR PACKAGE…: unpacks the packages' sources below DIR; the index of sources never reaches the disk. A mirror
# may list sources that it does not have (yet): those are left out, as long as there are others.
fetch_source() {
    local dir=$1 list=$HOST_SIDE/source.list lists=$HOST_SIDE/source-lists package fetched=0
    shift
    echo "deb-src [signed-by=$HOST_SIDE/keyring.gpg] $MIRROR $SUITE main" >"$ROOT$list"
    mkdir -p "$ROOT$dir" "$ROOT$lists/partial"
    guest_apt -o Dir::Etc::sourcelist="$list" -o Dir::State::lists="$lists" update
    for package; do
        # shellcheck disable=SC2016 # the guest's shell fills these in
        if guest sh -c 'cd "$1" && shift && exec apt-get -y -q "$@"' - "$dir" \
            -o Dir::Etc::sourcelist="$list" -o Dir::State::lists="$lists" source "$package"; then
            fetched=$((fetched + 1))
        else
            say "the mirror has no sources of $package: left out"
        fi
    done
    ((fetched > 0))
}

generate() { "$HERE/images/generate" "$@"; }

# put text|blob PATH SEED KB: a file of that kind.
put() {
    mkdir -p "$(dirname "$ROOT$2")"
    generate "$1" "$3" "$4" >"$ROOT$2"
}

# tree DIR SEED COUNT, edit DIR SEED PERCENT, prune DIR SEED PERCENT: see generate.
tree() { mkdir -p "$ROOT$1" && generate tree "$2" "$3" "$ROOT$1"; }
edit() { generate edit "$2" "$3" "$ROOT$1"; }
prune() { generate prune "$2" "$3" "$ROOT$1"; }

# add_log PATH DAY KB: appends that day's lines.
add_log() {
    mkdir -p "$(dirname "$ROOT$1")"
    generate log "$2" "$3" "$2" >>"$ROOT$1"
}

# rotate_log PATH: as logrotate does, with four compressed generations.
rotate_log() {
    local path=$ROOT$1 n
    for n in 3 2 1; do
        [[ ! -e $path.$n.gz ]] || mv "$path.$n.gz" "$path.$((n + 1)).gz"
    done
    gzip -nc "$path" >"$path.1.gz"
    : >"$path"
}
