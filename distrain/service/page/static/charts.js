// The curves of one or several runs: one chart per metric, drawn by uPlot.
// Knows records and colours; does not know where records come from.
"use strict";

const METRICS = [
  { title: "Loss", unit: "log loss, nats", splits: ["valid", "train"], of: (r) => r.loss, digits: 5, isLoss: true },
  { title: "AUC", unit: "AUC", splits: ["valid", "train"], of: (r) => r.auc, digits: 5 },
  { title: "Recall at 10", unit: "recall", splits: ["valid"], of: (r) => r.own?.recall_at_10, digits: 5 },
  { title: "Rows per second", unit: "rows/s", splits: ["train"], of: (r) => r.rows_per_s, digits: 0, isFromZero: true },
  { title: "Waiting for data, mean of the ranks", unit: "% of the time", splits: ["train"], of: waited, digits: 1, isFromZero: true },
  { title: "CPU, mean of the ranks", unit: "% of a core", splits: ["train"], of: (r) => mean(r.usage?.cpu_pct), digits: 0, isFromZero: true },
  { title: "GPU, mean of the ranks", unit: "% of the time", splits: ["train"], of: (r) => mean(r.usage?.gpu_pct), digits: 0, isFromZero: true },
  { title: "Learning rate", unit: "learning rate", splits: ["train"], of: (r) => r.lr, digits: 6, isFromZero: true },
];
const TARGET_METRICS = { auc: "AUC", rmse: "RMSE", accuracy: "accuracy" };
const MOST_TARGETS = 16;
const AXES = { step: "step", rows_total: "rows trained", elapsed_s: "training time" };
const SPLITS = { valid: "validation", train: "training" };
const SHORT_SPLITS = { valid: "valid.", train: "train" };
const HEIGHT_PX = 280;
const LEGEND_PX = 240;  // beside the plot where the chart is wide, else below it
const WIDE_PX = 700;
const CLIPPED_SHARE = 0.1;  // of the points of a curve, at its start
const COLOURS = { light: ["#0b57a4", "#b35900", "#0a7a3c", "#8e24aa", "#c2185b", "#00796b", "#5d4037", "#455a64"],
  dark: ["#7db8ff", "#ffb74d", "#5fd38d", "#d79bff", "#ff8fb3", "#4dd0c1", "#c8a898", "#a3b8c8"] };

const VALID = { light: "#c2334a", dark: "#ff8a80" };  // of one run, as in the report

const mean = (values) => (values?.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

export function waited(record) {
  return record.stall_summary ? record.stall_summary.mean : mean(record.stall_pct);
}

// Exponential moving average; the first points are weighted as if nothing came before them.
function smoothed(values, weight) {
  let sum = 0, total = 0;
  return values.map((value) => {
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}

// The range of the vertical axis: without the first steps of training, where these would flatten the rest.
// All validations are within it.
function rangeOf(training, validation, clip) {
  const span = (values) => values.reduce(([low, high], v) => [v < low ? v : low, v > high ? v : high], [Infinity, -Infinity]);
  const all = [...training, ...validation].flat();
  if (!all.length) return [0, 1];
  const [low, high] = span(all);
  const later = [...validation.flat(), ...training.flatMap((values) => values.slice(Math.ceil(values.length * CLIPPED_SHARE)))];
  const [lowLater, highLater] = later.length ? span(later) : [low, high];
  const isFlattened = clip && highLater - lowLater < 0.5 * (high - low);
  const [from, to] = isFlattened ? [lowLater, highLater] : [low, high];
  const margin = 0.06 * (to - from) || Math.abs(to) * 0.05 || 0.5;
  return [from - margin, to + margin];
}

const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
const fixed = (digits) => new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
export const figure = (value, digits) => (digits >= 4 && value && Math.abs(value) < 1e-3 ? String(Number(value.toPrecision(4))) : fixed(digits).format(value));
const TIME_STEPS = [1, 60, 3600].flatMap((unit) => [1, 2, 5, 10, 15, 30].map((n) => n * unit)).concat([2, 5, 10, 20, 50].map((n) => n * 43200));

// Of the values of a logarithmic axis: powers of ten, or if there are fewer than two, also 2 and 5 times these.
function ofPowers(_, values) {
  const digit = (v) => Math.round(v / 10 ** Math.floor(Math.log10(v) + 1e-9));
  const kept = (digits) => values.map((v) => (digits.includes(digit(v)) ? v : null));
  const tens = kept([1]);
  return tens.filter((v) => v !== null).length < 2 ? kept([1, 2, 5]) : tens;
}

export function time(seconds) {
  const s = Math.round(seconds);
  const two = (n) => String(n).padStart(2, "0");
  return `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
}

const scheme = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
export const colours = () => COLOURS[scheme()];

// The style of a horizontal and a vertical axis.
export function axes(xLabel, yLabel) {
  const css = getComputedStyle(document.body);
  const [ink, grid] = [css.getPropertyValue("--dim").trim(), css.getPropertyValue("--line").trim()];
  const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid }, labelSize: 20, labelFont: "13px system-ui, sans-serif", font: "12px system-ui, sans-serif" };
  return [
    { ...axis, label: xLabel, size: 32 },
    { ...axis, label: yLabel, size: 58, values: (_, at) => at.map((v) => (v == null ? "" : v && Math.abs(v) < 1e-3 ? Number(v.toPrecision(4)).toExponential() : short.format(v))) },
  ];
}

export class Charts {
  // box: the element that holds the charts; options: the form of the toolbar; runs: [{name, records}]
  constructor(box, options, runs) {
    Object.assign(this, { box, options, runs, charts: [], dark: matchMedia("(prefers-color-scheme: dark)") });
    options.addEventListener("input", () => {
      options.elements.smoothed.value = Number(options.elements.smoothing.value).toFixed(2);
      this.redraw();
    });
    this.dark.addEventListener("change", () => this.redraw());
    new ResizeObserver(() => this.charts.forEach(({ plot, place }) => {
      const width = this.plotWidth(place);
      if (width > 0 && width !== plot.width) plot.setSize({ width, height: HEIGHT_PX });
    })).observe(box);
  }

  plotWidth(place) {
    const width = place.clientWidth;
    return width >= WIDE_PX ? width - LEGEND_PX : width;
  }

  // Validation is solid and training dashed; one run has a colour per split, several a colour per run.
  curvesOf(metric) {
    const palette = colours();
    const over = this.options.elements.over.value;
    const weight = Number(this.options.elements.smoothing.value);
    const isAlone = this.runs.length === 1;
    const curves = [];
    this.runs.forEach((run, n) => metric.splits.forEach((split) => {
      const points = run.records
        .filter((r) => r.split === split && Number.isFinite(r[over]) && Number.isFinite(metric.of(r)))
        .map((r) => [r[over], metric.of(r)]).sort((a, b) => a[0] - b[0]);
      if (!points.length) return;
      const values = points.map((p) => p[1]);
      curves.push({
        x: points.map((p) => p[0]), y: weight && split === "train" ? smoothed(values, weight) : values,
        label: isAlone ? SPLITS[split] : metric.splits.length > 1 ? `${run.name} ${SHORT_SPLITS[split]}` : run.name,
        stroke: isAlone && split === "valid" ? VALID[scheme()] : palette[n % palette.length],
        split,
        dash: split === "train" && metric.splits.length > 1 ? [5, 4] : undefined,
      });
    }));
    return curves;
  }

  // The metrics of every job, and one for each further target of the last record.
  metrics() {
    const targets = new Map();
    for (const { records } of this.runs) {
      for (const [target, values] of Object.entries(records.at(-1)?.targets ?? {})) {
        const metric = Object.keys(TARGET_METRICS).find((name) => Number.isFinite(values[name]));
        if (metric && targets.size < MOST_TARGETS) targets.set(target, metric);
      }
    }
    const more = [...targets].map(([target, metric]) => ({
      title: `${target}: ${TARGET_METRICS[metric]}`, unit: TARGET_METRICS[metric], splits: ["valid", "train"],
      of: (r) => r.targets?.[target]?.[metric], digits: 5,
    }));
    return [...METRICS.slice(0, 3), ...more, ...METRICS.slice(3)];
  }

  uplotOptions(metric, curves, width) {
    const { over, log, clip } = this.options.elements;
    const isTime = over.value === "elapsed_s";
    const isLog = metric.isLoss && log.checked;
    const text = (value) => (value == null ? "-" : isTime ? time(value) : fixed(0).format(value));
    const [xAxis, yAxis] = axes(AXES[over.value], metric.unit);
    const fitted = (u) => rangeOf(...["train", "valid"].map((split) => valuesOf(u, curves, split)), clip.checked);
    const fromZero = (_, __, high) => [0, high * 1.06 || 1];
    const isAlone = this.runs.length === 1;
    const isShort = (split) => Math.max(...curves.filter((curve) => curve.split === split).map((curve) => curve.x.length)) < 25;
    const logAxis = isLog ? { filter: ofPowers, grid: { ...yAxis.grid, filter: ofPowers }, ticks: { ...yAxis.ticks, filter: ofPowers } } : {};
    const y = isLog ? { distr: 3 } : { range: metric.isFromZero ? fromZero : fitted };
    return {
      title: metric.title, width, height: HEIGHT_PX,
      cursor: { sync: { key: "curves" }, points: { size: 7 } },
      legend: { markers: { dash: (_, n) => (curves[n - 1]?.dash ? "dashed" : "solid") } },
      scales: { x: { time: false }, y },
      axes: [
        { ...xAxis, values: (_, at) => at.map((v) => (isTime ? time(v) : short.format(v))), space: 70, ...(isTime ? { incrs: TIME_STEPS } : {}) },
        { ...yAxis, ...logAxis },
      ],
      series: [
        { label: AXES[over.value], value: (u, _, __, at) => (at != null ? text(u.data[0][at]) : isAlone ? text(u.data[0].at(-1)) : "the last of each") },
        ...curves.map((curve) => ({
          label: curve.label, stroke: curve.stroke, dash: curve.dash, width: 1.5, spanGaps: true,
          points: { show: isShort(curve.split), size: 5 },
          // under the cursor uPlot takes the nearest point; without a cursor, the last one is shown
          value: (u, v, n, at) => figure(at == null ? u.data[n].findLast((one) => one != null) : v, metric.digits),
        })),
      ],
      hooks: { draw: [(u) => this.drawRestarts(u, over.value)], setSelect: [(u) => { u.isZoomed = u.select.width > 0 || u.isZoomed; }] },
    };
  }

  // A dashed line where a later attempt of one run begins.
  drawRestarts(u, over) {
    if (this.runs.length > 1) return;
    const train = this.runs[0].records.filter((r) => r.split === "train");
    u.ctx.save();
    u.ctx.strokeStyle = getComputedStyle(document.body).getPropertyValue("--amber").trim();
    u.ctx.setLineDash([4, 4]);
    train.slice(1).filter((r, n) => r.attempt > train[n].attempt).forEach((r) => {
      const x = u.valToPos(r[over], "x", true);
      if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) return;
      u.ctx.beginPath();
      u.ctx.moveTo(x, u.bbox.top);
      u.ctx.lineTo(x, u.bbox.top + u.bbox.height);
      u.ctx.stroke();
    });
    u.ctx.restore();
  }

  redraw() {
    this.charts.forEach(({ plot }) => plot.destroy());
    this.box.replaceChildren();
    this.charts = [];
    for (const metric of this.metrics()) {
      const curves = this.curvesOf(metric);
      if (!curves.length) continue;
      const place = document.createElement("figure");
      place.ariaLabel = metric.title;
      this.box.append(place);
      const plot = new uPlot(this.uplotOptions(metric, curves, this.plotWidth(place)), dataOf(curves), place);
      place.addEventListener("dblclick", () => { plot.isZoomed = false; });
      this.charts.push({ metric, place, plot, labels: String(curves.map((curve) => curve.label)) });
    }
  }

  // New records: the charts stay where the same curves have only grown.
  update() {
    const now = this.metrics().map((metric) => ({ metric, curves: this.curvesOf(metric) })).filter(({ curves }) => curves.length);
    const isSame = now.length === this.charts.length
      && now.every(({ metric, curves }, n) => metric.title === this.charts[n].metric.title
        && String(curves.map((curve) => curve.label)) === this.charts[n].labels);
    if (isSame) now.forEach(({ curves }, n) => this.charts[n].plot.setData(dataOf(curves), !this.charts[n].plot.isZoomed));
    else this.redraw();
  }
}

const valuesOf = (u, curves, split) => u.data.slice(1).filter((_, n) => curves[n].split === split).map((values) => values.filter((v) => v != null));
const dataOf = (curves) => uPlot.join(curves.map((curve) => [curve.x, curve.y]));
