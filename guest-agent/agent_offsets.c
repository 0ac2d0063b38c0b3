// SPDX-License-Identifier: Apache-2.0
/* Proves agent_offsets.h against the C structures; has no code. */
#include "guest-agent/agent_offsets.h"
#include "guest-agent/agent_abi.h"

#define SAME(offset, type, member) \
	_Static_assert((offset) == __builtin_offsetof(struct type, member), #type "." #member)

SAME(AGENT_HEADER_ENABLED, agent_header, enabled);
SAME(AGENT_HEADER_MODE, agent_header, mode);
SAME(AGENT_HEADER_N_PIDS, agent_header, n_pids);
SAME(AGENT_HEADER_PIDS, agent_header, pids);
SAME(AGENT_HEADER_LOST_NOCPU, agent_header, lost_nocpu);
SAME(AGENT_HEADER_RECLAIM_HEAD, agent_header, reclaim_head);
SAME(AGENT_HEADER_RECLAIM_TAIL, agent_header, reclaim_tail);

SAME(AGENT_CPU_HEAD, agent_cpu, head);
SAME(AGENT_CPU_LOST, agent_cpu, lost);
SAME(AGENT_CPU_LAST_COMM, agent_cpu, last_comm);
SAME(AGENT_CPU_LAST_PID, agent_cpu, last_pid);
SAME(AGENT_CPU_FREE_FRAMES, agent_cpu, free_frames);
SAME(AGENT_CPU_LOST_FRAMES, agent_cpu, lost_frames);
SAME(AGENT_CPU_LOST_RETURNS, agent_cpu, lost_returns);
SAME(AGENT_CPU_FRAME_ERRORS, agent_cpu, frame_errors);
SAME(AGENT_CPU_ORPHANS, agent_cpu, orphans);
SAME(AGENT_CPU_TAIL, agent_cpu, tail);
_Static_assert(1 << AGENT_CPU_SHIFT == AGENT_CPU_BYTES, "AGENT_CPU_SHIFT");

SAME(AGENT_FRAME_SLOT, agent_frame, slot);
SAME(AGENT_FRAME_RET, agent_frame, ret);
SAME(AGENT_FRAME_OWNER, agent_frame, owner);
SAME(AGENT_FRAME_START_TIME, agent_frame, start_time);
SAME(AGENT_FRAME_TSC, agent_frame, tsc);
SAME(AGENT_FRAME_IP, agent_frame, ip);
SAME(AGENT_FRAME_PARENT, agent_frame, parent);
SAME(AGENT_FRAME_NEXT, agent_frame, next);
SAME(AGENT_FRAME_PID, agent_frame, pid);
SAME(AGENT_FRAME_PID + 4, agent_frame, state);
SAME(AGENT_FRAME_STATE, agent_frame, state);
_Static_assert(1 << AGENT_FRAME_SHIFT == AGENT_FRAME_BYTES, "AGENT_FRAME_SHIFT");

/* ftrace_64.S writes struct agent_blob member by member. */
_Static_assert(sizeof(struct agent_fixup) == 16, "agent_fixup");
SAME(0, agent_blob, text);
SAME(8, agent_blob, text_bytes);
SAME(16, agent_blob, fixups);
SAME(24, agent_blob, n_fixups);
SAME(28, agent_blob, ftrace_caller);
SAME(32, agent_blob, ftrace_call);
SAME(36, agent_blob, ftrace_graph_call);
SAME(40, agent_blob, ftrace_stub);
SAME(44, agent_blob, function_trace_call);
SAME(48, agent_blob, ftrace_graph_caller);
SAME(52, agent_blob, return_to_handler);
SAME(56, agent_blob, graph_full_caller);
SAME(60, agent_blob, function_full_call);
SAME(64, agent_blob, mcount_caller);
SAME(68, agent_blob, mcount_call);
SAME(72, agent_blob, mcount_trace_call);
_Static_assert(sizeof(struct agent_blob) == 80, "agent_blob");
