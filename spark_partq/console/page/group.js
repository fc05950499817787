// A group: how it stands, who is in it, what it has, how it came so.

import { button, about, badge, section } from "./parts.js";
import { clients } from "./clients.js";
import { h } from "./dom.js";
import { moment, NONE, number, rate, waiting } from "./format.js";
import { history } from "./history.js";
import { partitionsOf, stopped } from "./partitions.js";
import { timeline } from "./timeline.js";
import { changed, to } from "./route.js";

/** `data`: the group, its timeline and a page of its history; each null until it is there. */
export function group(name, data, asked, may) {
  if (!data.group) return [h("h1", null, "Group ", name), h("p", { class: "quiet" }, "Reading the group…")];
  const found = data.group.description;
  const alive = found.state !== "Dead";
  return [
    h("div", { class: "title" }, h("h1", null, "Group ", name), badge(found.state), may && alive && acts(name)),
    facts(data.group),
    found.warnings.length > 0 && section("warnings", "Warnings", h("ul", { class: "warnings" }, found.warnings.map((text) => h("li", null, text)))),
    alive && waits(name, found),
    alive && section("clients", "Clients", clients(name, found)),
    alive && section("partitions", "Partitions", partitionsOf(name, data.group, asked)),
    alive && section("timeline", "Who had which partition when", timeline(name, data.timeline, asked)),
    section("history", "History", history(name, data.history, data.members, asked)),
  ];
}

function facts({ description: found, oldest_s, in_per_s, out_per_s }) {
  const sum = (values) => values.reduce((all, one) => (one === null ? all : (all ?? 0) + one), null);
  const held = Object.entries(found.held_keys).map(([queue, keys]) => `${number(keys)} of ${queue}`).join(", ");
  const queues = [...new Set(found.partitions.map((p) => p.queue))];
  return about([
    ["status", `${found.status}${found.since ? ` since ${moment(found.since)}` : ""}`, found.trigger && h("span", { class: "quiet" }, ` · ${found.trigger}`)],
    ["assignor", found.assignor ?? "none, as it has no members"],
    found.protocol && ["protocol", found.protocol],
    ["reads", queues.length ? queues.map((queue, i) => [i ? ", " : "", h("a", { href: to("queue", queue) }, queue)]) : NONE],
    ["lag", number(found.lag)],
    ["oldest unread", waiting(Math.max(0, ...oldest_s.filter((_, i) => found.partitions[i].subscribed)), found.lag)],
    ["in/s", rate(sum(in_per_s))],
    ["out/s", rate(sum(out_per_s))],
    ["rebalance delay", `${number(found.rebalance_delay_ms)} ms`],
    held && ["held keys", held],
  ]);
}

/** Partitions that are not simply read, each with the reason in a few words. */
function waits(name, found) {
  const silent = new Set(found.members.filter((member) => member.expired).map((member) => member.instance));
  const all = found.partitions.map((p) => [p, stopped(p, silent)]).filter(([, reason]) => reason);
  if (all.length === 0) return null;
  const shown = all.slice(0, 12).map(([p, reason]) => {
    const place = `${p.queue}/${p.partition}`;
    return h("li", { "data-key": place }, h("a", { class: "place", href: changed({ why: place }) }, place), " ", reason);
  });
  return section("waits", `What waits (${number(all.length)})`, h("ul", { class: "waits" }, shown),
    all.length > shown.length && h("p", { class: "quiet" }, `and ${number(all.length - shown.length)} more: `, h("a", { href: changed({ only: "waiting", page: null }) }, "show them in the table")));
}

const acts = (name) => h("p", { class: "acts" }, button("Rebalance now", "rebalance", { "data-group": name }), button("Reset offsets…", "reset", { "data-group": name }));
