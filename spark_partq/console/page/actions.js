// What the page may do, if the console was started with --actions and this tab has its token.

import { h, show } from "./dom.js";
import { act } from "./net.js";
import { button } from "./parts.js";

const dialog = () => document.getElementById("dialog");
let pending = null; // what is done when somebody confirms
let busy = false; // an answer is awaited, so a second press does nothing

/** Ask before anything is changed. */
export function confirm(title, text, body) {
  pending = () => act(body);
  open(title, h("p", null, text));
}

/** Where a group shall read on; the first press only says what would be set. */
export function askReset(group) {
  let shown = ""; // of which place somebody has seen what would be set
  pending = async () => {
    const to = dialog().querySelector("[name=to]").value.trim();
    const dry = to !== shown;
    shown = "";
    const answer = await act({ action: "reset-offsets", group, to, dry_run: dry });
    if (dry) shown = to;
    return answer;
  };
  open(`Reset the offsets of ${group}`,
    h("p", null, "Nobody may consume in the group. The first press says what would be set, the second sets it."),
    h("label", null, "to ", h("input", { name: "to", value: "earliest", autocomplete: "off", "data-keep": true })),
    h("p", { class: "quiet" }, "earliest, latest, time:2026-11-01T00:00:00Z, by:P1D (one day back), or {\"QUEUE\": {\"3\": 120}}"));
}

function open(title, ...inner) {
  show(dialog(), h("h2", { id: "dialog-title" }, title), inner, h("p", { id: "done", role: "status" }),
    h("p", { class: "acts" }, button("Do it", "do-it"), button("Close", "close-dialog")));
  if (!dialog().open) dialog().showModal();
}

export async function doIt() {
  if (busy) return;
  busy = true;
  const done = dialog().querySelector("#done");
  show(done, "…");
  try {
    show(done, (await pending()).done);
  } catch (refused) {
    show(done, h("span", { class: "bad" }, refused.message));
  } finally {
    busy = false;
  }
}
