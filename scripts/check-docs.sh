#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fails when a function in a folder's public header has no comment: one before it or beside it, in the
# same run of lines without an empty one between them. Small inline ones in base/ speak for themselves.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-.}"
# shellcheck source=scripts/files.sh
. "$here/files.sh"

public='^(base/(err|log)|vmm/vm|symbols/kernel|patcher/guest|tracers/(trace|output))\.h$|^api/api\.h$'
bad=$(files "$public" | while read -r f; do
	awk '
	function flush(	i) {
		if (!commented)
			for (i = 0; i < n; i++)
				printf "%s:%d: %s has no comment\n", FILENAME, at[i], name[i]
		n = 0; commented = 0
	}
	{
		line = $0
		blank = line ~ /^[ \t]*$/
		if (line ~ /\/\*/ || in_comment) commented = 1
		# code without its comments
		code = ""
		while (length(line)) {
			if (in_comment) {
				p = index(line, "*/")
				if (!p) break
				line = substr(line, p + 2); in_comment = 0
			} else {
				p = index(line, "/*")
				if (!p) { code = code line; break }
				code = code substr(line, 1, p - 1)
				line = substr(line, p + 2); in_comment = 1
			}
		}
		if (blank && !depth && !in_comment) { flush(); next }
		if (directive || code ~ /^[ \t]*#/) { directive = code ~ /\\$/; next }
		# a declaration or definition starts in the first column, outside of braces
		if (!depth && code ~ /^[a-z_].*[a-zA-Z0-9_]+\(/ && code !~ /^(typedef|_Static_assert|static_assert|static inline|__attribute__|return|extern "C")/ && code !~ /^[a-z_ ]*\(\*/ && code !~ /=/) {
			id = code
			while (match(id, /__attribute__\(\([^)]*(\([^)]*\))?[^)]*\)\)/))
				id = substr(id, 1, RSTART - 1) substr(id, RSTART + RLENGTH)
			if (match(id, /[a-zA-Z0-9_]+\(/)) {
				name[n] = substr(id, RSTART, RLENGTH - 1); at[n++] = NR
			}
		}
		o = gsub(/\{/, "{", code); c = gsub(/\}/, "}", code)
		depth += o - c
	}
	END { flush() }' "$f"
done)
[ -z "$bad" ] || {
	echo "$bad"
	exit 1
}
