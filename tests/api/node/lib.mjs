// SPDX-License-Identifier: Apache-2.0
// The daemon over its engine without guests, for checks that need packages; and HTTP over its socket.
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import Ajv2020 from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import yaml from 'js-yaml';

export const top = join(dirname(fileURLToPath(import.meta.url)), '../../..');
export const document = yaml.load(readFileSync(join(top, 'api/openapi.yaml'), 'utf8'));

export class Daemon {
	constructor(...args) {
		this.dir = mkdtempSync(join(tmpdir(), 'hvf-node-'));
		this.socket = join(this.dir, 'api.sock');
		this.log = '';
		this.process = spawn(process.env.HVFTRACED, ['--state-dir', join(this.dir, 'state'), '--listen',
			`unix:${this.socket}`, ...args], { stdio: ['ignore', 'ignore', 'pipe'] });
		this.process.stderr.on('data', data => { this.log += data; });
		this.exit = new Promise(done => this.process.on('exit', done));
	}

	async up() {
		while (!this.log.includes('listening on')) {
			if (this.process.exitCode !== null)
				throw new Error(this.log);
			await new Promise(done => setTimeout(done, 10));
		}
		return this;
	}

	async stop() {
		this.process.kill('SIGTERM');
		const status = await this.exit;
		rmSync(this.dir, { recursive: true, force: true });
		if (status !== 0 || /Sanitizer|runtime error:/.test(this.log))
			throw new Error(`the daemon ended with ${status}: ${this.log}`);
	}

	// Whatever comes; a stream is read for a moment. Fails when the daemon hangs or just closes.
	request(method, path, { body, headers = {}, raw } = {}) {
		const data = raw ?? (body === undefined ? undefined : JSON.stringify(body));
		return new Promise((done, fail) => {
			const rq = http.request({ socketPath: this.socket, method, path, agent: false, headers: {
				...(data === undefined ? {} : { 'content-type': 'application/json' }), ...headers } });
			const late = setTimeout(() => { rq.destroy(new Error(`${method} ${path}: no answer`)); }, 20000);
			rq.on('error', fail);
			rq.on('response', r => {
				let text = '';
				const end = () => {
					clearTimeout(late);
					done({ status: r.statusCode, headers: r.headers, text,
						type: (r.headers['content-type'] ?? '').split(';')[0] });
				};
				r.setEncoding('utf8');
				r.on('data', piece => { text += piece; });
				r.on('end', end);
				if (/\/stream(\?|$)|\/console\?.*follow=true/.test(path) && r.statusCode === 200) {
					setTimeout(() => { end(); rq.destroy(); }, 20);
					r.on('error', () => {});
				} else {
					r.on('error', fail);
				}
			});
			rq.end(data);
		});
	}
}

const ajv = new Ajv2020({ strict: false, allErrors: true, validateFormats: true });
addFormats(ajv);
ajv.addSchema({ $id: 'https://hvftrace.invalid/openapi', ...document });

export function resolve(node) {
	return node.$ref ? node.$ref.slice(2).split('/').reduce((at, key) => at[key], document) : node;
}

const compiled = new Map();

// A schema of the document, whose references are to the document's root.
export function validator(schema) {
	const key = JSON.stringify(schema);
	if (!compiled.has(key))
		compiled.set(key, ajv.compile(JSON.parse(key.replaceAll('"#/', '"https://hvftrace.invalid/openapi#/'))));
	return compiled.get(key);
}

// What an answer is, held against what the document says. Returns what is wrong, or null.
export function judge(operation, reply) {
	const responses = operation.responses;
	const found = responses[reply.status] ?? responses[`${Math.floor(reply.status / 100)}XX`];
	if (!found)
		return `status ${reply.status} is not described`;
	const response = resolve(found);
	if (reply.status === 204)
		return reply.text === '' ? null : '204 with a body';
	const content = response.content?.[reply.type];
	if (!content)
		return `${reply.status} of type ${reply.type} is not described`;
	const item = content['x-item-schema'];
	const lines = reply.type === 'application/x-ndjson' ? reply.text.split('\n').slice(0, -1)
		: reply.type.endsWith('json') ? [reply.text] : [];
	for (const line of lines) {
		const check = validator(item ?? content.schema);
		if (!check(JSON.parse(line)))
			return `${line}: ${JSON.stringify(check.errors)}`;
	}
	return null;
}

export function* operations() {
	for (const [path, item] of Object.entries(document.paths)) {
		for (const method of ['get', 'post', 'patch', 'delete', 'put']) {
			if (item[method])
				yield { path, method: method.toUpperCase(), operation: item[method],
					parameters: [...(item.parameters ?? []), ...(item[method].parameters ?? [])].map(resolve) };
		}
	}
}
