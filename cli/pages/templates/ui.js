"use strict";
// Copies commands, sorts tables, and looks again at a page that changes. It sends nothing but GET.
//
// Why not htmx: the pages need one of its many features, to fetch a page again and to put its
// content in place of the old. These lines do that; htmx 2 is fifty thousand characters, adds an
// inline style unless told not to, and has attributes whose text is run as code: the policy of
// these pages forbids both. What DOMParser reads runs no script, so that names stay text.

const main = document.getElementById("main");

function say(text) {
  document.getElementById("said").textContent = text;
}

async function copy(button) {
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
    say("Copied");
  } catch {
    getSelection().selectAllChildren(code);
    button.textContent = "Selected: copy it";
    say("The command is selected");
  }
}

for (const button of document.querySelectorAll("button[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", () => copy(button));
}

// Table → [column, direction]; kept when the page is looked at again.
const orders = new Map();

function compare(one, other, direction) {
  const [a, b] = [one, other].map((cell) => cell.dataset.value ?? cell.textContent);
  if ((a === "") !== (b === "")) return a === "" ? 1 : -1;
  const [x, y] = [Number(a), Number(b)];
  if (Number.isFinite(x) && Number.isFinite(y)) return direction * (x - y);
  return direction * a.localeCompare(b, undefined, { numeric: true });
}

function sort(table) {
  const [column, direction] = orders.get(table.dataset.sorts);
  const body = table.tBodies[0];
  const cell = (row) => row.cells[column];
  body.append(...[...body.rows].sort((a, b) => compare(cell(a), cell(b), direction)));
  for (const [index, head] of [...table.tHead.rows[0].cells].entries()) {
    if (index !== column) head.removeAttribute("aria-sort");
    else head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
  }
}

function makeSortable() {
  for (const table of main.querySelectorAll("table[data-sorts]")) {
    const key = table.dataset.sorts;
    for (const [column, head] of [...table.tHead.rows[0].cells].entries()) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const [last, direction] = orders.get(key) ?? [];
        orders.set(key, [column, last === column ? -direction : 1]);
        sort(table);
      });
    }
    if (orders.has(key)) sort(table);
  }
}

function tell(text) {
  let told = document.querySelector(".stale");
  if (text && !told) {
    told = document.createElement("p");
    told.className = "stale";
    told.setAttribute("role", "status");
    main.before(told);
  }
  if (text) told.textContent = text;
  else told?.remove();
}

async function look() {
  // Nothing moves under a reader who uses the page, nor in a tab that nobody sees.
  if (document.hidden || main.contains(document.activeElement)) return;
  try {
    const answer = await fetch(location.pathname, { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (main.contains(document.activeElement)) return;
    main.replaceChildren(...page.getElementById("main").childNodes);
    document.querySelector(".subtitle")?.replaceChildren(page.querySelector(".subtitle").textContent);
    makeSortable();
    tell("");
  } catch {
    tell("The page as it was: gpuplan ui does not answer any more, or the launch is gone.");
  }
}

makeSortable();
const seconds = Number(main.dataset.refreshS);
if (seconds > 0) {
  setInterval(look, seconds * 1000);
  document.addEventListener("visibilitychange", look);
}
