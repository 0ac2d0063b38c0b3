#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every Python file passes pyflakes and keeps to 110 columns.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-.}"
# shellcheck source=scripts/files.sh
. "$here/files.sh"

list=$(files '\.py$')
[ -n "$list" ] || exit 0
rc=0
# shellcheck disable=SC2086 # words
pyflakes3 $list || rc=1
# shellcheck disable=SC2086
grep -nHE '^.{111,}' $list && {
	echo "lines of over 110 columns"
	rc=1
}
exit $rc
