# shellcheck shell=bash
# The commands and settings that a page of the documentation has, for scripts that run them. To be sourced; uses PAGE, the
# page, DIR, PATIENCE and die, and sets JOB, the leader of the process group started last.

# Everything that was started for a recipe: leaders of process groups.
STARTED=()

# The first block behind a line.
block_behind() {
    awk -v mark="$1" -v fence="$2" '
        $0 == mark { found = 1; next }
        found == 1 && $0 == fence { found = 2; next }
        found == 2 && /^```$/ { exit }
        found == 2' "$PAGE" | grep . || die "$PAGE has no $1"
}

# The commands of a recipe.
block() { block_behind "<!-- run: $1 -->" '```sh'; }

# Starts recipes, one after the other in one shell; sets JOB, which leads their process group. What they say comes to
# $DIR/NAME.out.
start() {
    local name commands=''
    for name in "$@"; do commands+=$(block "$name")$'\n'; done
    setsid bash -euo pipefail -c "$commands" </dev/null &>"$DIR/$1.out" &
    JOB=$!
    STARTED+=("$JOB")
}

# Waits for the end of what start has started, given by its JOB and its name.
finish() {
    wait "$1" || die "$2 has failed: $(tail -n 5 "$DIR/$2.out")"
}

# Runs recipes as start does, to their end.
recipe() {
    local started=$SECONDS
    start "$@"
    finish "$JOB" "$1"
    echo "$*: done in $((SECONDS - started)) s"
}

# wait_for WHAT COMMAND…: until the command succeeds, or PATIENCE is at its end.
wait_for() {
    local what=$1 started=$SECONDS
    shift
    until "$@"; do
        ((SECONDS - started < PATIENCE)) || die "waited $PATIENCE s for: $what"
        sleep 0.1
    done
}

# Ends everything that was started.
end_recipes() {
    local group
    for group in "${STARTED[@]}"; do kill -TERM -- "-$group" 2>/dev/null || true; done
}
