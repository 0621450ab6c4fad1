// The load of the last 15 minutes: four charts over one time axis, kept over a reload.

import { byId, clock, count, element, library, percent, rate } from "./dom.js";

const KEPT = 900; // seconds
const NARROWEST = 60; // seconds that the axis shows at least
const GAP = 10; // seconds without a sample after which the lines break
const STORE = "samples";
const HEIGHT = 150;
const whole = (value) => count(Math.round(value));
const CHARTS = [
  {
    name: "Output tokens", unit: "per second", least: 1, format: rate, series: { tokens: "" },
    title: "Tokens that all requests together got in a second",
  },
  {
    name: "First token", unit: "ms", least: 100, format: whole, series: { first: "" },
    title: "From a request's arrival at the engine to its first token: the mean of those that got one in this second",
  },
  {
    name: "Requests", unit: "", least: 2, format: whole, series: { running: "running", queued: "waiting" },
    title: "Running: they hold a slot of the engine. Waiting: they wait for one",
  },
  {
    name: "KV cache", unit: "in use", least: 1, format: percent, series: { kv: "" },
    title: "The share of the key-value cache that holds the tokens of running requests. Requests wait when it is full",
  },
];
const NAMES = ["time", ...CHARTS.flatMap((chart) => Object.keys(chart.series))];
const samples = restored();
const drawn = [];
let before = null;
let now = null;

function restored() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(STORE));
    if (NAMES.every((name) => kept[name].length === kept.time.length)) return kept;
  } catch {
    // nothing was kept, or by another version of this page
  }
  return Object.fromEntries(NAMES.map((name) => [name, []]));
}

function add(sample) {
  const last = samples.time.at(-1);
  const rows = last !== undefined && sample.time - last > GAP ? [{ time: last + 1 }, sample] : [sample];
  for (const row of rows) for (const name of NAMES) samples[name].push(row[name] ?? null);
  while (samples.time[0] < sample.time - KEPT) for (const name of NAMES) samples[name].shift();
}

// The values since the state before this one. Counters begin anew with a new serving process.
function sampleOf(state, time) {
  const last = before ?? { state, time: time - 1 };
  const came = (name) => Math.max(0, (state[name] ?? 0) - (last.state[name] ?? state[name] ?? 0));
  const firsts = came("first_token_count");
  return {
    time,
    tokens: came("output_tokens") / Math.max(0.1, time - last.time),
    first: firsts ? (1000 * came("first_token_sum")) / firsts : null,
    running: state.running,
    queued: state.queued,
    kv: state.kv_use,
  };
}

function said(chart, index) {
  const values = Object.entries(chart.series).map(([name, label]) => {
    const value = samples[name][index] ?? null;
    return value === null ? null : [chart.format(value), label].filter(Boolean).join(" ");
  });
  return values.filter(Boolean).join(", ") || "–";
}

function latest(chart) {
  const [name] = Object.keys(chart.series);
  return name === "first" ? samples.first.findLastIndex((value) => value !== null) : samples.time.length - 1;
}

// What the caption says: the values under the pointer, else the latest ones.
function caption(chart, index) {
  const slots = chart.series.running && now?.slots && index === undefined ? ` running of ${now.slots}` : " running";
  const time = index === undefined ? "" : `${clock(samples.time[index])} `;
  chart.output.textContent = time + said(chart, index ?? latest(chart)).replace(" running", slots);
  chart.plot.ariaLabel = `${chart.name} ${chart.unit}, the last 15 minutes. Now: ${said(chart, latest(chart))}`;
}

const colour = (name) => () => getComputedStyle(document.body).getPropertyValue(name);

function times(plot, ticks) {
  const length = samples.time.at(-1) - samples.time[0] > 240 ? 5 : 8;
  return ticks.map((tick) => clock(tick).slice(0, length));
}

function draw(chart) {
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  const line = (stroke, fill) => ({ stroke: colour(stroke), fill: fill && colour(fill), width: 1.5, spanGaps: "first" in chart.series, points: { show: "first" in chart.series, size: 5, fill: colour(stroke) } });
  const plot = new uPlot({
    width: chart.plot.clientWidth,
    height: HEIGHT,
    padding: [8, 12, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: "load" }, y: false, drag: { x: false, y: false } },
    scales: {
      x: { range: () => [samples.time[0], Math.max(samples.time[0] + NARROWEST, samples.time.at(-1))] },
      y: { range: (_, least, most) => [0, chart.format === percent ? 1 : Math.max(chart.least, 1.15 * (most ?? 0))] },
    },
    axes: [
      { ...axis, size: 26, space: 70, values: times },
      { ...axis, size: 48, space: 30, values: (_, ticks) => ticks.map(chart.format === percent ? (tick) => `${Math.round(100 * tick)} %` : (tick) => count(tick)) },
    ],
    series: [{}, line("--accent", "--fill"), line("--second", "")].slice(0, 1 + Object.keys(chart.series).length),
    hooks: { setCursor: [(drawn) => caption(chart, drawn.cursor.idx ?? undefined)] },
  }, data(chart), chart.plot);
  new ResizeObserver(() => plot.setSize({ width: chart.plot.clientWidth, height: HEIGHT })).observe(chart.plot);
  return plot;
}

const data = (chart) => [samples.time, ...Object.keys(chart.series).map((name) => samples[name])];

function redraw() {
  for (const { chart, plot } of drawn) {
    plot.setData(data(chart));
    if (plot.cursor.idx === null || plot.cursor.left < 0) caption(chart);
  }
}

// `state`: the endpoint's. Null: it does not answer, and the lines break.
export function showCharts(state) {
  const time = Date.now() / 1000;
  if (!drawn.length && !CHARTS[0].output) CHARTS.forEach(build);
  add(state ? sampleOf(state, time) : { time });
  before = state && { state, time };
  now = state;
  if (drawn.length) redraw();
  else CHARTS.forEach((chart) => caption(chart));
  const padding = Object.entries(state?.padding ?? {}).map(([phase, share]) => `${percent(share)} in ${phase}`);
  byId("padding").hidden = !padding.length;
  byId("padding").textContent = `Padding of the computed tokens: ${padding.join(", ")}`;
}

function build(chart) {
  chart.output = element("output", { textContent: "–" });
  chart.plot = element("div", { className: "plot", role: "img", ariaLabel: chart.name });
  byId("charts").append(element("figure", { title: chart.title },
    element("figcaption", {}, element("span", {}, chart.name, " ", element("small", { className: "muted", textContent: chart.unit })), chart.output),
    chart.plot));
}

export async function startCharts() {
  document.head.append(element("link", { rel: "stylesheet", href: "/page/vendor/uPlot.min.css" }));
  await library("uPlot.iife.min.js");
  if (!samples.time.length) add({ time: Date.now() / 1000 });
  if (!CHARTS[0].output) CHARTS.forEach(build);
  for (const chart of CHARTS) drawn.push({ chart, plot: draw(chart) });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(({ plot }) => plot.redraw()));
  addEventListener("pagehide", () => sessionStorage.setItem(STORE, JSON.stringify(samples)));
}
