// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments and return values by their prototypes.
 *
 * Source, read for their layout: Linux v6.15 kernel/trace/trace_output.c print_function_args(),
 * trace_functions_graph.c print_graph_retval() (" ret=", since v6.13; "= " in v6.5 .. v6.12).
 *
 * Deviations from the kernel, which prints registers whole:
 * - a value narrower than its register shows its own bits: what lies above them is left over from before.
 * - bool and char as hex also where the compiler's char is signed.
 * - an error is what a signed number, a pointer or an unsigned long between -4095 and -1 is, of the
 *   type's own width; without a prototype by the kernel's rule (a register whose upper half is 0 may be
 *   an int). A void function has no return value.
 * - parameters on the stack are "..."; the kernel counts a long struct as registers.
 * - an enum64 is a number, not a struct; a union by value is called STRUCT as well.
 * - without a prototype but with words (a recording of which it is missing) the words alone.
 */
#include "tracers/out_values.h"

#include "tracers/fmt.h"
#include "tracers/out_layout.h"

#include <string.h>

#define ERRNO_MAX 4095

static bool find_func(u64 ip, const struct output_names *names, struct kernel_func *ret)
{
	return names->func && names->func(names->arg, ip, ret);
}

/* The bits of @word that are the value's. */
static u64 own_bits(const struct kernel_val *v, u64 word)
{
	return v->size && v->size < 8 ? word & ((1ull << (8 * v->size)) - 1) : word;
}

static s64 extended(const struct kernel_val *v, u64 word)
{
	u32 spare = v->size && v->size < 8 ? 64 - 8u * v->size : 0;

	return (s64)(word << spare) >> spare;
}

static bool is_decimal(const struct kernel_val *v)
{
	return (v->kind == KERNEL_VAL_SIGNED || v->kind == KERNEL_VAL_ENUM) && v->size <= 8;
}

static char *fmt_s64(char *p, s64 v)
{
	if (v < 0)
		*p++ = '-';
	return fmt_u64(p, v < 0 ? 0 - (u64)v : (u64)v);
}

static char *fmt_word(char *p, u64 word)
{
	return fmt_hex(FMT_LIT(p, "0x"), word, 1);
}

/* Words that @v takes of the @n that there are; 0: it was not passed in them. */
static u32 words_of(const struct kernel_val *v, u32 n)
{
	u32 words = (v->size + 7u) / 8;

	return words && words <= 2 && v->reg < n && words <= n - v->reg ? words : 0;
}

/* 0x1 or 0x1:0x2 */
static char *fmt_words(char *p, const struct kernel_val *v, const u64 *word, u32 n)
{
	if (n == 1)
		return fmt_word(p, own_bits(v, *word));
	return fmt_word(FMT_LIT(fmt_word(p, word[0]), ":"), word[1]);
}

static char *fmt_value(char *p, const struct kernel_val *v, const u64 *word, u32 n)
{
	if (!n)
		return FMT_LIT(p, "...");
	if (is_decimal(v))
		return fmt_s64(p, extended(v, *word));
	if (v->kind == KERNEL_VAL_OTHER)
		return FMT_LIT(fmt_words(FMT_LIT(p, "(STRUCT)["), v, word, n), "]");
	return fmt_words(p, v, word, n);
}

/* One behind which there are only others without a value ends the list. */
static bool any_value_from(const struct kernel_func *f, u32 first, u32 n_args)
{
	for (u32 i = first; i < f->n_params; i++) {
		if (words_of(&f->params[i], n_args))
			return true;
	}
	return false;
}

static char *fmt_plain_args(char *p, const struct trace_record *r)
{
	for (u32 i = 0; i < r->n_args; i++)
		p = fmt_word(i ? FMT_LIT(p, ", ") : p, r->args[i]);
	return p;
}

char *fmt_args(char *p, const struct trace_record *r, const struct output_names *names)
{
	struct kernel_func f;

	*p++ = '(';
	if (!r->n_args)
		return FMT_LIT(p, ")");
	if (!find_func(r->ip, names, &f))
		return FMT_LIT(fmt_plain_args(p, r), ")");
	for (u32 i = 0; i < f.n_params; i++) {
		const struct kernel_val *v = &f.params[i];
		u32 n = words_of(v, r->n_args);

		if (i)
			p = FMT_LIT(p, ", ");
		if (!any_value_from(&f, i, r->n_args)) {
			p = FMT_LIT(p, "...");
			break;
		}
		if (*v->name)
			p = FMT_LIT(fmt_printable(p, v->name, strnlen(v->name, VALUE_NAME_MAX)),
				    "=");
		p = fmt_value(p, v, &r->args[n ? v->reg : 0], n);
	}
	return FMT_LIT(p, ")");
}

static bool is_error(s64 v)
{
	return v < 0 && v >= -ERRNO_MAX;
}

/* Is what was returned an error's number? @v: NULL when there is no prototype */
static bool retval_error(const struct kernel_val *v, u64 word, s64 *ret)
{
	*ret = v ? extended(v, word) : (s64)word;
	if (!v && !(word >> 32))
		*ret = (s32)word;
	if (v && v->kind == KERNEL_VAL_UNSIGNED && v->size < 8)
		return false;
	return (!v || v->kind <= KERNEL_VAL_SIGNED || v->kind == KERNEL_VAL_POINTER) &&
	       is_error(*ret);
}

char *fmt_retval(char *p, const struct trace_record *r, const struct output_names *names)
{
	struct kernel_func f;
	bool known = find_func(r->ip, names, &f);
	s64 error;

	if (retval_error(known ? &f.ret : NULL, r->retval, &error))
		return fmt_s64(p, error);
	return fmt_word(p, known ? own_bits(&f.ret, r->retval) : r->retval);
}

/* Linux's own numbers, which no user ever sees (include/linux/errno.h v6.12), and the others. */
static const char *error_name(s64 error)
{
	static const char *const internal[] = {
		[0] = "ERESTARTSYS",     "ERESTARTNOINTR", "ERESTARTNOHAND", "ENOIOCTLCMD",
		"ERESTART_RESTARTBLOCK", "EPROBE_DEFER",   "EOPENSTALE",     "ENOPARAM",
	};

	if (error <= -512 && error > -512 - (s64)ARRAY_SIZE(internal))
		return internal[-512 - error];
	return strerrorname_np((int)-error);
}

static char *fmt_json_name(char *p, const char *name)
{
	return fmt_json_escaped(p, name, strnlen(name, VALUE_NAME_MAX));
}

static char *fmt_json_type(char *p, const struct kernel_val *v)
{
	const char *type = v->type;

	if (!*type)
		type = v->kind == KERNEL_VAL_POINTER ? "void"
		       : v->kind == KERNEL_VAL_ENUM  ? "enum"
						     : "struct";
	p = fmt_json_name(FMT_LIT(p, "\"type\":\""), type);
	if (v->kind == KERNEL_VAL_POINTER)
		p = FMT_LIT(p, " *");
	return FMT_LIT(p, "\"");
}

/* " (PIDTYPE_TGID)", if it is an enum's value that has a name */
static char *fmt_json_enumerator(char *p, const struct kernel_val *v, u64 word,
				 const struct output_names *names)
{
	const char *name = NULL;

	if (v->kind == KERNEL_VAL_ENUM && v->size <= 8 && names->enumerator)
		name = names->enumerator(names->arg, v, extended(v, word));
	return name ? FMT_LIT(fmt_json_name(FMT_LIT(p, " ("), name), ")") : p;
}

static char *fmt_json_arg(char *p, const struct kernel_val *v, const u64 *word, u32 n,
			  const struct output_names *names)
{
	p = fmt_json_name(FMT_LIT(p, "{\"name\":\""), v->name);
	p = fmt_json_type(FMT_LIT(p, "\","), v);
	if (n)
		p = FMT_LIT(fmt_words(FMT_LIT(p, ",\"value\":\""), v, word, n), "\"");
	else
		p = FMT_LIT(p, ",\"value\":null");
	p = fmt_value(FMT_LIT(p, ",\"text\":\""), v, word, n);
	if (n)
		p = fmt_json_enumerator(p, v, *word, names);
	return FMT_LIT(p, "\"}");
}

static char *fmt_json_plain(char *p, u64 word)
{
	p = fmt_word(FMT_LIT(p, "\"type\":null,\"value\":\""), word);
	return FMT_LIT(p, "\",\"text\":\"");
}

static char *fmt_json_args(char *p, const struct trace_record *r, const struct output_names *names)
{
	struct kernel_func f;
	bool known = find_func(r->ip, names, &f);
	u32 n_params = known ? f.n_params : r->n_args;

	p = FMT_LIT(p, ",\"args\":[");
	for (u32 i = 0; i < n_params; i++) {
		u32 n = known ? words_of(&f.params[i], r->n_args) : 0;

		if (i)
			*p++ = ',';
		if (known) {
			p = fmt_json_arg(p, &f.params[i], &r->args[n ? f.params[i].reg : 0], n,
					 names);
			continue;
		}
		p = fmt_json_plain(FMT_LIT(p, "{\"name\":null,"), r->args[i]);
		p = FMT_LIT(fmt_word(p, r->args[i]), "\"}");
	}
	return FMT_LIT(p, "]");
}

static char *fmt_json_retval(char *p, const struct trace_record *r,
			     const struct output_names *names)
{
	struct kernel_func f;
	bool known = find_func(r->ip, names, &f);
	const char *name;
	s64 error;

	p = FMT_LIT(p, ",\"retval\":{");
	if (known) {
		p = FMT_LIT(fmt_json_type(p, &f.ret), ",\"value\":\"");
		p = FMT_LIT(fmt_word(p, own_bits(&f.ret, r->retval)), "\",\"text\":\"");
	} else {
		p = fmt_json_plain(p, r->retval);
	}
	if (retval_error(known ? &f.ret : NULL, r->retval, &error)) {
		p = fmt_s64(p, error);
		name = error_name(error);
		if (name)
			p = FMT_LIT(fmt_bytes(FMT_LIT(p, " ("), name, strlen(name)), ")");
	} else if (known && is_decimal(&f.ret)) {
		p = fmt_s64(p, extended(&f.ret, r->retval));
		p = fmt_json_enumerator(p, &f.ret, r->retval, names);
	} else {
		p = fmt_word(p, known ? own_bits(&f.ret, r->retval) : r->retval);
	}
	return FMT_LIT(p, "\"}");
}

char *fmt_values_json(char *p, const struct trace_record *r, const struct output_names *names)
{
	if (r->type == TRACE_GRAPH_RETURN)
		return r->has_retval ? fmt_json_retval(p, r, names) : p;
	return r->n_args ? fmt_json_args(p, r, names) : p;
}
