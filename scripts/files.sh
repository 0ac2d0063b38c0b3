# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# For the check scripts: which files are ours. Source it after cd to the top of the tree.

# files EXTENDED-REGEX: paths that match, one a line; tracked or new ones where git knows, all else.
files() {
	if git rev-parse --is-inside-work-tree >/dev/null 2>&1 &&
		[ "$(git rev-parse --show-prefix)" = "" ]; then
		git ls-files -co --exclude-standard
	else
		find . -type f -not -path './build/*' -not -path './.git/*' | sed 's,^\./,,'
	fi | LC_ALL=C sort -u | while read -r f; do [ -f "$f" ] && echo "$f"; done | grep -E "$1" || true
}

# Shell scripts, by name or by their first line.
shell_files() {
	files '\.sh$'
	files '(^|/)[a-zA-Z0-9_-]+$' | while read -r f; do
		head -c 64 "$f" | head -n 1 | grep -qE '^#!.*\b(ba|da)?sh\b' && echo "$f"
	done || true
}
