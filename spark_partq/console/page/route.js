// What is shown stands in the fragment of the address, so that it can be sent to a colleague: #/group/billing?fact=12

/** `{ kind, name, asked }`: of the overview, of a group or of a queue. */
export function here() {
  const [path, query] = location.hash.replace(/^#/, "").split(/\?(.*)/s);
  const [, kind, name] = path.split("/");
  const known = kind === "group" || kind === "queue";
  return { kind: known && name ? kind : "", name: known && name ? decoded(name) : "", asked: new URLSearchParams(query ?? "") };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** A link to a group or a queue; `asked` are filters and what is opened. */
export function to(kind, name, asked = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(asked)) {
    for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "") query.append(key, String(one));
  }
  const text = query.toString();
  return `${kind ? `#/${kind}/${encodeURIComponent(name)}` : "#/"}${text ? `?${text}` : ""}`;
}

/** The same page with other filters; null takes one away. */
export function changed(changes) {
  const { kind, name, asked } = here();
  const all = {};
  for (const key of new Set(asked.keys())) all[key] = asked.getAll(key);
  return to(kind, name, { ...all, ...changes });
}
