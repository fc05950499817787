// Why a partition is where it is: the words of `spark-partq explain`, in a dialog.

import { h } from "./dom.js";
import { moment, number, plural } from "./format.js";
import { button } from "./parts.js";
import { to } from "./route.js";

export function explanation(group, place, answer, refused) {
  const close = button("Close", "close-dialog", { class: "close" });
  const title = h("h2", { id: "dialog-title" }, "Why is ", place, " where it is?");
  if (refused) return [title, h("p", { class: "bad" }, refused), close];
  if (!answer) return [title, h("p", { class: "quiet" }, "Reading…"), close];
  const found = answer.explanation;
  return [
    title,
    h("p", null, `Group ${found.group}: ${found.state}, `, found.owner ? `owned by ${found.owner}` : "without an owner",
      `. Position ${number(found.position)}, delivered up to ${number(found.delivered)}${found.end === null ? "" : `, it ends at ${number(found.end)}`}. Epoch ${number(found.epoch)}.`),
    h("h3", null, "What it waits for"),
    found.waits.length ? h("ul", { class: "waits" }, found.waits.map((wait) => h("li", null, h("strong", null, wait.kind), " ", wait.text))) : h("p", null, "Nothing that is known here."),
    h("h3", null, "How it came there"),
    answer.steps_before > 0 && h("p", { class: "quiet" }, `${plural(answer.steps_before, "fact")} before these: `, h("a", { href: to("group", group, { partition: place }) }, "all facts about it")),
    h("ol", { class: "steps" }, found.steps.map((step) => h("li", { "data-key": String(step.fact) },
      h("a", { href: to("group", group, { fact: step.fact }) }, `fact ${step.fact}`), " ", h("time", { datetime: step.at, class: "quiet" }, moment(step.at)), " ", step.text, h("span", { class: "quiet" }, ` · ${step.cause}`)))),
    close,
  ];
}
