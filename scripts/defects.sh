#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Table of detection times: each planted defect alone, SEEDS campaigns of `hbfuzz fuzz` on the target named below, from an
# empty corpus, median time and cases to the first finding; then the control: the same with its detectors off must find
# nothing in CONTROL seconds.
# Usage: scripts/defects.sh [--seeds N] [--time SECONDS] [--control SECONDS] [--only "N N .."]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
seeds=5
time=60
control=10
only=
while [ $# -gt 0 ]; do
    case $1 in
    --seeds) seeds=$2; shift 2 ;;
    --time) time=$2; shift 2 ;;
    --control) control=$2; shift 2 ;;
    --only) only=$2; shift 2 ;;
    *) echo "defects.sh: unknown option '$1'" >&2; exit 2 ;;
    esac
done
"$root/scripts/setup.sh"
configure_and_build defects
hbfuzz=$root/build/defects/hbfuzz
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# defect: target, then the detectors that may notice it. Values are compared by numeric, state and relation together, because
# a wrong state shows in the next output; wrong bytes of a refresh are a matter of state too.
values="--off numeric --off state --off relation"
defects=([1]="forward $values" [2]="forward $values" [3]="forward $values" [4]="forward $values" [5]="forward $values"
    [6]="forward $values" [7]="forward --off order" [8]="forward --off poison" [9]="forward $values"
    [10]="forward --off purity --off state" [11]="verify $values" [12]="verify $values" [13]="verify $values"
    [14]="verify $values" [15]="graph --off status --off purity $values" [16]="graph $values" [17]="graph $values" [18]="graph $values"
    [19]="graph $values" [20]="verify $values" [21]="verify --off status $values" [22]="slots --off status --off purity $values"
    [23]="slots $values" [24]="track $values" [25]="track $values" [26]="track $values" [27]="verify $values"
    [28]="track --off status $values" [29]="verify $values" [30]="verify $values")

median() { sort -g | awk '{v[NR]=$1} END {print (NR % 2) ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2}'; }

status=0
printf '%-3s %-18s %10s %10s  %-28s %s\n' nr defect 'median s' 'cases' 'first check' 'detectors off'
for defect in ${only:-${!defects[@]}}; do
    read -r target off <<<"${defects[$defect]}"
    name=$("$hbfuzz" list --defects --json | tr -d '\n\t ' | tr '{' '\n' |
        sed -n "s/.*\"name\":\"\([A-Z_]*\)\",\"number\":$defect,.*/\1/p" | head -n 1)
    times=$out/times cases=$out/cases
    : >"$times"
    : >"$cases"
    check=
    for seed in $(seq "$seeds"); do
        log=$out/log
        "$hbfuzz" fuzz "$target" --defect "$defect" --seed "$seed" --time "$time" --stop-at-first \
            --out "$out/f-$defect-$seed" >"$log" 2>/dev/null || true
        line=$(sed -n 's/^first finding after \([0-9.]*\) s, \([0-9]*\) cases.*/\1 \2/p' "$log")
        [ -n "$line" ] || line="$time 999999999"
        echo "${line% *}" >>"$times"
        echo "${line#* }" >>"$cases"
        check=${check:-$(awk -v t="$target" '$2 == t {print $3; exit}' "$log")}
    done
    seconds=$(median <"$times")
    silent=$("$hbfuzz" fuzz "$target" --defect "$defect" $off --seed 1 --time "$control" \
        --out "$out/c-$defect" 2>/dev/null | tail -n 1 | sed 's/.*, \([0-9]*\) findings/\1/') || true
    [ "$silent" = 0 ] && word=silent || { word="$silent findings"; status=1; }
    awk "BEGIN {exit !($seconds < $time)}" || status=1
    printf '%-3s %-18s %10s %10s  %-28s %s\n' "$defect" "${name:-?}" "$seconds" "$(median <"$cases")" "$check" "$word"
done
exit $status
