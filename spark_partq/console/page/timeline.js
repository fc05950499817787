// Who had which partition when: a row for each partition, a bar for each owner, what is handed over hatched, the group's status above.

import { h, s } from "./dom.js";
import { age, clock, instance, moment, number } from "./format.js";
import { colour, swatch, table } from "./parts.js";
import { changed, to } from "./route.js";

const RANGES = { 300: "5 minutes", 900: "15 minutes", 3600: "hour", 21600: "6 hours", 86400: "day", 604800: "week" };
export const SECONDS = "3600";
export const MOST_ROWS = 32; // as the console sends them
const ROW = 20;
const TOP = 34; // the times and the statuses
const MOST_EVENTS = 12;
const EVENTS = [["when (UTC)"], ["what"], ["took", "n"], ["because"], ["ended"]];

export function timeline(group, found, asked) {
  if (!found) return h("p", { class: "quiet" }, "Reading the history…");
  const option = ([value, text]) => h("option", { value, selected: (asked.get("range") ?? SECONDS) === value }, `the last ${text}`);
  const instances = [...new Set(found.rows.flatMap((row) => row.bars.map((bar) => bar.instance)))].sort();
  return [
    h("form", { class: "tools", "data-key": "timeline-tools", "data-form": "timeline", "data-keep": true },
      h("label", null, "of ", h("select", { name: "range" }, Object.entries(RANGES).map(option))),
      found.many && h("label", null, "show ", h("select", { name: "which" },
        [["moved", "partitions that moved"], ["all", "all partitions"]].map(([value, text]) => h("option", { value, selected: (asked.get("which") ?? "moved") === value }, text))))),
    !found.whole && h("p", { class: "quiet" }, `More was decided in that time than fits: the picture begins at ${moment(found.from)}.`),
    found.rows.length ? drawing(group, found) : h("p", { class: "quiet" }, "No partition came or went in that time."),
    h("ul", { class: "legend" }, instances.map((name) => h("li", { "data-key": name }, swatch(group, name), name)),
      h("li", null, h("span", { class: "swatch hatched", "aria-hidden": "true" }), "handoff"),
      h("li", null, h("span", { class: "swatch holddown", "aria-hidden": "true" }), "holddown"),
      h("li", null, h("span", { class: "swatch rebalancing", "aria-hidden": "true" }), "rebalancing")),
    rest(found),
    events(group, found),
  ];
}

function rest({ partitions: count, first, rows }) {
  if (count <= rows.length) return null;
  const link = (text, n) => (n < 0 || n >= count ? h("span", { class: "quiet" }, text) : h("a", { href: changed({ rows: n || null }) }, text));
  return h("nav", { class: "pages", "aria-label": "Partitions of the picture" }, link("‹ before", first - MOST_ROWS),
    h("span", null, `${number(first + 1)} to ${number(first + rows.length)} of ${number(count)} partitions`), link("after ›", first + MOST_ROWS));
}

// ---- the picture
function drawing(group, found) {
  const main = document.getElementById("main"), around = getComputedStyle(main);
  const width = Math.max(300, Math.floor(main.clientWidth - parseFloat(around.paddingLeft) - parseFloat(around.paddingRight)));
  const labels = found.rows.map((row) => `${row.queue}/${row.partition}`);
  const gutter = Math.min(width < 600 ? 92 : 200, 12 + 7 * Math.max(...labels.map((text) => text.length)));
  const from = Date.parse(found.from), to_ = Date.parse(found.to);
  const x = (iso, otherwise) => gutter + (width - gutter) * Math.min(1, Math.max(0, ((iso ? Date.parse(iso) : otherwise) - from) / Math.max(1, to_ - from)));
  const height = TOP + ROW * found.rows.length + 2;
  const text = `Owners of ${found.rows.length} partitions from ${moment(found.from)} to ${moment(found.to)}. The history below says the same as a table.`;
  return h("div", { class: "picture" }, s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": text },
    s("defs", null, s("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      s("rect", { width: 2.5, height: 6 }))),
    found.statuses.filter((status) => status.status !== "Ready").map((status) => band(status, x, from, to_, height)),
    ticks(from, to_, x, height, width - gutter),
    found.rows.map((row, i) => line(group, row, labels[i], TOP + ROW * i, gutter, x, from, to_))));
}

function band(status, x, from, to_, height) {
  const left = x(status.began, from), width = Math.max(2, x(status.ended, to_) - left);
  return s("g", { class: `band ${status.status.toLowerCase()}` }, s("title", null, `${status.status} from ${moment(status.began)}: ${status.cause}`),
    s("rect", { class: "shade", x: left, y: 20, width, height: height - 20 }), s("rect", { x: left, y: 22, width, height: 6, rx: 2 }));
}

function ticks(from, to_, x, height, room) {
  const least = (to_ - from) / Math.max(1, Math.floor(room / 110)) / 1000;
  const step = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400].find((seconds) => seconds >= least) ?? 86400;
  const marks = [];
  for (let at = Math.ceil(from / step / 1000) * step * 1000; at <= to_; at += step * 1000) {
    const iso = new Date(at).toISOString();
    marks.push(s("g", { class: "tick" }, s("line", { x1: x(iso), x2: x(iso), y1: 18, y2: height }),
      s("text", { x: x(iso), y: 12, "text-anchor": at - from > (to_ - from) * 0.93 ? "end" : "middle" }, step < 86400 ? clock(iso).slice(0, step < 60 ? 8 : 5) : iso.slice(5, 10))));
  }
  return marks;
}

function line(group, row, label, y, gutter, x, from, to_) {
  const shown = label.length * 7 > gutter - 8 ? `…${label.slice(-Math.floor((gutter - 16) / 7))}` : label;
  return s("g", { class: "line", "data-key": label },
    s("text", { class: "label", x: 0, y: y + 14 }, s("title", null, label), shown),
    row.bars.map((bar) => owner(group, bar, label, y, x, from, to_)),
    row.handoffs.map((handoff) => s("rect", { class: "handoff", x: x(handoff.began, from), y: y + 2, width: Math.max(2, x(handoff.ended, to_) - x(handoff.began, from)), height: ROW - 4 })));
}

function owner(group, bar, label, y, x, from, to_) {
  const left = x(bar.began, from), width = Math.max(1.5, x(bar.ended, to_) - left);
  const told = `${bar.flow} has ${label} ${bar.began ? `from ${moment(bar.began)}` : "since before the picture"}${bar.ended ? ` to ${moment(bar.ended)}` : " until now"}${bar.cause ? `; because ${bar.cause}` : ""}${bar.end_cause ? `; ended because ${bar.end_cause}` : ""}`;
  const room = Math.floor((width - 8) / 6.6);
  const drawn = [s("title", null, told), s("rect", { class: `c${colour(group, bar.instance)}`, x: left, y: y + 2, width, height: ROW - 4, rx: 2 }),
    room >= 3 && s("text", { class: `c${colour(group, bar.instance)}`, x: left + 4, y: y + 14 }, bar.flow.length <= room ? bar.flow : `${bar.flow.slice(0, room - 1)}…`)];
  return bar.fact === null ? s("g", null, drawn) : s("a", { href: to("group", group, { fact: bar.fact }), "aria-label": told }, drawn);
}

// ---- the same in words
function events(group, found) {
  const statuses = found.statuses.filter((one) => one.status !== "Ready").map((one) => ({ ...one, what: one.status, end: "" }));
  const handoffs = found.rows.flatMap((row) => row.handoffs.map((one) => ({
    ...one, what: [h("a", { href: to("group", group, { fact: one.fact }) }, `handoff of ${row.queue}/${row.partition}`), ` ${one.from} → ${one.to ?? "?"}`],
    end: one.outcome, key: `handoff-${one.fact}`,
  })));
  const all = [...statuses, ...handoffs].sort((a, b) => (a.began < b.began ? 1 : -1));
  if (all.length === 0) return null;
  const shown = all.slice(0, MOST_EVENTS).map((one, i) => ({
    key: one.key ?? `${one.status}-${one.began}-${i}`,
    cells: [moment(one.began), one.what, one.ended ? age((Date.parse(one.ended) - Date.parse(one.began)) / 1000) : "goes on", one.cause, one.end === "forced" ? h("span", { class: "bad" }, "forced") : one.end],
  }));
  return [h("h3", null, "What moved, and why"), table("What moved, and why", EVENTS, shown),
    all.length > shown.length && h("p", { class: "quiet" }, `These are the last ${shown.length} of ${number(all.length)}; the history has all.`)];
}

export const owners = (found) => (found ? found.rows.flatMap((row) => row.bars.map((bar) => instance(bar.flow))) : []);
