// Asks for the picture again and again, and shows it; what is typed, opened or focused stays.

import { askReset, confirm, doIt } from "./actions.js";
import { h, show } from "./dom.js";
import { explanation } from "./explain.js";
import { clock } from "./format.js";
import { group } from "./group.js";
import { query } from "./history.js";
import { get, path, Refused, token } from "./net.js";
import { overview, seen } from "./overview.js";
import { queue } from "./queue.js";
import { changed, here, to } from "./route.js";
import { MOST_ROWS, owners, SECONDS } from "./timeline.js";

const main = document.getElementById("main"), dialog = document.getElementById("dialog");
const TIMELINE_EVERY_MS = 10_000; // between two, if nothing was decided
let store = null; // the last picture
let data = {}; // of what is shown of it
let page = ""; // whose data that is
let round = 0; // what an older one still gets is too late
let readAt = 0, timer = 0;
const may = { act: Boolean(token()) };

// ---- reading
async function look(moved = false) {
  const mine = (round += 1);
  clearTimeout(timer);
  const route = here();
  if (moved) turned(route);
  try {
    const found = await get("api/store");
    if (mine !== round) return;
    store = found;
    readAt = Date.now();
    draw(route);
    const refused = store.error ? null : await details(route, moved, mine);
    if (mine !== round) return;
    complain(store.error ? unreadable(store.error) : refused ? `${refused.message}. ${refused.nextStep}` : store.late ? "The store has not answered for some seconds." : "");
  } catch (error) {
    if (mine !== round) return;
    complain(error instanceof Refused ? error.message : "The console does not answer: it has ended, or cannot be reached.");
  }
  draw(route);
  if (moved) arrived(route);
  if (!document.hidden) timer = setTimeout(look, (store?.every_s ?? 2) * 1000);
}

const unreadable = ({ message, next_step }) => `The store cannot be read: ${message}. ${next_step}`;

/** Read what the page is about; returns why not. */
async function details({ kind, name, asked }, moved, mine) {
  if (!kind) return null;
  const keep = async (key, wanted) => {
    const found = await wanted;
    if (mine === round) data[key] = found;
  };
  try {
    await keep(kind, get(path(`${kind}s`, name)));
    if (kind !== "group") return null;
    data.members = [...new Set([...data.group.description.members.map((member) => member.instance), ...owners(data.timeline)])].sort();
    await keep("history", get(`${path("groups", name, "history")}?${query(asked)}`));
    const stale = !data.timeline || moved || data.timeline.end !== data.history.end || Date.now() - data.timeline.read > TIMELINE_EVERY_MS;
    if (stale && data.group.description.state !== "Dead") await keep("timeline", ownership(name, asked));
    if (asked.get("why") && dialog.open) await why(name, asked.get("why"), mine);
    return null;
  } catch (error) {
    if (error instanceof Refused) return error;
    throw error;
  }
}

async function ownership(name, asked) {
  const wanted = new URLSearchParams({ seconds: asked.get("range") ?? SECONDS, first: asked.get("rows") ?? "0" });
  const few = data.group.description.partitions.length <= MOST_ROWS;
  if ((asked.get("which") ?? (few ? "all" : "moved")) === "moved") wanted.set("moved", "");
  const found = await get(`${path("groups", name, "timeline")}?${wanted}`);
  return { ...found, many: !few, end: data.history.end, read: Date.now() };
}

// ---- showing
function draw({ kind, name, asked }) {
  if (!store) return;
  const acts = may.act && store.actions;
  if (kind === "group") show(main, group(name, { group: null, history: null, timeline: null, members: [], ...data }, asked, acts));
  else if (kind === "queue") show(main, queue(name, { queue: null, ...data }, store, acts));
  else show(main, overview(store));
  show(document.getElementById("trail"), h("li", null, h("a", { href: "#/" }, "partq console")), h("li", { class: "place" }, kind ? h("a", { href: "#/" }, store.store) : store.store),
    kind && h("li", { "aria-current": "page" }, `${kind} ${name}`));
  document.title = kind ? `${name} · partq console` : "partq console";
}

function complain(text) {
  const picture = store?.at ? ` What you see is of ${clock(store.at)} UTC.` : "";
  show(document.getElementById("trouble"), text && h("p", null, h("strong", null, "▲ "), text, picture, " Trying again."));
  document.body.classList.toggle("stale", Boolean(text));
  age();
}

function age() {
  if (!store) return;
  const trouble = document.body.classList.contains("stale");
  const seconds = (Date.now() - readAt) / 1000;
  show(document.getElementById("live"), h("span", { class: "dot", "aria-hidden": "true" }, trouble ? "○" : "●"), trouble ? " not live" : ` live, ${seen(seconds)}`);
}

// ---- moving
function turned({ kind, name, asked }) {
  const now = `${kind}/${name}`;
  if (now !== page) {
    data = {};
    page = now;
    show(main);
    window.scrollTo(0, 0);
  }
  for (const control of main.querySelectorAll("form [name]")) {
    const wanted = asked.get(control.name) ?? (USUAL[control.name] ?? "");
    if (control !== document.activeElement && control.value !== wanted) control.value = wanted;
  }
  const place = asked.get("why");
  if (kind === "group" && place) {
    show(dialog, explanation(name, place, null, ""));
    if (!dialog.open) dialog.showModal();
    why(name, place, round);
  } else if (dialog.open && dialog.querySelector(".steps, .waits")) dialog.close();
}

async function why(name, place, mine) {
  let answer = null, refused = "";
  try {
    answer = await get(`${path("groups", name, "explain")}?${new URLSearchParams({ partition: place })}`);
  } catch (error) {
    refused = error.message;
  }
  if (dialog.open && here().asked.get("why") === place) show(dialog, explanation(name, place, answer, refused));
}

function arrived({ asked }) {
  const row = asked.get("fact") && document.getElementById(`fact-${asked.get("fact")}`);
  if (!row) return;
  row.scrollIntoView({ block: "center" });
  row.querySelector("a").focus({ preventScroll: true });
}

/** Another address for what is shown, without a step back to each letter that was typed. */
function replace(changes) {
  history.replaceState(null, "", changed(changes));
  look(true);
}

const FORMS = {
  partitions: { page: null },
  history: { before: null, fact: null },
  timeline: { rows: null },
};
const USUAL = { range: SECONDS, sort: "partition", which: "moved" };
let typing = 0;

function filtered(event) {
  const form = event.target.closest("form[data-form]");
  if (!form) return;
  event.preventDefault();
  clearTimeout(typing);
  typing = setTimeout(() => replace({ ...FORMS[form.dataset.form], ...Object.fromEntries(new FormData(form)) }), event.type === "input" ? 300 : 0);
}

const DO = {
  "close-dialog": () => dialog.close(),
  "clear-history": () => replace({ kind: null, partition: null, member: null, text: null, before: null, fact: null }),
  "do-it": doIt,
  rebalance: ({ group: name }) => confirm(`Rebalance ${name}`, "The console decides what is due in the group until it is Ready: members that died are taken out, handoffs and holddowns whose time is over end.", { action: "rebalance", group: name }),
  reset: ({ group: name }) => askReset(name),
  ingress: ({ queue: name, enabled }) => confirm(`Ingress of ${name}`, enabled === "yes" ? "The queue takes messages again." : "The queue takes no messages until somebody enables that again. Its consumers go on.", { action: "ingress", queue: name, enabled: enabled === "yes" }),
};

document.addEventListener("click", (event) => {
  const pressed = event.target.closest("[data-do]");
  if (pressed) DO[pressed.dataset.do](pressed.dataset);
});
document.addEventListener("input", filtered);
document.addEventListener("submit", filtered);
dialog.addEventListener("close", () => {
  if (here().asked.get("why")) history.replaceState(null, "", changed({ why: null }));
});
document.addEventListener("visibilitychange", () => !document.hidden && look());
window.addEventListener("hashchange", () => look(true));
window.addEventListener("resize", () => store && draw(here()));
setInterval(age, 1000);
if (!location.hash) history.replaceState(null, "", to("", ""));
look(true);
