// Small things that several views show.

import { h, s } from "./dom.js";

const MARKS = { Ready: "●", Holddown: "◐", Rebalancing: "↻", Expired: "✕", Dead: "✕", Empty: "○", ScalingUp: "▲", ScalingDown: "▼" };

/** A status: a sign, a word and a colour that say the same. */
export function badge(state) {
  return h("span", { class: `badge ${state}` }, h("span", { "aria-hidden": "true" }, MARKS[state] ?? "▪"), " ", state);
}

const colours = new Map(); // of a group its members, in the order in which they were seen

/** The number of a member's colour. */
export function colour(group, instance) {
  if (!colours.has(group)) colours.set(group, new Map());
  const known = colours.get(group);
  if (!known.has(instance)) known.set(instance, known.size);
  return known.get(instance) % 7;
}

export const swatch = (group, instance) => h("span", { class: `swatch c${colour(group, instance)}`, "aria-hidden": "true" });

/** A table. Columns are `[heading, class, explanation]`; rows `{ key, cells, …attributes }`, the first cell of each its heading. */
export function table(caption, columns, rows, more = {}) {
  const head = columns.map(([text, kind, title]) => h("th", { scope: "col", class: kind, title }, text));
  const body = rows.map(({ key, cells, ...attributes }) =>
    h("tr", { "data-key": key, ...attributes }, cells.map((cell, i) => h(i ? "td" : "th", { scope: i ? null : "row", class: columns[i][1], "data-of": columns[i][0] }, cell))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", more, h("caption", { class: "unseen" }, caption), h("thead", null, h("tr", null, head)), h("tbody", null, body)));
}

/** Names with what they are. */
export function about(pairs) {
  return h("dl", { class: "about" }, pairs.filter(Boolean).map(([name, ...value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

/** How a number went, over the last looks. */
export function trend(values, what) {
  const most = Math.max(...values, 1);
  const points = values.map((value, i) => `${((i + 60 - values.length) / 59 * 70 + 1).toFixed(1)},${(15 - value / most * 13).toFixed(1)}`);
  const drawn = values.length > 1 ? s("polyline", { points: points.join(" ") }) : null;
  return s("svg", { class: "trend", viewBox: "0 0 72 17", width: 72, height: 17, role: "img", "aria-label": `${what} over the last looks` }, drawn);
}

/** A section with a heading, so that it can be reached by it. */
export const section = (id, title, ...rest) => h("section", { id, "aria-labelledby": `${id}-title`, "data-key": id }, h("h2", { id: `${id}-title` }, title), rest);

export const button = (text, action, more = {}) => h("button", { type: "button", "data-do": action, ...more }, text);
