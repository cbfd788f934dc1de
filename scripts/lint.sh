#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that finds faults without running the code; fails on any finding.
#   gcc       builds everything with all warnings as errors, with nvcc hidden; no CUDA header may be read
#   tidy      clang-tidy-19 over every source file (.clang-tidy)
#   cppcheck  over backend, harness and kernels/emu (scripts/cppcheck.txt: what is suppressed, and why)
#   text      rules that need no parser
# Usage: scripts/lint.sh [gcc|tidy|cppcheck|text]...   (default: all; build folders build/lint-*)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(text gcc cppcheck tidy)
for part in "${parts[@]}"; do
    case $part in
    gcc | tidy | cppcheck | text) ;;
    *) echo "lint.sh: unknown part '$part'" >&2; exit 2 ;;
    esac
done
"$root/scripts/setup.sh" --lint
cd "$root"
mkdir -p build
found=0

finding() { # finding TEXT: one or more lines
    printf '%s\n' "$1"
    found=$((found + $(printf '%s\n' "$1" | wc -l)))
}

sources() { # tracked and new files that match the patterns and exist
    git ls-files --cached --others --exclude-standard -- "$@" | sort -u | while read -r file; do
        [ ! -f "$file" ] || echo "$file"
    done
}

# --- gcc -------------------------------------------------------------------------------------------------------------
warnings=(-Wall -Wextra -Wshadow -Wconversion -Wvla -Werror)
c_warnings=("${warnings[@]}" -Wstrict-prototypes -Wmissing-prototypes)

path_without_nvcc() {
    local kept='' dir
    while read -r -d : dir; do
        [ -x "$dir/nvcc" ] || kept=$kept${kept:+:}$dir
    done <<<"$PATH:"
    echo "$kept"
}

lint_gcc() {
    local build=build/lint-gcc log=build/lint-gcc.log cmake ninja cuda file
    cmake=$(command -v cmake)
    ninja=$(command -v ninja)
    say "gcc: everything, warnings are errors, nvcc hidden (log: $log)"
    if ! env -u CUDACXX -u CUDA_PATH -u CUDA_HOME PATH="$(path_without_nvcc)" "$cmake" -S . -B $build -G Ninja \
        -DCMAKE_MAKE_PROGRAM="$ninja" -DCMAKE_C_COMPILER=gcc -DCMAKE_CXX_COMPILER=g++ -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DHB_CUDA=AUTO -DHB_DEFECTS=ON -DCMAKE_C_FLAGS="${c_warnings[*]}" -DCMAKE_CXX_FLAGS="${warnings[*]}" >$log 2>&1; then
        finding "gcc: configuring failed: $(tail -n 1 $log)"
        return
    fi
    grep -q 'cuda *OFF (no nvcc found' $log || finding "gcc: nvcc could not be hidden: $(grep '  cuda ' $log)"
    if ! "$ninja" -C $build -k 0 -j "$jobs" >>$log 2>&1; then
        finding "$(grep -E '(error|warning):' $log | sort -u || true)"
        grep -qE 'error:' $log || finding "gcc: the build failed: $(tail -n 1 $log)"
    fi
    # what the build reads, and what the compile commands name
    cuda=$({ "$ninja" -C $build -t deps; cat $build/compile_commands.json; } |
        grep -oE '[^ "]*(/usr/local/cuda|/cuda_[a-z0-9_]*\.h|/cuda\.h|/nvcc)[^ "]*' | sort -u || true)
    [ -z "$cuda" ] || finding "$(sed 's/^/gcc: the build without CUDA reads /' <<<"$cuda")"
    # targets of clang builds only, and the benchmark, which is no test
    for file in $(sources 'harness/fuzz/*.c' 'kernels/tests/bench_*.c'); do
        gcc -std=gnu11 -O1 -D_GNU_SOURCE -I. "${c_warnings[@]}" -fsyntax-only "$file" || finding "gcc: $file"
    done
    for file in $(sources '*.sh'); do
        bash -n "$file" || finding "bash: $file"
    done
}

# --- clang-tidy ------------------------------------------------------------------------------------------------------
lint_tidy() {
    local build=build/lint-clang log=build/lint-clang.log out=build/lint-clang/tidy list
    say "clang-tidy (log: $log, one file each in $out)"
    { cmake -S . -B $build -G Ninja -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DHB_CUDA=OFF -DHB_DEFECTS=ON -DHB_FUZZ=ON -DHB_TESTS=ON && cmake --build $build --target hb_build_info; } >$log 2>&1 || {
        finding "clang-tidy: configuring failed: $(tail -n 1 $log)"
        return
    }
    rm -rf $out
    mkdir -p $out
    list=$(sources 'backend/*.c' 'harness/*.c' 'kernels/*.c' 'kernels/*.cu')
    # the code for the device runtime includes CUDA headers
    list=$(grep -v '^kernels/cuda/' <<<"$list")
    xargs -P "$jobs" -n 1 bash -c '
        extra=
        grep -q "\"file\": \"$PWD/$0\"" build/lint-clang/compile_commands.json || extra="-- -std=gnu11 -D_GNU_SOURCE -I."
        clang-tidy-19 -p build/lint-clang --quiet "$0" $extra >"build/lint-clang/tidy/${0//\//_}" 2>/dev/null ||
            echo "$0: exit" >>"build/lint-clang/tidy/${0//\//_}"' <<<"$list" || true
    local lines
    lines=$(cat $out/* | grep -E '(error|warning): |: exit$' | sed "s|^$root/||" | sort -u || true)
    if grep -qE '(error|warning): ' <<<"$lines"; then
        finding "$(grep -E '(error|warning): ' <<<"$lines")"
    elif [ -n "$lines" ]; then
        finding "clang-tidy failed on $lines"
    fi
}

# --- cppcheck --------------------------------------------------------------------------------------------------------
lint_cppcheck() {
    local build=build/lint-cppcheck lines
    say "cppcheck"
    mkdir -p $build
    # the macros of a build: as for gcc above
    lines=$(cppcheck --std=c11 --enable=warning,performance,portability,style --inline-suppr --quiet -j "$jobs" \
        --cppcheck-build-dir=$build --suppressions-list=scripts/cppcheck.txt -I. -D_GNU_SOURCE -DHB_DEFECTS \
        -DHB_SOURCE_DIR='"."' -DHB_BUILD_DIR='"build"' -DHB_VERSION='"0"' -DHB_CUDA_REASON='""' \
        --template='{file}:{line}: {id}: {message}' backend harness kernels/emu 2>&1 || true)
    [ -z "$lines" ] || finding "$(sort -u <<<"$lines")"
}

# --- text ------------------------------------------------------------------------------------------------------------
rule() { # rule NAME PATTERN FILES...: a line that matches is a finding
    local name=$1 pattern=$2 lines
    shift 2
    lines=$(grep -nHE "$pattern" "$@" /dev/null || true)
    [ -z "$lines" ] || finding "$(sed "s/^/$name: /" <<<"$lines")"
}

lint_text() {
    local code all judged lines file
    say "text"
    code=$(sources '*.c' '*.h' '*.cu' '*.cuh')
    all=$(sources '*.c' '*.h' '*.cu' '*.cuh' '*.sh' '*.cmake' '*CMakeLists.txt' '.ci/*')
    for file in $all; do
        head -n 2 "$file" | grep -v '^#!' | head -n 1 | grep -q 'SPDX-License-Identifier: Apache-2.0' ||
            finding "spdx: $file does not begin with it"
    done
    rule leftover '\b(TO[D]O|FIX[M]E|XX[X])\b' $all $(sources '*.md')
    # the place of this checkout, and homes of people
    rule path "($root|/home/[a-z])" $all $(sources '*.md' '*.json' '*.txt')
    rule assert '(^|[^_A-Za-z])assert\(' $code
    # output of the library goes through its callers
    judged=$(grep -vE '/tests/|/cli/|^harness/fuzz/' <<<"$code")
    rule output '(^|[^_A-Za-z])(printf|puts|putchar|perror)\(' $judged
    rule tabs $'\t' $code
    rule trailing ' +$' $code $(sources '*.sh' '*.md')
    lines=$(wc -l $code | awk '$1 > 500 && $2 != "total" {print "  " $1 " lines: " $2}' | sort -rn)
    [ -z "$lines" ] || printf 'longer than the goal of 500 lines (no finding):\n%s\n' "$lines"
}

for part in "${parts[@]}"; do
    "lint_$part"
done
echo "lint: $found findings"
[ "$found" -eq 0 ]
