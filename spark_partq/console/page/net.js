// What the page asks the console for.

/** Why there is no answer: a text for people, and what they may do. */
export class Refused extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.kind = error.class;
    this.nextStep = error.next_step ?? "";
  }
}

/** The JSON at an address. A browser asks whether it has changed, and gets it again only then. */
export async function get(path) {
  return answered(await fetch(path, { cache: "no-cache" }));
}

export async function act(body) {
  const headers = { "content-type": "application/json", "x-partq-token": token() };
  return answered(await fetch("api/actions", { method: "POST", headers, body: JSON.stringify(body) }));
}

async function answered(answer) {
  let found;
  try {
    found = await answer.json();
  } catch {
    throw new Refused(answer.status, { class: "HTTP", message: `the console answered with status ${answer.status}` });
  }
  if (!answer.ok) throw new Refused(answer.status, found.error);
  return found;
}

const KEPT = "partq-token";

/** The token that the command printed; it leaves the address at once, and stays in this tab. */
export function token() {
  const given = /^#token=([\w-]+)$/.exec(location.hash);
  if (given) {
    sessionStorage.setItem(KEPT, given[1]);
    history.replaceState(null, "", "#/");
  }
  return sessionStorage.getItem(KEPT) ?? "";
}

export const path = (...names) => ["api", ...names.map(encodeURIComponent)].join("/");
