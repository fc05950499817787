// The store in two tables: its groups and its queues.

import { h } from "./dom.js";
import { age, number, partitions, plural, rate, waiting } from "./format.js";
import { badge, section, table, trend } from "./parts.js";
import { to } from "./route.js";

const GROUPS = [
  ["group"], ["state"], ["assignor"], ["members", "n"], ["partitions", "n"],
  ["lag", "n", "Messages that the group has not acknowledged"], ["", "t"],
  ["oldest unread", "n", "Age of the oldest message that the group has not acknowledged"],
  ["out/s", "n", "Messages acknowledged per second"], ["to note"],
];
const QUEUES = [
  ["queue"], ["state"], ["partitions", "n"], ["read by"],
  ["depth", "n", "Messages that not every group has acknowledged"], ["", "t"],
  ["oldest stored", "n", "Age of the oldest message that is stored"], ["in/s", "n", "Messages appended per second"], ["to note"],
];

export function overview(store) {
  return [
    h("h1", null, "Groups and queues"),
    store.failed.length > 0 && section("failed", "What cannot be read", h("ul", { class: "warnings" }, store.failed.map(failed))),
    section("groups", "Consumer groups", store.groups.length
      ? table("Consumer groups", GROUPS, store.groups.map(group)) : h("p", { class: "quiet" }, "No query has read from this store as a group yet.")),
    section("queues", "Queues", store.queues.length
      ? table("Queues", QUEUES, store.queues.map(queue)) : h("p", { class: "quiet" }, "The store has no queue.")),
  ];
}

const failed = ({ kind, name, message, next_step }) => h("li", null, h("strong", null, `${kind} ${name}: `), message, ". ", next_step);

function group(found) {
  const notes = [
    found.expired && `${plural(found.expired, "expired session")}`,
    found.unassigned && `${number(found.unassigned)} unassigned`,
    found.handoffs && plural(found.handoffs, "handoff"),
    found.waiting && `${number(found.waiting)} at the barrier`,
  ].filter(Boolean);
  const cells = [
    h("a", { href: to("group", found.name) }, found.name), badge(found.state), assignor(found), number(found.members), number(found.partitions),
    number(found.lag), trend(found.trend, "lag"), waiting(found.oldest_s, found.lag), rate(found.out_per_s), notes.join(", "),
  ];
  return { key: found.name, cells };
}

const assignor = ({ assignor: name, protocol }) => (name ? [name, " ", h("span", { class: "quiet" }, protocol)] : h("span", { class: "quiet" }, "none"));

function queue(found) {
  const { operating_partitions: operating, configured_partitions: configured } = found;
  const notes = [!found.ingress && "ingress disabled", found.stuck && `${number(found.stuck)} stuck`].filter(Boolean);
  const cells = [
    h("a", { href: to("queue", found.name) }, found.name), badge(found.status),
    operating === configured ? partitions(operating) : `${partitions(operating)} → ${partitions(configured)}`,
    found.groups.map((name, i) => [i ? ", " : "", h("a", { href: to("group", name) }, name)]),
    number(found.depth), trend(found.trend, "depth"), waiting(found.oldest_s, found.size_bytes), rate(found.in_per_s), notes.join(", "),
  ];
  return { key: found.name, cells };
}

/** When the picture was taken, in a few words. */
export const seen = (seconds) => `read ${age(Math.max(0, seconds))} ago`;
