// SPDX-License-Identifier: Apache-2.0
/*
 * See profile.h. For each task it keeps, by depth, the time that calls inside the present one took;
 * a return takes it off its own. Where records were lost, time of callees whose returns are missing
 * stays with the caller.
 */
#include "tracers/profile.h"

#include "tracers/addr_hash.h"
#include "tracers/comms.h"
#include "tracers/out_layout.h"
#include "tracers/profile_funcs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEPTHS    128u /* deeper calls count as this deep */
#define TASKS     4096u /* of two in one slot the earlier begins anew */
#define NODES_MAX (1u << 20) /* of the tree; more stacks count as those that they begin with */
#define SLOTS_MIN 1024u

struct task {
	u64 key; /* pid, or CPU of an idle one; 0: none yet */
	u64 inner_ns[DEPTHS + 1]; /* at [d]: of calls at depth d since the last at d - 1 began */
	u32 node[DEPTHS]; /* where in the tree the present call at each depth is */
};

/* A stack: a function called by another stack; below node 0, a task's name. */
struct node {
	u64 key; /* of a function its number; of a task, a hash of its name */
	u64 self_ns;
	u64 calls; /* of the function tracer, with their callers */
	u32 parent;
	u32 comm; /* of a task: 1 + index into comms */
};

struct profile {
	struct task *tasks;
	struct funcs *funcs;
	const struct output_names *names; /* of the record that is being added */
	struct profile_row *rows;
	double *m2; /* sum of squared distances from the mean, by row */
	u32 n_rows, rows_cap;
	struct node *nodes;
	u32 n_nodes, nodes_cap;
	u32 *by_node; /* open addressing; a slot is 1 + an index, 0: empty */
	u32 n_slots; /* a power of two */
	u64 n_shortened;
	u64 hash_key; /* a guest chooses names, and what calls what */
	bool timed; /* some call has returned */
	bool graph_time;
	char (*comms)[TRACE_COMM_LEN + 1];
	u32 n_comms, comms_cap;
};

static void *grown(void *array, u32 n, u32 *cap, size_t size)
{
	u32 more = *cap ? *cap * 2 : SLOTS_MIN;
	void *p = array;

	if (n < *cap)
		return array;
	p = reallocarray(array, more, size);
	if (p)
		*cap = more;
	return p;
}

static u32 node_slot(const struct profile *p, u64 key, u32 parent)
{
	u32 h = (u32)words_hash(parent, words_hash(key, p->hash_key)) & (p->n_slots - 1);

	for (; p->by_node[h]; h = (h + 1) & (p->n_slots - 1)) {
		const struct node *n = &p->nodes[p->by_node[h] - 1];

		if (n->key == key && n->parent == parent)
			break;
	}
	return h;
}

/* Room for one node more. */
static int reserve_nodes(struct profile *p)
{
	u32 *was = p->by_node;

	if (p->n_slots > 2 * p->n_nodes)
		return 0;
	p->by_node = calloc(p->n_slots ? p->n_slots * 2 : SLOTS_MIN * 2, sizeof(*p->by_node));
	if (!p->by_node) {
		p->by_node = was;
		return -ENOMEM;
	}
	p->n_slots = p->n_slots ? p->n_slots * 2 : SLOTS_MIN * 2;
	for (u32 i = 0; i < p->n_nodes; i++)
		p->by_node[node_slot(p, p->nodes[i].key, p->nodes[i].parent)] = i + 1;
	free(was);
	return 0;
}

/* The row of function @id; NULL: no memory */
static struct profile_row *row_of(struct profile *p, u32 id)
{
	struct func *f = funcs_at(p->funcs, id);
	u32 cap = p->rows_cap;
	double *m2;
	void *rows;

	if (f->row)
		return &p->rows[f->row - 1];
	m2 = grown(p->m2, p->n_rows, &cap, sizeof(*m2));
	if (!m2)
		return NULL;
	p->m2 = m2;
	rows = grown(p->rows, p->n_rows, &p->rows_cap, sizeof(*p->rows));
	if (!rows)
		return NULL;
	p->rows = rows;
	p->m2[p->n_rows] = 0;
	p->rows[p->n_rows] =
		(struct profile_row){ .ip = f->ip, .name = f->name, .module = f->module };
	f->row = ++p->n_rows;
	return &p->rows[p->n_rows - 1];
}

/* Return: 0; -ENOMEM. When the tree is full, @parent itself is the node. */
static int node_of(struct profile *p, u32 parent, u64 key, u32 *ret)
{
	void *nodes;
	u32 h;

	*ret = parent;
	if (reserve_nodes(p))
		return -ENOMEM;
	h = node_slot(p, key, parent);
	if (p->by_node[h]) {
		*ret = p->by_node[h] - 1;
		return 0;
	}
	if (p->n_nodes == NODES_MAX) {
		p->n_shortened++;
		return 0;
	}
	nodes = grown(p->nodes, p->n_nodes, &p->nodes_cap, sizeof(*p->nodes));
	if (!nodes)
		return -ENOMEM;
	p->nodes = nodes;
	p->nodes[p->n_nodes] = (struct node){ .key = key, .parent = parent };
	p->by_node[h] = p->n_nodes + 1;
	*ret = p->n_nodes++;
	return 0;
}

static int task_node(struct profile *p, const struct trace_record *r, u32 *ret)
{
	u64 word[2];
	void *comms;

	comms_words(r->comm, word);
	if (node_of(p, 0, words_hash(word[1], words_hash(word[0], p->hash_key)), ret))
		return -ENOMEM;
	if (!*ret || p->nodes[*ret].comm)
		return 0;
	comms = grown(p->comms, p->n_comms, &p->comms_cap, sizeof(*p->comms));
	if (!comms)
		return -ENOMEM;
	p->comms = comms;
	memcpy(p->comms[p->n_comms], r->comm, sizeof(*p->comms));
	p->nodes[*ret].comm = ++p->n_comms;
	return 0;
}

static struct task *task_of(struct profile *p, const struct trace_record *r)
{
	u64 key = r->pid ? r->pid : 1ull << 32 | r->cpu;
	u64 h = key * 0x9e3779b97f4a7c15; /* pids that follow each other are apart */
	struct task *t = &p->tasks[(h ^ h >> 29) % TASKS];

	if (t->key == key)
		return t;
	memset(t, 0, sizeof(*t));
	t->key = key;
	return t;
}

/* Where in the tree function @id is, that @t calls at @depth. */
static int stack_of(struct profile *p, struct task *t, const struct trace_record *r, u32 id,
		    u32 *ret)
{
	u32 depth = MIN((u32)r->depth, DEPTHS - 1), parent;

	if (depth && t->node[depth - 1])
		parent = t->node[depth - 1];
	else if (task_node(p, r, &parent))
		return -ENOMEM;
	return node_of(p, parent, id, ret);
}

static int add_return(struct profile *p, const struct trace_record *r, u32 id)
{
	struct profile_row *row = row_of(p, id);
	struct task *t = task_of(p, r);
	u32 depth = MIN((u32)r->depth, DEPTHS - 1), node = t->node[depth];
	u64 ns = r->duration_ns, self;
	double before;

	if (!row)
		return -ENOMEM;
	if ((!node || p->nodes[node].key != id) && stack_of(p, t, r, id, &node))
		return -ENOMEM;
	self = ns - MIN(ns, t->inner_ns[depth + 1]);
	t->inner_ns[depth + 1] = 0;
	t->inner_ns[depth] += ns;
	t->node[depth] = 0;
	p->timed = true;
	p->nodes[node].self_ns += self;
	if (!p->graph_time)
		ns = self;
	row->hits++;
	row->total_ns += ns;
	row->self_ns += self;
	row->min_ns = row->hits > 1 ? MIN(row->min_ns, ns) : ns;
	row->max_ns = MAX(row->max_ns, ns);
	/* Welford: no difference of large sums */
	before = (double)ns - row->avg_ns;
	row->avg_ns += before / (double)row->hits;
	p->m2[row - p->rows] += before * ((double)ns - row->avg_ns);
	return 0;
}

/* A call with its callers, of which no time is known: it counts. */
static int add_stack(struct profile *p, const struct trace_record *r, u32 id)
{
	u32 node, caller;

	if (task_node(p, r, &node))
		return -ENOMEM;
	for (u32 i = MIN(r->stack->n, DEPTHS - 1u); i-- > 0;) {
		/* within the call's instruction: that is in the caller for sure */
		caller = funcs_get(p->funcs, trace_stack_addr(r->stack, i) - 1, p->names);
		if (!caller || node_of(p, node, caller, &node))
			return -ENOMEM;
	}
	if (node_of(p, node, id, &node))
		return -ENOMEM;
	p->nodes[node].calls++;
	return 0;
}

static int add_call(struct profile *p, const struct trace_record *r, u32 id)
{
	u32 depth = MIN((u32)r->depth, DEPTHS - 1);
	struct profile_row *row;
	struct task *t;

	if (r->type == TRACE_GRAPH_RETURN)
		return add_return(p, r, id);
	if (r->type == TRACE_FUNCTION) {
		row = row_of(p, id);
		if (!row)
			return -ENOMEM;
		row->untimed++;
		return r->stack ? add_stack(p, r, id) : 0;
	}
	t = task_of(p, r);
	t->inner_ns[depth + 1] = 0;
	t->node[depth] = 0;
	if (r->type != TRACE_GRAPH_ENTRY)
		return 0;
	return stack_of(p, t, r, id, &t->node[depth]);
}

int profile_add(struct profile *p, const struct trace_record *r, const struct output_names *names)
{
	u32 id;

	if (r->type == TRACE_SWITCH || r->type == TRACE_TRACER || r->type == TRACE_MARKER)
		return 0;
	p->names = names;
	id = funcs_get(p->funcs, r->ip, names);
	return id ? add_call(p, r, id) : -ENOMEM;
}

void profile_excess(const struct profile *p, struct profile_excess *ret)
{
	*ret = (struct profile_excess){ .unnamed = funcs_shared(p->funcs),
					.shortened = p->n_shortened };
}

const struct profile_row *profile_rows(struct profile *p, size_t *n_ret)
{
	for (u32 i = 0; i < p->n_rows; i++) {
		struct profile_row *row = &p->rows[i];

		row->stddev_ns = row->hits > 1 ? sqrt(p->m2[i] / (double)(row->hits - 1)) : 0;
	}
	*n_ret = p->n_rows;
	return p->rows;
}

/* ';' and line ends are the format's own. */
static void add_name(struct buf *b, const char *name, size_t len)
{
	char *start = buf_reserve(b, len + 1), *end;

	if (!start)
		return;
	end = fmt_printable(start, name, len);
	for (char *p = start; p < end; p++) {
		if (*p == ';')
			*p = ':';
	}
	*end = 0;
	b->len += (size_t)(end - start);
}

static void add_function(const struct profile *p, struct buf *b, u64 id)
{
	const struct func *f = funcs_at(p->funcs, (u32)id);

	buf_adds(b, ";");
	if (f->name)
		add_name(b, f->name, strnlen(f->name, TEXT_NAME_MAX));
	else
		buf_addf(b, "0x%llx", (unsigned long long)f->ip);
}

/* The line of stack @i, if time was spent, or calls were counted, there itself. */
static void put_stack(const struct profile *p, u32 i, struct buf *b)
{
	u64 weight = p->timed ? p->nodes[i].self_ns : p->nodes[i].calls;
	u32 path[DEPTHS + 2], n = 0;
	const struct node *top;

	if (!weight)
		return;
	for (u32 k = i; k && n < ARRAY_SIZE(path); k = p->nodes[k].parent)
		path[n++] = k;
	top = &p->nodes[path[--n]];
	if (top->comm)
		add_name(b, p->comms[top->comm - 1],
			 strnlen(p->comms[top->comm - 1], TRACE_COMM_LEN));
	else /* there was no memory for it */
		buf_adds(b, "?");
	while (n)
		add_function(p, b, p->nodes[path[--n]].key);
	buf_addf(b, " %llu\n", (unsigned long long)weight);
}

bool profile_folded_next(const struct profile *p, u32 *next, struct buf *b)
{
	if (*next + 1 >= p->n_nodes)
		return false;
	put_stack(p, ++*next, b);
	return true;
}

void profile_folded(const struct profile *p, struct buf *b)
{
	u32 next = 0;

	while (profile_folded_next(p, &next, b))
		;
}

struct profile *profile_create(bool graph_time)
{
	struct profile *p = calloc(1, sizeof(*p));
	u32 root;

	if (!p)
		return NULL;
	p->graph_time = graph_time;
	p->hash_key = addr_hash_key();
	p->tasks = calloc(TASKS, sizeof(*p->tasks));
	p->funcs = funcs_create();
	if (!p->tasks || !p->funcs || node_of(p, UINT32_MAX, 0, &root)) {
		profile_destroy(p);
		return NULL;
	}
	return p;
}

void profile_destroy(struct profile *p)
{
	if (!p)
		return;
	free(p->tasks);
	free(p->rows);
	free(p->m2);
	funcs_destroy(p->funcs);
	free(p->nodes);
	free(p->by_node);
	free(p->comms);
	free(p);
}
