# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts: messages, repository root, number of jobs. Sourced, not run.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc 2>/dev/null || echo 2)

say() {
    printf '== %s\n' "$*"
}

# value "$@": the option in $1 has a value, or the script ends with code 2.  value --number "$@": one that is a number above 0
value() {
    local is_number=
    [ "$1" = --number ] && { is_number=1; shift; }
    if [ $# -lt 2 ]; then
        echo "$(basename "$0"): $1 needs a value" >&2
        exit 2
    fi
    if [ -n "$is_number" ] && ! [[ $2 =~ ^[1-9][0-9]{0,8}$ ]]; then
        echo "$(basename "$0"): $1 takes a number from 1 to 999999999, got '$2'" >&2
        exit 2
    fi
}

# configure_and_build PRESET [TARGETS...]: quiet unless it fails
configure_and_build() {
    local preset=$1
    shift
    local log="$root/build/$preset.log"
    mkdir -p "$root/build"
    say "building preset $preset (log: build/$preset.log)"
    if ! (cd "$root" && cmake --preset "$preset" && cmake --build "build/$preset" -j "$jobs" ${1:+--target "$@"}) >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        echo "scripts: building preset $preset failed; the whole output is in build/$preset.log" >&2
        return 1
    fi
}
