// What the pages do beside being read: refresh, act after a question, sort, follow a log.
"use strict";

const csrf = document.querySelector("meta[name=csrf-token]").content;
const said = document.getElementById("said");
const say = (text) => { said.textContent = text; };
const wait = (ms) => new Promise((done) => setTimeout(done, ms));

// --- refresh: the server renders this page again, and its live part replaces the old one

const REFRESH_MS = 1000;
let asked = false;
let refreshing = false;

function replace(old, fresh) {
  if (!fresh || !old || fresh.innerHTML === old.innerHTML || old.contains(document.activeElement)) return;
  const ticks = new Set([...old.querySelectorAll("input:checked")].map((box) => box.value));
  fresh.querySelectorAll("input").forEach((box) => { box.checked = ticks.has(box.value); });
  old.replaceWith(fresh);
  if (sortedBy) sortTable(sortedBy.column, sortedBy.descending);
}

async function refresh() {
  asked = true;
  if (refreshing) return;
  refreshing = true;
  while (asked) {
    asked = false;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
      if (answer.redirected && new URL(answer.url).pathname.endsWith("/login")) { location.reload(); return; }
      if (answer.ok) {
        const found = new DOMParser().parseFromString(await answer.text(), "text/html");
        ["live", "more"].forEach((id) => replace(document.getElementById(id), found.getElementById(id)));
      }
      document.dispatchEvent(new Event("refreshed"));
    } catch { say("The service does not answer; trying again."); }
    await wait(REFRESH_MS);  // however fast events come
  }
  refreshing = false;
}

async function follow(live) {
  const job = live.dataset.job;
  const url = job ? `/v1/jobs/${encodeURIComponent(job)}/events` : "/v1/events";
  const source = new EventSource(url);
  for (const kind of [...live.dataset.live.split(" "), "reset", "end"]) source.addEventListener(kind, refresh);
  source.addEventListener("end", () => source.close());
  source.addEventListener("open", () => say(""));
  source.addEventListener("error", () => { say("The connection is lost; trying again."); refresh(); });
  if (!job) setInterval(refresh, 5000);  // what no event tells, such as a job that waits longer
}

// --- actions: a button names a call; a dialog asks first

const dialog = document.getElementById("confirm");

function confirmed(text) {
  document.getElementById("confirm-text").textContent = text;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

function newId(name) {  // as the commands make it
  const [day, time] = new Date().toISOString().replace(/[-:]/g, "").slice(0, 15).split("T");
  const letters = [...crypto.getRandomValues(new Uint8Array(4))].map((one) => one.toString(16).padStart(2, "0"));
  return `${name}-${day}-${time}-${letters.join("")}`;
}

async function act(button) {
  if (!(await confirmed(button.dataset.confirm))) return;
  const isNew = "new" in button.dataset;  // a job, whose id stays the same until there is an answer
  if (isNew) button.dataset.body ||= JSON.stringify({ id: newId(button.dataset.new) });
  button.disabled = true;
  try {
    const answer = await fetch(button.dataset.post, {
      method: "POST", body: button.dataset.body || "{}", credentials: "same-origin",
      headers: { "Content-Type": "application/json", "X-CSRF-Token": csrf },
    });
    const found = await answer.json().catch(() => ({}));
    if (!answer.ok) { say(`${found.title || answer.status}: ${found.detail || ""} ${found.hint || ""}`); return; }
    if (isNew) {
      delete button.dataset.body; location.href = `jobs/${encodeURIComponent(found.id)}`.replace(/^jobs/, location.pathname.replace(/\/[^/]*$/, ""));
      return;
    }
    say("Done.");
    location.reload();
  } catch { say("The service does not answer. Press the button again: nothing is done twice."); }
  finally { button.disabled = false; }
}

// --- sort: by a column of the rows that are shown

let sortedBy = null;

function sortTable(column, descending) {
  const table = document.querySelector("table.sortable");
  if (!table) return;
  const heads = [...table.tHead.rows[0].cells];
  const number = heads[column].dataset.kind === "number";
  const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    return (number ? x - y : x.localeCompare(y)) * (descending ? -1 : 1);
  });
  table.tBodies[0].append(...rows);
  heads.forEach((head, n) => {
    if (n === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
  sortedBy = { column, descending };
}

// --- log: read by ranges of bytes from the files that it is in, followed while it grows

const LOG_KEPT = 200000;  // letters
const LOG_TAIL = 100000;  // bytes
let logNumber = 0;

async function logParts(base, name) {
  // A very long log is in several files, each named by the number of its first byte.
  const folder = name.replace(/\/[^/]*$/, "");
  const answer = await fetch(`${base}?below=${encodeURIComponent(folder)}`, { credentials: "same-origin" });
  const files = answer.ok ? (await answer.json()).artifacts : [];
  const first = (file) => file.name === name ? 0 : Number(file.name.split(`${name}.from-`)[1]);
  const parts = files.map((file) => ({ ...file, first: first(file) })).filter((part) => !Number.isNaN(part.first));
  return { parts: parts.sort((a, b) => a.first - b.first), closed: files.some((file) => file.name === `${name}.end`) };
}

async function readLog(base, part, offset) {
  const headers = { Range: `bytes=${offset - part.first}-` };
  const answer = await fetch(`${base}/${part.name}`, { credentials: "same-origin", headers });
  if (answer.status === 404 || answer.status === 416) return new ArrayBuffer(0);
  if (!answer.ok) throw new Error(answer.status);
  return answer.arrayBuffer();
}

async function showLog(form) {
  const number = ++logNumber;
  const shown = document.getElementById("log");
  const { attempt, rank, follow: follows } = form.elements;
  const base = `/v1/jobs/${encodeURIComponent(form.dataset.log)}/artifacts`;
  const name = `logs/attempt-${attempt.value}/rank-${rank.value}.log`;
  const decoder = new TextDecoder();
  shown.textContent = "";
  let part, offset = 0;
  while (number === logNumber) {
    try {
      const found = part ? await readLog(base, part, offset) : new ArrayBuffer(0);
      if (number !== logNumber) return;
      if (found.byteLength) {
        const atEnd = shown.scrollTop + shown.clientHeight >= shown.scrollHeight - 8;
        shown.append(decoder.decode(found, { stream: true }));
        if (shown.textContent.length > 2 * LOG_KEPT) shown.textContent = shown.textContent.slice(-LOG_KEPT);
        if (atEnd) shown.scrollTop = shown.scrollHeight;
        offset += found.byteLength;
      } else {
        const { parts, closed } = await logParts(base, name);
        const next = parts.findLast((one) => !part || one.first > part.first);
        if (number !== logNumber) return;
        if (next) {
          offset = part ? next.first : next.first + Math.max(0, next.size_bytes - LOG_TAIL);
          part = next;
          continue;
        }
        if (!part) shown.textContent = "There is no log of this rank yet.";
        if (closed || !follows.checked) return;
      }
    } catch { /* the service does not answer: it is asked again */ }
    await wait(1000);
    if (part && shown.textContent.startsWith("There is no log")) shown.textContent = "";
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.post) act(button);
  else if (button.classList.contains("sort")) {
    const head = button.closest("th");
    sortTable(head.cellIndex, head.getAttribute("aria-sort") === "ascending");
  }
});
document.addEventListener("submit", (event) => {
  if (event.target.dataset.log) { event.preventDefault(); showLog(event.target); }
});
const live = document.getElementById("live");
if (live && !("final" in live.dataset)) follow(live);
const log = document.querySelector("form[data-log]");
if (log && "begun" in log.dataset) showLog(log);
