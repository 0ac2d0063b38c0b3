#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang-tidy over every C file that the build compiles.
#   scripts/check-tidy.sh [TOP [BUILD-DIRECTORY]]
# A file that passed is not looked at again until it, a header, or the rules change.
set -eu
cd "${1:-.}"
top=$(pwd)
build=${2:-build/dev}
[ -e "$build/compile_commands.json" ] || {
	echo "no $build/compile_commands.json: cmake --preset dev"
	exit 77
}
command -v clang-tidy >/dev/null || {
	echo "clang-tidy is not installed"
	exit 77
}
stamps=$build/tidy
mkdir -p "$stamps"
rules=$(find . -path ./build -prune -o \( -name '*.h' -o -name .clang-tidy \) -type f -print |
	LC_ALL=C sort | xargs cat | sha256sum | cut -c 1-16)

jq -r '.[].file' "$build/compile_commands.json" | grep -E '\.c$' | grep -v "^$top/build/" |
	LC_ALL=C sort -u >"$stamps/files"

# shellcheck disable=SC2016 # for the inner shell
xargs -r -n 1 -P "$(nproc)" sh -c '
	stamp=$2/$(echo "$1 $(sha256sum <"$4") $3" | sha256sum | cut -c 1-20)
	[ -e "$stamp" ] && exit 0
	if out=$(clang-tidy --quiet --extra-arg=-Wno-unknown-warning-option -p "$1" "$4" 2>/dev/null); then
		: >"$stamp"
	else
		echo "$out"
		exit 1
	fi
' sh "$build" "$stamps" "$rules" <"$stamps/files"
