#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Memcheck over what AddressSanitizer cannot see: reads of uninitialised memory, in a gcc build without any sanitizer. Runs the
# unit tests of cases, JSON, safetensors, backend and kernels, and generated cases in the child process of `hbfuzz run`. Any
# error or lost block in any process fails. Usage: scripts/valgrind.sh [--gen N]
#
# Valgrind warns of "client switching stacks" where the emulator changes fibers. That is no error and is left as it is: fiber
# stacks are mapped far from the main stack and from each other only by way of it, so valgrind recognises each change as one;
# a larger --max-stackframe would make it take the change for a frame of 128 GiB.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
gen=60
while [ $# -gt 0 ]; do
    case $1 in
    --gen) value --number "$@"; gen=$2; shift 2 ;;
    *) echo "valgrind.sh: unknown option '$1'" >&2; exit 2 ;;
    esac
done
"$root/scripts/setup.sh" --lint

tests=(test_case test_json test_safetensors)
for file in "$root"/backend/tests/test_*.c "$root"/kernels/tests/test_*.c; do
    tests+=("$(basename "$file" .c)")
done

build=$root/build/valgrind
log=$root/build/valgrind.log
mkdir -p "$root/build"
say "building without sanitizers (log: build/valgrind.log)"
{
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_C_COMPILER=gcc -DCMAKE_CXX_COMPILER=g++ -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DHB_CUDA=OFF
    cmake --build "$build" -j "$jobs" --target hbfuzz "${tests[@]}"
} >"$log" 2>&1 || { tail -n 40 "$log" >&2; exit 1; }

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
failed=0
processes=0

memcheck() { # memcheck NAME COMMAND...
    local name=$1 status=0
    shift
    rm -f "$logs"/*
    # the child's exit code is its supervisor's business, so each process has a log of its own
    valgrind --error-exitcode=9 --leak-check=full --trace-children=yes --child-silent-after-fork=yes \
        --log-file="$logs/%p.log" "$@" >"$logs/out" 2>&1 || status=$?
    local n
    n=$(find "$logs" -name '*.log' | wc -l)
    processes=$((processes + n))
    local bad
    bad=$(grep -L 'ERROR SUMMARY: 0 errors' "$logs"/*.log || true)
    if [ "$status" -ne 0 ] || [ -n "$bad" ] || [ "$n" -eq 0 ]; then
        failed=$((failed + 1))
        echo "FAILED: $name (exit $status)"
        tail -n 20 "$logs/out"
        [ -z "$bad" ] || tail -n 60 $bad
    else
        echo "clean: $name, $n processes"
    fi
}

for test in "${tests[@]}"; do
    memcheck "$test" "$build/tests/$test"
done
memcheck "$gen generated cases" "$build/hbfuzz" run --gen "$gen" --seed 3 --backend emu
memcheck "$((gen / 3)) broken cases" "$build/hbfuzz" run --gen "$((gen / 3))" --seed 4 --class broken --backend emu
echo "valgrind: $processes processes, $failed of $((${#tests[@]} + 2)) failed"
[ "$failed" -eq 0 ]
