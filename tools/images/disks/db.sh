# shellcheck shell=bash disable=SC2034
# A PostgreSQL server on bullseye that is upgraded to bookworm halfway.

SUITE=bullseye

WEEKS[1]="Fresh bullseye with PostgreSQL 13 and a database of 300,000 rows"
week_1() {
    sources main
    install postgresql openssh-server rsync sqlite3
    with_database 13 'createdb bank && pgbench -q -i -s 3 bank'
    tree /srv/reports 2001 300
}

WEEKS[2]="Two nights of transactions"
week_2() {
    with_database 13 'pgbench -n -c 4 -t 3000 bank'
    add_log /var/log/syslog 8 1500
}

WEEKS[3]="Security upgrades of ten packages, a first dump"
week_3() {
    sources main security
    upgrade_some 10
    with_database 13 'pgbench -n -c 4 -t 1000 bank && pg_dump -Fc bank -f ~/bank-1.dump'
    add_log /var/log/syslog 15 1500
}

WEEKS[4]="A quiet week: a few transactions and log lines"
week_4() {
    with_database 13 'pgbench -n -t 100 bank'
    add_log /var/log/syslog 22 200
}

WEEKS[5]="A table of events with two indexes, a second dump"
week_5() {
    with_database 13 'psql -q bank -c "
        create table events as select i as id, i * 7919 % 100003 as account, md5(i::text) as token
            from generate_series(1, 200000) i;
        create index on events (account);
        create unique index on events (id)" && pg_dump -Fc bank -f ~/bank-2.dump'
    add_log /var/log/syslog 29 1500
}

WEEKS[6]="Upgrades of 15 packages, transactions"
week_6() {
    sources main security updates
    upgrade_some 15
    with_database 13 'pgbench -n -c 4 -t 1000 bank'
}

WEEKS[7]="Transactions, the old dumps make room for a new one, reports edited"
week_7() {
    with_database 13 'rm -f ~/bank-*.dump && pgbench -n -c 4 -t 3000 bank && pg_dump -Fc bank -f ~/bank-3.dump'
    edit /srv/reports 2007 6
    add_log /var/log/syslog 43 2000
}

WEEKS[8]="Redis and Python for reports come, 80 reports are written, an update of many rows"
week_8() {
    sources main security updates
    install redis-server python3-psycopg2 python3-redis
    tree /srv/reports 2008 80
    with_database 13 'psql -q bank -c "update events set account = account + 1 where id % 40 = 3"'
    rotate_log /var/log/syslog
}

WEEKS[9]="Nothing but log growth and a few transactions"
week_9() {
    with_database 13 'pgbench -n -t 200 bank'
    add_log /var/log/syslog 57 4000
}

WEEKS[10]="Half the events are deleted, the rest is vacuumed; reports deleted"
week_10() {
    with_database 13 'psql -q bank -c "delete from events where id < 100000" && vacuumdb -q --full -t events bank'
    prune /srv/reports 2010 10
    rotate_log /var/log/syslog
}

WEEKS[11]="The big week: bullseye becomes bookworm, PostgreSQL 13 becomes 15"
week_11() {
    SUITE=bookworm
    sources main security updates
    guest_apt_tolerant upgrade
    guest_apt_tolerant dist-upgrade
    guest pg_dropcluster --stop 15 main
    prepare_sockets
    guest pg_upgradecluster -m dump --no-start 13 main
    add_log /var/log/syslog 71 3000
}

WEEKS[12]="PostgreSQL 13 and bullseye's kernel go, transactions"
week_12() {
    SUITE=bookworm
    sources main security updates
    guest pg_dropcluster 13 main
    purge postgresql-13 postgresql-client-13 'linux-image-5.10*'
    with_database 15 'pgbench -n -c 4 -t 500 bank'
}

# with_database VERSION SCRIPT: runs the script as postgres while the server runs on its Unix socket only.
with_database() {
    prepare_sockets
    guest sed -i "s/^#\?listen_addresses = .*/listen_addresses = ''/" "/etc/postgresql/$1/main/postgresql.conf"
    guest pg_ctlcluster -o '-c fsync=off' "$1" main start
    guest runuser -u postgres -- env "HOME=/var/lib/postgresql" "PATH=/usr/lib/postgresql/$1/bin:/usr/bin:/bin" \
        bash -euo pipefail -c "$2"
    guest pg_ctlcluster "$1" main stop
}

prepare_sockets() { guest install -d -o postgres -g postgres -m 2775 /run/postgresql; }
