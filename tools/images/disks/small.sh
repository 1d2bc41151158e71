# shellcheck shell=bash disable=SC2034
# A small web server, four weeks.

SUITE=bookworm
SIZE_MIB=1024

WEEKS[1]="Fresh bookworm with nginx, SQLite and a site of 300 files"
week_1() {
    sources main
    install nginx-light sqlite3 openssh-server
    tree /srv/site 101 300
    small_orders 1 20000
    add_log /var/log/nginx/access.log 1 2048
}

WEEKS[2]="Security upgrades of a dozen packages, a few files edited, logs"
week_2() {
    sources main security
    upgrade_some 12
    edit /srv/site 102 3
    sed -i 's/worker_connections 768/worker_connections 2048/' "$ROOT/etc/nginx/nginx.conf"
    add_log /var/log/nginx/access.log 8 3072
}

WEEKS[3]="Nothing but logs and database rows"
week_3() {
    guest sqlite3 /var/lib/orders.db 'update orders set total = total + 1 where id % 50 = 7'
    add_log /var/log/nginx/access.log 15 3072
    add_log /var/log/syslog 15 512
}

WEEKS[4]="Deadline: git and Python come, nano goes, a third of the site changes, logs rotate"
week_4() {
    sources main security
    install git python3-minimal
    purge nano
    prune /srv/site 104 15
    edit /srv/site 104 20
    tree /srv/site 104 80
    small_orders 20001 25000
    rotate_log /var/log/nginx/access.log
}

# small_orders FROM TO: rows for those order numbers.
small_orders() {
    guest sqlite3 /var/lib/orders.db "
        create table if not exists orders (id integer primary key, customer text, total integer);
        with recursive n (i) as (select $1 union all select i + 1 from n where i < $2)
        insert into orders select i, 'customer ' || (i * 7919 % 4999), i * 31 % 1000 from n"
}
