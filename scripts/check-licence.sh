#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fails when a source file does not name its licence in its first three lines.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-.}"
# shellcheck source=scripts/files.sh
. "$here/files.sh"

bad=$({
	files '\.([chS]|py|js|lds)$'
	shell_files
} | LC_ALL=C sort -u | while read -r f; do
	head -n 3 "$f" | grep -qF 'SPDX-License-Identifier: Apache-2.0' ||
		echo "$f: add SPDX-License-Identifier: Apache-2.0 at its start"
done)
[ -z "$bad" ] || {
	echo "$bad"
	exit 1
}
