// A queue: its counts, a change of them that is under way, its partitions and its settings.

import { h } from "./dom.js";
import { moment, number, partition, partitions, plural, rate, size, waiting } from "./format.js";
import { about, badge, button, section, table } from "./parts.js";
import { to } from "./route.js";

const COLUMNS = [
  ["partition"], ["first", "n", "Offset of the first message that is stored"], ["next", "n", "Offset of the next message that comes"],
  ["depth", "n", "Messages that not every group has acknowledged"], ["oldest stored", "n"], ["in/s", "n"], ["files", "n"], ["size", "n"], ["state"],
];
const READERS = [["group"], ["state"], ["lag", "n"], ["oldest unread", "n"], ["out/s", "n"], ["at the barrier", "n", "Partitions whose next messages wait for others because of a change of the count"]];
const MOST = 200;

export function queue(name, data, store, may) {
  if (!data.queue) return [h("h1", null, "Queue ", name), h("p", { class: "quiet" }, "Reading the queue…")];
  const found = data.queue.description;
  const readers = store.groups.filter((group) => group.queues.includes(name));
  return [
    h("div", { class: "title" }, h("h1", null, "Queue ", name), badge(found.status),
      found.role !== "primary" && h("span", { class: "quiet" }, found.role),
      may && h("p", { class: "acts" }, button(found.ingress ? "Disable ingress" : "Enable ingress", "ingress", { "data-queue": name, "data-enabled": !found.ingress ? "yes" : "no" }))),
    facts(data.queue),
    scaling(found, readers),
    section("readers", "Groups that read it", readers.length ? table("Groups that read it", READERS, readers.map(reader)) : h("p", { class: "quiet" }, "No group reads it.")),
    section("partitions", "Partitions", table("Partitions", COLUMNS, found.partitions.slice(0, MOST).map((p, i) => row(p, data.queue.oldest_s[i], data.queue.in_per_s[i]))),
      found.partitions.length > MOST && h("p", { class: "quiet" }, `The first ${MOST} of ${number(found.partitions.length)}; spark-partq describe-queue ${name} shows all.`)),
    section("settings", "Settings", table("Settings", [["setting"], ["value"], ["changed"]], Object.entries(found.settings).map(([setting, value]) => ({
      key: setting, cells: [setting, value === null ? "none" : typeof value === "number" ? number(value) : String(value), found.altered[setting] ? moment(found.altered[setting]) : ""],
    })))),
  ];
}

function facts({ description: found, oldest_s, in_per_s }) {
  const known = in_per_s.filter((one) => one !== null);
  return about([
    ["partitions asked for", partitions(found.configured_partitions)],
    ["in use", partitions(found.operating_partitions)],
    ["ingress", found.ingress ? "enabled" : h("strong", { class: "bad" }, "disabled")],
    ["depth", number(found.depth)],
    ["oldest stored", waiting(Math.max(0, ...oldest_s), found.partitions.some((p) => p.files > 0))],
    ["in/s", rate(known.length ? known.reduce((a, b) => a + b) : null)],
    found.discarded > 0 && ["discarded", number(found.discarded)],
    found.lost > 0 && ["lost by scaling", number(found.lost)],
    found.stuck > 0 && ["stuck", `${number(found.stuck)} that nobody is given`],
    ["key", found.key.length ? found.key.join(", ") : "none"],
    ["columns", found.schema],
    ["map", `generation ${number(found.generation)}`],
    ["replicas", found.replicas.length ? found.replicas.join(", ") : "none"],
    found.fenced_by && ["taken over by", found.fenced_by],
  ]);
}

/** A change of the count: both counts, what it has come to, and who waits at the barrier (S5, S8). */
function scaling(found, readers) {
  const waiting_ = readers.filter((group) => group.waiting > 0);
  const under = found.status !== "Ready" || found.configured_partitions !== found.operating_partitions || found.scaling;
  if (!under && waiting_.length === 0) return null;
  const sealed = found.partitions.filter((p) => p.sealed).length;
  return section("scaling", "Scaling", h("ul", { class: "waits" },
    under && h("li", null, `${partitions(found.operating_partitions)} in use, ${partitions(found.configured_partitions)} asked for${found.scaling ? `, mode ${found.scaling}` : ""}.`),
    sealed > 0 && h("li", null, `${plural(sealed, "partition")} sealed: producers wait there until the next map is in force.`),
    waiting_.map((group) => h("li", { "data-key": group.name }, h("a", { href: to("group", group.name, { only: "waiting" }) }, group.name),
      `: ${plural(group.waiting, "partition")} at the barrier. Older messages of the same keys, in other partitions, come first.`))));
}

const reader = (group) => ({
  key: group.name,
  cells: [h("a", { href: to("group", group.name) }, group.name), badge(group.state), number(group.lag), waiting(group.oldest_s, group.lag), rate(group.out_per_s), number(group.waiting)],
});

function row(p, oldest, comes) {
  const state = p.fenced ? "fenced" : p.sealed ? "sealed" : "";
  const cells = [partition(p.partition), number(p.first_offset), number(p.next_offset), number(p.depth), waiting(oldest, p.files), rate(comes), number(p.files), size(p.size_bytes), state];
  return { key: String(p.partition), cells };
}
