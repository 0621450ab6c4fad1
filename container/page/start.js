// The start as bars on one time axis, with what each step waited for.

import { byId, bytes, duration, element, percent } from "./dom.js";

const TICKS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200];
let shown = "";

export function progress(step) {
  if (!step.total_bytes) return "";
  const speed = step.end === null && step.bytes_per_second ? `, ${bytes(step.bytes_per_second)}/s` : "";
  return `${percent(step.done_bytes / step.total_bytes)} of ${bytes(step.total_bytes)}${speed}`;
}

function ticks(end) {
  const width = TICKS.find((tick) => end / tick <= 6) ?? 7200;
  const marks = Array.from({ length: Math.floor(end / width) + 1 }, (_, index) => index * width);
  byId("ticks").replaceChildren(...marks.map((at) => {
    const mark = element("span", { textContent: at < 60 ? `${+at.toFixed(1)} s` : `${+(at / 60).toFixed(1)} min` });
    mark.style.left = `${(100 * at) / end}%`;
    return mark;
  }));
}

function bar(step, end, last) {
  const until = step.end ?? last;
  const waited = step.waited_for.length ? `after ${step.waited_for.join(", ")}` : "";
  const filled = element("span", { className: "filled" });
  filled.style.left = `${(100 * step.begin) / end}%`;
  filled.style.width = `${(100 * (until - step.begin)) / end}%`;
  const title = `${step.step}: from ${duration(step.begin)} to ${step.end === null ? "now" : duration(until)}. ${waited || "It waited for nothing"}`;
  const more = [progress(step), waited].filter(Boolean).join(", ");
  return element("li", { className: step.end === null ? "step running" : "step", title },
    element("span", { className: "name" }, step.step, more ? element("small", { textContent: more }) : null),
    element("span", { className: "track" }, filled),
    element("span", { className: "time", textContent: duration(until - step.begin) }));
}

export function showStart(now) {
  byId("start").hidden = !now.timeline.length;
  const failed = now.state === "failed" && now.stage !== "ready";
  const ended = Math.max(0, ...now.timeline.map((step) => step.end ?? step.begin));
  const running = !failed && now.timeline.some((step) => step.end === null);
  const last = running ? now.seconds : ended;
  const key = JSON.stringify([now.timeline, running && last, failed]);
  if (key === shown) return;
  shown = key;
  const end = Math.max(0.1, last);
  ticks(end);
  byId("steps").replaceChildren(...now.timeline.map((step) => bar(step, end, last)));
  const failing = failed ? now.timeline.findLastIndex((step) => step.step === now.stage) : -1;
  if (failing >= 0) byId("steps").children[failing].classList.add("failed");
  byId("start-total").textContent = `${duration(last)}${failed ? ", failed" : running ? " so far" : ""}`;
}
