#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Detection times of the planted defects. Each row of defects.txt alone: SEEDS campaigns of `hbfuzz fuzz` from an empty
# corpus up to the first finding, with median time and cases; each found case must pass without the defect. Then the
# control: the same campaign with the row's detectors off must find nothing in CONTROL seconds, or twice the median.
# Usage: scripts/defects.sh [--seeds N] [--time SECONDS] [--control SECONDS] [--max-median SECONDS] [--only "N N .."]
#            [--mixer NAME] [--build DIR] [--table FILE] [--check]
#   --max-median  a median that is not below it fails (60); a seed gives up after --time (the same)
#   --only, --mixer  rows of these defects, of this mixer (`-`: the generator's mix)
#   --build  a build with planted defects (build/defects, built if need be)
#   --check  compares the table with `hbfuzz list` and measures nothing
# Exit code: 0 all found in time and all controls silent, 1 not so, 2 wrong usage or table, else that of hbfuzz.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
seeds=5 time='' control=10 most=60 only='' only_mixer='' build='' table=$root/scripts/defects.txt is_check=''
while [ $# -gt 0 ]; do
    case $1 in
    --seeds | --time | --control | --max-median | --only | --mixer | --build | --table)
        [ $# -gt 1 ] || { echo "defects.sh: $1 needs a value" >&2; exit 2; } ;;
    esac
    case $1 in
    --seeds) seeds=$2; shift 2 ;;
    --time) time=$2; shift 2 ;;
    --control) control=$2; shift 2 ;;
    --max-median) most=$2; shift 2 ;;
    --only) only=$2; shift 2 ;;
    --mixer) only_mixer=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    --table) table=$2; shift 2 ;;
    --check) is_check=1; shift ;;
    *) echo "defects.sh: unknown option '$1'" >&2; exit 2 ;;
    esac
done
for number in "$seeds" "${time:=$most}" "$control" "$most" $only; do
    case $number in
    '' | *[!0-9]* | 0*) echo "defects.sh: '$number' is no number above 0" >&2; exit 2 ;;
    esac
done
[ -r "$table" ] || { echo "defects.sh: cannot read $table" >&2; exit 2; }
if [ -z "$build" ]; then
    "$root/scripts/setup.sh"
    configure_and_build defects
    build=$root/build/defects
fi
hbfuzz=$build/hbfuzz
[ -x "$hbfuzz" ] || { echo "defects.sh: there is no $hbfuzz" >&2; exit 2; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# values KEY: what --json says under KEY, a line each
values() { sed -n "s/.*\"$1\":[[:space:]]*\"\{0,1\}\([^\",]*\).*/\1/p"; }

"$hbfuzz" list --defects --json >"$out/defects.json"
paste -d ' ' <(values number <"$out/defects.json") <(values name <"$out/defects.json") >"$out/names"
"$hbfuzz" list --targets --json | values name >"$out/targets"
{ "$hbfuzz" fuzz forward --off '?' 2>&1 || true; } | sed -n 's/.*(known: \(.*\))/values, \1/p' | sed 's/, /\n/g' >"$out/checks"
grep -v '^ *\(#.*\)\{0,1\}$' "$table" >"$out/rows" || true

# complain BEFORE AFTER: a message per line read; fails if there was one
complain() {
    local line status=0
    while read -r line; do
        echo "defects.sh: $1 $line$2" >&2
        status=1
    done
    return $status
}

column() { awk -v n="$1" '{print $n}' "$out/rows" | tr ',' '\n' | sort -u; }

check_table() {
    local status=0
    complain 'planted defects are not in' '' < <(grep -q '"available":.*true' "$out/defects.json" || echo "$hbfuzz") || status=2
    complain defect ' has no row' < <(cut -d ' ' -f 1 "$out/names" | grep -vxFf <(column 1)) || status=2
    complain 'row of' ', which is no defect' < <(column 1 | grep -vxFf <(cut -d ' ' -f 1 "$out/names")) || status=2
    complain 'two rows of' '' < <(awk 'seen[$1, $2]++ {print $1, $2}' "$out/rows") || status=2
    complain 'unknown mixer' '' < <(column 2 | grep -vxF -e - -e mamba2 -e gdn -e kda -e lightning -e short_conv -e mamba1) || status=2
    complain 'unknown target' '' < <(column 3 | grep -vxFf "$out/targets") || status=2
    complain 'unknown detector' '' < <(column 4 | grep -vxFf "$out/checks") || status=2
    complain 'row of' ' has not four columns' < <(awk 'NF != 4 {print $1}' "$out/rows") || status=2
    complain defect ' has no row to measure' < <(for n in $only; do column 1 | grep -qxF "$n" || echo "$n"; done) || status=2
    return $status
}
check_table || exit 2
if [ -n "$is_check" ]; then
    echo "defects: $(wc -l <"$out/names") defects, $(wc -l <"$out/rows") rows"
    exit 0
fi

median() { sort -g | awk '{v[NR]=$1} END {print (NR % 2) ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2}'; }
is_below() { awk "BEGIN {exit !($1 < $2)}"; }

# fuzz LOG ARGUMENTS...: one campaign; 0 and 1 are results, every other code ends the script
fuzz() {
    local log=$1 code=0
    shift
    "$hbfuzz" fuzz "$@" -q >"$log" 2>"$log.err" || code=$?
    [ $code -le 1 ] || { cat "$log.err" >&2; echo "defects.sh: hbfuzz fuzz $* ended with $code" >&2; exit $code; }
}

# seed_of SEED TARGET ARGUMENTS..: one line "seconds cases check"; check is `none`, and `CHECK!` if the case fails without the
# defect too
seed_of() {
    local seed=$1 target=$2 dir=$out/f log=$out/log found check=none file
    shift 2
    rm -rf "$dir"
    fuzz "$log" "$target" "$@" --seed "$seed" --time "$time" --stop-at-first --out "$dir"
    found=$(sed -n 's/^first finding after \([0-9.]*\) s, \([0-9]*\) cases.*/\1 \2/p' "$log")
    if [ -n "$found" ]; then
        check=$(awk -v t="$target" '$2 == t {print $3; exit}' "$log")
        file=$(find "$dir" -name '*.case' | head -n 1)
        "$hbfuzz" run "$file" -q >/dev/null 2>&1 || check="$check!"
    fi
    echo "${found:-$time 999999999} $check"
}

# measure NUMBER MIXER TARGET DETECTORS: a row of the result
measure() {
    local number=$1 mixer=$2 target=$3 off=() check checks args word=silent seed seconds
    args=(--defect "$number")
    [ "$mixer" = - ] || args+=(--mixer "$mixer")
    for check in $(sed 's/values/numeric,state,relation/; s/,/ /g' <<<"$4"); do
        off+=(--off "$check")
    done
    : >"$out/seeds"
    for seed in $(seq "$seeds"); do
        seed_of "$seed" "$target" "${args[@]}" >>"$out/seeds"
    done
    seconds=$(cut -d ' ' -f 1 "$out/seeds" | median)
    checks=$(awk '{n[$3]++} END {for (c in n) print n[c], c}' "$out/seeds" | sort -rn | awk '{printf "%s%s", s, $2; s = ","}')
    fuzz "$out/log" "$target" "${args[@]}" "${off[@]}" --seed 1 --out "$out/c" \
        --time "$(awk "BEGIN {t = 2 * $seconds; print (t > $control) ? t : $control}")"
    grep -q ': [1-9][0-9]* cases,.*, 0 findings$' "$out/log" ||
        word="$(sed -n 's/^[a-z]*: .*, \([0-9]*\) findings$/\1/p' "$out/log") findings: $(awk -v t="$target" '$2 == t {print $3}' "$out/log" | sort -u | tr '\n' ' ')"
    rm -rf "$out/c"
    printf '%-3s %-22s %-10s %-9s %7s %7s %7s %8s  %-44s %s\n' "$number" "$(sed -n "s/^$number //p" "$out/names")" "$mixer" "$target" \
        "$seconds" "$(cut -d ' ' -f 1 "$out/seeds" | sort -g | head -n 1)" "$(cut -d ' ' -f 1 "$out/seeds" | sort -g | tail -n 1)" \
        "$(cut -d ' ' -f 2 "$out/seeds" | median)" "$checks" "$word"
    is_below "$seconds" "$most" || echo "$number" >>"$out/slow"
    [ "$word" = silent ] || echo "$number" >>"$out/loud"
    case $checks in *!*) echo "$number" >>"$out/false" ;; esac
    echo "$seconds" >>"$out/medians"
}

touch "$out/slow" "$out/loud" "$out/false" "$out/medians"
printf '%-3s %-22s %-10s %-9s %7s %7s %7s %8s  %-44s %s\n' nr defect mixer target 'median' least most cases 'first checks' 'detectors off'
while read -r number mixer target detectors; do
    case " ${only:-$number} " in *" $number "*) ;; *) continue ;; esac
    [ -z "$only_mixer" ] || [ "$mixer" = "$only_mixer" ] || continue
    measure "$number" "$mixer" "$target" "$detectors" </dev/null
done <"$out/rows"
rows=$(wc -l <"$out/medians")
[ "$rows" -gt 0 ] || { echo "defects.sh: no row of mixer '$only_mixer'" >&2; exit 2; }
echo "defects: $rows rows of $seeds seeds, medians $(sort -g "$out/medians" | head -n 1) to $(sort -g "$out/medians" | tail -n 1) s," \
    "$(wc -l <"$out/slow") not below $most s, $(wc -l <"$out/loud") controls with findings, $(wc -l <"$out/false") found without the defect"
[ ! -s "$out/slow" ] && [ ! -s "$out/loud" ] && [ ! -s "$out/false" ]
