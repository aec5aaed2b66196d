// Curves of one job, or of several laid over each other: a chart per figure, drawn by uPlot.
"use strict";

const FIGURES = [
  { title: "Loss", unit: "loss", splits: ["valid", "train"], of: (r) => r.loss, digits: 5 },
  { title: "AUC", unit: "AUC", splits: ["valid", "train"], of: (r) => r.auc, digits: 5 },
  { title: "Rows per second", unit: "rows/s", splits: ["train"], of: (r) => r.rows_per_s, digits: 0 },
  { title: "Waiting for data, mean of the ranks", unit: "% of the time", splits: ["train"], of: waited, digits: 1 },
];
const FIELDS = ["split", "step", "rows_total", "elapsed_s", "loss", "auc", "targets", "rows_per_s", "stall_pct", "stall_summary"];
const MAIN_METRICS = { auc: "AUC", rmse: "RMSE", accuracy: "accuracy" };
const MOST_TARGETS = 16;
const AXES = { step: "step", rows_total: "rows trained", elapsed_s: "training time" };
const SPLITS = { valid: "validation", train: "training" };
const HEIGHT_PX = 260;
const PALETTES = { light: ["#0b57a4", "#b35900", "#0a7a3c", "#8e24aa", "#c2185b", "#00796b", "#5d4037", "#455a64"],
  dark: ["#7db8ff", "#ffb74d", "#5fd38d", "#d79bff", "#ff8fb3", "#4dd0c1", "#c8a898", "#a3b8c8"] };

function waited(record) {
  if (record.stall_summary) return record.stall_summary.mean;
  const ranks = record.stall_pct || [];
  return ranks.length ? ranks.reduce((sum, pct) => sum + pct, 0) / ranks.length : null;
}

// --- records, read on from where the last answer ended

const box = document.querySelector(".curves");
const jobs = box.dataset.jobs.split(" ").map((id) => ({ id, records: [], cursor: null }));

async function readOn(job) {
  const query = new URLSearchParams(FIELDS.map((name) => ["fields", name]));
  let isNew = false;
  for (let more = true; more;) {
    if (job.cursor !== null) query.set("since", job.cursor);
    const answer = await fetch(`/v1/jobs/${encodeURIComponent(job.id)}/metrics?${query}`, { credentials: "same-origin" });
    if (!answer.ok) return isNew;
    const found = await answer.json();
    if (found.restart) { isNew ||= job.records.length > 0; job.records = []; }
    job.records.push(...found.records);
    isNew ||= found.records.length > 0;
    job.cursor = found.cursor;
    more = found.more;
  }
  return isNew;
}

// --- lines: of one job a colour per split; of several a colour per job, training dashed

const dark = matchMedia("(prefers-color-scheme: dark)");
const over = document.getElementById("over");
let charts = [];

function linesOf(figure) {
  const colours = PALETTES[dark.matches ? "dark" : "light"];
  const lines = [];
  jobs.forEach((job, n) => figure.splits.forEach((split) => {
    const points = job.records
      .filter((r) => r.split === split && Number.isFinite(r[over.value]) && Number.isFinite(figure.of(r)))
      .map((r) => [r[over.value], figure.of(r)]).sort((a, b) => a[0] - b[0]);
    if (!points.length) return;
    const alone = jobs.length === 1;
    lines.push({
      points, label: alone ? SPLITS[split] : `${job.id} ${SPLITS[split]}`,
      stroke: colours[alone ? (split === "valid" ? 1 : 0) : n % colours.length],
      dash: !alone && split === "train" && figure.splits.length > 1 ? [5, 4] : undefined,
    });
  }));
  return lines;
}

const tableOf = (lines) => uPlot.join(lines.map((line) => [line.points.map((p) => p[0]), line.points.map((p) => p[1])]));

const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
const long = (digits) => new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

function time(seconds) {
  const s = Math.round(seconds);
  const two = (n) => String(n).padStart(2, "0");
  return `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
}

function optionsOf(figure, lines, width) {
  const css = getComputedStyle(document.body);
  const [ink, grid] = [css.getPropertyValue("--dim").trim(), css.getPropertyValue("--line").trim()];
  const isTime = over.value === "elapsed_s";
  const text = (value) => (value == null ? "-" : isTime ? time(value) : long(0).format(value));
  const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid }, labelSize: 22, labelFont: "13px system-ui, sans-serif", font: "12px system-ui, sans-serif" };
  return {
    title: figure.title, width, height: HEIGHT_PX,
    cursor: { sync: { key: "curves" }, points: { size: 7 } },
    scales: { x: { time: false } },
    axes: [
      { ...axis, label: AXES[over.value], values: (_, at) => at.map((v) => (isTime ? time(v) : short.format(v))), space: 70 },
      { ...axis, label: figure.unit, size: 62, values: (_, at) => at.map((v) => short.format(v)) },
    ],
    series: [
      { label: AXES[over.value], value: (u, _, __, at) => text(at == null ? u.data[0].at(-1) : u.data[0][at]) },
      ...lines.map((line) => ({
        label: line.label, stroke: line.stroke, dash: line.dash, width: 1.5, spanGaps: true,
        points: { show: line.points.length < 60, size: 5 },
        // under the cursor uPlot takes the nearest point; else the last
        value: (u, v, n, at) => long(figure.digits).format(at == null ? u.data[n].findLast((one) => one != null) : v),
      })),
    ],
    hooks: { setSelect: [(u) => { u.isZoomed = u.select.width > 0 || u.isZoomed; }] },
  };
}

// The figures of all jobs, and one for each further target that a record has metrics of.
function figures() {
  const targets = new Map();
  for (const { records } of jobs) {
    for (const [target, metrics] of Object.entries(records.at(-1)?.targets ?? {})) {
      const metric = Object.keys(MAIN_METRICS).find((name) => Number.isFinite(metrics[name]));
      if (metric && targets.size < MOST_TARGETS) targets.set(target, metric);
    }
  }
  const more = [...targets].map(([target, metric]) => ({
    title: `${target}: ${MAIN_METRICS[metric]}`, unit: MAIN_METRICS[metric], splits: ["valid", "train"],
    of: (r) => r.targets?.[target]?.[metric], digits: 5,
  }));
  return [...FIGURES.slice(0, 2), ...more, ...FIGURES.slice(2)];
}

function drawAnew() {
  charts.forEach(({ plot }) => plot.destroy());
  box.replaceChildren();
  charts = [];
  for (const figure of figures()) {
    const lines = linesOf(figure);
    if (!lines.length) continue;
    const place = document.createElement("figure");
    place.ariaLabel = figure.title;
    box.append(place);
    const plot = new uPlot(optionsOf(figure, lines, place.clientWidth), tableOf(lines), place);
    place.addEventListener("dblclick", () => { plot.isZoomed = false; });
    charts.push({ figure, place, plot, labels: String(lines.map((line) => line.label)) });
  }
}

function draw() {
  const now = figures().map((figure) => ({ figure, lines: linesOf(figure) })).filter(({ lines }) => lines.length);
  const same = now.length === charts.length
    && now.every(({ figure, lines }, n) => figure.title === charts[n].figure.title
      && String(lines.map((line) => line.label)) === charts[n].labels);
  if (same) now.forEach(({ lines }, n) => charts[n].plot.setData(tableOf(lines), !charts[n].plot.isZoomed));
  else drawAnew();
}

let reading = false;
async function update() {
  if (reading) return;
  reading = true;
  try { if ((await Promise.all(jobs.map(readOn))).includes(true)) draw(); }
  catch { /* the next refresh tries again */ }
  reading = false;
}

document.addEventListener("refreshed", update);
over.addEventListener("change", drawAnew);
dark.addEventListener("change", drawAnew);
new ResizeObserver(() => charts.forEach(({ plot, place }) => {
  if (place.clientWidth && place.clientWidth !== plot.width) plot.setSize({ width: place.clientWidth, height: HEIGHT_PX });
})).observe(box);
update();
