# shellcheck shell=bash
# A real Debian in an emulated QEMU, for scripts that back it up while it runs. To be sourced; needs root for loop devices.
#
# Uses HERE and SAPWOOD; IMAGES stays empty for the small set of images. Sets DIR, where everything of the run is, SAPWOOD_STORE, and
# QEMU, the process, while it runs.

IMAGES=
DIR=
# A function of the caller that ends what it has started.
AT_END=
QEMU=
LOOP=
# Seconds that booting, and each stretch of work in the guest, may take.
PATIENCE=${PATIENCE:-300}

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    [[ ! $DIR || ! -s $DIR/boot.log ]] || { echo 'the guest said last:' && tail -n 5 "$DIR/boot.log"; } >&2
    exit 1
}

# Understands --images FILE and --sapwood PROGRAM; `usage` is the caller's.
parse_options() {
    local name
    name=$(basename "$0")
    while (($#)); do
        case $1 in
        --images | --sapwood)
            (($# > 1)) || { echo "$name: $1 needs a value; see --help" >&2 && exit 2; }
            if [[ $1 == --images ]]; then IMAGES=$2; else SAPWOOD=$2; fi
            shift
            ;;
        -h | --help) usage && exit ;;
        *) echo "$name: unknown option $1; see --help" >&2 && exit 2 ;;
        esac
        shift
    done
    [[ -x $SAPWOOD ]] || die "$SAPWOOD: there is no such program; make build"
    SAPWOOD=$(readlink -f "$SAPWOOD")
    [[ $IMAGES ]] || IMAGES=$("$HERE/make-images" --small) || die "the images could not be made"
}

root() { if ((EUID)); then sudo "$@"; else "$@"; fi; }

# Makes the directory of the run, with the newest disk of the images and an empty vault.
begin() {
    local image
    trap clean_up EXIT
    trap 'exit 130' INT TERM HUP
    DIR=$(mktemp -d "${TMPDIR:-/var/tmp}/sapwood-live.XXXXXX")
    mkdir "$DIR/mnt"
    export SAPWOOD_STORE=$DIR/vault
    OFFSET=$(jq '.disks[0].partition_offset_bytes' "$IMAGES")
    image=$(dirname "$(readlink -f "$IMAGES")")/$(jq -r '.disks[0].versions[-1].path' "$IMAGES")
    cp --sparse=always "$image" "$DIR/disk.raw"
    "$SAPWOOD" --quiet init >/dev/null
}

clean_up() {
    local status=$?
    trap - EXIT
    if [[ $QEMU ]] && kill "$QEMU" 2>/dev/null; then wait "$QEMU" || true; fi
    [[ ! $AT_END ]] || "$AT_END"
    close_disk
    [[ ! $DIR ]] || rm -rf "$DIR"
    exit "$status"
}

# Sets LOOP to the root file system of a disk.
open_disk() { LOOP=$(root losetup --find --show --offset "$OFFSET" "$1"); }

close_disk() {
    [[ $LOOP ]] || return 0
    if mountpoint --quiet "$DIR/mnt"; then root umount "$DIR/mnt"; fi
    root losetup --detach "$LOOP"
    LOOP=
}

# Puts a program from standard input into the disk, and a service that runs it. What it writes to its standard output
# comes to $DIR/service.log.
add_service() {
    open_disk "$DIR/disk.raw"
    root mount "$LOOP" "$DIR/mnt"
    root tee "$DIR/mnt/usr/local/sbin/live-service" >/dev/null
    root chmod 755 "$DIR/mnt/usr/local/sbin/live-service"
    root tee "$DIR/mnt/etc/systemd/system/live.service" >/dev/null <<'UNIT'
[Service]
ExecStartPre=/bin/stty -F /dev/ttyS1 raw -echo
ExecStart=/usr/local/sbin/live-service
StandardOutput=file:/dev/ttyS1
[Install]
WantedBy=multi-user.target
UNIT
    root ln -sf ../live.service "$DIR/mnt/etc/systemd/system/multi-user.target.wants/live.service"
    close_disk
}

# Starts the machine; its disk is the device vda of the monitor $DIR/qmp.
boot() {
    : >"$DIR/service.log"
    qemu-img create -q -f qcow2 -b "$DIR/disk.raw" -F raw "$DIR/disk.qcow2"
    qemu-system-x86_64 -M q35,accel=tcg -m 512 -display none -nodefaults \
        -serial "file:$DIR/boot.log" -serial "file:$DIR/service.log" \
        -qmp "unix:$DIR/qmp,server=on,wait=off" \
        -blockdev "driver=file,filename=$DIR/disk.qcow2,node-name=f0" -blockdev driver=qcow2,file=f0,node-name=d0 \
        -device virtio-blk-pci,drive=d0,id=vda </dev/null &>"$DIR/qemu.log" &
    QEMU=$!
}

# Fails when the machine has ended.
check_guest() { kill -0 "$QEMU" 2>/dev/null || die "QEMU has ended: $(tail -n 3 "$DIR/qemu.log")"; }

# Ends the machine as a power cut would.
cut_power() {
    kill -KILL "$QEMU" && { wait "$QEMU" || true; } 2>/dev/null
    QEMU=
}
