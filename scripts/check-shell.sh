#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every shell script passes shellcheck.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-.}"
# shellcheck source=scripts/files.sh
. "$here/files.sh"

list=$(shell_files | LC_ALL=C sort -u)
[ -n "$list" ] || exit 0
# shellcheck disable=SC2086 # words
shellcheck -x $list
