#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The agent's C as assembler text for ftrace_64.S to include: compile-full.sh CC SOURCE-DIR OUT
#
# What lands in a guest is the text as a whole, so nothing may be left to a linker: labels are local,
# sections become the one that includes it, a return becomes RETURN, and everything that would not work there
# (data, indirect branches, calls out of it, vector registers, instructions that not every x86-64 has,
# padding that is no instruction) fails here.
# No sanitizer, no coverage, no debugging, whatever the build's own flags are.
set -eu
cc=$1 dir=$2 out=$3

flags='-std=gnu11 -O2 -g0 -ffreestanding -fno-builtin -fno-pic -fomit-frame-pointer
	-march=x86-64 -mtune=generic -mcmodel=kernel -mgeneral-regs-only -mno-red-zone -fcf-protection=none -fno-stack-protector -fno-jump-tables -fno-asynchronous-unwind-tables
	-fno-unwind-tables -fno-strict-aliasing -fvisibility=hidden -fno-common
	-Wframe-larger-than=192 -Wall -Wextra -Wshadow -Werror'
if "$cc" --version | grep -q clang; then
	flags="$flags -fno-integrated-as -mstack-alignment=8 -fno-addrsig -fno-unroll-loops"
else
	flags="$flags -mpreferred-stack-boundary=3 -fno-reorder-blocks-and-partition -fno-stack-clash-protection
		-fno-ipa-icf -U_FORTIFY_SOURCE"
fi
# shellcheck disable=SC2086 # words
"$cc" $flags -I"$dir" -S -MD -MF "$out.d" -MT "$out" -o "$out.s" "$dir/guest-agent/full.c"

awk '
function bad(why) { printf "full.c, compiled: %s: %s\n", why, $0 > "/dev/stderr"; failed = 1; exit 1 }
{ sub(/[ \t]*#.*$/, "") }
/^[ \t]*$/ { next }
/^[ \t]*\.(file|ident|globl|hidden|p2align|text|addrsig|code64)([ \t]|$)/ { next }
/^[ \t]*\.section[ \t]+(\.text[.a-z]*|\.note\.GNU-stack|".note.GNU-stack")[ \t]*(,|$)/ { next }
/^[ \t]*\.(type|size|set)[ \t]/ { print; next }
/^[ \t]*FIXUP8? [0-9]+$/ { print; next }
/^[A-Za-z0-9_.]+:$/ { is_label[substr($0, 1, length($0) - 1)] = 1; print; next }
/^[ \t]*\./ { bad("neither an instruction nor harmless") }
/^[ \t]*(rep[ \t;]+)?ret[ql]?$/ { print "\tRETURN"; next }
/[ \t](call|jmp)q?[ \t]+\*/ { bad("an indirect branch") }
/[ \t]i?ret/ { bad("a return that the guest'\''s thunk cannot replace") }
/[ \t](movs[bwlq]?$|stos|lods|scas|cmps[bwlq]?$)/ { bad("a string instruction, which would need cld") }
/%[xyz]mm[0-9]/ { bad("a vector register") }
/[ \t](rorx|sarx|shlx|shrx|mulx|pdep|pext|andn|bextr|bls[a-z]+|bzhi|tzcnt|lzcnt|popcnt|movbe|crc32|ad[co]x)[bwlq]?[ \t]/ {
	bad("an instruction that not every x86-64 has")
}
/^[ \t]+(call|j[a-z]+)[ \t]+[A-Za-z_.]/ { target[$2] = $0 }
/^[ \t]+[a-z]/ { print; next }
{ bad("not understood") }
END {
	if (failed)
		exit 1
	split("name_task gen_context take_frame put_frame guest_call_stack guest_call_copy guest_call_strncpy", ours) # ftrace_64.S, graph_64.S
	for (i in ours)
		is_label[ours[i]] = 1
	for (t in target) {
		$0 = target[t]
		if (!(t in is_label))
			bad("a branch out of the agent")
	}
}
' "$out.s" >"$out.tmp"
mv "$out.tmp" "$out"
