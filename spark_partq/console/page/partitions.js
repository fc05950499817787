// The partitions of a group: where it stands in each, and whether that gets on.

import { h } from "./dom.js";
import { instance, number, partition, plural, rate, waiting } from "./format.js";
import { swatch, table } from "./parts.js";
import { changed } from "./route.js";

const PAGE = 50;
const COLUMNS = [
  ["partition"], ["client"], ["position", "n", "Offset of the next message that the group wants"],
  ["given", "n", "Messages that were handed out and are not acknowledged yet"], ["end", "n", "Offset of the next message that comes"],
  ["lag", "n"], ["oldest unread", "n"], ["in/s", "n"], ["out/s", "n"], ["epoch", "n", "Of its ownership"], ["state"], ["", "b"],
];
const SORTS = { partition: "partition", lag: "lag, the most first", oldest: "oldest unread first" };

/** Why a partition is not simply read, in a few words; nothing if it is. */
export function stopped(p, silent) {
  const waits = Object.entries(p.waits_for);
  if (p.flow === null) return "has no owner";
  if (silent.has(instance(p.flow))) return `its owner ${p.flow} is silent`;
  if (p.draining) return `is handed over from ${p.flow} to ${p.handoff_to ?? "the flow that the assignment will name"}`;
  if (waits.length) return `waits for ${waits.slice(0, 3).map(([n, cut]) => `partition ${n} up to ${number(cut)}`).join(", ")}${waits.length > 3 ? ` and ${waits.length - 3} more` : ""}`;
  return "";
}

export function partitionsOf(group, { description: found, oldest_s, in_per_s, out_per_s }, asked) {
  const silent = new Set(found.members.filter((member) => member.expired).map((member) => member.instance));
  let all = found.partitions.map((p, i) => ({ ...p, oldest: oldest_s[i], comes: in_per_s[i], goes: out_per_s[i], reason: stopped(p, silent) }));
  const find = (asked.get("find") ?? "").toLowerCase();
  if (find) all = all.filter((p) => `${p.queue}/${p.partition} ${p.flow ?? (p.subscribed ? "unassigned" : "not read")}`.toLowerCase().includes(find));
  if (asked.get("only") === "waiting") all = all.filter((p) => p.reason);
  if (asked.get("sort") === "lag") all.sort((a, b) => (b.lag ?? 0) - (a.lag ?? 0));
  if (asked.get("sort") === "oldest") all.sort((a, b) => b.oldest - a.oldest);
  const page = Math.min(Number(asked.get("page") ?? 0) || 0, Math.max(0, Math.ceil(all.length / PAGE) - 1));
  const shown = all.slice(page * PAGE, (page + 1) * PAGE);
  return [
    found.partitions.length > 8 && tools(asked),
    table("Partitions", COLUMNS, shown.map((p) => row(group, p))),
    all.length === 0 && h("p", { class: "quiet" }, "No partition is like that."),
    all.length > PAGE && pages(page, all.length),
  ];
}

function tools(asked) {
  const option = (value, text, now) => h("option", { value, selected: now === value }, text);
  return h("form", { class: "tools", "data-key": "partition-tools", "data-form": "partitions", "data-keep": true },
    h("label", null, "find ", h("input", { name: "find", type: "search", value: asked.get("find"), placeholder: "orders/3 or a client", autocomplete: "off" })),
    h("label", null, "show ", h("select", { name: "only" }, option("", "all", ""), option("waiting", "those that wait", asked.get("only")))),
    h("label", null, "by ", h("select", { name: "sort" }, Object.entries(SORTS).map(([value, text]) => option(value, text, asked.get("sort"))))));
}

function pages(page, count) {
  const last = Math.ceil(count / PAGE) - 1;
  const link = (text, n) => (n < 0 || n > last ? h("span", { class: "quiet" }, text) : h("a", { href: changed({ page: n || null }) }, text));
  return h("nav", { class: "pages", "aria-label": "Pages of partitions" }, link("‹ before", page - 1),
    h("span", null, `${number(page * PAGE + 1)} to ${number(Math.min(count, (page + 1) * PAGE))} of ${plural(count, "partition")}`), link("after ›", page + 1));
}

function row(group, p) {
  const place = `${p.queue}/${p.partition}`;
  const owner = !p.subscribed ? h("span", { class: "quiet" }, "not read") : p.flow === null ? h("span", { class: "bad" }, "unassigned") : [swatch(group, instance(p.flow)), p.flow];
  const cells = [
    [h("span", { class: "quiet" }, `${p.queue}/`), partition(p.partition)], owner, number(p.position), number(p.delivered - p.position), number(p.end), number(p.lag),
    waiting(p.oldest, p.lag), rate(p.comes), rate(p.goes), number(p.epoch), p.reason || (p.lag ? "reading" : "up to date"),
    h("a", { class: "button", href: changed({ why: place }), "aria-label": `Why is ${place} where it is?` }, "Why?"),
  ];
  return { key: place, cells, class: p.reason ? "waits" : null };
}
