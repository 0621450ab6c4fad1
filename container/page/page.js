// Asks for the endpoint's state once a second, and shows it: header, notice, and what the other modules show.

import { showCharts, startCharts } from "./charts.js";
import { startChat, showChat } from "./chat.js";
import { afterPaint, byId, clock, duration, json } from "./dom.js";
import { showRequests } from "./requests.js";
import { startSettings } from "./settings.js";
import { progress, showStart } from "./start.js";

const EVERY = 1000;
const QUIET = 2500; // milliseconds between two tries while nothing answers
const RECENT = 900; // seconds for which a failure that is over is mentioned
let silentSince = null;
let hidden = ""; // the notice that the reader has hidden

function doing(now) {
  if (now.state !== "starting") return "";
  const step = now.timeline?.find((row) => row.end === null && row.total_bytes);
  const waiting = now.waiting ? `, waits for ${now.waiting}` : "";
  return `${now.stage}${step ? `, ${progress(step)}` : ""}${waiting}, ${duration(now.seconds)}`;
}

// What the reader has to know, if anything.
function noticeOf(now) {
  const failure = now.last_failure;
  const at = now.stage === "ready" ? "" : ` at “${now.stage}”`;
  if (now.state === "failed") return `The endpoint has failed${at}: ${now.reason}`;
  if (now.reason) return `The endpoint is unhealthy: ${now.reason}`;
  if (!failure) return "";
  const what = `The engine failed at ${clock(failure.at)}: ${failure.reason.replace(/\.$/, "")}.`;
  if (now.state === "starting") return `${what} It is starting again.`;
  return Date.now() / 1000 - failure.at < RECENT ? `${what} The endpoint is back.` : "";
}

function notice(text, over) {
  byId("notice").hidden = !text || text === hidden;
  byId("notice").classList.toggle("over", over);
  byId("notice-hide").hidden = !over;
  if (byId("notice-text").textContent !== text) byId("notice-text").textContent = text;
}

function header(state, text) {
  const pill = byId("state");
  if (pill.textContent !== state) pill.textContent = state;
  pill.className = `state ${state.replace(" ", "-")}`;
  document.body.dataset.state = state;
  byId("doing").textContent = text;
  document.title = `${byId("model").textContent}: ${state}`;
}

function show(now) {
  silentSince = null;
  const models = now.models.filter((model) => !model.parent).map((model) => model.id);
  if (models.length) byId("model").textContent = models.join(", ");
  header(now.state, doing(now));
  notice(noticeOf(now), now.state === "ready");
  showStart(now);
  showCharts(now);
  showChat(now);
  showRequests(now);
}

// The serving process does not answer. /ping comes from another process, which may know more.
async function silent() {
  silentSince ??= Date.now() / 1000;
  showCharts(null);
  try {
    const { document: ping } = await json("/ping", 2000);
    header(ping.status, `${ping.stage}`);
    notice(ping.reason ? `The endpoint is unhealthy: ${ping.reason}` : "", false);
  } catch {
    header("no answer", "");
    notice(`Nothing answers at this address since ${clock(silentSince)}. This page goes on trying.`, false);
  }
  showChat({ state: "no answer" });
}

async function poll() {
  const now = await json("/page/state").then(({ ok, document }) => (ok ? document : null), () => null);
  try {
    if (now) show(now);
    else await silent();
  } finally {
    setTimeout(poll, now ? EVERY : QUIET);
  }
}

byId("notice-hide").addEventListener("click", () => {
  hidden = byId("notice-text").textContent;
  byId("notice").hidden = true;
});
// What scrolls stays below the header, which grows with a notice.
new ResizeObserver(([{ target }]) => {
  document.documentElement.style.setProperty("--header", `${target.offsetHeight}px`);
}).observe(document.querySelector("header"));
startChat();
startSettings();
poll();
afterPaint(startCharts);
