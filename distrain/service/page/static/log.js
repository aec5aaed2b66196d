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

// A long log is split into several files, each named by the number of its first byte.
async function partsOf(name) {
  const folder = name.replace(/\/[^/]*$/, "");
  const answer = await fetch(`${base}?below=${encodeURIComponent(folder)}`, { credentials: "same-origin" });
  const files = answer.ok ? (await answer.json()).artifacts : [];
  const first = (file) => (file.name === name ? 0 : Number(file.name.split(`${name}.from-`)[1]));
  const parts = files.map((file) => ({ ...file, first: first(file) })).filter((part) => !Number.isNaN(part.first));
  return { parts: parts.sort((a, b) => a.first - b.first), closed: files.some((file) => file.name === `${name}.end`) };
}

// The bytes from an offset on. The byte before it is asked for, too: a range beyond the end would be an error.
async function read(part, offset) {
  const known = offset > part.first ? 1 : 0;
  const headers = { Range: `bytes=${offset - part.first - known}-` };
  const answer = await fetch(`${base}/${part.name}`, { credentials: "same-origin", headers });
  if (answer.status === 404 || answer.status === 416) return new ArrayBuffer(0);
  if (!answer.ok) throw new Error(answer.status);
  return (await answer.arrayBuffer()).slice(known);
}

async function follow(number, rank, prefix) {
  const name = `logs/attempt-${form.elements.attempt.value}/rank-${rank}.log`;
  const decoder = new TextDecoder();
  let part, rest = "", offset = 0;
  while (number === showing) {
    try {
      const bytes = part ? await read(part, offset) : new ArrayBuffer(0);
      if (number !== showing) return;
      if (bytes.byteLength) {
        const whole = (rest + decoder.decode(bytes, { stream: true })).split("\n");
        rest = whole.pop();
        offset += bytes.byteLength;
        if (whole.length) add(prefix, whole.join("\n"));
      } else {
        const { parts, closed } = await partsOf(name);
        const next = parts.findLast((one) => !part || one.first > part.first);
        if (number !== showing) return;
        if (next) {
          offset = part ? next.first : next.first + Math.max(0, next.size_bytes - TAIL);
          part = next;
          continue;
        }
        if (!part && !lines.length) output.textContent = "No log of this rank yet.";
        if (closed || !form.elements.follow.checked) { if (rest) add(prefix, rest); return; }
      }
    } catch { /* the service does not answer; the next turn asks again */ }
    await wait(1000);
  }
}

function show() {
  const number = ++showing;
  lines = [];
  output.textContent = "";
  const rank = form.elements.rank.value;
  const most = Math.min(Number(form.dataset.ranks), 64);
  if (rank === "all") for (let n = 0; n < most; n += 1) follow(number, n, n);
  else follow(number, rank, null);
}

form.addEventListener("submit", (event) => { event.preventDefault(); show(); });
form.elements.search.addEventListener("input", draw);
if ("begun" in form.dataset) show();
