// SPDX-License-Identifier: Apache-2.0
/* Memory. A line a call, sorted by name. */
#include "tracers/syscalls/calls.h"

/* clang-format off: a table */
static const struct call_desc all[] = {
	{ "brk", TM, R_X, { ADDR }, 0, 0, 0, NULL },
	{ "get_mempolicy", TM, R_D, { ADDR, ADDR, LU, ADDR, X }, 0, 0, 0, NULL },
	{ "madvise", TM, R_D, { ADDR, LU, ENUM(madvise) }, 0, 0, 0, NULL },
	{ "mbind", TM, R_D, { ADDR, LU, X, ADDR, LU, X }, 0, 0, 0, NULL },
	{ "migrate_pages", TM, R_D, { D, LU, ADDR, ADDR }, 0, 0, 0, NULL },
	{ "mincore", TM, R_D, { ADDR, LU, ADDR }, 0, 0, 0, NULL },
	{ "mlock", TM, R_D, { ADDR, LU }, 0, 0, 0, NULL },
	{ "mlock2", TM, R_D, { ADDR, LU, FLAGS(mlock2) }, 0, 0, 0, NULL },
	{ "mlockall", TM, R_D, { FLAGS(mlockall) }, 0, 0, 0, NULL },
	{ "mmap", TD | TM, R_X, { ADDR, LU, FLAGS(prot), ARG(MAP), FD, ARG(LXZ) }, 0, 0, 0, NULL },
	{ "move_pages", TM, R_D, { D, LU, ADDR, ADDR, ADDR, X }, 0, 0, 0, NULL },
	{ "mprotect", TM, R_D, { ADDR, LU, FLAGS(prot) }, 0, 0, 0, NULL },
	{ "mremap", TM, R_X, { ADDR, LU, LU, FLAGS(mremap), IF(ADDR, 3, 2) }, 0, 0, 0, NULL },
	{ "msgctl", TI, R_D, { D, ENUM(ipc_cmd), ADDR }, 0, 0, 0, NULL },
	{ "msgget", TI, R_D, { ENUM(ipc_key), TAB(IPCMODE, xlat_ipc_get) }, 0, 0, 0, NULL },
	{ "msgrcv", TI, R_D, { D, ADDR, LU, LD, FLAGS(msg_flags) }, 0, 0, 0, NULL },
	{ "msgsnd", TI, R_D, { D, ADDR, LU, FLAGS(msg_flags) }, 0, 0, 0, NULL },
	{ "msync", TM, R_D, { ADDR, LU, FLAGS(msync) }, 0, 0, 0, NULL },
	{ "munlock", TM, R_D, { ADDR, LU }, 0, 0, 0, NULL },
	{ "munlockall", TM, R_D, { { .kind = K_NONE } }, 0, 0, 0, NULL },
	{ "munmap", TM, R_D, { ADDR, LU }, 0, 0, 0, NULL },
	{ "pkey_alloc", 0, R_D, { X, X }, 0, 0, 0, NULL },
	{ "pkey_free", 0, R_D, { D }, 0, 0, 0, NULL },
	{ "pkey_mprotect", TM, R_D, { ADDR, LU, FLAGS(prot), D }, 0, 0, 0, NULL },
	{ "remap_file_pages", TM, R_D, { ADDR, LU, FLAGS(prot), LU, X }, 0, 0, 0, NULL },
	{ "semctl", TI, R_D, { D, D, ENUM(ipc_cmd), LX }, 0, 0, 0, NULL },
	{ "semget", TI, R_D, { ENUM(ipc_key), D, TAB(IPCMODE, xlat_ipc_get) }, 0, 0, 0, NULL },
	{ "semop", TI, R_D, { D, ADDR, U }, 0, 0, 0, NULL },
	{ "semtimedop", TI, R_D, { D, ADDR, U, IN(timespec) }, 0, 0, 0, NULL },
	{ "set_mempolicy", TM, R_D, { X, ADDR, LU }, 0, 0, 0, NULL },
	{ "shmat", TI | TM, R_X, { D, ADDR, FLAGS(shm_at) }, 0, 0, 0, NULL },
	{ "shmctl", TI, R_D, { D, ENUM(ipc_cmd), ADDR }, 0, 0, 0, NULL },
	{ "shmdt", TI | TM, R_D, { ADDR }, 0, 0, 0, NULL },
	{ "shmget", TI, R_D, { ENUM(ipc_key), LU, TAB(IPCMODE, xlat_shm_get) }, 0, 0, 0, NULL },
};
CALLS(calls_memory, all);
/* clang-format on */
