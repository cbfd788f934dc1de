#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Rebuilds the generated seeds of corpus/<target>/seeds: the smallest generated cases that break each rule, apply each relation,
# and use each kind of step in each target, where no case written by hand does. They are named gen-*; other files stay as
# they are. Usage: scripts/seeds.sh [SEED]   (HBFUZZ names a built command; default: preset asan)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case "${1:-1}" in
*[!0-9]*)
    echo "seeds.sh: SEED is a number, got '$1'" >&2
    exit 2
    ;;
esac
seed=${1:-1}
if [ -z "${HBFUZZ:-}" ]; then
    "$root/scripts/setup.sh"
    configure_and_build asan hbfuzz
    HBFUZZ="$root/build/asan/hbfuzz"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
targets="metadata graph slots track verify attention dispatch forward"
limit=400

# features RECORDS: of each case that passed, "<bytes> <file> <target> <feature>..."
features() {
    awk '
        function value(key, rest) {
            rest = substr($0, index($0, "\"" key "\":\"") + length(key) + 4)
            return substr(rest, 1, index(rest, "\"") - 1)
        }
        /"record":"case"/ && /"verdict":"pass"/ {
            target = value("target")
            file = value("file")
            bytes = 0
            out = ""
            split("", seen)
            while ((getline line < file) > 0) {
                bytes += length(line) + 1
                split(line, part, "\"")
                if (line ~ /^    "relation": / && index($0, "\"second_run\":true")) {
                    gsub(/[^0-9]/, "", part[3])
                    out = out " relation:" part[3]
                } else if (line ~ /^    "[a-z_0-9]+": "/) { # a choice of the configuration
                    out = out " choice:" part[2] ":" part[4]
                    if (part[2] == "mixer") out = out " mixer:" part[4] ":" target
                } else if (line ~ /^    \{"kind": "/ && !(part[4] in seen)) {
                    seen[part[4]] = 1
                    out = out " step:" part[4] ":" target
                }
            }
            close(file)
            match($0, /"rules_broken":\[[0-9,]*\]/)
            n = split(substr($0, RSTART + 16, RLENGTH - 17), rule, ",")
            for (i = 1; i <= n; i++) out = out " rule:" rule[i]
            print bytes, file, target out
        }' "$1"
}

say "generated cases of seed $seed"
rm -f "$root"/corpus/*/seeds/gen-*.json
"$HBFUZZ" run "$root/corpus" --json >"$work/hand.jsonl"
features "$work/hand.jsonl" | sed 's/^[0-9]* [^ ]* [a-z]* *//' | tr ' ' '\n' | sort -u >"$work/covered"
for target in $targets; do
    "$HBFUZZ" gen --target "$target" --seed "$seed" --size small --class broken --count 1500 --format json --out "$work/$target/broken" >/dev/null
    "$HBFUZZ" gen --target "$target" --seed "$seed" --size small --class valid --count 600 --format json --out "$work/$target/valid" >/dev/null
    "$HBFUZZ" run "$work/$target/broken" --status-only --json >"$work/$target/records" || true
    "$HBFUZZ" run "$work/$target/valid" --json >>"$work/$target/records" || true
    features "$work/$target/records" | sort -n
done >"$work/found"
"$HBFUZZ" list --rules | awk '$2 == "number" {print "rule:" $3, "rule-" tolower($1)}' | tr _ - >"$work/names"
"$HBFUZZ" list --relations | awk '{for (i = 2; i < NF; i++) if ($i == "number") print "relation:" $(i + 1), "relation-" $1}' | tr '._' '--' >>"$work/names"

say "the smallest of each"
awk -v covered="$work/covered" -v names="$work/names" '
    BEGIN {
        while ((getline line < covered) > 0) has[line] = 1
        while ((getline line < names) > 0) { split(line, part, " "); name[part[1]] = part[2] }
    }
    {
        for (i = 4; i <= NF; i++) {
            if (!($i in has)) {
                word = $i
                if ($i in name) word = name[$i]
                gsub(/[:_]/, "-", word)
                print $2, $3, word
                for (k = 4; k <= NF; k++) has[$k] = 1
                break
            }
        }
    }' "$work/found" |
    while read -r file target word; do
        mkdir -p "$root/corpus/$target/seeds"
        cp "$file" "$root/corpus/$target/seeds/gen-$word.json"
    done

n=$(find "$root/corpus" -name '*.json' -not -path '*/models/*' | wc -l)
"$HBFUZZ" run "$root/corpus" --verbose | grep -v '^pass' || true
if [ "$n" -gt "$limit" ]; then
    echo "seeds.sh: $n files, the limit is $limit" >&2
    exit 1
fi
"$HBFUZZ" run "$root/corpus" | grep -E '^(rules|statuses) ' | while read -r line; do
    set -- $line
    [ "${*: -3:1}" = "${*: -1}" ] || { echo "seeds.sh: $line" >&2; exit 1; }
done
echo "seeds: $n files in corpus/"
