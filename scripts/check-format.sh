#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fails when clang-format would change a C file. To mend: scripts/check-format.sh --fix
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mode='--dry-run -Werror'
if [ "${1:-}" = --fix ]; then
	mode=-i
	shift
fi
cd "${1:-.}"
# shellcheck source=scripts/files.sh
. "$here/files.sh"

list=$(files '\.[ch]$')
[ -n "$list" ] || exit 0
# shellcheck disable=SC2086 # words
out=$(clang-format $mode --style=file $list 2>&1) || {
	echo "$out" | sed -n 's/^\([^ :]*\):[0-9]*:[0-9]*: .*/\1/p' | sort | uniq -c |
		sed 's/$/: not as clang-format has it/'
	echo "to mend: scripts/check-format.sh --fix"
	exit 1
}
