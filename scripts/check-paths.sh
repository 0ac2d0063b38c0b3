#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fails when a file names a place that exists on one machine only: a home or work directory, a
# private package registry or proxy.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-.}"
# shellcheck source=scripts/files.sh
. "$here/files.sh"

places='(^|[^A-Za-z0-9_./-])(/work/|/tmp/dev|/home/[a-z]|/root/|/Users/)'
hosts='(artifactory|jfrog|nexus|verdaccio|devpi)[.-]|\.(internal|corp|lan)([:/]|$)|index-url|https?://(localhost|127\.0\.0\.1):[0-9]+/(simple|npm|debian)'
bad=$(files . | grep -vE '^scripts/check-paths\.sh$|^tests/style/selftest\.sh$' | while read -r f; do
	grep -nHIE "$places|$hosts" "$f" || true
done)
[ -z "$bad" ] || {
	echo "places of one machine:"
	echo "$bad"
	exit 1
}
