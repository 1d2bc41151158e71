# shellcheck shell=bash
# A libvirt daemon of a script's own, as root, in a mount namespace: nothing of the system's daemon is touched. To be
# sourced; uses DIR and die, and sets LIBVIRTD, the process, and LIBVIRT_DEFAULT_URI.

LIBVIRTD=

start_libvirt() {
    local own=$DIR/libvirt i
    mkdir -p "$own/run"
    cat >"$own/libvirtd.conf" <<CONF
unix_sock_dir = "$own/run"
auth_unix_rw = "none"
auth_unix_ro = "none"
log_outputs = "3:file:$own/log"
CONF
    # Otherwise another daemon, virtlogd, would have to be there.
    printf 'stdio_handler = "file"\nsecurity_driver = "none"\nnamespaces = []\n' >"$own/qemu.conf"
    # shellcheck disable=SC2016 # for the shell in the namespace
    unshare --mount --propagation private bash -euc '
        mkdir -p /run/libvirt /var/lib/libvirt /etc/libvirt
        for d in /run/libvirt /var/lib/libvirt /etc/libvirt; do mount -t tmpfs -o mode=755 tmpfs "$d"; done
        cp "$0/qemu.conf" /etc/libvirt/qemu.conf
        # Where KVM is there and does not work, libvirt asks QEMU anew, for seconds, what QEMU can do.
        if [[ -e /dev/kvm ]]; then
            touch /etc/libvirt/no-kvm
            mount --bind /etc/libvirt/no-kvm /dev/kvm
            mount -o remount,ro,bind /dev/kvm
        fi
        exec libvirtd --config "$0/libvirtd.conf" --pid-file "$0/pid" --timeout 60
    ' "$own" </dev/null &>"$own/out" &
    LIBVIRTD=$!
    export LIBVIRT_DEFAULT_URI="qemu+unix:///system?socket=$own/run/libvirt-sock"
    for ((i = 0; i < 300; i++)); do
        if [[ -S $own/run/libvirt-sock ]] && virsh version &>/dev/null; then return; fi
        sleep 0.2
    done
    die "libvirtd does not come up: $(tail -n 3 "$own/out")"
}

# Ends its domains and it.
stop_libvirt() {
    local domain
    [[ $LIBVIRTD ]] || return 0
    for domain in $(virsh list --name); do virsh destroy "$domain" >/dev/null || true; done
    if kill "$LIBVIRTD" 2>/dev/null; then wait "$LIBVIRTD" || true; fi
    LIBVIRTD=
}
