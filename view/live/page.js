"use strict";
const $ = id => document.getElementById(id), token = new URLSearchParams(location.search).get("token");
const powers = 64;

// What is known.
let head = null, names = [], places = new Map(), kept = []; // places: by name's number; kept: the newest intervals
let live = null, over = false, connected = false;

// What is looked at.
const view = { sort: 2, up: false, filter: "", silent: false, chosen: -1, back: 60, span: null, zoom: null, held: null };

const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let ink = {};
function readInk() {
  for (const n of ["back", "card", "line", "soft", "text", "dim", "faint", "accent", "cut", "boxtext"]) ink[n] = css("--" + n);
  for (const n of ["cold", "hot", "box"]) ink[n] = css("--" + n).split(" ").map(parseFloat);
}

// took is a duration in three digits, as all of kprobe writes it.
function took(ns) {
  let unit = "ns";
  for (const next of ["us", "ms", "s"]) {
    if (ns < 999.5) break;
    ns /= 1000; unit = next;
  }
  return +ns.toFixed(unit === "ns" || ns >= 99.95 ? 0 : ns >= 9.995 ? 1 : 2) + " " + unit;
}
function count(n) {
  for (const [unit, of] of [["G", 1e9], ["M", 1e6], ["k", 1e4]])
    if (n >= of) { const v = n / (of === 1e4 ? 1e3 : of); return v.toFixed(v < 99.95 ? 1 : 0) + " " + unit; }
  return n >= 100 || Number.isInteger(n) ? String(Math.round(n)) : n.toFixed(1);
}
function clock(s) {
  s = Math.floor(s);
  const two = n => String(n).padStart(2, "0");
  return (s >= 3600 ? Math.floor(s / 3600) + ":" + two(Math.floor(s / 60) % 60) : Math.floor(s / 60)) + ":" + two(s % 60);
}
// part is the time that a part of calls did not exceed, as if those of one power were spread evenly.
function part(hist, n, p) {
  let want = p * n;
  for (let i = 0; i < powers; i++) {
    if (hist[i] && want <= hist[i]) return 2 ** i * (1 + want / hist[i]);
    want -= hist[i];
  }
  return 0;
}

// Events.
function connect() {
  live = new EventSource("events?token=" + encodeURIComponent(token || ""));
  live.addEventListener("start", e => start(JSON.parse(e.data)));
  live.addEventListener("interval", e => interval(JSON.parse(e.data)));
  live.addEventListener("end", () => { over = true; connected = false; live.close(); state(); draw(); });
  live.onopen = () => { connected = true; state(); };
  live.onerror = () => { connected = false; state(); };
}
function start(s) {
  head = s; names = s.names; kept = [];
  const chosen = view.chosen >= 0 ? view.chosenName : null; // after a reconnection numbers may be others
  places = new Map(s.known.map(p => [p.n, { total: p.h, missed: p.m, timed: p.t }]));
  view.chosen = chosen === null ? -1 : names.indexOf(chosen);
  view.span = view.zoom = view.held = null;
  $("title").textContent = s.title; $("title").title = s.title + " on " + s.host;
  $("places").textContent = $("places").title = s.places;
  document.title = s.title + " · kprobe top";
  $("note").textContent = s.notes.join(" · "); $("note").hidden = !s.notes.length;
  for (const b of $("range").children) {
    const far = b.dataset.n * s.interval;
    b.textContent = far >= 60 ? +(far / 60).toFixed(1) + " min" : +far.toFixed(1) + " s";
    b.title = "The last " + b.textContent;
  }
  connected = true;
  state(); later();
}
function interval(v) {
  for (let i = 0; i < v.names.length; i++) names[v.first + i] = v.names[i];
  for (const p of v.places) places.set(p.n, { total: p.h, missed: p.m, timed: p.t });
  v.no = kept.length ? kept.at(-1).no + 1 : 0;
  v.by = new Map(v.hits.map(h => [h[0], h]));
  kept.push(v);
  if (kept.length > head.kept) {
    kept.shift();
    if (view.held !== null) view.held = Math.max(1, view.held - 1);
    if (view.span) view.span = view.span.map(i => Math.max(0, i - 1));
  }
  if (view.held === null) later();
  state();
}
function state() {
  const word = over ? "ended" : live && live.readyState === EventSource.CLOSED ? "refused" : !connected ? head ? "lost" : "waiting" : view.held !== null ? "paused" : "live";
  const says = {
    ended: "ended", refused: "refused: open the link again", lost: "no connection, trying again", waiting: "connecting", live: "live",
    paused: "paused" + (view.held !== null && kept.length > view.held ? ", " + clock(kept.at(-1).at - kept[view.held - 1].at) + " behind" : ""),
  };
  document.body.dataset.state = word;
  if ($("word").textContent !== says[word]) $("word").textContent = says[word];
  $("pause").textContent = view.held !== null ? "Go on" : "Pause";
  $("pause").setAttribute("aria-pressed", view.held !== null);
  $("pause").hidden = over;
}

// The intervals that are shown, and those that figures and stacks are of.
function shown() {
  const end = view.held ?? kept.length;
  return [Math.max(0, end - view.back), end];
}
function meant() { return view.span ? [Math.max(0, view.span[0]), Math.min(kept.length, view.span[1])] : shown(); }

// rowsOf adds up the places of what is meant.
function rowsOf() {
  const [from, to] = meant(), sums = new Map();
  let passed = 0;
  for (let i = from; i < to; i++) {
    passed += kept[i].passed;
    for (const h of kept[i].hits) {
      let r = sums.get(h[0]);
      if (!r) sums.set(h[0], r = { hits: 0, calls: 0, hist: new Float64Array(powers) });
      r.hits += h[1];
      for (let k = 2; k < h.length; k += 2) { r.hist[h[k]] += h[k + 1]; r.calls += h[k + 1]; }
    }
  }
  const rows = [];
  for (const [n, p] of places) {
    const s = sums.get(n), r = { n, name: names[n], total: p.total, missed: p.missed, timed: p.timed, hits: s ? s.hits : 0 };
    r.rate = passed ? r.hits / passed : 0;
    r.p50 = s && s.calls ? part(s.hist, s.calls, .5) : -1;
    r.p99 = s && s.calls ? part(s.hist, s.calls, .99) : -1;
    rows.push(r);
  }
  return rows;
}
const columns = [
  { title: "place", key: r => r.name, text: r => r.name, up: true },
  { title: "", text: () => "" },
  { title: "hits/s", key: r => r.rate, text: r => r.rate ? count(r.rate) : "–" },
  { title: "p50", key: r => r.p50, text: r => r.p50 < 0 ? "–" : took(r.p50) },
  { title: "p99", key: r => r.p99, text: r => r.p99 < 0 ? "–" : took(r.p99) },
  { title: "hits", key: r => r.total, text: r => count(r.total) },
];
const mostRows = 400, few = 20;
let listed = [];

// apart is a place as it is read: the function, and where it is.
function apart(place) {
  const m = /^([^:]+):(?!:)(.+)$/.exec(place.replace(/\+0x0$/, ""));
  return m ? [m[2], m[1]] : [place, ""];
}

const passes = name => !view.filter || name.toLowerCase().includes(view.filter.toLowerCase());

function drawTable() {
  const all = rowsOf(), key = columns[view.sort].key, sign = columns[view.sort].up ? 1 : -1;
  const fit = all.filter(r => passes(r.name)), heard = fit.filter(r => view.silent || all.length <= few || r.total || r.n === view.chosen);
  heard.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * sign || b.total - a.total || (a.name < b.name ? -1 : 1));
  listed = heard.slice(0, mostRows);
  [...$("titles").children].forEach((th, i) => i === view.sort ? th.setAttribute("aria-sort", columns[i].up ? "ascending" : "descending") : th.removeAttribute("aria-sort"));
  const body = $("body");
  while (body.rows.length < listed.length) {
    const tr = body.insertRow();
    columns.forEach((_, i) => { const td = tr.insertCell(); td.className = "c" + i; if (i === 1) td.append(document.createElement("canvas"));
      if (i === 0) { td.append(document.createElement("span"), document.createElement("span")); td.lastChild.className = "in"; }
    });
    tr.onclick = () => choose(listed[tr.sectionRowIndex].n === view.chosen ? -1 : listed[tr.sectionRowIndex].n);
  }
  while (body.rows.length > listed.length) body.deleteRow(-1);
  listed.forEach((r, i) => {
    const tr = body.rows[i];
    columns.forEach((c, k) => { const text = c.text(r); if (k > 1 && tr.cells[k].textContent !== text) tr.cells[k].textContent = text; });
    const [name, where] = tr.cells[0].children, [f, module] = apart(r.name);
    if (name.textContent !== f) name.textContent = f;
    if (where.textContent !== module) where.textContent = module;
    tr.cells[0].title = r.name + (r.missed ? ` (${count(r.missed)} missed)` : "");
    tr.setAttribute("aria-selected", r.n === view.chosen);
    tr.classList.toggle("still", !r.rate);
    spark(tr.cells[1].firstChild, r.n);
  });
  const hidden = fit.length - heard.length, beyond = heard.length - listed.length;
  $("more").textContent = [
    beyond ? `${beyond} more: a filter finds them` : "", hidden ? `${hidden} places without a hit: a shows them` : "",
    !fit.length && all.length ? "no place has this in its name" : "", !all.length && head ? "the first figures are on their way" : "",
  ].filter(Boolean).join(" · ");
  let rate = 0, total = 0, missed = 0;
  for (const r of all) { rate += r.rate; total += r.total; missed += r.missed; }
  $("rate").textContent = count(rate); $("total").textContent = count(total);
  $("missed").textContent = count(missed); $("missed").className = missed ? "bad" : "";
  const [, end] = shown();
  $("elapsed").textContent = end ? clock(kept[end - 1].at) : "–";
}
// fit makes a canvas as large as its room in the screen's own dots.
function fit(canvas, w, h) {
  const ratio = devicePixelRatio || 1, W = Math.round(w * ratio), H = Math.round(h * ratio);
  if (canvas.width !== W || canvas.height !== H) {
    canvas.width = W; canvas.height = H;
    canvas.style.width = w + "px"; canvas.style.height = h + "px";
  }
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, w, h);
  return g;
}
function spark(canvas, n) {
  const w = 60, h = 18, g = fit(canvas, w, h), [from, to] = shown(), dots = 30;
  const sums = new Float64Array(dots), per = Math.max(1, Math.ceil(view.back / dots));
  for (let i = from; i < to; i++) { // groups stay together as time goes on
    const late = Math.floor((kept[to - 1].no) / per) - Math.floor((kept[i].no) / per), hit = kept[i].by.get(n);
    if (hit && late < dots) sums[dots - 1 - late] += hit[1];
  }
  const most = Math.max(...sums);
  if (!most) return;
  g.fillStyle = ink.accent; g.globalAlpha = .75;
  sums.forEach((s, i) => { if (s) { const y = Math.max(1, s / most * (h - 3)); g.fillRect(i * w / dots, h - 1 - y, w / dots - .6, y); } });
  g.globalAlpha = 1;
}

// The latency picture.
const heat = { left: 54, bottom: 20, cells: new Map(), low: 0, high: 1, wide: 1 };
function tone(part, alpha = 1) { // part: 0 to 1
  const m = (a, b) => a + (b - a) * part;
  return `hsl(${m(ink.cold[0], ink.hot[0])} ${m(ink.cold[1], ink.hot[1])}% ${m(ink.cold[2], ink.hot[2])}% / ${alpha})`;
}
function drawHeat() {
  const room = $("heat").parentElement, w = room.clientWidth, h = room.clientHeight, g = fit($("heat"), w, h);
  const [from, to] = shown(), plotW = w - heat.left, plotH = h - heat.bottom;
  heat.cells.clear(); heat.wide = plotW / view.back; heat.right = to;
  const timed = [...places].some(([n, p]) => p.timed && (view.chosen < 0 || view.chosen === n));
  let low = powers, high = -1, most = 1;
  for (let i = from; i < to; i++)
    for (const row of view.chosen < 0 ? kept[i].hits : [kept[i].by.get(view.chosen)]) {
      if (!row || (view.chosen < 0 && !passes(names[row[0]]))) continue;
      for (let k = 2; k < row.length; k += 2) {
        const key = i * powers + row[k], sum = (heat.cells.get(key) || 0) + row[k + 1];
        heat.cells.set(key, sum);
        low = Math.min(low, row[k]); high = Math.max(high, row[k]); most = Math.max(most, sum);
      }
    }
  const none = high < 0;
  $("noheat").textContent = !kept.length ? "" : !timed ? view.chosen < 0 ? "These places are counted; their calls are not timed." : "This place is counted; its calls are not timed." : none ? "No call has returned in this time." : "";
  $("heatof").textContent = view.chosen < 0 ? "of the calls of all places" + (view.filter ? " with this filter" : "") + " together" : apart(names[view.chosen])[0];
  $("most").textContent = none ? "many" : count(most);
  const sg = fit($("scale"), 96, 8);
  for (let x = 0; x < 96; x++) { sg.fillStyle = tone(x / 95); sg.fillRect(x, 0, 1.5, 8); }
  g.font = "11px system-ui, sans-serif"; g.textBaseline = "middle";
  if (none) return;
  low = Math.max(0, low - 1); high = Math.min(powers - 1, high + 1);
  while (high - low < 5) { if (low > 0) low--; if (high - low < 5) high++; }
  heat.low = low; heat.high = high;
  const rows = high - low + 1, tall = plotH / rows, every = Math.max(1, Math.ceil(18 / tall));
  g.textAlign = "right";
  for (let p = low; p <= high; p += every) {
    const y = plotH - (p - low) * tall;
    g.strokeStyle = ink.line; g.beginPath(); g.moveTo(heat.left, Math.round(y) - .5); g.lineTo(w, Math.round(y) - .5); g.stroke();
    g.fillStyle = ink.dim;
    if (y > 6) g.fillText(took(2 ** p), heat.left - 8, Math.min(y, plotH - 5));
  }
  const gap = heat.wide > 4 ? 1 : 0;
  for (const [key, n] of heat.cells) {
    const i = Math.floor(key / powers), p = key % powers, x = w - (to - i) * heat.wide;
    g.fillStyle = tone(Math.log(1 + n) / Math.log(1 + most));
    g.fillRect(x, plotH - (p - low + 1) * tall, heat.wide - gap || heat.wide, tall - (tall > 5 ? 1 : 0));
  }
  if (view.span) {
    const x0 = w - (to - view.span[0]) * heat.wide, x1 = w - (to - view.span[1]) * heat.wide;
    g.fillStyle = ink.card; g.globalAlpha = .6;
    g.fillRect(heat.left, 0, Math.max(0, x0 - heat.left), plotH); g.fillRect(x1, 0, w - x1, plotH);
    g.globalAlpha = 1; g.strokeStyle = ink.accent; g.strokeRect(x0 + .5, .5, x1 - x0 - 1, plotH - 1);
  }
  g.fillStyle = ink.dim; g.textBaseline = "alphabetic";
  const last = kept[to - 1], far = view.back * head.interval, parts = w > 520 ? 6 : 3;
  for (let k = 0; k <= parts; k++) {
    g.textAlign = k === 0 ? "left" : k === parts ? "right" : "center";
    const ago = far * (1 - k / parts), text = k === parts ? (view.held === null && !over ? "now" : at(last.at)) : ago > last.at ? "" : "−" + (ago >= 60 ? +(ago / 60).toFixed(1) + " min" : +ago.toFixed(1) + " s");
    g.fillText(text, heat.left + plotW * k / parts, h - 5);
  }
}
const at = s => new Date(head.since + s * 1000).toLocaleTimeString();
function column(e) {
  const i = heat.right - Math.ceil(($("heat").clientWidth - e.offsetX) / heat.wide);
  return Math.max(shown()[0], Math.min(heat.right - 1, i));
}

// The stacks.
const flame = { boxes: [], tall: 20 };
function tree() {
  const [from, to] = meant(), root = { seen: 0, kids: new Map() };
  for (let i = from; i < to; i++)
    for (const [seen, cut, ...frames] of kept[i].stacks) {
      root.seen += seen;
      let at = root;
      for (const f of cut ? [-1, ...frames] : frames) {
        let next = at.kids.get(f);
        if (!next) at.kids.set(f, next = { seen: 0, kids: new Map() });
        next.seen += seen;
        at = next;
      }
    }
  return root;
}
const nameOf = f => f < 0 ? "callers not known" : names[f];
function drawFlame() {
  const room = $("flame").parentElement, root = tree();
  let top = root, path = [];
  for (const f of view.zoom || []) { // as far as it is there still
    const next = top.kids.get(f);
    if (!next) break;
    path.push([f, next]); top = next;
  }
  flame.boxes = [];
  const least = 1 / 1500;
  let deep = 0;
  const put = (node, x, w, depth, up) => {
    deep = Math.max(deep, depth);
    for (const [f, k] of [...node.kids].sort((a, b) => nameOf(a[0]) < nameOf(b[0]) ? -1 : 1)) {
      const part = w * k.seen / node.seen;
      if (part >= least) {
        const way = [...up, f];
        flame.boxes.push({ f, x, w: part, depth, seen: k.seen, way });
        put(k, x, part, depth + 1, way);
      }
      x += part;
    }
  };
  path.forEach(([f, k], depth) => flame.boxes.push({ f, x: 0, w: 1, depth, seen: k.seen, way: view.zoom.slice(0, depth + 1), above: depth < path.length - 1 }));
  put(top, 0, 1, path.length, path.map(p => p[0]));
  flame.whole = root.seen;
  const rows = Math.max(1, deep), w = room.clientWidth, high = room.clientHeight;
  flame.tall = Math.max(20, Math.min(30, Math.floor(high / rows)));
  const g = fit($("flame"), w, Math.max(1, rows * flame.tall)), own = view.chosen >= 0 ? apart(names[view.chosen])[0] : null;
  g.font = "12px system-ui, sans-serif"; g.textBaseline = "middle";
  for (const b of flame.boxes) {
    const name = nameOf(b.f), mine = own !== null && name === own, x = b.x * w, wide = Math.max(.6, b.w * w - 1), y = b.depth * flame.tall;
    let hash = 0;
    for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) >>> 0;
    g.globalAlpha = b.above ? .55 : 1;
    g.fillStyle = mine ? ink.accent : b.f < 0 ? ink.cut : `hsl(${ink.box[0] - 14 + hash % 29} ${ink.box[1]}% ${ink.box[2] - 4 + (hash >> 5) % 9}%)`;
    g.beginPath(); g.roundRect(x, y, wide, flame.tall - 1, Math.min(3, wide / 3)); g.fill();
    g.globalAlpha = 1;
    if (wide > 22) { g.fillStyle = mine ? ink.card : b.f < 0 ? ink.dim : ink.boxtext; g.fillText(clip(g, name, wide - 10), x + 5, y + flame.tall / 2); }
  }
  const why = head && head.nostack;
  $("noflame").textContent = why ? "No stacks: " + why : kept.length && !root.seen ? "Nothing ran in this time." : "";
  const lost = kept.length ? kept.at(-1).lost : 0;
  $("flameof").textContent = root.seen ? `${count(root.seen)} samples` + (lost ? `, ${count(lost)} lost` : "") : "";
  $("unzoom").hidden = !view.zoom;
}
// clip ends a name that has no room by an ellipsis.
function clip(g, text, room) {
  if (g.measureText(text).width <= room) return text;
  let low = 0, high = text.length;
  while (low < high) { const mid = (low + high + 1) >> 1; g.measureText(text.slice(0, mid) + "…").width <= room ? low = mid : high = mid - 1; }
  return low ? text.slice(0, low) + "…" : "";
}

let due = false;
function later() { if (!due) { due = true; requestAnimationFrame(draw); } }
function draw() {
  due = false;
  for (const b of $("range").children) b.setAttribute("aria-pressed", +b.dataset.n === view.back);
  drawTable(); drawHeat(); drawFlame();
}

// What is done.
function choose(n) {
  view.chosen = n; view.chosenName = n >= 0 ? names[n] : null;
  draw();
  const i = listed.findIndex(r => r.n === n);
  if (i >= 0) $("body").rows[i].scrollIntoView({ block: "nearest" });
}
function step(by) {
  if (!listed.length) return;
  const i = listed.findIndex(r => r.n === view.chosen);
  choose(listed[Math.max(0, Math.min(listed.length - 1, i < 0 ? (by > 0 ? 0 : listed.length - 1) : i + by))].n);
}
function sortBy(i) { if (columns[i].key) { view.sort = i; draw(); } }
function sortNext(by) {
  let i = view.sort;
  do i = (i + by + columns.length) % columns.length; while (!columns[i].key);
  sortBy(i);
}
function pause() { if (!over) { view.held = view.held === null && kept.length ? kept.length : null; state(); draw(); } }
function back() {
  if (view.filter || document.activeElement === $("filter")) { view.filter = $("filter").value = ""; $("filter").blur(); }
  else if (view.zoom) view.zoom = null;
  else if (view.span) view.span = null;
  else if (view.chosen >= 0) return choose(-1);
  draw();
}
document.addEventListener("keydown", e => {
  if (e.ctrlKey || e.metaKey || e.altKey || $("help").open) return;
  const typing = e.target === $("filter");
  if (e.key === "Escape") back();
  else if (e.key === "ArrowDown") step(1);
  else if (e.key === "ArrowUp") step(-1);
  else if (typing) { if (e.key === "Enter") $("filter").blur(); return; }
  else if (e.key === "ArrowLeft") sortNext(-1);
  else if (e.key === "ArrowRight") sortNext(1);
  else if (e.key === "/") $("filter").focus();
  else if (e.key === "p") pause();
  else if (e.key === "a") { view.silent = !view.silent; draw(); }
  else if (e.key === "?") $("help").showModal();
  else if (e.key >= "1" && e.key <= "4") $("range").children[+e.key - 1].click();
  else return;
  e.preventDefault();
});
$("filter").oninput = e => { view.filter = e.target.value; draw(); };
$("pause").onclick = pause;
$("ask").onclick = () => $("help").showModal();
$("unzoom").onclick = () => { view.zoom = null; draw(); };
for (const b of $("range").children) b.onclick = () => { view.back = +b.dataset.n; view.span = null; draw(); };
columns.forEach((c, i) => {
  const th = document.createElement("th");
  th.textContent = c.title; th.className = "c" + i; th.scope = "col"; th.onclick = () => sortBy(i);
  $("titles").append(th);
});

function tip(e, text) {
  const t = $("tip");
  t.hidden = !text;
  if (!text) return;
  t.textContent = text;
  t.style.left = Math.max(6, Math.min(e.clientX + 14, innerWidth - t.offsetWidth - 6)) + "px";
  t.style.top = (e.clientY + 20 + t.offsetHeight > innerHeight ? e.clientY - t.offsetHeight - 12 : e.clientY + 18) + "px";
}
let drag = null;
$("heat").onpointerdown = e => { if (kept.length && e.offsetX > heat.left) { drag = column(e); $("heat").setPointerCapture(e.pointerId); } };
$("heat").onpointermove = e => {
  if (!kept.length || e.offsetX < heat.left) return tip(e, "");
  const i = column(e);
  if (drag !== null && i !== drag) { view.span = [Math.min(i, drag), Math.max(i, drag) + 1]; later(); }
  const p = heat.low + Math.floor(($("heat").clientHeight - heat.bottom - e.offsetY) / (($("heat").clientHeight - heat.bottom) / (heat.high - heat.low + 1)));
  const n = heat.cells.get(i * powers + p);
  tip(e, n ? `${count(n)} ${n === 1 ? "call" : "calls"} of ${took(2 ** p)} to ${took(2 ** (p + 1))}\n${at(kept[i].at)}` : "");
};
$("heat").onpointerup = e => { if (drag !== null && column(e) === drag) view.span = null; drag = null; draw(); };
$("heat").onpointerleave = e => tip(e, "");
function under(e) {
  const x = e.offsetX / $("flame").clientWidth, depth = Math.floor(e.offsetY / flame.tall);
  return flame.boxes.find(b => b.depth === depth && b.x <= x && x < b.x + b.w);
}
$("flame").onpointermove = e => {
  const b = under(e);
  tip(e, b ? `${nameOf(b.f)}\n${count(b.seen)} of ${count(flame.whole)} samples, ${(100 * b.seen / flame.whole).toFixed(1)} %` : "");
};
$("flame").onpointerleave = e => tip(e, "");
$("flame").onclick = e => { const b = under(e); view.zoom = b ? b.way : null; draw(); };

readInk();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readInk(); draw(); });
new ResizeObserver(later).observe(document.querySelector("main"));
connect();
state();
