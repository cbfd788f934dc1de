#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Cases per second of `hbfuzz fuzz forward` on one core in the fuzz preset (median of RUNS runs of
# SECONDS seconds, seeds 1, 2, ..), and the share of each phase. Needs an otherwise idle machine: the load is printed.
# Usage: scripts/bench.sh [BUILD_DIR]   BUILD_DIR: a build of the preset fuzz (default build/fuzz, built if need be)
# Environment: RUNS (5), SECONDS_EACH (10), BACKEND (emu).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:-} in
-*)
    echo "bench.sh: unknown option $1" >&2
    exit 2
    ;;
esac
runs=${RUNS:-5}
seconds=${SECONDS_EACH:-10}
backend=${BACKEND:-emu}
build=${1:-$root/build/fuzz}
if [ $# -gt 1 ] || { [ $# -eq 1 ] && [ ! -x "$build/hbfuzz" ]; }; then
    echo "bench.sh: takes one folder of a build, '${*:1}' holds no hbfuzz" >&2
    exit 2
fi
if [ $# -eq 0 ]; then
    "$root/scripts/setup.sh"
    configure_and_build fuzz
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# cases and CPU seconds of one run on one line
one_run() {
    local TIMEFORMAT='%U %S'
    { time "$build/hbfuzz" fuzz forward --backend "$backend" --time "$seconds" --seed "$1" --out "$out" -q \
        >"$out/log" 2>&1; } 2>"$out/cpu"
    awk '/^forward: / { cases = $2; rate = $4 } END { print cases, rate }' "$out/log" | tr '\n' ' '
    tail -n 1 "$out/cpu"
}

# middle value of the lines read
median() {
    sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

say "load before: $(cut -d ' ' -f 1-3 /proc/loadavg), $(nproc) cores, backend $backend"
for ((i = 1; i <= runs; i++)); do
    one_run "$i" | tee -a "$out/runs" | awk -v i="$i" \
        '{ printf "run %d: %d cases, %d cases/s, %d cases per CPU second\n", i, $1, $2, $1 / ($3 + $4) }'
done
"$build/hbfuzz" run --backend "$backend" --gen 2000 --seed 1 --stats -q | grep -E '^(per case|time:)'
say "load after: $(cut -d ' ' -f 1-3 /proc/loadavg)"
printf 'bench: median of %d runs of %d s: %.0f cases/s, %.0f cases per CPU second\n' "$runs" "$seconds" \
    "$(awk '{ print $2 }' "$out/runs" | median)" "$(awk '{ print $1 / ($3 + $4) }' "$out/runs" | median)"
