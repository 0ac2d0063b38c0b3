/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recording file, versions 1 to 4. Private to rec_*.c; described for users in
 * hvftrace-recording(5). 1 had functions alone, 2 the records of function_graph as well. Version 3 is
 * written, and 4, which has stacks, where there may be some.
 *
 *   file   = magic[8] version:u32 zero:u32 chunk...
 *   chunk  = type:u8 len:u32 payload[len] crc:u32      crc32 (IEEE) of type and payload
 *
 *   META     JSON: what was traced; the first chunk, exactly once
 *   SYM      definitions of addresses, numbered 0, 1, 2 ... over the whole file, each before its use:
 *              addr:u64 off:v size:v kind:u8 name_len:u16 name module_len:u16 module
 *              kind is kallsyms' type letter, 0 when the name is not known; module_len 0: the kernel's
 *              an address may be defined again, when a module went and another came: records mean the
 *              symbol whose number they have
 *   TASK     definitions of tasks: slot:v pid:v tgid:v comm_len:u8 comm
 *              a slot may be defined again: later records mean the new task
 *   RECORDS  seq:v ts:u64 of the first record, then for each record:
 *              flags:u8 [seq_step:v] [cpu:v] [task:v] [ctx:v] ts:z sym(ip):v sym(parent):v
 *              left out (flag clear): seq_step 1, and cpu, task and ctx as in the chunk's last record
 *              (0 before its first); ts is relative to the last record's (to ts for the first)
 *              version 2: flags:u8 ... ts:z sym(ip):v [sym(parent):v] depth:v [duration:v]
 *              parent in all types but TRACE_GRAPH_RETURN, duration in ns in that one
 *              version 3, after ts:z, by type; [more:u8] with REC_F_MORE alone:
 *                FUNCTION           [more] sym(ip):v sym(parent):v [depth:v] [n:u8 word:v...]
 *                ENTRY, NEVER, SYSCALL
 *                                   [more] sym(ip):v sym(parent):v depth:v [n:u8 word:v...]
 *                RETURN             [more] sym(ip):v depth:v duration:v [n:u8 word:v...]
 *                SWITCH             prev_pid:v
 *                TRACER             depth:v
 *              words are arguments, of a RETURN its value (n is 1 then); depth of FUNCTION 0 if left out;
 *              SYSCALL: a part of a call, see tracers/sys_parts.h
 *   PROTO    version 3; prototypes, each before the first words of its function:
 *              sym(ip):v n_regs:u8 n_params:u8 return:VAL parameter:VAL...
 *              VAL = kind:u8 size:u8 reg:u8 name_len:u16 name type_len:u16 type; as struct kernel_val.
 *   ENUM     names of an enum's values, each before its first use, where they are known:
 *              sym(ip):v n:u8 value:z name_len:u16 name     n: which parameter; 255 the return
 *   STACK    version 4; definitions of stacks, numbered 0, 1, 2 ... over the whole file:
 *              n:u8 sym:v...          n is at least 1; of the return addresses the byte before
 *              the [more] of a record may have REC_M_STACK: then stack:v stands behind all else
 *   LOST     count:u64 after_seq:u64
 *   END      JSON: the totals; the last chunk
 *
 * Integers are little-endian; v is a LEB128 varint, z a zigzag one. No state but the definitions
 * lives longer than a chunk. Files only grow at their end; one that stops before END was cut.
 */
#ifndef TRACERS_REC_FORMAT_H
#define TRACERS_REC_FORMAT_H

#include "base/types.h"
#include "tracers/trace.h"

#define REC_MAGIC       "HVFTREC\n"
#define REC_MAGIC_BYTES 8
#define REC_VERSION_1   1
#define REC_VERSION_2   2
#define REC_VERSION_3   3
#define REC_VERSION     4 /* the highest that is read */
#define REC_HEAD_BYTES  16
#define REC_CHUNK_HEAD  5 /* type, len */
#define REC_CHUNK_TAIL  4 /* crc */
#define REC_CHUNK_MAX   (1u << 20) /* a reader refuses longer ones */
#define REC_CHUNK_FULL  (64u << 10) /* a writer begins a new one */

#define REC_TASK_SLOTS 16384
#define REC_NAME_MAX   1024
#define REC_VAL_NAME   128 /* of a parameter or type; a longer one is cut */

/*
 * What a reader keeps at most. A writer sees to it that a recording has less (OUTPUT_NAMES_MAX, STACKS_MAX,
 * TRACE_MARKERS_MAX); but a few bytes of a block may claim to unpack into a quarter of a megabyte of names.
 */
#define REC_KEPT_MAX (256ul << 20)
#define REC_KEPT_DEF 128 /* of a definition beside its strings: its place in a table that doubles */

#define REC_CHUNK_META    'M'
#define REC_CHUNK_SYM     'S'
#define REC_CHUNK_TASK    'T'
#define REC_CHUNK_PROTO   'P'
#define REC_CHUNK_ENUM    'N'
#define REC_CHUNK_STACK   'K'
#define REC_CHUNK_RECORDS 'R'
#define REC_CHUNK_LOST    'L'
#define REC_CHUNK_END     'E'

/* flags of a record; bits 7..5 hold the type (enum trace_type) */
#define REC_F_SEQ       0x01
#define REC_F_CPU       0x02
#define REC_F_TASK      0x04
#define REC_F_CTX       0x08
#define REC_F_MORE      0x10 /* more flags follow; before version 3 it must be clear */
#define REC_TYPE_SHIFT  5
#define REC_TYPE_MARKER 0 /* for TRACE_MARKER, which has no room there */
/* more flags; the others must be clear */
#define REC_M_WORDS 0x01
#define REC_M_DEPTH 0x02
#define REC_M_STACK 0x04

/* the longest record: two flags and n, nine varints and the words */
#define REC_VARINT_MAX 10
#define REC_RECORD_MAX (3 + (9 + TRACE_MAX_ARGS) * REC_VARINT_MAX + 1 + TRACE_MARKER_MAX)

/** rec_crc32 - go on with @crc (0 to begin) over @len bytes; CRC-32 as in IEEE 802.3 and zlib */
u32 rec_crc32(u32 crc, const void *data, size_t len);

#endif
