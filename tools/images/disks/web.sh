# shellcheck shell=bash disable=SC2034
# A web server with PHP on bookworm: uploads, log rotation, a redesign.

SUITE=bookworm

WEEKS[1]="Fresh bookworm with nginx, PHP and a site of 800 files"
week_1() {
    sources main
    install nginx-light php-fpm php-curl php-gd php-mbstring php-xml php-sqlite3 openssh-server rsync vim-tiny
    tree /srv/site 1001 800
    add_log /var/log/nginx/access.log 1 6000
}

WEEKS[2]="Security upgrades of ten packages, a few pages edited, logs"
week_2() {
    sources main security
    upgrade_some 10
    edit /srv/site 1002 2
    sed -i 's/worker_connections 768/worker_connections 4096/' "$ROOT/etc/nginx/nginx.conf"
    add_log /var/log/nginx/access.log 8 6000
}

WEEKS[3]="Nothing but log growth and sessions"
week_3() {
    add_log /var/log/nginx/access.log 15 7000
    add_log /var/log/nginx/error.log 15 300
    sessions 1003
}

WEEKS[4]="DokuWiki comes, logs rotate"
week_4() {
    sources main security updates
    install dokuwiki
    rotate_log /var/log/nginx/access.log
    add_log /var/log/nginx/access.log 22 2000
    sessions 1004
}

WEEKS[5]="Visitors upload 250 files; logs"
week_5() {
    tree /srv/uploads 1005 250
    prune /srv/site 1005 1
    add_log /var/log/nginx/access.log 29 9000
    sessions 1005
}

WEEKS[6]="Upgrades of 25 packages, PHP's settings, edits"
week_6() {
    sources main security updates
    upgrade_some 25
    sed -i 's/^memory_limit = .*/memory_limit = 256M/' "$ROOT"/etc/php/*/fpm/php.ini
    edit /srv/site 1006 3
    rotate_log /var/log/nginx/access.log
    add_log /var/log/nginx/access.log 36 3000
}

WEEKS[7]="Deadline: the redesign replaces a third of the site, ImageMagick makes the pictures"
week_7() {
    sources main security updates
    install imagemagick
    prune /srv/site 1007 30
    edit /srv/site 1007 30
    tree /srv/site 1007 320
    put blob /srv/site/film.bin 1007 8000
    add_log /var/log/nginx/access.log 43 8000
}

WEEKS[8]="A quiet week: sessions and a few log lines"
week_8() {
    add_log /var/log/nginx/access.log 50 400
    add_log /var/log/syslog 50 100
    sessions 1008
}

WEEKS[9]="DokuWiki goes, Redis and memcached come, a third of the uploads is deleted"
week_9() {
    sources main security updates
    purge dokuwiki
    install redis-server memcached
    sed -i 's/^-m 64/-m 128/' "$ROOT/etc/memcached.conf"
    prune /srv/uploads 1009 33
    rotate_log /var/log/nginx/access.log
    add_log /var/log/nginx/access.log 57 3000
}

WEEKS[10]="All upgrades, with a new kernel"
week_10() {
    sources main security updates
    upgrade
    add_log /var/log/nginx/access.log 64 5000
}

WEEKS[11]="A backup of the site beside it, a few new uploads"
week_11() {
    guest sh -c 'tar -C /srv -c site/film.bin uploads | gzip -n > /var/backups/site.tar.gz'
    tree /srv/uploads 1011 60
    add_log /var/log/nginx/access.log 71 5000
    sessions 1011
}

WEEKS[12]="The old kernel goes, logs rotate, edits"
week_12() {
    sources main security updates
    guest_apt autoremove --purge
    edit /srv/site 1012 4
    rotate_log /var/log/nginx/access.log
    add_log /var/log/nginx/access.log 78 2000
    sessions 1012
}

# sessions SEED: PHP's session files of the week replace those of the week before.
sessions() {
    local dir=$ROOT/var/lib/php/sessions n
    find "$dir" -type f -delete
    for n in {1..300}; do
        printf 'user|i:%d;cart|a:0:{}token|s:8:"%08x";' "$n" $(($1 * n * 2654435761 % 4294967296)) >"$dir/sess_$1$n"
    done
}
