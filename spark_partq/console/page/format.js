// Numbers, times and sizes as people read them. Times are in UTC, as everywhere in this project.

const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
export const NONE = "–";

export const number = (n) => (n === null || n === undefined ? NONE : WHOLE.format(n));

/** Messages per second. */
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return NONE;
  return perSecond === 0 ? "0" : perSecond < 100 ? SHORT.format(perSecond) : WHOLE.format(Math.round(perSecond));
}

/** A number of seconds. */
export function age(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const parts = [[Math.floor(whole / 86400), "d"], [Math.floor(whole / 3600) % 24, "h"], [Math.floor(whole / 60) % 60, "min"], [whole % 60, "s"]];
  const first = parts.findIndex(([n]) => n > 0);
  return parts.slice(first, first + 2).filter(([n]) => n > 0).map(([n, unit]) => `${n} ${unit}`).join(" ");
}

/** The age of the oldest of so many messages. */
export const waiting = (seconds, count) => (count ? age(seconds) : NONE);

export function size(bytes) {
  let n = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (n < 1024) return `${unit === "B" ? n : n.toFixed(1)} ${unit}`;
    n /= 1024;
  }
  return `${n.toFixed(1)} TiB`;
}

/** `0–2, 5` for 0, 1, 2, 5. */
export function ranges(numbers) {
  const runs = [];
  for (const n of numbers) {
    const last = runs.at(-1);
    if (last && n === last[1] + 1) last[1] = n;
    else runs.push([n, n]);
  }
  return runs.map(([a, b]) => (a === b ? partition(a) : `${a}–${b}`)).join(", ");
}

export const partition = (n) => (n === -1 ? "parent" : String(n));
export const partitions = (count) => (count === 0 ? "exclusive" : number(count));
export const plural = (n, what) => `${number(n)} ${what}${n === 1 ? "" : "s"}`;

export const clock = (iso) => iso.slice(11, 19);
export const moment = (iso) => `${iso.slice(0, 10)} ${clock(iso)}`;
export const precise = (iso) => `${iso.slice(0, 10)} ${iso.slice(11, 23).padEnd(12, iso.includes(".") ? "0" : " ").replace("+", " ").trim()}`;
export const instance = (flow) => flow.slice(0, flow.lastIndexOf("/"));
