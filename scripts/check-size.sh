#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fails when a source file has more than 600 lines, a C function more than 80, or any file more than
# 500 KiB. Needs the house's format: a function's braces stand alone at the start of a line.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-.}"
# shellcheck source=scripts/files.sh
. "$here/files.sh"

bad=$(
	files '\.([chS]|py|sh|js)$|^scripts/|^tests/(lib|kernels)/[a-z]+$' | while read -r f; do
		n=$(wc -l <"$f")
		[ "$n" -le 600 ] || echo "$f: $n lines, at most 600: split it by concern"
	done
	files '\.[ch]$' | while read -r f; do
		awk '/^\{$/ { start = NR }
		     /^\}$/ { if (start && NR - start + 1 > 80)
		                  printf "%s:%d: function of %d lines, at most 80\n",
		                         FILENAME, start, NR - start + 1; start = 0 }' "$f"
	done
	files . | while read -r f; do
		n=$(wc -c <"$f")
		[ "$n" -le 512000 ] || echo "$f: $n bytes, at most 512000: fetch or generate it instead"
	done
)
[ -z "$bad" ] || {
	echo "$bad"
	exit 1
}
