#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs an NVIDIA GPU, on a machine with gcc and nvcc (no clang, no package manager needed): builds the
# preset cuda, then tests, golden tensors, generated cases on emu and cuda (50 per kind at real sizes), 10,000 cases against
# the bounds, and the planted defects on both; as many at once as there are cores.
#
# Usage: scripts/gpu.sh [--deps DIR] [--out DIR] [--smoke] [--valid N] [--broken N] [--fuzz N] [--sanitize] [--only PART]
#        scripts/gpu.sh --pack DIR
#   --deps DIR  folder of the .deb files (or of include/ and lib/) of cJSON, Random123, xxHash, Boost.Context; made by
#               `scripts/gpu.sh --pack DIR` on a Debian machine; unpacked into .deps/ and checked before the GPU is used
#   --pack DIR  download those .deb files into DIR and stop
#   --out DIR   where results go (default: build/cuda/results)
#   --smoke     build and 40 cases only
#   --only PART cases, bounds or defects, with what --fuzz and --sanitize ask for (rest: only that); default: all three
#   --fuzz N    also fuzz the cuda backend for N seconds with the plain engine
#   --sanitize  also memcheck, racecheck and initcheck of compute-sanitizer over generated cases
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

deps=
out=$root/build/cuda/results
smoke=
sanitize=
only=
fuzz_seconds=0
valid=1500
broken=500
while [ $# -gt 0 ]; do
    case $1 in
    --deps) value "$@"; deps=$2; shift 2 ;;
    --out) value "$@"; out=$2; shift 2 ;;
    --valid) value --number "$@"; valid=$2; shift 2 ;;
    --broken) value --number "$@"; broken=$2; shift 2 ;;
    --smoke) smoke=1; shift ;;
    --sanitize) sanitize=1; shift ;;
    --only)
        value "$@"
        case $2 in cases | bounds | defects | rest) only=$2 ;; *) echo "gpu.sh: --only takes cases, bounds, defects or rest, got '$2'" >&2; exit 2 ;; esac
        shift 2 ;;
    --fuzz) value --number "$@"; fuzz_seconds=$2; shift 2 ;;
    --pack)
        value "$@"
        mkdir -p "$2"
        (cd "$2" && apt-get download libcjson1 libcjson-dev librandom123-dev libxxhash-dev libboost-context1.74.0 libcmocka-dev libcmocka0)
        exit 0 ;;
    *) echo "gpu.sh: unknown option '$1'" >&2; exit 2 ;;
    esac
done
mkdir -p "$out"

# --- libraries, before any GPU time is used ---
options=()
if [ -n "$deps" ]; then
    tree=$root/.deps
    if ! ls "$deps"/*.deb >/dev/null 2>&1 && { [ ! -d "$deps/include" ] || [ ! -d "$deps/lib" ]; }; then
        echo "gpu.sh: $deps holds neither .deb files nor include/ and lib/" >&2
        exit 4
    fi
    rm -rf "$tree"
    mkdir -p "$tree/include" "$tree/lib" "$tree/unpacked"
    if ls "$deps"/*.deb >/dev/null 2>&1; then
        for package in "$deps"/*.deb; do
            dpkg-deb -x "$package" "$tree/unpacked"
        done
        cp -a "$tree"/unpacked/usr/include/. "$tree/include/"
        cp -a "$tree"/unpacked/usr/lib/*/. "$tree/lib/"
        rm -rf "$tree/unpacked"
    else
        cp -a "$deps/include/." "$tree/include/"
        cp -a "$deps/lib/." "$tree/lib/"
    fi
    for file in include/cjson/cJSON.h include/Random123/philox.h include/xxhash.h lib/libcjson.so.1; do
        [ -e "$tree/$file" ] || { echo "gpu.sh: $deps does not hold $file" >&2; exit 4; }
    done
    ls "$tree"/lib/libboost_context.so* >/dev/null 2>&1 || { echo "gpu.sh: $deps does not hold libboost_context" >&2; exit 4; }
    options+=("-DHB_DEPS_DIR=$tree")
    export LD_LIBRARY_PATH="$tree/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
command -v nvcc >/dev/null || export PATH="$PATH:/usr/local/cuda/bin"
command -v nvcc >/dev/null || { echo "gpu.sh: no nvcc on the PATH" >&2; exit 3; }

say "building preset cuda"
{
    cmake --preset cuda -S "$root" -B "$root/build/cuda" "${options[@]}"
    cmake --build "$root/build/cuda" -j "$jobs"
} >"$out/build.log" 2>&1 || { tail -n 40 "$out/build.log"; exit 1; }
hbfuzz=$root/build/cuda/hbfuzz
"$hbfuzz" doctor | tee "$out/doctor.txt"

status=0
if [ -n "$smoke" ]; then
    "$hbfuzz" run --gen 20 --seed 1 --class valid --backend cuda --compare emu --stats || status=1
    "$hbfuzz" run --gen 20 --seed 1 --class broken --backend cuda --compare emu || status=1
    exit $status
fi
# --- a queue of jobs. One after the other, unless a job computes mostly in float64 on the CPU: processes share a GPU by turns,
# and four at once did 65 small cases per second together, where one does 300 ---
log=$out/log
rm -rf "$log"
mkdir -p "$log"
queue=()
parallel=1

# job NAME COMMAND..: output in log/NAME, exit status in log/NAME.rc
job() {
    local name=$1
    shift
    queue+=("$name")
    while [ "$(jobs -rp | wc -l)" -ge "$parallel" ]; do
        wait -n || true
    done
    (
        set +e
        "$@" </dev/null >"$log/$name" 2>&1
        echo $? >"$log/$name.rc"
    ) &
}

# Waits for the queue and says in FILE what came of each job, in order: exit status and the lines that match REGEX.
collect() { # FILE REGEX
    local name rc
    wait
    for name in "${queue[@]}"; do
        rc=$(cat "$log/$name.rc" 2>/dev/null || echo 99)
        printf '%-28s exit %d\n' "$name" "$rc"
        { grep -E "$2" "$log/$name" || true; } | cut -c1-400 | sed 's/^/    /' | head -n 30 || true
        [ "$rc" -eq 0 ] || status=1
    done >"$1"
    queue=()
    cat "$1"
}

both() { # both ARGUMENTS..: generated cases on emu and cuda
    "$hbfuzz" run --backend cuda --compare emu --stats "$@"
}

# Exit 1 of a planted defect's run is wanted: findings on both. A line with "compare." says that the two parted; of 29 too
# where the entry that is wrongly committed equals the right one but for rounding, since there its bits decide.
defect_on_both() { # NUMBER TARGET MIXER
    local class=valid n found parted
    case $1 in 10 | 15 | 22) class=mix ;; esac
    case $1 in
    19 | 53) n=2500 ;;
    15 | 20 | 22 | 29) n=1000 ;;
    *) n=$((${#3} > 0 ? 150 : 300)) ;;
    esac
    both --gen "$n" --seed 13 --target "$2" --class $class --defect "$1" ${3:+--mixer "$3"} >"$log/defect.$1.$2.$3.all" || true
    found=$(sed -n 's/^run: .* \([0-9]*\) findings.*/\1/p' "$log/defect.$1.$2.$3.all")
    parted=$(grep -c ' compare\.' "$log/defect.$1.$2.$3.all" || true)
    grep -m 2 ' compare\.' "$log/defect.$1.$2.$3.all" || true
    rm -f "$log/defect.$1.$2.$3.all"
    echo "defect $1 ${3:-}: ${found:-none} findings, $parted with different verdicts"
    [ "$1" -eq 29 ] && parted=0
    [ "${found:-0}" -gt 0 ] && [ "$parted" -eq 0 ]
}

# Bit for bit where the capabilities claim it, else within both bounds: a replay is the eager forward (45), verify and commit
# are decode steps along the path, in chains and trees (51).
relation_on_cuda() { # NUMBER TARGET
    "$hbfuzz" run --gen 2000 --seed 15 --target "$2" --relation "$1" --backend cuda --stats
}

sanitize_with() { # TOOL
    compute-sanitizer --tool "$1" --target-processes all --error-exitcode 9 \
        "$hbfuzz" run --gen 60 --seed 21 --class valid --backend cuda
}

run_cases() {
    local target mixer pair model n
    say "$SECONDS s: cases on emu and cuda, golden tensors, tests of kernels and backend with the device"
    job tests ctest --test-dir "$root/build/cuda" -j 4 --output-on-failure \
        -R 'test_(conv1d|ssd|norm_gate|attention|state_copy|table|bf16|emu|hybrid|adapter|verify|spec|record|ring|windows|graph|delta|decay|selective|short_conv|kinds)'
    job check.cuda "$hbfuzz" check --backend cuda
    job valid both --gen "$valid" --seed 11 --class valid
    job broken both --gen "$broken" --seed 12 --class broken
    for target in verify graph track slots attention; do
        job "valid.$target" both --gen "$((valid / 4))" --seed 14 --target $target --class valid
    done
    for mixer in mamba2 gdn kda lightning short_conv mamba1; do
        job "mixer.$mixer" both --gen 250 --seed 16 --mixer $mixer --class valid
    done
    for pair in 45:graph 51:verify; do
        job "relation.${pair%:*}" relation_on_cuda "${pair%:*}" "${pair#*:}"
    done
    # one model per kind at its true dimensions, 50 cases in five parts
    wait
    parallel=$((jobs < 12 ? jobs : 12))
    for model in nemotron-h-8b qwen3-next-80b kimi-linear-48b minimax-text-01 lfm2-1.2b jamba-v0.1; do
        for n in 1 2 3 4 5; do
            job "real.$model.$n" both --gen 10 --seed $((40 + n)) --model $model --size real --class valid
        done
    done
    collect "$out/cases.txt" '^(run|check):|relations said|VERDICT|compare\.|two backends|tests passed|Failed'
    parallel=1
}

run_bounds() {
    say "$SECONDS s: bounds on cuda"
    "$root/scripts/calibrate.sh" --backend cuda --cases 10000 --processes 1 --hbfuzz "$hbfuzz" >"$out/bounds.txt" 2>&1 || status=1
    tail -n 1 "$out/bounds.txt"
}

# Not 4, 9 and 13: there two rows of one launch write the same bytes, so what the GPU does is a race; not 7 and 8: a GPU has
# no order of threads to choose, and shared memory that is not poisoned.
run_defects() {
    local number mixer target
    say "$SECONDS s: planted defects: same verdict and fingerprint on both"
    while read -r number mixer target _; do
        case $number in '#'* | 4 | 7 | 8 | 9 | 13) continue ;; esac
        [ "$mixer" = - ] && mixer=
        job "defect.$number.${mixer:-mix}" defect_on_both "$number" "$target" "$mixer"
    done <"$root/scripts/defects.txt"
    collect "$out/defects.txt" '^defect |compare\.'
}

for part in cases bounds defects; do
    if [ -z "$only" ] || [ "$only" = $part ]; then
        run_$part
    fi
done
if [ "$fuzz_seconds" -gt 0 ]; then
    say "$SECONDS s: fuzzing cuda for $fuzz_seconds s"
    "$hbfuzz" fuzz forward --backend cuda --engine plain --time "$fuzz_seconds" --seed 3 --out "$out/findings" |
        tail -n 12 | tee "$out/fuzz.txt" || status=1
fi
if [ -n "$sanitize" ]; then
    say "$SECONDS s: compute-sanitizer"
    for tool in memcheck racecheck initcheck; do
        job "sanitizer.$tool" sanitize_with $tool
    done
    collect "$out/sanitizer.txt" '^run:|ERROR SUMMARY|RACECHECK SUMMARY|=========     at'
fi
tar -czf "$out/log.tar.gz" -C "$out" log && rm -rf "$log"
if [ $status -eq 0 ]; then
    say "$SECONDS s: all as expected"
else
    say "$SECONDS s: something differs: see above, and log.tar.gz"
fi
exit $status
