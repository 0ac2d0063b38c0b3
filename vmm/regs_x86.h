/* SPDX-License-Identifier: Apache-2.0 */
/* What is x86-64 about registers: QEMU's text form of them, and the host's system call registers. */
#ifndef VMM_REGS_X86_H
#define VMM_REGS_X86_H

#include "vmm/vm.h"

/** regs_parse_hmp - the answer to HMP "info registers"; false when something needed is missing */
bool regs_parse_hmp(const char *text, struct vm_regs *ret);

/** regs_in_kvm_run - is the ptrace-stopped host thread @tid on its way out of ioctl(KVM_RUN)? */
bool regs_in_kvm_run(pid_t tid);

#endif
