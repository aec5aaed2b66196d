// The records of the page's jobs: read as they grow, drawn as curves, and summed up as figures and times.
"use strict";

import { Charts, figure, time, waited } from "./charts.js";

const FIELDS = ["split", "step", "rows_total", "elapsed_s", "loss", "auc", "normalised_entropy", "own", "targets", "rows_per_s", "lr", "stall_pct", "stall_summary", "seconds", "usage", "attempt"];
const HEAD_BYTES = 65536;  // of an attempt's records; the places of its ranks are among the first lines

const box = document.querySelector(".curves");
const runs = JSON.parse(box.dataset.jobs).map((job) => ({ ...job, records: [], cursor: null }));
const charts = new Charts(box, document.getElementById("chart-options"), runs);
const element = (id) => document.getElementById(id);
const percent = (value) => `${value.toFixed(1)} %`;

// Read the records that follow the last answer; true if there are any.
async function readMore(run) {
  const query = new URLSearchParams(FIELDS.map((name) => ["fields", name]));
  let isNew = false;
  for (let more = true; more;) {
    if (run.cursor !== null) query.set("since", run.cursor);
    const answer = await fetch(`/v1/jobs/${encodeURIComponent(run.id)}/metrics?${query}`, { credentials: "same-origin" });
    if (!answer.ok) return isNew;
    const page = await answer.json();
    if (page.restart) { isNew ||= run.records.length > 0; run.records = []; }
    run.records.push(...page.records);
    isNew ||= page.records.length > 0;
    run.cursor = page.cursor;
    more = page.more;
  }
  return isNew;
}

// --- one job: figures on the cards, and where the time goes

const MORE_IS_BETTER = /(^|\.)(auc|r2|accuracy|top_5)$|^recall_/;  // other metrics are losses and errors
const NAMES = { auc: "AUC", log_loss: "loss" };

// A metric of a validation, by the name that `checkpoint.keep_best` has for it.
function valueOf(record, metric) {
  const dot = metric.lastIndexOf(".");
  return dot < 0 ? record[metric === "log_loss" ? "loss" : metric] ?? record.own?.[metric] : record.targets?.[metric.slice(0, dot)]?.[metric.slice(dot + 1)];
}

function fillCards(records) {
  const valid = records.filter((r) => r.split === "valid");
  const metric = element("live").dataset.best || (valid.some((r) => Number.isFinite(r.auc)) ? "auc" : "log_loss");
  const scored = valid.filter((r) => Number.isFinite(valueOf(r, metric)));
  if (scored.length) {
    const sign = MORE_IS_BETTER.test(metric) ? 1 : -1;
    const best = scored.reduce((a, b) => (sign * valueOf(b, metric) > sign * valueOf(a, metric) ? b : a));
    element("best").textContent = `best ${NAMES[metric] ?? metric} ${figure(valueOf(best, metric), 5)} at step ${best.step.toLocaleString("en")}`;
  }
  const last = records.findLast((r) => r.split === "train");
  const share = last && waited(last);
  if (share != null && element("waiting")) element("waiting").textContent = `waiting for data ${percent(share).replace(" ", "\u00a0")}`;
}

let summary = {};  // of a job that has ended; its run folder may lack it
let places = [];  // host and device of each rank of the attempt `placed`
let placed = null;

const artifact = (name, headers) => fetch(`/v1/jobs/${encodeURIComponent(runs[0].id)}/artifacts/${name}`, { credentials: "same-origin", headers });

async function readSummary() {
  if (!element("live").hasAttribute("data-final")) summary = {};
  else if (!summary.state && document.querySelector('.files a[href$="/summary.json"]')) {
    const answer = await artifact("summary.json");
    if (answer.ok) summary = await answer.json();
  }
}

async function readPlaces() {
  const attempt = runs[0].records.at(-1)?.attempt;
  if (!attempt || attempt === placed) return;
  const answer = await artifact(`records/attempt-${attempt}.jsonl`, { Range: `bytes=0-${HEAD_BYTES - 1}` });
  if (!answer.ok) return;
  for (const line of (await answer.text()).split("\n")) {
    if (!line.includes('"places":[{')) continue;
    [places, placed] = [JSON.parse(line).places, attempt];
    return;
  }
}

const gibibytes = (bytes) => (bytes ? `${(bytes / 2 ** 30).toFixed(1)} GiB` : "-");
const whole = (value) => (value == null ? "-" : `${Math.round(value)} %`);

// CPU, memory and GPU in the last report; once the job has ended, the peaks of memory.
function usageOf(rank, record) {
  const [now, place] = [(name) => record.usage?.[name]?.[rank], places[rank] ?? {}];
  const memory = (name) => gibibytes(summary.peak_memory?.[rank]?.[name] ?? now(name));
  return [whole(now("cpu_pct")), memory("host_bytes"), whole(now("gpu_pct")), memory("device_bytes"), place.hardware || place.device || "-", place.host || "-"];
}

function row(table, name, texts, share, more = []) {
  const line = table.tBodies[0].insertRow();
  const head = Object.assign(document.createElement("th"), { scope: "row", textContent: name });
  line.append(head);
  for (const text of texts) line.append(Object.assign(document.createElement("td"), { className: "n", textContent: text }));
  const meter = Object.assign(document.createElement("meter"), { max: 100, value: share, ariaLabel: `${name}: ${percent(share)}` });
  const bar = line.insertCell();
  bar.className = "mid";
  bar.append(meter);
  more.forEach((text, n) => line.append(Object.assign(document.createElement("td"), { className: n < 4 ? "n" : "", textContent: text })));
}

// Columns of which no rank has a value, such as those of GPUs, are hidden.
function hideEmptyColumns(table) {
  [...table.tHead.rows[0].cells].forEach((head, n) => {
    const cells = [...table.tBodies[0].rows].map(({ cells }) => cells[n]);
    const isEmpty = cells.every((cell) => cell.textContent === "-");
    [head, ...cells].forEach((cell) => { cell.hidden = isEmpty; });
  });
}

function showTimes(records) {
  const train = records.filter((r) => r.split === "train");
  const section = element("time");
  if (!section || !train.length) return;
  const seconds = {};
  for (const record of element("time-of").value === "last" ? train.slice(-1) : records) {
    for (const [phase, value] of Object.entries(record.seconds ?? {})) seconds[phase] = (seconds[phase] ?? 0) + value;
  }
  const total = Object.values(seconds).reduce((a, b) => a + b, 0);
  const last = train.at(-1);
  const ranks = last.stall_summary ? last.stall_summary.worst : (last.stall_pct ?? []).map((share, rank) => [rank, share]);
  section.hidden = !(total > 0);
  for (const id of ["phases", "ranks"]) element(id).tBodies[0].replaceChildren();
  for (const [phase, value] of Object.entries(seconds).sort((a, b) => b[1] - a[1])) {
    const share = (100 * value) / total;
    // as `phase_name` in formatting.py
    row(element("phases"), phase === "data_wait" ? "waiting for data" : phase.replaceAll("_", " "), [time(value), percent(share)], share);
  }
  for (const [rank, share] of ranks.slice(0, 64)) row(element("ranks"), String(rank), [percent(share)], share, usageOf(rank, last));
  hideEmptyColumns(element("ranks"));
  element("ranks").hidden = !ranks.length;
}

function showFigures() {
  const [{ records }] = runs;
  const empty = element("no-records");
  if (empty) {
    empty.hidden = records.length > 0;
    if (element("live").hasAttribute("data-final")) empty.textContent = empty.dataset.final;
  }
  fillCards(records);
}

let isReading = false;
async function update() {
  if (element("no-records")) showFigures();  // a refresh has replaced the cards
  if (isReading) return;
  isReading = true;
  try {
    if ((await Promise.all(runs.map(readMore))).includes(true)) charts.update();
    if (element("no-records")) { showFigures(); await Promise.allSettled([readSummary(), readPlaces()]); showTimes(runs[0].records); }
  } catch { /* the service does not answer; the next refresh asks again */ }
  isReading = false;
}

document.addEventListener("refreshed", update);
element("time-of")?.addEventListener("change", () => showTimes(runs[0].records));
update();
