# shellcheck shell=bash
# A Glance of a script's own on the loopback: no Keystone, SQLite, images in files. To be sourced; uses DIR and die, and
# sets GLANCE_API, the process, and GLANCE, where it answers.

GLANCE_API=

# start_glance [SETTINGS [USER]]: settings that count more than those here, and whom it runs as.
start_glance() {
    local own=$DIR/glance port=${GLANCE_PORT:-$((20000 + $$ % 10000))} settings=${1:-} user=${2:-} i
    local -a as=() with=(--config-file "$own/glance-api.conf")
    mkdir -p "$own"/{store,staging,lock}
    [[ ! $settings ]] || with+=(--config-file "$settings")
    cat >"$own/glance-api.conf" <<CONF
[DEFAULT]
bind_host = 127.0.0.1
bind_port = $port
workers = 0
log_file = $own/log
enabled_backends = fs:file
node_staging_uri = file://$own/staging
transport_url = fake://
[database]
connection = sqlite:///$own/glance.sqlite
[glance_store]
default_backend = fs
[fs]
filesystem_store_datadir = $own/store
[os_glance_tasks_store]
filesystem_store_datadir = $own/staging
[os_glance_staging_store]
filesystem_store_datadir = $own/staging
[oslo_concurrency]
lock_path = $own/lock
[paste_deploy]
config_file = /etc/glance/glance-api-paste.ini
CONF
    if [[ $user ]]; then
        chown -R "$user:" "$own"
        as=(setpriv --reuid "$user" --regid "$user" --clear-groups)
    fi
    "${as[@]}" glance-manage "${with[@]}" db_sync &>"$own/out" || die "$(tail -n 3 "$own/out")"
    "${as[@]}" glance-api "${with[@]}" &>>"$own/out" </dev/null &
    GLANCE_API=$!
    export GLANCE=http://127.0.0.1:$port
    for ((i = 0; i < 300; i++)); do
        kill -0 "$GLANCE_API" 2>/dev/null || die "Glance has ended: $(tail -n 3 "$own/out")"
        if curl -fsS -o "$own/versions" "$GLANCE/v2/images" 2>/dev/null; then return; fi
        sleep 0.2
    done
    die "Glance does not come up: $(tail -n 3 "$own/out")"
}

stop_glance() {
    [[ $GLANCE_API ]] || return 0
    if kill "$GLANCE_API" 2>/dev/null; then wait "$GLANCE_API" || true; fi
    GLANCE_API=
}
