#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The table of scripts/defects.sh covers what this build plants, and its check fires: a table that lacks a defect, names one
# that is none, a target or mixer that is none, or a row twice, is refused with code 2 and the row named.
# Usage: test_defects_table.sh BUILD_DIR (a build with planted defects)
set -uo pipefail
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
table=$scripts/defects.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# expect CODE WORDS ARGUMENTS...
expect() {
    local code=0 want=$1 words=$2
    shift 2
    "$scripts/defects.sh" --build "$build" "$@" >"$work/log" 2>&1 || code=$?
    if [ $code -ne "$want" ] || ! grep -qFe "$words" "$work/log"; then
        echo "defects.sh $*: exit $code, want $want with '$words'; it said:" >&2
        cat "$work/log" >&2
        failed=$((failed + 1))
    fi
}

# doctored SED_SCRIPT: the table, changed
doctored() {
    sed "$1" "$table" >"$work/table"
    echo "$work/table"
}

build=${1:?usage: test_defects_table.sh BUILD_DIR}
expect 0 ' defects, ' --check
expect 2 'defect 1 has no row' --check --table "$(doctored '/^1 /d')"
expect 2 'row of 999, which is no defect' --check --table "$(doctored 's/^1 /999 /')"
expect 2 'two rows of 1 -' --check --table "$(doctored '/^1 /p')"
expect 2 'unknown target forwards' --check --table "$(doctored '/^1 /s/forward/forwards/')"
expect 2 'unknown mixer gnd' --check --table "$(doctored 's/ gdn / gnd /')"
expect 2 'unknown detector numerics' --check --table "$(doctored '/^1 /s/values/state,numerics/')"
expect 2 'row of 1 has not four columns' --check --table "$(doctored '/^1 /s/values//')"
expect 2 'defect 999 has no row to measure' --check --only 999
expect 2 'cannot read' --check --table "$work/none"
expect 2 "'0' is no number above 0" --check --seeds 0
expect 2 '--max-median needs a value' --max-median
expect 2 "unknown option '--chekc'" --chekc
if [ $failed -gt 0 ]; then
    echo "test_defects_table: $failed failed"
    exit 1
fi
echo "test_defects_table: passed"
