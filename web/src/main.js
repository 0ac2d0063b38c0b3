// SPDX-License-Identifier: Apache-2.0
// The page: guests on the left, one guest or one trace on the right.

import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { download, hasToken, seg, send, useToken } from "./api.js";
import { clean, count, plural } from "./format.js";
import { go, guestNamed, linkGuest, linkTrace, poll, refresh, start, state, traceNamed } from "./store.js";
import { EventsView } from "./ui/events.js";
import { GuestView } from "./ui/guest.js";
import { Button, Empty, Failure, Field, Icon, Loading, State, html, useStore } from "./ui/kit.js";
import { TraceView } from "./ui/trace.js";

const THEMES = { auto: ["auto", "As the system"], light: ["sun", "Light"], dark: ["moon", "Dark"] };

function useTheme() {
	const [theme, set] = useState(() => { try { return THEMES[localStorage.theme] ? localStorage.theme : "auto"; } catch { return "auto"; } });
	const [system, setSystem] = useState(() => matchMedia("(prefers-color-scheme: dark)").matches);
	useEffect(() => {
		const media = matchMedia("(prefers-color-scheme: dark)"), look = () => setSystem(media.matches);
		media.addEventListener("change", look);
		return () => media.removeEventListener("change", look);
	}, []);
	document.documentElement.dataset.theme = theme === "auto" ? system ? "dark" : "light" : theme;
	const next = () => {
		const names = Object.keys(THEMES), to = names[(names.indexOf(theme) + 1) % names.length];
		try { localStorage.theme = to; } catch { /* not kept then */ }
		set(to);
	};
	return [theme, next, document.documentElement.dataset.theme];
}

function Attach({ onDone }) {
	const [target, setTarget] = useState("");
	const [name, setName] = useState("");
	const [busy, setBusy] = useState("");
	const [problem, setProblem] = useState(null);
	const attach = async (t, n) => {
		setBusy(t);
		setProblem(null);
		try {
			const g = await send("POST", "/v1/guests", n ? { target: t, name: n } : { target: t });
			await refresh();
			go(linkGuest(g.name));
			onDone?.();
		} catch (e) {
			setProblem(e);
		}
		setBusy("");
	};
	const found = state.machines?.filter((m) => !m.guest) ?? [];
	return html`<div class="attach">
		<h2>Found on this host</h2>
		${state.machines === null ? html`<${Loading} what="Looking" />` : found.length === 0 ? html`<p class="hint">No other virtual machines were found. A target can be given below.</p>` :
			html`<ul class="machines">${found.map((m) => html`<li key=${m.target}>
				<div><strong>${clean(m.name, 60) || "(no name)"}</strong> <span class="faint">
					${m.accel}${m.vcpus ? `, ${plural(m.vcpus, "vCPU")}` : ""}${m.pid ? `, process ${m.pid}` : ""}</span>
				<code>${clean(m.target, 200)}</code>${!m.traceable && html`<span class="warn">
					<${Icon} name="warn" /> ${clean(m.reason, 160)}</span>`}</div>
				<${Button} kind="small" disabled=${!m.traceable || !!busy} onClick=${() => attach(m.target, "")}
					aria-label=${`Attach ${clean(m.name, 60) || m.target}`}>
					${busy === m.target ? "Attaching…" : "Attach"}<//></li>`)}</ul>`}
		${state.machinesNote && html`<p class="hint">${clean(state.machinesNote, 300)}</p>`}
		<h2>Or say which</h2>
		<form onSubmit=${(e) => { e.preventDefault(); attach(target.trim(), name.trim()); }}>
			<${Field} id="a-target" label="Target"
				hint="libvirt:qemu:///system/NAME, qemu:/PATH/OF/QMP-SOCKET or pid:N">
				<input id="a-target" class="mono wide" required spellcheck="false" autocomplete="off"
				value=${target} onInput=${(e) => setTarget(e.target.value)} aria-describedby="a-target-hint" /><//>
			<${Field} id="a-name" label="Name" hint="without one it is derived from the target">
				<input id="a-name" spellcheck="false" autocomplete="off"
				pattern="[A-Za-z0-9_][A-Za-z0-9._\\-]{0,63}" value=${name} onInput=${(e) => setName(e.target.value)} aria-describedby="a-name-hint" /><//>
			<button type="submit" class="button primary" disabled=${!!busy || !target.trim()}>
				<${Icon} name="plus" />${busy ? "Attaching…" : "Attach"}</button>
		</form>
		${problem && html`<${Failure} problem=${problem} onClose=${() => setProblem(null)} />`}
	</div>`;
}

function Token() {
	const [text, set] = useState("");
	const [problem, setProblem] = useState(null);
	const enter = async (e) => {
		e.preventDefault();
		try {
			await useToken(text.trim());
			set("");
			await poll();
		} catch (p) {
			setProblem(p);
		}
	};
	return html`<form class="token" onSubmit=${enter}>
		<h1>This daemon asks who you are</h1>
		<p class="lead">Give a token that it knows (<code>hvftrace token add</code> makes one).
			This tab keeps it until it is closed, and sends it to this daemon alone.</p>
		${problem && html`<${Failure} problem=${problem} onClose=${() => setProblem(null)} />`}
		<${Field} id="token" label="Token">
			<input id="token" type="password" autocomplete="off" required value=${text}
			onInput=${(e) => set(e.target.value)} /><//>
		<button type="submit" class="button primary">Go on</button></form>`;
}

function Sidebar({ route, onMove }) {
	const traces = state.traces ?? [], at = route.trace ? traceNamed(route.trace)?.guest : route.guest;
	return html`<nav class="guests" aria-label="Guests">
		<div class="guests-head"><h2>Guests</h2>
			<a class="button quiet small" href="#/" onClick=${onMove}
			aria-current=${!route.guest && !route.trace && !route.place ? "page" : null}>
			<${Icon} name="plus" />Attach</a></div>
		${state.guests === null ? html`<${Loading} what="Asking the daemon" />` : state.guests.length === 0 ? html`<p class="hint">None is attached.</p>` :
			html`<ul>${state.guests.map((g) => html`<li key=${g.name}>
				<a class="guest-link" href=${linkGuest(g.name)} onClick=${onMove}
					aria-current=${route.guest === g.name ? "page" : null} data-open=${at === g.name}>
					<span class="guest-name">${g.name}</span><${State} value=${g.state} />
						<span class="faint clip">${clean(g.release, 60)}</span></a>
				${traces.filter((t) => t.guest === g.name).map((t) => html`<a key=${t.id} class="trace-link"
					href=${linkTrace(t.id)} onClick=${onMove} aria-current=${route.trace === t.id ? "page" : null}>
					<span>${t.id} <span class="mono faint">${t.tracer}</span></span>
						<${State} value=${t.state}
						label=${t.state === "running" ? count(t.records) : t.state} /></a>`)}
			</li>`)}</ul>`}
	</nav>`;
}

function Main({ theme }) {
	const { guest: g, trace: t, view } = state.route;
	if (state.needsToken)
		return html`<${Token} />`;
	if (state.guests === null)
		return state.problem ? html`<${Failure} problem=${state.problem} />` : html`<${Loading} what="Asking the daemon" />`;
	if (state.route.place === "events")
		return html`<${EventsView} />`;
	if (t) {
		const trace = traceNamed(t);
		return trace ? html`<${TraceView} key=${t} trace=${trace} view=${view} theme=${theme} />`
			: html`<${Empty} alone title=${`There is no trace ${clean(t, 40)}`}>It was deleted, or the daemon was started anew. <a href="#/">Guests</a><//>`;
	}
	if (g) {
		const guest = guestNamed(g);
		return guest ? html`<${GuestView} key=${g} guest=${guest} view=${view} theme=${theme} />`
			: html`<${Empty} alone title=${`No guest ${clean(g, 64)} is attached`}>It was detached. <a href="#/">Attach one</a><//>`;
	}
	return html`<header class="page-head"><h1>Attach a guest</h1>
		<p class="lead">A running Linux guest of this host. It is found out from outside, and nothing in it changes until a trace starts.</p></header><${Attach} />`;
}

/** a link brings no token */
function onMetrics(e) {
	if (!hasToken())
		return;
	e.preventDefault();
	download("/metrics", "hvftrace.metrics.txt").catch(poll);
}

function App() {
	useStore();
	const [theme, nextTheme, shown] = useTheme();
	const [menu, setMenu] = useState(false);
	const main = useRef(null);
	const { guest: g, trace: t, place } = state.route;
	useEffect(() => { document.title = `${t ?? g ?? (place ? "Events" : "Attach a guest")} · hvftrace`; }, [g, t, place]);
	const lost = state.problem && state.guests !== null && !state.needsToken;
	return html`<a class="skip" href="#main"
		onClick=${(e) => { e.preventDefault(); main.current.focus(); }}>To the content</a>
		<header class="top">
			<button type="button" class="button quiet menu-button" aria-expanded=${menu} aria-controls="side"
				onClick=${() => setMenu(!menu)}><${Icon} name="menu" /><span class="hidden">Guests</span></button>
			<a class="brand" href="#/"><svg viewBox="0 0 20 16" aria-hidden="true">
				<path d="M1 2h18M5 8h10M9 14h6" /></svg>hvftrace</a>
			${state.version && html`<span class="faint version">${state.version.version}</span>`}
			<span class="grow"></span>
			<a class="top-link" href="#/events"
				aria-current=${state.route.place === "events" ? "page" : null}>Events</a>
				<a class="top-link" href="/openapi.yaml">API</a><a class="top-link" href="/metrics" onClick=${onMetrics}>Metrics</a>
			<button type="button" class="button quiet small" onClick=${nextTheme}
				aria-label=${`Colours: ${THEMES[theme][1]}. Change`}><${Icon} name=${THEMES[theme][0]} />
				<span class="theme-name">${THEMES[theme][1]}</span></button>
		</header>
		${lost && html`<div class="lost-daemon" role="alert">
			<${Icon} name="warn" /> ${state.problem.message}; what is shown may be old. ${state.problem.hint ?? ""}.</div>`}
		<div class="body">
			<div id="side" class=${`side ${menu ? "is-open" : ""}`}>
				<${Sidebar} route=${state.route} onMove=${() => setMenu(false)} /></div>
			<main id="main" ref=${main} tabindex="-1"><${Main} theme=${shown} /></main>
		</div>`;
}

start();
render(html`<${App} />`, document.getElementById("page"));
