# shellcheck shell=bash disable=SC2034
# Fresh disks of several releases and package sets: DISK is SUITE-SET.

SUITE=${DISK%%-*}

WEEKS[1]="Fresh $SUITE with the set ${DISK#*-}"
week_1() {
    local set seed
    set=$(<"$ROOT/etc/hostname")
    seed=$(cksum <<<"$set" | cut -d ' ' -f 1)
    sources main
    case ${set#*-} in
    web) install nginx-light php-fpm php-gd php-mbstring php-xml php-sqlite3 redis-server ;;
    database) install postgresql sqlite3 python3-psycopg2 ;;
    develop) install build-essential git python3-venv vim ;;
    desk) install xserver-xorg-core xinit openbox xterm fonts-dejavu netsurf-gtk mupdf ;;
    esac
    tree "/home/data" "$seed" 200
    add_log /var/log/syslog $((seed % 300)) 1000
}
