// SPDX-License-Identifier: Apache-2.0
// Makes web/dist from web/src: `node build.mjs`. With --check it makes it elsewhere and compares.

import { build } from "esbuild";
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, mkdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const source = (...p) => join(here, "src", ...p);
const modules = (...p) => join(here, "node_modules", ...p);

const FONTS = { "sans-400": ["sans", 400], "sans-600": ["sans", 600], "mono-400": ["mono", 400], "mono-600": ["mono", 600] };
const LICENCES = {
	"Preact": "preact/LICENSE",
	"htm": "htm/LICENSE",
	"uPlot": "uplot/LICENSE",
	"IBM Plex Sans": "@fontsource/ibm-plex-sans/LICENSE",
	"IBM Plex Mono": "@fontsource/ibm-plex-mono/LICENSE",
};
const BANNER = "/*! SPDX-License-Identifier: Apache-2.0 - made from web/src by web/build.mjs; parts of others: /assets/licences.txt */";

function licences() {
	let text = "The page of hvftrace (Apache-2.0) has these parts of others.\n";
	for (const [name, file] of Object.entries(LICENCES))
		text += `\n${"=".repeat(78)}\n${name}\n\n${readFileSync(modules(file), "utf8").trim()}\n`;
	return text;
}

async function make(out) {
	mkdirSync(out, { recursive: true });
	await build({
		entryPoints: { page: source("main.js") },
		outdir: out,
		bundle: true,
		minify: true,
		format: "esm",
		target: ["es2022"],
		charset: "utf8",
		legalComments: "none",
		banner: { js: BANNER },
		logLevel: "warning",
	});
	await build({
		entryPoints: { page: source("page.css") },
		outdir: out,
		bundle: true,
		minify: true,
		target: ["chrome111", "firefox113", "safari16.4"],
		external: ["/assets/*"],
		banner: { css: BANNER },
		legalComments: "none",
		logLevel: "warning",
	});
	for (const name of ["index.html", "icon.svg"])
		cpSync(source(name), join(out, name));
	for (const [name, [family, weight]] of Object.entries(FONTS))
		cpSync(modules(`@fontsource/ibm-plex-${family}/files/ibm-plex-${family}-latin-${weight}-normal.woff2`),
			join(out, `${name}.woff2`));
	writeFileSync(join(out, "licences.txt"), licences());
}

function differences(a, b) {
	const names = new Set([...readdirSync(a), ...readdirSync(b)]);
	const read = (d, n) => { try { return readFileSync(join(d, n)); } catch { return Buffer.alloc(0); } };
	return [...names].filter((n) => !read(a, n).equals(read(b, n)));
}

if (process.argv[2] === "--check") {
	const out = mkdtempSync(join(tmpdir(), "hvf-page-"));
	try {
		await make(out);
		const bad = differences(join(here, "dist"), out);
		if (bad.length) {
			console.error(`web/dist is not what web/src gives: ${bad.join(", ")}; run: npm run build`);
			process.exitCode = 1;
		}
	} finally {
		rmSync(out, { recursive: true });
	}
} else {
	await make(join(here, "dist"));
}
