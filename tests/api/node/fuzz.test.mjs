// SPDX-License-Identifier: Apache-2.0
// Every operation of openapi.yaml with what is good, nearly good and nonsense: the answer is always one that the
// document describes; never a 5xx, a hang or a connection that just closes. What the schema refuses is refused.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { Daemon, document, judge, operations, resolve, validator } from './lib.mjs';

const runs = Number(process.env.HVF_FUZZ_RUNS ?? 40);
const seed = process.env.HVF_FUZZ_SEED ? Number(process.env.HVF_FUZZ_SEED) : undefined;
let daemon;

before(async () => { daemon = await new Daemon('--heartbeat', '0.01').up(); });
after(() => daemon.stop());

const words = ['a', '', 'x'.repeat(600), 'ä\u0001', '../..', '%', '*', 'vfs_*', 'tcp_fn_001', '\\', '[', '{}',
	'fake', 'qemu:/fake', 'pid:1', 'libvirt:x', '2026-01-01T00:00:00Z', 'function', 'function_graph', 'stop',
	'funcgraph-proc', '0', '-1', '9223372036854775808'];
const text = fc.oneof(fc.constantFrom(...words), fc.string({ maxLength: 40 }));
const junk = fc.oneof(fc.constant(null), fc.boolean(), fc.integer(), fc.double({ noNaN: true, noDefaultInfinity: true }),
	text, fc.array(text, { maxLength: 3 }), fc.dictionary(text, text, { maxKeys: 3 }));

// Values that fit a schema of the document, as far as it is used for what goes in.
function fitting(node) {
	const schema = resolve(node);
	if (schema.enum)
		return fc.constantFrom(...schema.enum);
	if (schema.type === 'boolean')
		return fc.boolean();
	if (schema.type === 'integer') {
		const min = schema.minimum ?? 0, max = Math.min(schema.maximum ?? min + 100000, min + 100000);
		return fc.oneof(fc.integer({ min, max }), fc.constantFrom(min, schema.maximum ?? max));
	}
	if (schema.type === 'array')
		return fc.array(fitting(schema.items), { maxLength: 4 });
	if (schema.type === 'object') {
		const parts = Object.fromEntries(Object.entries(schema.properties).map(([k, v]) => [k, fitting(v)]));
		return fc.record(parts, { requiredKeys: schema.required ?? [] });
	}
	if (schema.pattern)
		return fc.stringMatching(new RegExp(schema.pattern), { size: 'xsmall' });
	return text.filter(s => validator(schema)(s) && !s.startsWith('libvirt:'));
}

// Nearly: members of another kind, missing or unknown.
const broken = schema => fc.tuple(fitting(schema), fc.constantFrom(...Object.keys(resolve(schema).properties), 'x'),
	fc.option(junk)).map(([value, key, other]) => {
	const copy = { ...value };
	if (other === null)
		delete copy[key];
	else
		copy[key] = other;
	return copy;
});

const bytes = operation => operation.requestBody?.content['application/octet-stream'];

function bodies(operation) {
	const schema = operation.requestBody?.content['application/json']?.schema;
	if (bytes(operation))
		return fc.record({ raw: fc.uint8Array({ maxLength: 5000 }).map(raw => Buffer.from(raw)),
			headers: fc.constantFrom({ 'content-type': 'application/octet-stream' }, {},
				{ 'content-type': 'application/octet-stream', origin: 'http://evil.example' }) });
	if (!schema)
		return fc.oneof(fc.constant({}), fc.constant({ body: {} }), junk.map(body => ({ body })));
	return fc.oneof(fitting(schema).map(body => ({ body })), broken(schema).map(body => ({ body })),
		junk.map(body => ({ body })), fc.uint8Array({ maxLength: 60 }).map(raw => ({ raw: Buffer.from(raw) })),
		fc.record({ body: fitting(schema), headers: fc.constantFrom({ 'content-type': 'text/plain' },
			{ 'content-type': 'application/json; charset=utf-8' }, { origin: 'http://evil.example' }) }));
}

function queries(parameters) {
	const known = parameters.filter(p => p.in === 'query');
	const names = [...known.map(p => p.name), 'x', 'limit'];
	const good = known.map(p => fc.option(fitting(p.schema.type === 'array' ? p.schema.items : p.schema))
		.map(v => v === null ? [] : [[p.name, String(v)]]));
	return fc.oneof({ weight: 3, arbitrary: fc.tuple(...good).map(x => x.flat()) },
		{ weight: 1, arbitrary: fc.array(fc.tuple(fc.constantFrom(...names), text), { maxLength: 4 }) })
		.map(list => list.map(([k, v]) => `${encodeURIComponent(k)}=${encodeURIComponent(v)}`).join('&'));
}

const accepts = fc.constantFrom({}, { accept: 'text/event-stream' }, { accept: 'text/plain' }, { accept: 'image/png' },
	{ 'last-event-id': '1' }, { 'last-event-id': '1.end' }, { 'last-event-id': 'x' }, { accept: ',;q=' });

// A guest and a trace for operations that need one; what was there before goes.
async function prepare() {
	for (const g of JSON.parse((await daemon.request('GET', '/v1/guests')).text).items)
		await daemon.request('DELETE', `/v1/guests/${g.name}?force=true`);
	await daemon.request('POST', '/v1/guests', { body: { target: 'qemu:/fake-console', name: 'g' } });
	const t = await daemon.request('POST', '/v1/guests/g/traces', { body: { tracer: 'function' } });
	return JSON.parse(t.text).id;
}

for (const { path, method, operation, parameters } of operations()) {
	test(`${operation.operationId}: ${method} ${path}`, async () => {
		const schema = operation.requestBody?.content['application/json']?.schema;
		const trace = await prepare();
		const name = fc.oneof({ weight: 3, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: text });
		await fc.assert(fc.asyncProperty(name, bodies(operation), queries(parameters), accepts,
			async (other, body, query, accept) => {
				const place = other ? encodeURIComponent(other) : null;
				const real = path.replace('{g}', place ?? 'g').replace('{t}', place ?? trace) +
					(query ? `?${query}` : '');
				const reply = await daemon.request(method, real,
					{ ...body, headers: { ...accept, ...body.headers } });
				assert.ok(reply.status < 500, `${method} ${real}: ${reply.status} ${reply.text}`);
				// a name with a slash in it, encoded or not, may be another path; it is described too, or 404
				const wrong = place && reply.status >= 400 ? null : judge(operation, reply);
				assert.equal(wrong, null, `${method} ${real} ${JSON.stringify(body)}`);
				if (reply.status >= 400)
					assert.match(reply.type, /^application\/problem\+json$/);
				if (bytes(operation) && reply.status < 300)
					assert.ok(body.raw.length <= bytes(operation).schema.maxLength);
				if (schema && 'body' in body && reply.status < 300)
					assert.ok(validator(schema)(body.body), `taken, though the schema refuses it: ${reply.text}`);
			}), { numRuns: runs, seed, interruptAfterTimeLimit: 60000 });
		assert.equal((await daemon.request('GET', '/healthz')).status, 200);
	});
}

test('the document is what the daemon serves', async () => {
	const served = (await daemon.request('GET', '/openapi.yaml')).text;
	assert.ok(served.startsWith('openapi: 3.1.0'));
	assert.ok(Object.keys(document.paths).length > 15);
});
