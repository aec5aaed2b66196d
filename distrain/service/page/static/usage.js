// The chart of rank-hours and GPU-hours by day.
"use strict";

import { axes, colours } from "./charts.js";

const HEIGHT_PX = 220;
const place = document.getElementById("days");
const dark = matchMedia("(prefers-color-scheme: dark)");
const hours = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const day = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 10);
let plot;

function draw() {
  plot?.destroy();
  const days = JSON.parse(place.dataset.days);
  const hasGpus = days.some(([, , gpu]) => gpu > 0);
  const bars = uPlot.paths.bars({ size: [0.7, 40] });
  const [ranks, gpus] = colours();
  const total = (values) => values.reduce((sum, value) => sum + value, 0);
  const series = [["rank-hours", ranks], ["of these, GPU-hours", gpus]].slice(0, hasGpus ? 2 : 1).map(([label, colour]) => ({
    label, stroke: colour, width: 0, fill: colour, paths: bars, points: { show: false },
    value: (u, v, n, at) => hours.format(at == null ? total(u.data[n]) : v),  // without a cursor: of all days
  }));
  const [x, y] = axes("day, UTC", "hours");
  plot = new uPlot({
    title: "Hours by day", width: place.clientWidth, height: HEIGHT_PX,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
    scales: { x: { range: (_, from, to) => [from - 43200, to + 43200] }, y: { range: (_, __, top) => [0, top * 1.08 || 1] } },
    axes: [{ ...x, values: (_, at) => at.map((v) => day(v).slice(5)), space: 60, incrs: [1, 2, 7, 14, 28, 56].map((n) => n * 86400) }, y],
    series: [{ label: "day", value: (_, v) => (v == null ? "all" : day(v)) }, ...series],
  }, [days.map(([one]) => Date.parse(one) / 1000), ...series.map((_, n) => days.map((one) => one[n + 1]))], place);
}

if (place) {
  draw();
  dark.addEventListener("change", draw);
  new ResizeObserver(() => { if (place.clientWidth !== plot.width) plot.setSize({ width: place.clientWidth, height: HEIGHT_PX }); }).observe(place);
}
