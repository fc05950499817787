// The history of a group, page by page; the console searches it, and each fact has an address.

import { h } from "./dom.js";
import { NONE, number, precise } from "./format.js";
import { button, table } from "./parts.js";
import { changed, to } from "./route.js";

const COLUMNS = [["fact", "n"], ["at (UTC)"], ["what"], ["of"], ["epoch", "n"], ["offset", "n"], ["because"], ["decided by"]];
export const KINDS = [
  "Granted", "Released", "Unassigned", "HandoffStarted", "HandoffCancelled", "MemberJoined", "MemberLeft", "StatusChanged", "AssignmentComputed",
  "QueueAdded", "QueueRemoved", "PartitionAdded", "PartitionRemoved", "Floor", "Isolated", "Skipped", "KeysReleased", "OffsetsReset", "PositionReset",
  "MemberStateful", "GroupCreated", "GroupDeleted", "FormatRaised",
];
const AFTER = 20; // so many newer facts are shown above one that somebody was sent

/** What the console is asked for. */
export function query(asked) {
  const wanted = new URLSearchParams();
  for (const kind of asked.getAll("kind")) wanted.append("kind", kind);
  for (const name of ["partition", "member", "text"]) if (asked.get(name)) wanted.set(name, asked.get(name));
  const before = asked.get("before") ?? (asked.get("fact") ? Number(asked.get("fact")) + 1 + AFTER : null);
  if (before) wanted.set("before", String(before));
  wanted.set("limit", "50");
  return wanted.toString();
}

export function history(group, page, members, asked) {
  return [
    filters(asked, members),
    page === null ? h("p", { class: "quiet" }, "Reading the history…") : facts(group, page, asked),
  ];
}

function filters(asked, members) {
  const option = (value, text = value) => h("option", { value, selected: (asked.get("kind") ?? "") === value }, text);
  return h("form", { class: "tools", "data-key": "history-tools", "data-form": "history", "data-keep": true },
    h("label", null, "kind ", h("select", { name: "kind" }, option("", "all"), KINDS.map((kind) => option(kind)))),
    h("label", null, "partition ", h("input", { name: "partition", value: asked.get("partition"), size: 10, placeholder: "orders/3", autocomplete: "off" })),
    h("label", null, "client ", h("input", { name: "member", value: asked.get("member"), size: 12, list: "members", autocomplete: "off" }),
      h("datalist", { id: "members" }, members.map((name) => h("option", { value: name })))),
    h("label", null, "text ", h("input", { name: "text", type: "search", value: asked.get("text"), size: 16, maxlength: 200, autocomplete: "off" })),
    button("Clear", "clear-history"));
}

function facts(group, { facts: found, older, end }, asked) {
  const wanted = Number(asked.get("fact") ?? -1);
  const before = asked.get("before") ?? asked.get("fact");
  return [
    found.length > 0 ? table("History", COLUMNS, found.map((fact) => row(group, fact, wanted))) : h("p", { class: "quiet" }, older === null ? "No fact is like that." : `No fact from ${number(older)} on is like that.`),
    h("nav", { class: "pages", "aria-label": "Pages of the history" },
      before ? h("a", { href: changed({ before: null, fact: null }) }, "‹ the newest") : h("span", { class: "quiet" }, "the newest first"),
      h("span", null, `${number(end)} facts in all`),
      older === null ? h("span", { class: "quiet" }, "nothing older") : h("a", { href: changed({ before: older, fact: null }) }, "older ›")),
  ];
}

function row(group, fact, wanted) {
  const epoch = fact.epoch === null ? "" : fact.epoch_before === fact.epoch || fact.epoch_before === null ? number(fact.epoch) : `${number(fact.epoch_before)} → ${number(fact.epoch)}`;
  const cells = [
    h("a", { href: to("group", group, { fact: fact.seq }), title: "The address of this fact" }, String(fact.seq)),
    h("time", { datetime: fact.at }, precise(fact.at)), [fact.kind, fact.forced && h("span", { class: "bad" }, " forced")], subject(fact), epoch,
    fact.offset === null ? "" : number(fact.offset), fact.cause, fact.by || NONE,
  ];
  return { key: `fact-${fact.seq}`, id: `fact-${fact.seq}`, cells, class: fact.seq === wanted ? "wanted" : null };
}

/** What a fact is about, as the command says it. */
function subject(fact) {
  const place = fact.partition === null ? "" : `${fact.queue}/${fact.partition}`;
  if (fact.kind === "HandoffStarted") return `${place} ${fact.flow} → ${fact.to_flow ?? "?"}`;
  if (fact.kind === "StatusChanged") return fact.status;
  if (fact.kind === "AssignmentComputed") return assignment(fact.body);
  if (place) return fact.flow ? `${place} ${fact.flow}` : place;
  return fact.instance ?? fact.queue ?? "";
}

function assignment(body) {
  try {
    const { assignor, protocol } = JSON.parse(body);
    return `${assignor}, ${protocol}`;
  } catch {
    return "";
  }
}
