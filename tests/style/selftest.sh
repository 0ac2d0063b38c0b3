#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The style checks fail when they should, and only then: each is run over a good sample and over
# samples with one fault each.
set -eu
scripts=$(cd "$(dirname "$0")/../../scripts" && pwd)
top=$scripts/..
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT INT TERM
failed=0

fresh() {
	rm -rf "$tmp/t"
	mkdir -p "$tmp/t/vmm" "$tmp/t/symbols" "$tmp/t/base" "$tmp/t/patcher" "$tmp/t/scripts" "$tmp/t/api"
	cp "$top/.clang-format" "$tmp/t/"
	cat >"$tmp/t/vmm/vm.h" <<'END'
/* SPDX-License-Identifier: Apache-2.0 */
/* A sample. */
#ifndef VMM_VM_H
#define VMM_VM_H
#include "base/types.h"

struct vm {
	int (*hook)(struct vm *vm);

	int (*other)(struct vm *vm);
};

/** vm_a - does a */
int vm_a(struct vm *vm);
int vm_b(struct vm *vm); /* does b */

#endif
END
	cat >"$tmp/t/vmm/vm.c" <<'END'
// SPDX-License-Identifier: Apache-2.0
#include "vmm/vm.h"

int vm_a(struct vm *vm)
{
	return vm->hook(vm);
}
END
	printf '#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\necho "$@"\n' >"$tmp/t/scripts/good"
}

# check, good|bad, what the sample is
expect() {
	rc=0
	"$scripts/check-$1.sh" "$tmp/t" >"$tmp/out" 2>&1 || rc=$?
	if { [ "$2" = good ] && [ $rc != 0 ]; } || { [ "$2" = bad ] && [ $rc = 0 ]; }; then
		echo "check-$1.sh takes as $([ $rc = 0 ] && echo good || echo bad): $3"
		cat "$tmp/out"
		failed=1
	fi
}

lines() { # n line
	awk -v n="$1" -v l="$2" 'BEGIN { while (n-- > 0) print l }'
}

for c in size docs licence paths format shell python layers; do
	fresh
	expect $c good "a good sample"
done

fresh
lines 596 "/* */" >>"$tmp/t/vmm/vm.c"
expect size bad "a file of over 600 lines"
fresh
{
	printf 'int f(void)\n{\n'
	lines 79 "	f();"
	printf '}\n'
} >>"$tmp/t/vmm/vm.c"
expect size bad "a function of 81 lines"
fresh
{
	printf 'int f(void)\n{\n'
	lines 78 "	f();"
	printf '}\n'
} >>"$tmp/t/vmm/vm.c"
expect size good "a function of 80 lines"
fresh
head -c 512001 /dev/zero >"$tmp/t/vmm/big.bin"
expect size bad "a file of over 500 KiB"

fresh
sed -i 's,^/\*\* vm_a.*,,; s,/\* does b \*/,,' "$tmp/t/vmm/vm.h"
expect docs bad "functions without a comment"
[ "$(grep -cE 'vm_[ab] has no' "$tmp/out")" = 2 ] || {
	echo "check-docs.sh does not name both functions"
	failed=1
}

fresh
sed -i 1d "$tmp/t/vmm/vm.c"
expect licence bad "a C file without a licence"
fresh
sed -i 2d "$tmp/t/scripts/good"
expect licence bad "a script without a licence"

for p in '/wo''rk/x' '/tmp/d''ev/x' '/ho''me/me/x' 'https://nexus''.example/simple' 'http://localhost'':8080/simple'; do
	fresh
	echo "/* see $p */" >>"$tmp/t/vmm/vm.c"
	expect paths bad "$p"
done
fresh
echo '/* /proc/net/work/ /sys/devices/home/ network/ */' >>"$tmp/t/vmm/vm.c"
expect paths good "paths that only look alike"

fresh
echo 'int  x;' >>"$tmp/t/vmm/vm.c"
expect format bad "two blanks"

fresh
# shellcheck disable=SC2016
echo 'rm $1 `date`' >>"$tmp/t/scripts/good"
expect shell bad "unquoted words"

fresh
printf '# SPDX-License-Identifier: Apache-2.0\nimport os\n' >"$tmp/t/x.py"
expect python bad "an import that is not used"
fresh
printf '# SPDX-License-Identifier: Apache-2.0\nprint("fine")\n' >"$tmp/t/x.py"
expect python good "a fine Python file"

for pair in 'symbols vmm/vm.h' 'patcher tracers/trace.h' 'tracers guest-agent/ring.h' 'base vmm/vm.h' 'vmm patcher/guest.h' 'api guest-agent/agent_abi.h' 'tracers api/http.h'; do
	fresh
	mkdir -p "$tmp/t/${pair% *}"
	echo "#include \"${pair#* }\"" >"$tmp/t/${pair% *}/x.c"
	expect layers bad "$pair"
done
fresh
mkdir -p "$tmp/t/tracers"
echo '#include "guest-agent/agent_abi.h"' >"$tmp/t/tracers/x.c"
expect layers good "tracers may include the agent's ABI"

[ $failed = 0 ] && echo "the checks fail when they should"
exit $failed
