#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fails when the agent's text or its fixup table is left to be relocated.
set -eu
records=$(objdump -r "$1" | grep '^RELOCATION RECORDS FOR')
# struct agent_blob has pointers and must show up, or we are not looking at the agent at all.
echo "$records" | grep -q 'data\.rel\.ro' || { echo "no struct agent_blob in $1"; exit 1; }
if echo "$records" | grep 'rodata\.agent_'; then
	echo "the agent's text must not need relocation: see guest-agent/linkage.h"
	exit 1
fi
