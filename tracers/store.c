// SPDX-License-Identifier: Apache-2.0
/*
 * Records in memory. See store.h.
 *
 * A record takes 32 bytes, and 8 for each value that may be kept with it; its seq is its place, its comm an index into a table of names in use,
 * each counted by the records that have it and given up with the last of them. A return has no
 * parent: its duration lies there, and in the bits that a pid does not need.
 */
#include "tracers/store.h"

#include "base/cleanup.h"
#include "guest-agent/agent_abi.h"
#include "tracers/addr_hash.h"
#include "tracers/comms.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define COMMS        16384 /* names in use at a time; 0 is "<...>" */
#define COMM_UNKNOWN "<...>"
#define LOCK_BATCH   256 /* records copied under one hold of the lock */
#define COPY_BATCH   4096 /* the same, of store_copy() */
#define TOP_4G       0xffffffff00000000
#define DURATION_MAX ((1ull << 52) - 1) /* 52 days; longer ones show as this */

struct entry {
	u64 ts_ns;
	u32 ip; /* lower half; the upper one is all ones */
	u32 parent; /* the same; TRACE_GRAPH_RETURN: duration 31..0; TRACE_SWITCH: prev_pid */
	u32 pid : 22, duration1 : 10; /* duration 41..32; not TRACE_GRAPH_RETURN: n_args */
	u32 tgid : 22, duration2 : 10; /* duration 51..42 */
	u16 comm, cpu;
	u16 ctx : 11, type : 4, retval : 1;
	u16 depth;
};

_Static_assert(sizeof(struct entry) == 32, "8 MiB are to hold 200,000 records and more");
_Static_assert(AGENT_PID_MASK == (1 << 22) - 1 && AGENT_CTX_MASK == (1 << 11) - 1, "struct entry");

struct comm {
	u64 word[2]; /* comms_words() of it */
	u32 refs;
	u16 next; /* of the same hash, or the next free one; 0: none */
};

struct store {
	pthread_mutex_t lock; /* over everything below */
	u64 newest; /* seq of the last record; the record of seq n lies in entries[n & mask] */
	u64 first; /* a copy's: there is none before */
	u64 mask;
	u64 commless;
	u16 free_comm; /* 0: none */
	u64 key;
	u16 heads[COMMS]; /* by hash; 0: none */
	struct comm comms[COMMS];
	u32 n_words;
	u64 *words; /* n_words of each entry; NULL: none */
	const struct trace_stack **stacks; /* one of each entry; NULL: none */
	struct entry entries[];
};

static u64 oldest_of(const struct store *s)
{
	u64 oldest = s->newest > s->mask ? s->newest - s->mask : 1;

	return MAX(oldest, s->first);
}

int store_create(u32 records, u32 words, bool stacks, struct store **ret, struct err *err)
{
	struct store *s;
	size_t n = 1;

	if (!records)
		records = STORE_DEFAULT_RECORDS;
	if (records > STORE_MAX_RECORDS)
		return err_set(err, -EINVAL, ERR_BAD_REQUEST, 0, "at most %u records can be kept",
			       STORE_MAX_RECORDS);
	while (n < records)
		n *= 2;
	s = calloc(1, sizeof(*s) + n * sizeof(s->entries[0])); /* pages come as they are used */
	if (!s)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory to keep %zu records", n);
	s->n_words = MIN(words, (u32)TRACE_MAX_ARGS);
	if (words)
		s->words = calloc(n, s->n_words * sizeof(*s->words));
	if (stacks)
		s->stacks = calloc(n, sizeof(struct trace_stack *));
	if ((words && !s->words) || (stacks && !s->stacks)) {
		free(s->words);
		free(s->stacks);
		free(s);
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0,
			       "no memory to keep the values of %zu records", n);
	}
	pthread_mutex_init(&s->lock, NULL);
	s->mask = n - 1;
	s->key = addr_hash_key();
	for (u16 i = 1; i < COMMS - 1; i++)
		s->comms[i].next = i + 1;
	s->free_comm = 1;
	*ret = s;
	return 0;
}

void store_destroy(struct store *s)
{
	if (!s)
		return;
	pthread_mutex_destroy(&s->lock);
	free(s->words);
	free(s->stacks);
	free(s);
}

static u16 *comm_head(struct store *s, const u64 word[2])
{
	return &s->heads[words_hash(word[1], words_hash(word[0], s->key)) >> 32 & (COMMS - 1)];
}

static u16 comm_get(struct store *s, const char *comm)
{
	static const char unknown[TRACE_COMM_LEN] = COMM_UNKNOWN;
	u64 word[2];
	u16 *head, i;

	comms_words(comm, word);
	if (!memcmp(word, unknown, sizeof(word)))
		return 0;
	head = comm_head(s, word);
	for (i = *head; i; i = s->comms[i].next) {
		if (s->comms[i].word[0] == word[0] && s->comms[i].word[1] == word[1]) {
			s->comms[i].refs++;
			return i;
		}
	}
	i = s->free_comm;
	if (!i) {
		s->commless++;
		return 0;
	}
	s->free_comm = s->comms[i].next;
	memcpy(s->comms[i].word, word, sizeof(word));
	s->comms[i].refs = 1;
	s->comms[i].next = *head;
	*head = i;
	return i;
}

static void comm_put(struct store *s, u16 i)
{
	u16 *link;

	if (!i || --s->comms[i].refs)
		return;
	for (link = comm_head(s, s->comms[i].word); *link != i; link = &s->comms[*link].next)
		;
	*link = s->comms[i].next;
	s->comms[i].next = s->free_comm;
	s->free_comm = i;
}

/* Names of a store's records as its copy numbers them; of names that are in use, while its lock is held. */
struct comm_map {
	u16 to[COMMS];
	bool known[COMMS];
};

static u16 copy_comm(const struct store *s, struct store *c, struct comm_map *map, u16 i)
{
	u16 to = map->to[i];

	if (!i)
		return 0;
	if (!map->known[i]) {
		to = map->to[i] = comm_get(c, (const char *)s->comms[i].word);
		map->known[i] = true;
	} else if (to) {
		c->comms[to].refs++;
	}
	return to;
}

static void copy_one(const struct store *s, struct store *c, struct comm_map *map, u64 seq)
{
	u64 at = seq & s->mask;

	c->entries[at] = s->entries[at];
	c->entries[at].comm = copy_comm(s, c, map, s->entries[at].comm);
	if (s->words)
		memcpy(&c->words[at * s->n_words], &s->words[at * s->n_words],
		       s->n_words * sizeof(*s->words));
	if (s->stacks)
		c->stacks[at] = s->stacks[at];
}

/* The oldest first, as they are overwritten first; the lock is not held longer than a reader holds it. */
int store_copy(struct store *s, struct store **ret, struct err *err)
{
	struct comm_map *map = malloc(sizeof(*map));
	struct store *c;
	u64 seq = 1, n;
	int rc;

	if (!map)
		return err_set(err, -ENOMEM, ERR_NO_MEMORY, 0, "no memory for a copy of records");
	rc = store_create((u32)(s->mask + 1), s->n_words, s->stacks, &c, err);
	if (rc) {
		free(map);
		return rc;
	}
	pthread_mutex_lock(&s->lock);
	c->newest = s->newest;
	c->commless = s->commless;
	pthread_mutex_unlock(&s->lock);
	while (seq <= c->newest) {
		memset(map, 0, sizeof(*map));
		pthread_mutex_lock(&s->lock);
		if (oldest_of(s) > seq)
			seq = c->first = MIN(oldest_of(s), c->newest + 1);
		for (n = 0; n < COPY_BATCH && seq <= c->newest; n++)
			copy_one(s, c, map, seq++);
		pthread_mutex_unlock(&s->lock);
	}
	free(map);
	*ret = c;
	return 0;
}

/* How many values of @r there is room for. */
static u32 values(const struct store *s, const struct trace_record *r)
{
	return MIN(r->type == TRACE_GRAPH_RETURN ? (u32)r->has_retval : r->n_args, s->n_words);
}

static bool has_number(u8 type)
{
	return type == TRACE_SWITCH || type == TRACE_MARKER;
}

static void append_one(struct store *s, struct trace_record *r)
{
	struct entry *e = &s->entries[(s->newest + 1) & s->mask];
	u64 ns = MIN(r->duration_ns, DURATION_MAX);
	bool is_return = r->type == TRACE_GRAPH_RETURN;
	u32 n = values(s, r), low = (u32)(is_return ? ns : r->parent);
	u16 old = e->comm;

	r->seq = ++s->newest;
	*e = (struct entry){
		.ts_ns = r->ts_ns,
		.ip = (u32)r->ip,
		.parent = has_number(r->type) ? r->prev_pid : low,
		.pid = r->pid & AGENT_PID_MASK,
		.duration1 = (is_return ? (u32)(ns >> 32) : n) & 0x3ff,
		/* what the guest says, and no tgid if it is larger than any can be */
		.tgid = (r->tgid > AGENT_PID_MASK ? 0 : r->tgid) & AGENT_PID_MASK,
		.duration2 = ns >> 42 & 0x3ff,
		.comm = comm_get(s, r->comm),
		.cpu = r->cpu,
		.ctx = (u32)r->ctx & AGENT_CTX_MASK,
		.type = (u32)r->type & 15,
		.retval = is_return && n,
		.depth = r->depth,
	};
	if (n)
		memcpy(&s->words[((s->newest) & s->mask) * s->n_words],
		       is_return ? &r->retval : r->args, n * sizeof(u64));
	if (s->stacks)
		s->stacks[s->newest & s->mask] = r->stack;
	comm_put(s, old); /* after comm_get(): often it is the same name */
}

void store_append(struct store *s, struct trace_record *r, size_t n)
{
	for (size_t i = 0, batch; i < n; i += batch) {
		batch = MIN(n - i, (size_t)LOCK_BATCH);
		pthread_mutex_lock(&s->lock);
		for (size_t j = i; j < i + batch; j++)
			append_one(s, &r[j]);
		pthread_mutex_unlock(&s->lock);
	}
}

static void get_call(const struct store *s, u64 seq, const struct entry *e,
		     struct trace_record *ret)
{
	const u64 *words = s->words ? &s->words[(seq & s->mask) * s->n_words] : NULL;

	ret->ip = TOP_4G | e->ip;
	if (e->type == TRACE_GRAPH_RETURN) {
		ret->duration_ns = (u64)e->duration2 << 42 | (u64)e->duration1 << 32 | e->parent;
		ret->has_retval = words && e->retval;
		if (ret->has_retval)
			ret->retval = *words;
		return;
	}
	ret->parent = TOP_4G | e->parent;
	ret->n_args = words ? (u8)e->duration1 : 0;
	if (ret->n_args)
		memcpy(ret->args, words, ret->n_args * sizeof(u64));
}

static void get_one(const struct store *s, u64 seq, struct trace_record *ret)
{
	const struct entry *e = &s->entries[seq & s->mask];

	trace_record_clear(ret);
	ret->seq = seq;
	ret->ts_ns = e->ts_ns;
	ret->pid = e->pid;
	ret->tgid = e->tgid;
	ret->cpu = e->cpu;
	ret->ctx = e->ctx;
	ret->type = e->type;
	ret->depth = e->depth;
	if (has_number(e->type))
		ret->prev_pid = e->parent;
	else if (e->type != TRACE_TRACER)
		get_call(s, seq, e, ret);
	if (s->stacks)
		ret->stack = s->stacks[seq & s->mask];
	if (e->comm)
		memcpy(ret->comm, s->comms[e->comm].word, TRACE_COMM_LEN);
	else
		memcpy(ret->comm, COMM_UNKNOWN, sizeof(COMM_UNKNOWN));
}

/* Up to LOCK_BATCH more records, from *seq on; false: *seq is no longer there. */
static bool read_batch(struct store *s, u64 *seq, struct trace_page *page)
{
	size_t n = 0;
	bool there;

	pthread_mutex_lock(&s->lock);
	page->oldest_seq = oldest_of(s);
	if (!*seq)
		*seq = page->oldest_seq;
	there = *seq >= page->oldest_seq;
	if (there && *seq <= s->newest) {
		n = (size_t)MIN(s->newest - *seq + 1, (u64)LOCK_BATCH);
		n = MIN(n, page->max - page->n);
		for (size_t i = 0; i < n; i++)
			get_one(s, *seq + i, &page->buf[page->n + i]);
	}
	pthread_mutex_unlock(&s->lock);
	page->n += n;
	*seq += n;
	return there;
}

int store_read(struct store *s, u64 after, struct trace_page *page, struct err *err)
{
	u64 seq = after ? after + 1 : 0;
	size_t before;

	if (after == UINT64_MAX) /* nothing can come after it */
		seq = after;
	page->n = 0;
	do {
		before = page->n;
		if (read_batch(s, &seq, page))
			continue;
		if (page->n) /* overtaken between two batches: the next read says so */
			return 0;
		return err_set(err, -ESTALE, ERR_CURSOR_GONE, 0,
			       "record %llu was overwritten; the oldest kept is %llu",
			       (unsigned long long)seq, (unsigned long long)page->oldest_seq);
	} while (page->n - before == LOCK_BATCH && page->n < page->max);
	return 0;
}

void store_info(struct store *s, struct store_info *ret)
{
	pthread_mutex_lock(&s->lock);
	*ret = (struct store_info){ s->newest, oldest_of(s), s->commless };
	pthread_mutex_unlock(&s->lock);
}
