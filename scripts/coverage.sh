#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Line coverage of the code under test, backend/ and kernels/, by the unit tests of the backend and by generated cases on the
# emulator (which is itself not instrumented). Prints a table and, last, one line with the totals. What is missed is listed with --missed.
# --corpus: by the cases of corpus/ alone and by the tests that make allocations fail, instead.
# Usage: scripts/coverage.sh [--corpus] [--gen N] [--missed]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
gen=3000
missed=
corpus=
while [ $# -gt 0 ]; do
    case $1 in
    --gen) value --number "$@"; gen=$2; shift 2 ;;
    --missed) missed=1; shift ;;
    --corpus) corpus=1; shift ;;
    *) echo "coverage.sh: unknown option '$1'" >&2; exit 2 ;;
    esac
done
"$root/scripts/setup.sh"
tests=()
for file in "$root"/backend/tests/test_*.c; do
    [ -n "$corpus" ] && ! grep -q hb_alloc_fail_after "$file" && continue
    tests+=("$(basename "$file" .c)")
done
configure_and_build coverage hbfuzz "${tests[@]}"

build=$root/build/coverage
profiles=$build/profiles
rm -rf "$profiles"
mkdir -p "$profiles"
export LLVM_PROFILE_FILE="$profiles/%p-%m.profraw" # one each: children are programs of their own
objects=("$build/hbfuzz")
status=0
run_tests() {
    local test
    for test in "${tests[@]}"; do
        "$build/tests/$test" >"$profiles/$test.log" 2>&1 || { status=1; tail -n 20 "$profiles/$test.log"; }
        objects+=(-object "$build/tests/$test")
    done
}
if [ -n "$corpus" ]; then
    say "failures injected: ${tests[*]}"
    run_tests
    say "corpus"
    "$build/hbfuzz" run "$root/corpus" --backend emu | tail -n 3 || status=1
else
    say "unit tests of the backend"
    run_tests
    say "$gen generated cases"
    "$build/hbfuzz" run --gen "$((gen * 3 / 4))" --seed 21 --backend emu | tail -n 1 || status=1
    for target in dispatch metadata track graph slots; do
        "$build/hbfuzz" run --gen "$((gen / 8))" --seed 22 --target $target --backend emu | tail -n 1 || status=1
    done
fi

llvm-profdata-19 merge -sparse "$profiles"/*.profraw -o "$profiles/all.profdata"
report() { # report FOLDER...: file, lines, missed, share
    llvm-cov-19 report "${objects[@]}" -instr-profile "$profiles/all.profdata" -show-region-summary=false \
        -show-branch-summary=false -ignore-filename-regex='/tests/|/harness/' "${@/#/$root/}" 2>/dev/null
}
report backend kernels
if [ -n "$missed" ]; then
    llvm-cov-19 show "${objects[@]}" -instr-profile "$profiles/all.profdata" -ignore-filename-regex='/tests/|/harness/' \
        "$root/backend" "$root/kernels" 2>/dev/null | grep -E '^/|^ *[0-9]+\| +0\|' || true
fi
total() {
    report "$1" | awk '$1 == "TOTAL" {print $(NF)}'
}
echo "line coverage: backend $(total backend), kernels $(total kernels)"
exit $status
