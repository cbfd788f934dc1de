#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every test that needs no GPU: installs what is missing, builds, runs the tests under AddressSanitizer and UBSan, a short
# fuzzing run, and the golden check. Ends with one line: "N passed, N failed, N skipped".
# Usage: scripts/test.sh [--quick]   (--quick: unit tests only)
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case "$*" in
'' | --quick) ;;
*) echo "test.sh: takes --quick or nothing, got '$*'" >&2; exit 2 ;;
esac
"$root/scripts/setup.sh" || exit $?
passed=0
failed=0
skipped=0

count() { # count NAME STATUS
    case $2 in
    0) passed=$((passed + 1)) ;;
    3) skipped=$((skipped + 1)); echo "skipped: $1" ;;
    *) failed=$((failed + 1)); echo "FAILED: $1 (exit $2)" ;;
    esac
}

check() { # check NAME COMMAND...
    local name=$1 log
    shift
    log=$(mktemp)
    "$@" >"$log" 2>&1
    local status=$?
    if [ $status -ne 0 ]; then
        tail -n 30 "$log"
    else
        tail -n 1 "$log"
    fi
    rm -f "$log"
    count "$name" $status
}

configure_and_build asan || exit 1
say "unit tests (AddressSanitizer, UBSan)"
junit="$root/build/asan/ctest.xml"
(cd "$root/build/asan" && ASAN_SYMBOLIZER_PATH=$(command -v llvm-symbolizer-19 || true) \
    ctest -j "$jobs" --output-on-failure --output-junit "$junit" 2>&1) | grep -vE '^ *Start|Passed|^Test project|^$' || true
read -r t f s < <(sed -n 's/.*tests="\([0-9]*\)".*/\1/p;s/.*failures="\([0-9]*\)".*/\1/p;s/.*skipped="\([0-9]*\)".*/\1/p' "$junit" | head -3 | tr '\n' ' ')
if [ -z "${t:-}" ]; then
    echo "FAILED: ctest gave no result"
    failed=$((failed + 1))
else
    passed=$((passed + t - f - s))
    failed=$((failed + f))
    skipped=$((skipped + s))
fi

if [ "${1:-}" != "--quick" ]; then
    say "leaks, in the children too"
    check "leaks" env ASAN_OPTIONS=detect_leaks=1 "$root/build/asan/hbfuzz" run --gen 300
    configure_and_build fuzz || exit 1
    hbfuzz="$root/build/fuzz/hbfuzz"
    say "golden tensors"
    check "check --backend emu" "$hbfuzz" check --backend emu
    check "check --backend oracle" "$hbfuzz" check --backend oracle
    say "short fuzzing runs"
    out=$(mktemp -d)
    # counted, not timed: the same cases on every machine; long campaigns are for people and their own machines
    check "fuzz forward" "$hbfuzz" fuzz forward --count 8000 --seed 7 --out "$out/forward"
    check "fuzz forward, plain engine" "$hbfuzz" fuzz forward --engine plain --count 8000 --seed 7 --out "$out/plain"
    check "fuzz verify" "$hbfuzz" fuzz verify --count 4000 --seed 7 --out "$out/verify"
    check "fuzz dispatch" "$hbfuzz" fuzz dispatch --count 20000 --seed 7 --out "$out/dispatch"
    for target in metadata track graph slots attention; do
        check "fuzz $target" "$hbfuzz" fuzz $target --count 4000 --seed 7 --out "$out/$target"
    done
    # seeds of another linear kind, the engine's empty input and crossovers become cases of the kind that was asked for
    mkdir -p "$out/mixer.seeds"
    cp "$root"/corpus/forward/regress/defect-1-*.json "$out/mixer.seeds"
    check "fuzz --mixer" bash -c '"$0" fuzz forward --mixer kda --count 1000 --seed 7 --corpus "$1.seeds" --out "$1" >"$1.log" &&
        ! grep -E "^(mamba2|gdn|lightning|short_conv|mamba1)[.]" "$1.log" && tail -n 1 "$1.log"' "$hbfuzz" "$out/mixer"
    check "bounds" "$root/scripts/calibrate.sh" --cases 10000 --seed 3 --hbfuzz "$hbfuzz"
    check "run --backend oracle" "$hbfuzz" run --backend oracle --gen 2000 --seed 5
    rm -rf "$out"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
