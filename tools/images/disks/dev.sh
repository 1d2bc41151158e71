# shellcheck shell=bash disable=SC2034
# A developer's machine on trixie: compilers, sources, builds, git repositories.

SUITE=trixie
USER_HOME=/home/kim

WEEKS[1]="Fresh trixie with gcc, git and Python, a home with 400 files, a project with 40 commits"
week_1() {
    sources main
    install build-essential git python3 openssh-server less vim-tiny
    guest useradd -m -s /bin/bash kim
    tree $USER_HOME/documents 3001 400
    guest_sh <<EOF
cd $USER_HOME
git config --global user.name Kim
git config --global user.email kim@localhost
git config --global init.defaultBranch main
git init -q project
EOF
    commits 3001 40
}

WEEKS[2]="The sources of Lua, zlib and bzip2 come and are compiled"
week_2() {
    sources main
    fetch_source $USER_HOME/src lua5.4 zlib bzip2
    compile 'CFLAGS=-O2 -g'
    commits 3002 10
}

WEEKS[3]="Forty commits, a virtual environment for Python"
week_3() {
    sources main
    install python3-venv
    guest python3 -m venv $USER_HOME/venv
    commits 3003 40
    guest git -C $USER_HOME/project gc -q
}

WEEKS[4]="A quiet week: ten edits and a few log lines"
week_4() {
    edit $USER_HOME/documents 3004 2
    add_log /var/log/syslog 22 150
    add_log $USER_HOME/.bash_history 22 8
}

WEEKS[5]="CMake, Ninja and gdb come"
week_5() {
    sources main security
    install cmake ninja-build gdb
    commits 3005 15
    add_log /var/log/syslog 29 500
}

WEEKS[6]="Security upgrades of 15 packages, commits"
week_6() {
    sources main security
    upgrade_some 15
    commits 3006 20
    edit $USER_HOME/documents 3006 3
}

WEEKS[7]="Deadline: everything is compiled anew, new data, 80 commits, a third of the documents changes"
week_7() {
    compile 'CFLAGS=-O3 -g3'
    put blob $USER_HOME/data/measured.bin 3007 30000
    put text $USER_HOME/data/notes.txt 3007 8000
    edit $USER_HOME/documents 3007 35
    tree $USER_HOME/documents 3007 120
    commits 3007 80
}

WEEKS[8]="Tidying up: builds cleaned, a fifth of the documents deleted, the repository packed"
week_8() {
    guest_sh <<EOF
for dir in $USER_HOME/src/*/; do make -s -C "\$dir" clean || true; done
EOF
    prune $USER_HOME/documents 3008 20
    guest git -C $USER_HOME/project gc -q --prune=now
}

WEEKS[9]="A release: compiled, packed, tagged"
week_9() {
    compile 'CFLAGS=-O2'
    guest_sh <<EOF
cd $USER_HOME
git -C project tag v1.0
tar -c project src | gzip -n >release-1.0.tar.gz
EOF
    edit $USER_HOME/data 3009 50
    commits 3009 10
}

WEEKS[10]="CMake goes, Node.js comes"
week_10() {
    sources main security updates
    purge cmake ninja-build
    install nodejs
    commits 3010 15
}

WEEKS[11]="Nothing but log growth and a test database updated in place"
week_11() {
    sqlite_rows 1 60000
    add_log /var/log/syslog 71 2500
}

WEEKS[12]="All upgrades, with a new kernel; the old one goes"
week_12() {
    sources main security updates
    upgrade
    purge "$(guest readlink /vmlinuz.old | sed 's|boot/vmlinuz|linux-image|')"
    sqlite_rows 30000 30600
    commits 3012 10
}

# commits SEED COUNT: so many commits to the project, each with a new file or a few edits.
commits() {
    local n
    for ((n = 1; n <= $2; n++)); do
        if ((n % 3)); then
            edit $USER_HOME/project/code "$1$n" 8 2>/dev/null || true
        fi
        put text "$USER_HOME/project/code/part-$(($1 * n % 97)).c" "$1$n" $((4 + n % 23))
        guest git -C $USER_HOME/project add -A
        guest env GIT_AUTHOR_DATE="@$((1700000000 + $1 * 1000 + n)) +0000" \
            GIT_COMMITTER_DATE="@$((1700000000 + $1 * 1000 + n)) +0000" \
            git -C $USER_HOME/project commit -q -m "Change $n of $1"
    done
}

# compile FLAGS: builds the sources that there are with those flags; Lua and bzip2 need no configuration.
compile() {
    guest_sh <<EOF
cd $USER_HOME/src
build_zlib() {
    (cd zlib-* && CFLAGS='${1#CFLAGS=}' ./configure && make -s clean && make -s -j2 static)
}
build_bzip2() {
    make -s -C bzip2-* clean
    make -s -j2 -C bzip2-* '$1' libbz2.a bzip2
}
build_lua() {
    make -s -C lua5.4-*/src clean
    make -s -j2 -C lua5.4-*/src 'MYCFLAGS=${1#CFLAGS=}' linux || make -s -j2 -C lua5.4-*/src 'MYCFLAGS=${1#CFLAGS=}' generic
}
for package in zlib bzip2 lua; do
    if ls -d \$package*-*/ >/dev/null 2>&1; then build_\$package; fi
done
EOF
}

# sqlite_rows FROM TO: adds or rewrites those rows of the test database.
sqlite_rows() {
    guest python3 -c '
import sqlite3, sys
db = sqlite3.connect("/home/kim/data/test.db")
db.execute("create table if not exists runs (id integer primary key, name text, result integer)")
for i in range(int(sys.argv[1]), int(sys.argv[2]) + 1):
    db.execute("insert or replace into runs values (?, ?, ?)", (i, f"run {i * 7919 % 4999}", i * 31 % 1000))
db.commit()
' "$1" "$2"
}
