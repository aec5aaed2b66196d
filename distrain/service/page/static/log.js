// The logs of one rank or of all: read by byte ranges, and followed while they grow.
"use strict";

const KEPT = 200000;  // characters on the page
const TAIL = 100000;  // bytes that are read first
const wait = (ms) => new Promise((done) => setTimeout(done, ms));

const form = document.querySelector("form[data-log]");
const output = document.getElementById("log");
const base = `/v1/jobs/${encodeURIComponent(form.dataset.log)}/artifacts`;
let lines = [];
let showing = 0;  // grows with each "Show": older followers stop

function draw() {
  const text = form.elements.search.value.toLowerCase();
  const atEnd = output.scrollTop + output.clientHeight >= output.scrollHeight - 8;
  const shown = text ? lines.filter((line) => line.toLowerCase().includes(text)) : lines;
  output.textContent = shown.join("\n") || (text && lines.length ? "No line contains this text." : "");
  if (atEnd) output.scrollTop = output.scrollHeight;
}

function add(rank, text) {
  lines = lines.concat(text.split("\n").map((line) => (rank === null ? line : `[rank ${rank}] ${line}`)));
  let size = lines.reduce((sum, line) => sum + line.length + 1, 0);
  let first = 0;
  while (size > KEPT) { size -= lines[first].length + 1; first += 1; }
  lines = lines.slice(first);
  draw();
}

// The files of a folder; an answer has at most 1000.
async function list(folder) {
  const files = [];
  for (let after = ""; after !== null;) {
    const answer = await fetch(`${base}?${new URLSearchParams({ below: folder, after })}`, { credentials: "same-origin" });
    if (answer.status === 404) break;
    if (!answer.ok) throw new Error(answer.status);
    const page = await answer.json();
    files.push(...page.artifacts);
    after = page.next_cursor;
  }
  return files;
}

// A long log is split into several files, each named by the number of its first byte.
function partsOf(files, name) {
  const first = (file) => (file.name === name ? 0 : Number(file.name.split(`${name}.from-`)[1]));
  const parts = files.map((file) => ({ ...file, first: first(file) })).filter((part) => !Number.isNaN(part.first));
  return parts.sort((a, b) => a.first - b.first);
}

// The bytes of a part from an offset on; none if the part is gone.
async function read(part, offset) {
  const headers = { Range: `bytes=${offset - part.first}-` };
  const answer = await fetch(`${base}/${part.name}`, { credentials: "same-origin", headers });
  if (answer.status === 404 || answer.status === 416) return new ArrayBuffer(0);
  if (!answer.ok) throw new Error(`the service answers ${answer.status}`);
  return answer.arrayBuffer();
}

// Shows what a rank has printed since the last round, by the files that are there now.
// Returns false if the log cannot be read; other ranks' logs do not wait for it.
async function catchUp(log, files, number) {
  try {
    await readMore(log, partsOf(files, log.name), number);
    log.trouble = "";
  } catch (error) {
    if (number === showing && log.trouble !== error.message) add(log.prefix, `this log cannot be read: ${error.message}; trying again`);
    log.trouble = error.message;
  }
  return !log.trouble;
}

async function readMore(log, parts, number) {
  for (const part of parts) {
    const last = parts[parts.length - 1];
    log.offset = Math.max(log.offset ?? last.first + last.size_bytes - TAIL, part.first);
    if (part.first + part.size_bytes <= log.offset) continue;
    const bytes = await read(part, log.offset);
    if (number !== showing) return;
    const whole = (log.rest + log.decoder.decode(bytes, { stream: true })).split("\n");
    log.rest = whole.pop();
    log.offset += bytes.byteLength;
    if (whole.length) add(log.prefix, whole.join("\n"));
  }
}

// Follows the logs of some ranks in rounds: one look at the folder, then the files that have grown.
async function follow(number, ranks, named) {
  const folder = `logs/attempt-${form.elements.attempt.value}`;
  const logs = ranks.map((rank) => ({
    name: `${folder}/rank-${rank}.log`, prefix: named ? rank : null, decoder: new TextDecoder(), rest: "", offset: null,
  }));
  while (number === showing) {
    try {
      const files = await list(folder);
      let isRead = true;
      for (const log of logs) if (number === showing) isRead = await catchUp(log, files, number) && isRead;
      if (number !== showing) return;
      if (!lines.length && logs.every((log) => log.offset === null)) output.textContent = "No log of this rank yet.";
      const closed = isRead && logs.every((log) => files.some((file) => file.name === `${log.name}.end`));
      if (closed || !form.elements.follow.checked) {
        for (const log of logs) if (log.rest) add(log.prefix, log.rest);
        return;
      }
    } catch { /* the service does not answer; the next round asks again */ }
    await wait(1000);
  }
}

function show() {
  const number = ++showing;
  lines = [];
  output.textContent = "";
  const rank = form.elements.rank.value;
  const most = Math.min(Number(form.dataset.ranks), 64);
  const all = rank === "all";
  follow(number, all ? [...Array(most).keys()] : [rank], all);
}

form.addEventListener("submit", (event) => { event.preventDefault(); show(); });
form.elements.search.addEventListener("input", draw);
// The log of the rank that failed is the one to read.
const culprit = document.querySelector(".notice.failed pre")?.textContent.match(/^rank (\d+)/)?.[1];
if ([...form.elements.rank.options].some(({ value }) => value === culprit)) form.elements.rank.value = culprit;
if ("begun" in form.dataset) show();
