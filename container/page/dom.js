// Small helpers that every module of the page uses.

export const byId = (id) => document.getElementById(id);

// An element with properties and children. Texts become text nodes, never markup.
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}

export const count = (value) => value.toLocaleString("en");
export const clock = (unixSeconds) => new Date(unixSeconds * 1000).toLocaleTimeString("en", { hourCycle: "h23" });
export const milliseconds = (seconds) => `${count(Math.round(1000 * seconds))} ms`;
export const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
export const rate = (value) => (value < 10 ? value.toFixed(1) : count(Math.round(value)));

export function duration(seconds) {
  if (seconds < 0.01) return "< 10 ms";
  if (seconds < 0.1) return `${Math.round(1000 * seconds)} ms`;
  if (seconds < 100) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

export function bytes(value) {
  const power = Math.min(4, Math.max(0, Math.floor(Math.log10(Math.max(1, value)) / 3)));
  return `${(value / 1000 ** power).toFixed(power && value < 10 * 1000 ** power ? 1 : 0)} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

// Runs it once the page has been painted and is idle.
export const afterPaint = (run) => (globalThis.requestIdleCallback ?? setTimeout)(() => run());

// Copies a text, and says so on the button. A browser has no clipboard for an address that is neither local nor https.
export async function copy(text, button) {
  const name = button.textContent;
  const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  button.textContent = done ? "Copied" : "No clipboard here";
  setTimeout(() => { button.textContent = name; }, 1500);
}

const loaded = new Map();

// Loads a library of page/vendor once, after the first paint. It becomes a global of its own name.
export function library(file) {
  if (!loaded.has(file)) {
    loaded.set(file, new Promise((resolve, reject) => {
      const script = element("script", { src: `/page/vendor/${file}`, onload: resolve, onerror: reject });
      document.head.append(script);
    }));
  }
  return loaded.get(file);
}

export async function json(path, milliseconds = 5000) {
  const reply = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(milliseconds) });
  return { ok: reply.ok, document: await reply.json() };
}
