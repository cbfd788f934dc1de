#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian 12 packages that hbfuzz builds with, only those that are missing. As root it installs; without
# rights it names the one command that a person must run, and exits 4.
# Usage: scripts/setup.sh [--lint]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

packages=(
    clang-19 libclang-rt-19-dev llvm-19         # compiler, sanitizers, libFuzzer, symbolizer
    gcc g++ libc6-dev                           # the second compiler
    cmake ninja-build git                       # build
    libcjson-dev librandom123-dev libxxhash-dev # JSON, counter-based random numbers, hashes
    libboost-context1.74.0                      # fibers of the emulator (run-time library only)
    libcmocka-dev                               # tests
)
case "$*" in
'') ;;
--lint) packages+=(clang-tidy-19 cppcheck valgrind) ;;
*) echo "setup.sh: takes --lint or nothing, got '$*'" >&2; exit 2 ;;
esac

missing=()
for package in "${packages[@]}"; do
    state=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
    [ "$state" = "install ok installed" ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi

command="apt-get install -y --no-install-recommends ${missing[*]}"
if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: this script knows Debian 12 only (no apt-get here); needed: ${missing[*]}" >&2
    exit 4
fi
if [ "$(id -u)" -eq 0 ]; then
    run=()
elif sudo -n true 2>/dev/null; then
    run=(sudo -n)
else
    echo "setup: these packages are missing: ${missing[*]}" >&2
    if command -v sudo >/dev/null 2>&1; then
        echo "setup: no rights to install them; please run:" >&2
        echo "  sudo apt-get update && sudo $command" >&2
    else
        echo "setup: no rights to install them; please run as root:" >&2
        echo "  apt-get update && $command" >&2
    fi
    exit 4
fi
say "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if ! { "${run[@]}" apt-get update -qq && "${run[@]}" $command; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "setup: the installation failed; whole output: $log" >&2
    exit 4
fi
rm -f "$log"
