// Elements are made and compared, never parsed: a text of the store can only become text.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; what is null or false is left out. */
export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same of a drawing. */
export function s(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** Make the children of `parent` like these, and leave alone what is so already: focus, selection and scrolling stay. */
export function show(parent, ...children) {
  const wanted = filled(document.createDocumentFragment(), null, children);
  const focused = document.activeElement;
  morphChildren(parent, wanted);
  // What moves among its siblings loses the focus.
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}

function morphChildren(there, wanted) {
  const keyed = new Map();
  const kept = new Set([...wanted.children].map((node) => node.dataset?.key));
  for (const node of [...there.children]) {
    if (!node.dataset?.key) continue;
    if (kept.has(node.dataset.key)) keyed.set(node.dataset.key, node);
    else node.remove(); // else all behind it would move to before it
  }
  let next = there.firstChild;
  for (const node of [...wanted.childNodes]) {
    const key = node.dataset?.key;
    const same = key ? keyed.get(key) : next && !next.dataset?.key && alike(next, node) ? next : null;
    if (!same || !alike(same, node)) {
      there.insertBefore(node, next);
      continue;
    }
    if (same !== next) there.insertBefore(same, next);
    next = same.nextSibling;
    morph(same, node);
  }
  while (next) {
    const after = next.nextSibling;
    next.remove();
    next = after;
  }
}

function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && a.dataset?.key === b.dataset?.key;
}

function morph(there, wanted) {
  if (there.nodeType === Node.TEXT_NODE) {
    if (there.data !== wanted.data) there.data = wanted.data;
    return;
  }
  if (there.dataset?.keep !== undefined) return; // it is the user's: what is typed or opened stays
  for (const { name } of [...there.attributes]) if (!wanted.hasAttribute(name) && name !== "open") there.removeAttribute(name);
  for (const { name, value } of wanted.attributes) if (there.getAttribute(name) !== value) there.setAttribute(name, value);
  morphChildren(there, wanted);
}
