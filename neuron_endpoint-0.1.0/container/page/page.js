"use strict";
// The page's whole script: charts from /page/state once a second, and a chat over /v1/chat/completions.
// Text from the model or the endpoint becomes text nodes only.

const KEPT = 120; // seconds of a chart
const SVG = "http://www.w3.org/2000/svg";
const of = (id) => document.getElementById(id);

const series = { tokens: [], first: [], running: [], queued: [], kv: [] };
let before = null;

function keep(name, value) {
  series[name].push(value);
  if (series[name].length > KEPT) series[name].shift();
}

function draw(id, names, least) {
  const top = Math.max(least, ...names.flatMap((name) => series[name].map((value) => value ?? 0)));
  of(id).replaceChildren(...names.map((name, index) => {
    const line = document.createElementNS(SVG, "polyline");
    const values = series[name];
    const points = values.map((value, at) => [240 - (values.length - 1 - at) * (240 / (KEPT - 1)), value])
      .filter(([, value]) => value !== null)
      .map(([x, value]) => `${x.toFixed(1)},${(58 - (56 * value) / top).toFixed(1)}`);
    line.setAttribute("points", points.join(" "));
    if (index) line.setAttribute("class", "second");
    return line;
  }));
}

function rows(table, lines) {
  of(table).tBodies[0].replaceChildren(...lines.map((texts) => {
    const row = document.createElement("tr");
    for (const text of texts) row.insertCell().textContent = text;
    return row;
  }));
}

function show(now) {
  const state = of("state");
  state.textContent = now.state;
  state.className = `state ${now.state}`;
  const percent = (one) => (one.total_bytes ? `${Math.floor((100 * one.done_bytes) / one.total_bytes)} %` : "");
  const share = now.progress.total_bytes ? ` ${percent(now.progress)}` : "";
  of("doing").textContent = now.reason || (now.state === "starting" ? `${now.stage}${share}, ${now.stage_seconds} s` : "");
  if (now.model) of("model").textContent = now.model;
  document.title = `${now.model || "endpoint"}: ${now.state}`;
  rows("stages", now.stages.map((one) => [one.stage, one.seconds]));
  rows("steps", now.steps.map((one) => [one.step, one.seconds, one.running ? percent(one) || "running" : "done"]));
}

function chart(now) {
  const at = performance.now() / 1000;
  const last = before ?? { at, now };
  const seconds = at - last.at;
  const came = (name) => Math.max(0, (now[name] ?? 0) - (last.now[name] ?? 0));
  const rate = seconds > 0 ? came("output_tokens") / seconds : 0;
  const firsts = came("first_token_count");
  const first = firsts ? (1000 * came("first_token_sum")) / firsts : null;
  keep("tokens", rate);
  keep("first", first);
  keep("running", now.running);
  keep("queued", now.queued);
  keep("kv", now.kv_use);
  draw("tokens", ["tokens"], 1);
  draw("first", ["first"], 1);
  draw("queue", ["running", "queued"], now.slots || 1);
  draw("kv", ["kv"], 1);
  of("tokens-now").textContent = rate.toFixed(rate < 10 ? 1 : 0);
  if (first !== null) of("first-now").textContent = first.toFixed(0);
  of("queue-now").textContent = `${now.running} of ${now.slots ?? "–"}, ${now.queued}`;
  of("kv-now").textContent = now.kv_use === null ? "–" : `${(100 * now.kv_use).toFixed(1)} %`;
  const padding = Object.entries(now.padding).map(([phase, share]) => `${phase} ${(100 * share).toFixed(0)} %`);
  of("padding-now").textContent = padding.join(", ") || "–";
  before = { at, now };
}

async function poll() {
  try {
    const reply = await fetch("/page/state", { cache: "no-store" });
    if (!reply.ok) throw new Error(`HTTP ${reply.status}`);
    const now = await reply.json();
    show(now);
    chart(now);
  } catch (error) {
    of("state").textContent = "unreachable";
    of("state").className = "state failed";
    of("doing").textContent = String(error.message ?? error);
  }
  setTimeout(poll, 1000);
}

let messages = [];
let running = null;

function say(role, text) {
  const line = document.createElement("div");
  line.className = `message ${role}`;
  line.textContent = text;
  of("messages").append(line);
  line.scrollIntoView({ block: "nearest" });
  return line;
}

// The documents of a stream of server-sent events, however its bytes were cut.
async function* documents(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

async function ask(text) {
  messages.push({ role: "user", content: text });
  say("user", text);
  const line = say("assistant", "");
  const mine = (running = new AbortController());
  let answer = "";
  busy(true);
  try {
    const reply = await fetch("/v1/chat/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ messages, stream: true }),
      signal: mine.signal,
    });
    if (!reply.ok) throw new Error((await reply.json()).error.message);
    for await (const chunk of documents(reply.body)) {
      if (chunk.error) throw new Error(chunk.error.message);
      const piece = chunk.choices?.[0]?.delta?.content;
      if (piece) {
        answer += piece;
        line.append(piece);
        line.scrollIntoView({ block: "nearest" });
      }
    }
  } catch (error) {
    // A failed stream is closed without its end mark. The browser may drop its last event, which has the reason.
    const broken = error instanceof TypeError ? "The reply ended early. The reason is in the container's log." : null;
    if (error.name !== "AbortError") say("error", broken ?? String(error.message ?? error));
  }
  if (running !== mine) return; // a new chat has begun meanwhile
  if (answer) messages.push({ role: "assistant", content: answer });
  else messages.pop();
  running = null;
  busy(false);
}

function busy(is) {
  of("send").disabled = is;
  of("stop").disabled = !is;
}

of("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = of("prompt").value.trim();
  if (!text || running) return;
  of("prompt").value = "";
  ask(text);
});
of("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    of("ask").requestSubmit();
  }
});
of("stop").addEventListener("click", () => running?.abort());
of("clear").addEventListener("click", () => {
  running?.abort();
  running = null;
  messages = [];
  of("messages").replaceChildren();
  busy(false);
  of("prompt").focus();
});
poll();
