// SPDX-License-Identifier: Apache-2.0
/* tracers/out_json.c, read back by an independent parser (jansson). */
#include "guest-agent/agent_abi.h"
#include "tracers/fmt.h"
#include "tracers/output.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct one_name {
	const char *name, *module;
};

static bool one_sym(void *arg, u64 addr, struct kernel_sym *ret, u64 *off_ret)
{
	const struct one_name *n = arg;

	if (!n->name)
		return false;
	*ret = (struct kernel_sym){ .name = n->name, .module = n->module };
	*off_ret = addr & 0xff;
	return true;
}

static void a_record_byte_for_byte(void **state)
{
	struct trace_record r = { .seq = 1,
				  .ts_ns = 12345,
				  .ip = 0xffffffff81234500,
				  .parent = 0xffffffff8123455f,
				  .pid = 1,
				  .tgid = 1,
				  .cpu = 0,
				  .ctx = 1,
				  .type = TRACE_FUNCTION,
				  .comm = "init" };
	struct one_name n = { "vfs_read", NULL };
	struct output_names names = { .sym = one_sym, .arg = &n };
	struct buf b = { 0 };

	(void)state;
	out_json_record(&b, &r, &names);
	assert_string_equal(
		b.data, "{\"seq\":1,\"type\":\"function\",\"ts_ns\":12345,\"cpu\":0,\"pid\":1,"
			"\"tgid\":1,\"comm\":\"init\",\"function\":\"vfs_read\",\"module\":null,"
			"\"ip\":\"0xffffffff81234500\",\"parent\":\"vfs_read+0x5f\","
			"\"context\":\"...1.\"}\n");
	buf_reset(&b);
	n = (struct one_name){ "dummy_xmit", "dummy" };
	r.tgid = 0;
	r.ctx = AGENT_CTX_IRQS_OFF;
	out_json_record(&b, &r, &names);
	assert_non_null(strstr(b.data, "\"tgid\":null,"));
	assert_non_null(strstr(b.data, "\"function\":\"dummy_xmit\",\"module\":\"dummy\","));
	assert_non_null(
		strstr(b.data, "\"parent\":\"dummy_xmit+0x5f [dummy]\",\"context\":\"d....\"}"));
	buf_reset(&b);
	n = (struct one_name){ NULL, NULL };
	r.pid = 0;
	out_json_record(&b, &r, &names);
	assert_non_null(strstr(b.data, "\"tgid\":0,"));
	assert_non_null(strstr(b.data, "\"function\":\"0xffffffff81234500\",\"module\":null,"));
	assert_non_null(strstr(b.data, "\"parent\":\"0xffffffff8123455f\","));
	buf_deinit(&b);
}

static void calls_and_returns(void **state)
{
	struct trace_record r = { .seq = 9,
				  .ts_ns = 12345,
				  .ip = 0xffffffff81234500,
				  .parent = 0xffffffff8123455f,
				  .duration_ns = 7000000000,
				  .depth = 3,
				  .pid = 1,
				  .type = TRACE_GRAPH_ENTRY };
	struct one_name n = { "f", NULL };
	struct output_names names = { .sym = one_sym, .arg = &n };
	struct buf b = { 0 };

	(void)state;
	out_json_record(&b, &r, &names);
	assert_non_null(strstr(b.data, "{\"seq\":9,\"type\":\"graph_entry\",\"ts_ns\":12345,"));
	assert_non_null(
		strstr(b.data, ",\"parent\":\"f+0x5f\",\"context\":\".....\",\"depth\":3}\n"));
	buf_reset(&b);
	r.type = TRACE_GRAPH_RETURN;
	out_json_record(&b, &r, &names);
	assert_non_null(strstr(b.data, "\"type\":\"graph_return\","));
	assert_non_null(strstr(b.data, ",\"parent\":null,\"context\":\".....\",\"depth\":3,"
				       "\"duration_ns\":7000000000}\n"));
	buf_reset(&b);
	r.type = TRACE_GRAPH_NEVER;
	out_json_record(&b, &r, &names);
	assert_non_null(strstr(b.data, "\"type\":\"graph_never\","));
	assert_non_null(strstr(b.data, ",\"depth\":3}\n"));
	buf_deinit(&b);
}

/* What U+FFFD replaces: every case of Unicode's table 3-7 just inside and just outside. */
static void utf8_is_checked(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{ "a\"b\\c", "\"a\\\"b\\\\c\"" },
		{ "\b\t\n\f\r", "\"\\b\\t\\n\\f\\r\"" },
		{ "\x01\x1f\x7f", "\"\\u0001\\u001f\\u007f\"" },
		{ "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
		  "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"" },
		{ "\x80", "\"\xef\xbf\xbd\"" },
		{ "\xc0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ "\xc3", "\"\xef\xbf\xbd\"" },
		{ "\xc3(", "\"\xef\xbf\xbd(\"" },
		{ "\xe0\x9f\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ "\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ "\xe2\x82", "\"\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ "\xf4\x90\x80\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ "\xf0\x8f\x80\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ "\xf4\x8f\xbf\xbf", "\"\xf4\x8f\xbf\xbf\"" },
		{ "\xff", "\"\xef\xbf\xbd\"" },
		{ "", "\"\"" },
	};
	struct buf b = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		buf_reset(&b);
		out_json_string(&b, cases[i].in, strlen(cases[i].in));
		assert_string_equal(b.data, cases[i].out);
	}
	buf_reset(&b);
	out_json_string(&b, "a\0b", 3);
	assert_string_equal(b.data, "\"a\\u0000b\"");
	buf_deinit(&b);
}

static u64 rng = 88172645463325252;

static u64 next_random(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

static void random_bytes(char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		s[i] = (char)next_random();
	s[n] = 0;
}

static void any_bytes_are_valid_json(void **state)
{
	char name[41], module[21];
	struct one_name n = { name, module };
	struct output_names names = { .sym = one_sym, .arg = &n };
	struct buf b = { 0 };

	(void)state;
	for (int i = 0; i < 5000; i++) {
		struct trace_record r = { .seq = next_random(),
					  .ts_ns = next_random() >> 1,
					  .ip = next_random(),
					  .parent = next_random(),
					  .pid = (u32)next_random(),
					  .tgid = (u32)next_random(),
					  .cpu = (u16)next_random(),
					  .ctx = (u16)next_random() };
		json_t *obj;

		r.seq >>= 1; /* jansson's integers are signed */
		random_bytes(r.comm, TRACE_COMM_LEN);
		random_bytes(name, 40);
		random_bytes(module, 20);
		buf_reset(&b);
		out_json_record(&b, &r, &names);
		assert_int_equal(b.data[b.len - 1], '\n');
		assert_ptr_equal(memchr(b.data, '\n', b.len), b.data + b.len - 1);
		obj = json_loadb(b.data, b.len, JSON_REJECT_DUPLICATES, NULL);
		assert_non_null(obj);
		assert_int_equal(json_object_size(obj), 12);
		assert_int_equal(json_integer_value(json_object_get(obj, "seq")), r.seq);
		assert_int_equal(json_integer_value(json_object_get(obj, "ts_ns")), r.ts_ns);
		assert_int_equal(json_integer_value(json_object_get(obj, "pid")), r.pid);
		assert_int_equal(strtoull(json_string_value(json_object_get(obj, "ip")), NULL, 16),
				 r.ip);
		json_decref(obj);
	}
	buf_deinit(&b);
}

static void a_name_without_end_is_cut(void **state)
{
	static char name[100000];
	struct one_name n = { name, name };
	struct output_names names = { .sym = one_sym, .arg = &n };
	struct trace_record r = { .pid = 1 };
	struct buf b = { 0 };
	json_t *obj;

	(void)state;
	memset(name, 1, sizeof(name) - 1);
	out_json_record(&b, &r, &names);
	obj = json_loadb(b.data, b.len, 0, NULL);
	assert_non_null(obj);
	assert_int_equal(strlen(json_string_value(json_object_get(obj, "function"))), 1024);
	json_decref(obj);
	buf_deinit(&b);
}

static void lost_and_end(void **state)
{
	struct output_meta meta = {
		.n_records = 10, .n_lost = 2, .n_functions = 63, .n_restored = 62, .restored = true
	};
	struct buf b = { 0 };

	(void)state;
	out_json_lost(&b, 12, 345, 357);
	assert_string_equal(b.data, "{\"type\":\"lost\",\"seq\":357,\"count\":12,\"after\":345}\n");
	buf_reset(&b);
	out_json_end(&b, &meta, "the \"guest\" is gone");
	assert_string_equal(b.data,
			    "{\"type\":\"end\",\"seq\":10,\"reason\":\"the \\\"guest\\\" is gone\","
			    "\"records\":10,\"lost\":2,\"functions\":63,\"restored\":62,"
			    "\"verified\":true,\"missed\":[]}\n");
	meta.missed_forks = meta.missed_switches = true;
	buf_reset(&b);
	out_json_end(&b, &meta, "stopped");
	assert_non_null(strstr(b.data, ",\"missed\":[\"forks\",\"switches\"]}\n"));
	buf_deinit(&b);
}

/* As the standard says it, one byte after the other; there is nothing past ASCII in @s. */
static void escape_plainly(char *p, const char *s, size_t len)
{
	static const char letters[] = "\bb\tt\nn\ff\rr\"\"\\\\";

	for (size_t i = 0; i < len; i++) {
		const char *l = strchr(letters, s[i]);

		if (s[i] && l && (l - letters) % 2 == 0)
			p += sprintf(p, "\\%c", l[1]);
		else if ((u8)s[i] < ' ' || s[i] == 0x7f)
			p += sprintf(p, "\\u%04x", s[i]);
		else
			*p++ = s[i];
	}
	*p = 0;
}

/* Eight bytes are looked at together: each byte at each place of each length. */
static void every_byte_at_every_place(void **state)
{
	char s[24], want[6 * sizeof(s) + 1];
	struct buf b = { 0 };

	(void)state;
	for (size_t len = 1; len < sizeof(s); len++) {
		for (size_t at = 0; at < len; at++) {
			for (int c = 0; c < 0x80; c++) {
				for (size_t i = 0; i < len; i++)
					s[i] = (char)('!' + 2 * (i % 3));
				s[at] = (char)c;
				escape_plainly(want, s, len);
				buf_reset(&b);
				out_json_string(&b, s, len);
				assert_int_equal(b.len, strlen(want) + 2);
				assert_memory_equal(b.data + 1, want, b.len - 2);
			}
		}
	}
	buf_deinit(&b);
}

static void addresses_are_hexadecimal(void **state)
{
	char got[17] = "", want[17];
	u64 v = 0x0123456789abcdef;

	(void)state;
	for (int i = 0; i < 100000; i++) {
		snprintf(want, sizeof(want), "%016llx", (unsigned long long)v);
		assert_ptr_equal(fmt_hex(got, v, 16), got + 16);
		assert_string_equal(got, want);
		v = i % 64 ? v * 6364136223846793005 + 1442695040888963407 : 0xfull << i % 61;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_at_every_place),
		cmocka_unit_test(addresses_are_hexadecimal),
		cmocka_unit_test(a_record_byte_for_byte),
		cmocka_unit_test(calls_and_returns),
		cmocka_unit_test(utf8_is_checked),
		cmocka_unit_test(any_bytes_are_valid_json),
		cmocka_unit_test(a_name_without_end_is_cut),
		cmocka_unit_test(lost_and_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
