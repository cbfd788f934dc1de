#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Bounds against the correct backend: N valid cases over all linear kinds, dtypes and forms, by several processes, and the
# largest error-to-bound ratio of each operation; a ratio above 1 is a finding, and findings fail.
# Usage: scripts/calibrate.sh [--cases N] [--backend NAME] [--seed N] [--processes N] [--hbfuzz PROGRAM]
#   --cases N         all together (default 10000); a million: scripts/calibrate.sh --cases 1000000
#   --backend NAME    emu (default), cuda, oracle
#   --seed N          first seed (default 1); each process and mixer has its own
#   --processes N     default: the number of cores
#   --hbfuzz PROGRAM  a program that is built (default: builds the preset release)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cases=10000
backend=emu
seed=1
processes=$jobs
hbfuzz=
while [ $# -gt 0 ]; do
    case $1 in
    --cases) value --number "$@"; cases=$2; shift 2 ;;
    --backend) value "$@"; backend=$2; shift 2 ;;
    --seed) value --number "$@"; seed=$2; shift 2 ;;
    --processes) value --number "$@"; processes=$2; shift 2 ;;
    --hbfuzz) value "$@"; hbfuzz=$2; shift 2 ;;
    *) echo "calibrate.sh: unknown option '$1'" >&2; exit 2 ;;
    esac
done
if [ -z "$hbfuzz" ]; then
    "$root/scripts/setup.sh"
    configure_and_build release
    hbfuzz=$root/build/release/hbfuzz
fi
if [ ! -x "$hbfuzz" ]; then
    echo "calibrate.sh: $hbfuzz is no program" >&2
    exit 2
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# Parts of about 5,000 cases at most, each with a seed of its own; xargs keeps `processes` of them running.
mixers=(mamba2 gdn kda lightning short_conv mamba1)
parts=$(((cases + 6 * 5000 - 1) / (6 * 5000)))
each=$(((cases + 6 * parts - 1) / (6 * parts)))
for ((part = 0; part < parts; part++)); do
    for mixer in "${mixers[@]}"; do
        echo "$mixer $((seed + part))"
    done
done | xargs -P "$processes" -L 1 bash -c '
    "$0" run --gen "$1" --class valid --backend "$2" --mixer "$4" --seed "$5" --stats -q >"$3/$4-$5" 2>"$3/$4-$5.err" || echo "$? $4 --seed $5" >>"$3/failed"
' "$hbfuzz" "$each" "$backend" "$out"

# error/bound lines of all parts: largest ratio, elements and vacuous share per operation, form and dtype
cat "$out"/*-* | awk '
    / error\/bound median / {
        split($0, half, ";")
        ratio = half[1]; sub(/.*largest /, "", ratio)
        n = half[2]; sub(/ elements.*/, "", n)
        v = half[2]; sub(/.*vacuous /, "", v); sub(/ %.*/, "", v)
        key = sprintf("%-16s %-5s %-5s", $1, $2, $3)
        if (!(key in most) || ratio + 0 > most[key] + 0) most[key] = ratio
        elements[key] += n; vacuous[key] += n * v / 100
    }
    END { for (k in elements) printf "%s largest error/bound %-9s %14d elements, vacuous %.3f %%\n", k, most[k], elements[k], 100 * vacuous[k] / elements[k] }' | sort
status=0
if [ -e "$out/failed" ]; then # which parts, and what they say besides the statistics; cases of findings lie in ./findings
    read -r status _ <"$out/failed"
    while read -r code mixer _ first; do
        echo "run --gen $each --class valid --backend $backend --mixer $mixer --seed $first: exit $code"
        { cat "$out/$mixer-$first" "$out/$mixer-$first.err" | grep -vE 'error/bound median|^(per case|time:|rules hit|statuses|bounds:)' || true; } | head -n 5
    done <"$out/failed"
fi
cat "$out"/*-* | awk '
    /^run: / { cases += $2; passed += $4; findings += $6; skipped += $8 }
    END { printf "calibrate: %d cases, %d passed, %d findings, %d skipped\n", cases, passed, findings, skipped }'
exit "$status"
