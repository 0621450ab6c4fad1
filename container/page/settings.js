// Every setting with its value, where it came from, and what it overrode.

import { byId, element, json } from "./dom.js";

const AGAIN = 2000; // milliseconds
let settings = [];

function text(value) {
  if (value === null) return "the model's or the instance's";
  return typeof value === "string" ? value : JSON.stringify(value);
}

function item(setting) {
  const source = setting.given ? `from ${setting.source}` : "default";
  return element("li", { className: setting.given ? "given" : "" },
    element("code", { className: "field", textContent: setting.field }),
    element("code", { className: "value", textContent: text(setting.value) }),
    element("span", { className: "source", textContent: source }),
    ...setting.overridden.map((weaker) => element("span", { className: "overridden", textContent: `instead of ${weaker}` })),
    element("span", { className: "doc muted", textContent: setting.doc }));
}

function show() {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const onlySet = byId("only-set").checked && !words.length && settings.some((setting) => setting.given);
  const matches = settings.filter((setting) => {
    const searched = [setting.field, text(setting.value), setting.source, setting.doc, ...setting.overridden].join(" ").toLowerCase();
    return (setting.given || !onlySet) && words.every((word) => searched.includes(word));
  });
  byId("setting-list").replaceChildren(...matches.map(item));
  byId("settings-count").textContent = settings.length ? `${matches.length} of ${settings.length}` : "";
}

async function load() {
  try {
    const { ok, document } = await json("/page/settings");
    if (!ok) throw new Error("no settings");
    settings = document.sort((one, other) => other.given - one.given);
    show();
  } catch {
    setTimeout(load, AGAIN);
  }
}

export function startSettings() {
  byId("search").addEventListener("input", show);
  byId("only-set").addEventListener("change", show);
  load();
}
