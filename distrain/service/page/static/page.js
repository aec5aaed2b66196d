// All pages: refresh while jobs change, act after a confirmation, sort tables.
"use strict";

const statusLine = document.getElementById("status");
const report = (text) => { statusLine.textContent = text; };
const wait = (ms) => new Promise((done) => setTimeout(done, ms));

// --- refresh: the server renders the page again; its live parts replace those on the screen

const REFRESH_MS = 1000;
let isWanted = false;
let refreshing = false;

function replace(old, fresh) {
  const focused = document.activeElement;
  const isControl = focused.matches("a, button, input, select, summary");
  if (!fresh || !old || fresh.innerHTML === old.innerHTML) return;
  const post = focused.dataset.post;  // an action that is gone does not stay because it has the focus
  const isGone = post && !fresh.querySelector(`[data-post="${post}"]`);
  if (isControl && old.contains(focused) && !isGone) return;
  const regions = (part) => [...part.querySelectorAll("[tabindex]")];  // that scroll
  const region = regions(old).indexOf(focused);
  const ticks = new Set([...old.querySelectorAll("input:checked")].map((box) => box.value));
  fresh.querySelectorAll("input").forEach((box) => { box.checked = ticks.has(box.value); });
  old.replaceWith(fresh);
  regions(fresh)[region]?.focus();
  if (sortedBy) sortTable(sortedBy.column, sortedBy.descending);
}

async function refresh() {
  isWanted = true;
  if (refreshing) return;
  refreshing = true;
  while (isWanted) {
    isWanted = false;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
      if (answer.redirected && new URL(answer.url).pathname.endsWith("/login")) { location.reload(); return; }
      if (answer.ok) {
        const found = new DOMParser().parseFromString(await answer.text(), "text/html");
        ["live", "more", "actions"].forEach((id) => replace(document.getElementById(id), found.getElementById(id)));
      }
      document.dispatchEvent(new Event("refreshed"));
    } catch { report("The service does not answer; retrying."); }
    await wait(REFRESH_MS);  // at most one refresh a second, however many events arrive
  }
  refreshing = false;
}

async function follow(live) {
  const job = live.dataset.job;
  const url = job ? `/v1/jobs/${encodeURIComponent(job)}/events` : "/v1/events";
  const source = new EventSource(url);
  for (const kind of [...live.dataset.live.split(" "), "reset", "end"]) source.addEventListener(kind, refresh);
  source.addEventListener("end", () => source.close());
  source.addEventListener("open", () => report(""));
  source.addEventListener("error", () => { report("The connection is lost; retrying."); refresh(); });
  if (!job) setInterval(refresh, 5000);  // some changes have no event, such as the time that a job has waited
}

// --- actions: a button names a request; a dialog confirms it

const dialog = document.getElementById("confirm");

function confirmed(button) {
  document.getElementById("confirm-text").textContent = button.dataset.confirm;
  const yes = document.getElementById("confirm-yes");
  yes.textContent = button.dataset.yes;
  yes.className = button.classList.contains("bad") ? "primary bad" : "primary";
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

async function act(button) {
  if (!(await confirmed(button))) return;
  button.disabled = true;
  try {
    const answer = await fetch(button.dataset.post, {
      method: "POST", body: button.dataset.body || "{}", credentials: "same-origin",
      headers: { "Content-Type": "application/json" },
    });
    if (answer.ok) { location.reload(); return; }
    const problem = await answer.json().catch(() => ({}));
    report(`${problem.title || answer.status}: ${problem.detail || ""} ${problem.hint || ""}`);
  } catch { report("The service does not answer. Press the button again: nothing is done twice."); }
  finally { button.disabled = false; }
}

// --- sort the rows on the page by a column

let sortedBy = null;
const nameOf = (head) => (/\s/.test(head.title) ? "" : head.title) || head.textContent.trim();  // a title of one word is a setting's field

function sortTable(column, descending) {
  const table = document.querySelector("table.sortable");
  if (!table) return;
  const heads = [...table.tHead.rows[0].cells];
  const isNumber = (text) => Number.isFinite(Number(text));
  const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === "" || y === "") return (x === "") - (y === "");  // unknown values are last
    return (isNumber(x) && isNumber(y) ? x - y : x.localeCompare(y)) * (descending ? -1 : 1);
  });
  table.tBodies[0].append(...rows);
  heads.forEach((head, n) => {
    if (n === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
  sortedBy = { column, descending };
  const url = new URL(location);  // so that a reload keeps the order
  const order = `${descending ? "-" : ""}${nameOf(heads[column])}`;
  url.searchParams.set("sort", order);
  history.replaceState(null, "", url);
  const kept = document.querySelector("form.filters [name=sort]");
  if (kept) kept.value = order;
}

function sortAsInUrl() {
  const wanted = new URLSearchParams(location.search).get("sort") ?? "";
  const heads = [...document.querySelectorAll("table.sortable thead tr > *")];
  const column = heads.findIndex((head) => nameOf(head) === wanted.replace(/^-/, ""));
  if (wanted && column > 0) sortTable(column, wanted.startsWith("-"));
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.post) act(button);
  else if (button.classList.contains("sort")) {
    const head = button.closest("th");
    const order = head.getAttribute("aria-sort");
    sortTable(head.cellIndex, order ? order === "ascending" : head.classList.contains("n"));  // numbers: the largest first
  }
});
sortAsInUrl();
const live = document.getElementById("live");
if (live && !("final" in live.dataset)) follow(live);
