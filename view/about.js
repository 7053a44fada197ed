"use strict";
const $ = id => document.getElementById(id), css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// span is a duration in three digits, as all of kprobe writes it.
function span(ns) {
  let unit = "ns";
  for (const next of ["us", "ms", "s"]) {
    if (ns < 999.5) break;
    ns /= 1000; unit = next;
  }
  return +ns.toFixed(unit === "ns" || ns >= 99.95 ? 0 : ns >= 9.995 ? 1 : 2) + " " + unit;
}
function tell(kind, a) {
  document.title = (a.process ? a.process + " · " : "") + kind;
  $("title").textContent = kind + (a.process ? " of " + a.process : "");
  $("facts").textContent = [new Date(a.began).toLocaleString(), span(a.took), a.events.toLocaleString() + " events"].join(" · ");
  $("asked").textContent = $("asked").title = a.asked;
  $("warn").textContent = [
    a.lost ? a.lost.toLocaleString() + " events are lost: calls around them may be wrong" : "",
    a.stopped ? "threads were stopped inside these calls, to walk stacks or for handlers: durations have the stops in them" : "",
  ].filter(Boolean).join(" · ");
}
// clip ends a name that has no room by an ellipsis.
function clip(g, text, room) {
  if (g.measureText(text).width <= room) return text;
  let low = 0, high = text.length;
  while (low < high) { const mid = (low + high + 1) >> 1; g.measureText(text.slice(0, mid) + "…").width <= room ? low = mid : high = mid - 1; }
  return low ? text.slice(0, low) + "…" : "";
}
// fit makes a canvas so large in the screen's own dots.
function fit(canvas, w, h) {
  const ratio = devicePixelRatio || 1, g = canvas.getContext("2d");
  canvas.width = Math.round(w * ratio); canvas.height = Math.round(h * ratio);
  canvas.style.width = w + "px"; canvas.style.height = h + "px";
  g.scale(ratio, ratio);
  return g;
}
