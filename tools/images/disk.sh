# shellcheck shell=bash
# A disk: its image file, its partition, its boot loader, and the chain of its versions.

PARTITION_OFFSET=$((1024 * 1024))

# The usual features, named because newer defaults add some that the older releases' e2fsck refuses.
FEATURES=none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file
FEATURES+=,huge_file,dir_nlink,extra_isize,metadata_csum
LOOP=
PART=

# A UUID that depends on the disk's name only.
disk_uuid() {
    local hash
    hash=$(printf 'sapwood image %s' "$1" | md5sum)
    echo "${hash:0:8}-${hash:8:4}-4${hash:13:3}-8${hash:17:3}-${hash:20:12}"
}

# create_image FILE UUID: partition table and an empty root file system.
create_image() {
    local file=$1 uuid=$2
    truncate -s "${SIZE_MIB}M" "$file"
    printf 'label: dos\nlabel-id: 0x%s\nstart=2048, type=83, bootable\n' "${uuid:0:8}" | sfdisk -q "$file"
    dd if=/usr/lib/EXTLINUX/mbr.bin of="$file" bs=440 count=1 conv=notrunc status=none
    mkfs.ext4 -q -F -L root -U "$uuid" -O "$FEATURES" \
        -E "offset=$PARTITION_OFFSET,hash_seed=$uuid,lazy_itable_init=0,lazy_journal_init=0" \
        "$file" $((SIZE_MIB - 1))M
}

# The loop device is let go as soon as it is mounted: the kernel frees it when the mount goes.
mount_image() {
    local attempt
    for attempt in {1..60}; do
        LOOP=$(losetup -f --show --offset "$PARTITION_OFFSET" "$1") && break
        ((attempt < 60)) || die "no loop device is free"
        sleep 1
    done
    mount -o noatime "$LOOP" "$ROOT"
    losetup -d "$LOOP"
    LOOP=
}

name_guest() {
    echo "$1" >"$ROOT/etc/hostname"
    printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$1" >"$ROOT/etc/hosts"
    : >"$ROOT/etc/resolv.conf"
}

make_bootable() {
    local uuid=$1
    echo "UUID=$uuid / ext4 errors=remount-ro 0 1" >"$ROOT/etc/fstab"
    mkdir -p "$ROOT/boot/extlinux"
    cat >"$ROOT/boot/extlinux/extlinux.conf" <<CONF
SERIAL 0 115200
DEFAULT linux
LABEL linux
    KERNEL /vmlinuz
    INITRD /initrd.img
    APPEND root=UUID=$uuid ro console=tty0 console=ttyS0,115200
CONF
    extlinux --install "$ROOT/boot/extlinux"
}

check_image() {
    e2fsck -fn "$1?offset=$PARTITION_OFFSET" &>>"$LOG" || die "the file system in $1 is not clean; see $LOG"
}

# build_version NAME N DIR: makes version N of the disk from version N-1, or from nothing.
build_version() {
    local name=$1 n=$2 dir=$3 uuid version previous
    version=$(printf 'v%02d' "$n")
    previous=$(printf '%s/v%02d.raw' "$dir" $((n - 1)))
    PART=$dir/.$version.part
    uuid=$(disk_uuid "$name")
    mkdir -p "$dir"
    rm -f "$PART"
    ((n > 1)) || base_system
    ROOT=$WORK/root
    mkdir -p "$ROOT"
    if ((n == 1)); then
        say "$name $version: ${WEEKS[n]}"
        create_image "$PART" "$uuid"
        mount_image "$PART"
        zstd -dcq "$BASE" | tar -C "$ROOT" --numeric-owner --xattrs -x
        name_guest "$name"
        make_bootable "$uuid"
    else
        say "$name $version: ${WEEKS[n]}"
        cp --reflink=auto --sparse=always "$previous" "$PART"
        mount_image "$PART"
    fi
    echo "$name" >/proc/sys/kernel/hostname
    enter_guest
    "week_$n"
    sync -f "$ROOT" # unlike umount, it fails if a write to the image failed
    leave_guest
    check_image "$PART"
    mv "$PART" "$dir/$version.raw"
    PART=
}

# build_disk NAME DIR: makes what is missing of the disk's versions.
build_disk() {
    local name=$1 dir=$2 n last
    load_disk "$name"
    last=$(version_count)
    for ((n = 1; n <= last; n++)); do
        [[ -e $(printf '%s/v%02d.raw' "$dir" "$n") ]] || build_version "$name" "$n" "$dir" &>>"$LOG"
    done
}

# load_disk NAME: reads what the disk is (SUITE, SIZE_MIB) and what happens to it (WEEKS, week_N).
load_disk() {
    # shellcheck disable=SC2034 # read by the disk's file
    local DISK=$1 file=$1
    [[ $SETTING != livedfs ]] || file=livedfs
    WEEKS=()
    SIZE_MIB=2048
    # shellcheck source=/dev/null
    . "$HERE/images/disks/$file.sh"
}

version_count() {
    local count=${#WEEKS[@]}
    ((VERSIONS == 0 || VERSIONS > count)) || count=$VERSIONS
    echo "$count"
}

# Undoes what an interrupted version left; runs at every exit.
clean_up() {
    local status=$?
    trap - EXIT INT TERM HUP
    set +e
    if [[ ${ROOT:-} ]]; then
        end_guest_processes
        umount -R "$ROOT" 2>/dev/null || umount -R -l "$ROOT" 2>/dev/null
    fi
    [[ -z $LOOP ]] || losetup -d "$LOOP"
    [[ -z $PART ]] || rm -f "$PART"
    [[ -z ${WORK:-} ]] || rmdir "$WORK/root" "$WORK"
    if ((status)); then
        [[ $LOG == /dev/null ]] || { tail -n 15 "$LOG" && echo "the whole log: $LOG"; } >&3
    fi
    exit "$status"
}
