# shellcheck shell=bash
# The host's side of image building: messages, packages, the mirror, base systems.

BASE_PACKAGES=systemd-sysv,udev,kmod,ifupdown,isc-dhcp-client,iproute2,iputils-ping,procps,less,nano,cron,logrotate
BASE_PACKAGES+=,ca-certificates
STARTED=$SECONDS
LOG=/dev/null

say() { printf '%4ds  %s\n' $((SECONDS - STARTED)) "$*" >&3; }

die() {
    say "error: $*"
    exit 1
}

# need COMMAND PACKAGE…: collects the packages of missing commands in MISSING.
MISSING=()
need() {
    command -v "$1" >/dev/null || MISSING+=("${@:2}")
}

install_missing_packages() {
    need debootstrap debootstrap
    need sfdisk fdisk
    need extlinux extlinux syslinux-common
    need mkfs.ext4 e2fsprogs
    need zstd zstd
    need perl perl
    need flock util-linux
    [[ -e $KEYRING ]] || MISSING+=(debian-archive-keyring)
    ((${#MISSING[@]})) || return 0
    command -v apt-get >/dev/null || die "missing here: ${MISSING[*]} (install them by hand)"
    say "installing ${MISSING[*]}"
    {
        apt-get -o DPkg::Lock::Timeout=600 update
        DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 \
            -o Dir::Cache::archives="$(debs_dir)" install -y --no-install-recommends "${MISSING[@]}"
    } &>>"$LOG" || die "could not install ${MISSING[*]}; see $LOG"
}

debs_dir() {
    mkdir -p "$CACHE/debs/partial"
    echo "$CACHE/debs"
}

# Sets MIRROR and MIRROR_SECURITY from apt's own sources, whichever way they are written.
find_mirror() {
    # shellcheck disable=SC2016 # apt fills these in
    local format='$(ORIGIN) $(CODENAME) $(REPO_URI)' targets
    targets() { apt-get indextargets --format "$format" 'Created-By: Packages' | grep '^Debian ' || true; }
    targets=$(targets)
    if [[ -z $targets ]]; then
        apt-get -o DPkg::Lock::Timeout=600 update &>>"$LOG" || die "apt-get update failed; see $LOG"
        targets=$(targets)
    fi
    MIRROR=$(awk '$2 !~ /-security$/ { print $3; exit }' <<<"$targets")
    MIRROR_SECURITY=$(awk '$2 ~ /-security$/ { print $3; exit }' <<<"$targets")
    [[ $MIRROR ]] || die "apt's sources name no Debian mirror"
    MIRROR_SECURITY=${MIRROR_SECURITY:-${MIRROR%/}-security/}
}

# Makes the base tarball of SUITE unless it is cached, and sets BASE to its path. The base is what every disk of the
# suite starts from: the release without updates, a kernel, no boot loader.
base_system() {
    BASE=$CACHE/base-$SUITE.tar.zst
    [[ -e $BASE ]] || make_base 7>"$BASE.lock"
}

make_base() {
    local dir=$CACHE/base-$SUITE.dir proxy
    flock 7
    [[ ! -e $BASE ]] || return 0
    say "base system $SUITE: debootstrap"
    rm -rf --one-file-system "$dir"
    mkdir -p "$dir"
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    [[ -z ${proxy:-} ]] || export http_proxy=$proxy
    flock "$(debs_dir)" debootstrap --variant=minbase --components=main --include="$BASE_PACKAGES" \
        --keyring="$KEYRING" --cache-dir="$(debs_dir)" "$SUITE" "$dir" "$MIRROR" &>>"$LOG"
    say "base system $SUITE: kernel"
    ROOT=$dir
    mount --bind "$ROOT" "$ROOT"
    enter_guest
    guest_settle
    sources main
    install linux-image-cloud-amd64
    leave_guest
    say "base system $SUITE: packing"
    tar -C "$dir" --numeric-owner --xattrs -c . | zstd -q -3 -T0 >"$BASE.part"
    mv "$BASE.part" "$BASE"
    rm -rf --one-file-system "$dir"
}
