// The clients of a group, and which partitions each of them has (K8).

import { h } from "./dom.js";
import { age, number, partition, ranges } from "./format.js";
import { swatch, table } from "./parts.js";
import { changed } from "./route.js";

const MOST_QUEUES = 4;
const MOST_RANGES = 12;

export function clients(group, found) {
  if (found.members.length === 0) return h("p", { class: "quiet" }, "No query is in the group.");
  const queues = [...new Set(found.members.flatMap((member) => Object.keys(member.partitions)))].sort();
  const wide = queues.length <= MOST_QUEUES;
  const columns = [
    ["client"], ["host"], ["heartbeat", "n", "Age of its last heartbeat"], ["flows", "n"],
    ...(wide ? queues.map((queue) => [`partitions of ${queue}`, "p"]) : [["partitions", "p"]]), ["in all", "n"], ["about"],
  ];
  return table("Clients", columns, found.members.map((member) => row(group, member, wide ? queues : null)));
}

function row(group, member, queues) {
  const all = Object.values(member.partitions).reduce((sum, numbers) => sum + numbers.length, 0);
  const active = member.flows.filter((flow) => flow.active).length;
  const own = queues
    ? queues.map((queue) => shortened(member.partitions[queue] ?? []))
    : [Object.entries(member.partitions).map(([queue, numbers]) => h("div", null, `${queue}: `, shortened(numbers)))];
  const cells = [
    [swatch(group, member.instance), h("a", { href: changed({ member: member.instance, before: null, fact: null }), title: "Its history" }, member.instance)],
    member.host,
    member.expired ? h("strong", { class: "bad" }, `✕ ${member.heartbeat_age_s === null ? "none" : age(member.heartbeat_age_s)}, expired`)
      : member.heartbeat_age_s === null ? "none yet" : age(member.heartbeat_age_s),
    active === member.flows.length ? number(active) : [number(active), h("span", { class: "quiet" }, ` of ${member.flows.length}`)],
    ...own, number(all), details(member, active).join(" · "),
  ];
  return { key: member.instance, cells };
}

function shortened(numbers) {
  const text = ranges(numbers);
  const parts = text.split(", ");
  return parts.length <= MOST_RANGES ? text : h("span", { title: text }, `${parts.slice(0, MOST_RANGES).join(", ")} … ${partition(numbers.at(-1))}`);
}

function details(member, active) {
  return [
    active === 0 && "standby",
    member.static && "static",
    member.manual && "acknowledges by hand",
    member.pattern !== null && `pattern ${member.pattern}`,
    member.weight !== 1 && `weight ${member.weight}`,
    `session ${age(member.session_timeout_ms / 1000)}`,
    member.application,
    member.executors.length > 0 && `executors ${member.executors.join(", ")}`,
  ].filter(Boolean);
}
