// Tables that are sorted and searched, graphs that are zoomed, columns and nodes that light up along their lineage and,
// of served pages, sections that are read again. Without this script, the pages are whole, and the browser loads served
// ones again.
"use strict";

/// Rows from which a table gets a field to search in.
const SEARCHED_FROM = 8;

/// The number by which a cell is sorted, or its text.
function sortKey(cell) {
  const text = cell.dataset.sort ?? cell.textContent.replaceAll(",", "");
  const number = text === "" ? NaN : Number(text);
  return Number.isNaN(number) ? cell.textContent : number;
}

function compareKeys(a, b) {
  if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
  return typeof a === "number" ? -1 : 1;
}

/// Sorts the rows of a table by a column.
function sortTable(table, column, isDescending) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows, (row) => [sortKey(row.cells[column]), row]);
  rows.sort(([a], [b]) => (isDescending ? compareKeys(b, a) : compareKeys(a, b)));
  for (const [, row] of rows) body.append(row);
  const heads = table.tHead.rows[0].cells;
  for (const head of heads) head.removeAttribute("aria-sort");
  heads[column].setAttribute("aria-sort", isDescending ? "descending" : "ascending");
}

/// Makes the heads of a table buttons, and adds a field to search in.
function equipTable(table) {
  if (table.rows.length < 3 || table.dataset.equipped) return;
  table.dataset.equipped = "true";
  Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
    if (!head.textContent) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => {
      sortTable(table, column, head.getAttribute("aria-sort") === "ascending");
    });
    head.replaceChildren(button);
  });
  if (table.tBodies[0].rows.length < SEARCHED_FROM) return;
  const field = document.createElement("input");
  field.type = "search";
  field.className = "search";
  field.placeholder = "Search";
  const region = table.parentElement;
  field.setAttribute("aria-label", `Search in ${region.getAttribute("aria-label")}`);
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase();
    for (const row of table.tBodies[0].rows) {
      row.hidden = !row.textContent.toLowerCase().includes(words);
    }
  });
  region.before(field);
}

function equipTables(root) {
  root.querySelectorAll("table").forEach(equipTable);
}

/// Limits of the zoom of a graph, and the factor of a step.
const ZOOM_MIN = 0.2;
const ZOOM_MAX = 5;
const ZOOM_STEP = 1.25;

/// The least zoom at which labels are read without leaning forward.
const READABLE_ZOOM = 0.6;

/// The nodes that a node reaches along edges, itself among them: downwards, or upwards with the ends swapped.
function reachedNodes(edges, start, from, to) {
  const reached = new Set([start]);
  const waiting = [start];
  while (waiting.length) {
    const node = waiting.pop();
    for (const edge of edges) {
      if (edge.dataset[from] !== node || reached.has(edge.dataset[to])) continue;
      reached.add(edge.dataset[to]);
      waiting.push(edge.dataset[to]);
    }
  }
  return reached;
}

/// Dims all of a graph but some nodes and the edges among them; an edge takes both ends in one set.
function lightNodes(region, sets) {
  for (const edge of region.querySelectorAll(".edge")) {
    const { from, to } = edge.dataset;
    const isLit = sets.some((nodes) => nodes.has(from) && nodes.has(to));
    edge.classList.toggle("dim", !isLit);
  }
  for (const node of region.querySelectorAll(".node")) {
    const isLit = sets.some((nodes) => nodes.has(node.dataset.node));
    node.classList.toggle("dim", !isLit);
    // The label of a box lies behind it.
    node.nextElementSibling?.classList.toggle("dim", !isLit);
  }
  region.classList.add("lit");
}

/// Cells with the name of a column of an output. They hold the columns of sources that the column depends on.
function columnCells() {
  return Array.from(document.querySelectorAll("td[data-origins]"));
}

function originsOf(cell) {
  return JSON.parse(cell.dataset.origins).map(([source, column]) => JSON.stringify([source, column]));
}

/// Dims rows of columns, but those for which a function is true.
function lightRows(isLit) {
  for (const cell of columnCells()) cell.parentElement.classList.toggle("dim", !isLit(cell));
}

/// Ends what a node or a column has lit.
function goOut() {
  for (const region of document.querySelectorAll(".drawing")) region.classList.remove("lit");
  lightRows(() => true);
}

/// Lights up what a node is made of, what is made of it, and the columns that go through it.
function lightUp(region, node) {
  const edges = Array.from(region.querySelectorAll(".edge"));
  const above = reachedNodes(edges, node.dataset.node, "to", "from");
  const below = reachedNodes(edges, node.dataset.node, "from", "to");
  lightNodes(region, [above, below]);
  const names = new Set();
  for (const other of region.querySelectorAll(".node")) {
    if (above.has(other.dataset.node) || below.has(other.dataset.node)) names.add(other.dataset.name);
  }
  lightRows((cell) => {
    const origins = JSON.parse(cell.dataset.origins);
    return names.has(cell.dataset.sink) && origins.some(([source]) => names.has(source));
  });
}

/// Lights up the sources of a column, the way from them to its output, and columns of the same origins.
function lightColumn(cell) {
  const origins = new Set(originsOf(cell));
  lightRows((other) => other === cell || originsOf(other).some((origin) => origins.has(origin)));
  const sources = new Set(JSON.parse(cell.dataset.origins).map(([source]) => source));
  for (const region of document.querySelectorAll(".drawing")) {
    const edges = Array.from(region.querySelectorAll(".edge"));
    const nodes = Array.from(region.querySelectorAll(".node"));
    const sink = nodes.find((node) => node.dataset.name === cell.dataset.sink);
    if (!sink) continue;
    const above = reachedNodes(edges, sink.dataset.node, "to", "from");
    const way = new Set([sink.dataset.node]);
    for (const node of nodes.filter((node) => sources.has(node.dataset.name))) {
      for (const below of reachedNodes(edges, node.dataset.node, "from", "to")) {
        if (above.has(below)) way.add(below);
      }
    }
    lightNodes(region, [way]);
  }
}

/// Moves the focus to the next or last column that the table of a cell shows.
function moveFocus(cell, event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const cells = columnCells().filter((other) => other.closest("table") === cell.closest("table"));
  const shown = cells.filter((other) => !other.parentElement.hidden);
  shown[shown.indexOf(cell) + step]?.focus();
}

/// Columns that light up under the pointer or with the focus. A table takes one stop of the Tab key: arrows go on.
function equipColumns() {
  const tables = new Set();
  for (const cell of columnCells()) {
    const table = cell.closest("table");
    if (!cell.dataset.equipped) cell.setAttribute("tabindex", tables.has(table) ? "-1" : "0");
    tables.add(table);
    if (cell.dataset.equipped) continue;
    cell.dataset.equipped = "true";
    cell.addEventListener("keydown", (event) => moveFocus(cell, event));
    for (const event of ["mouseenter", "focus"]) cell.addEventListener(event, () => lightColumn(cell));
    for (const event of ["mouseleave", "blur"]) cell.addEventListener(event, goOut);
  }
}

/// The words of a label, whose lines are elements of their own.
function labelOf(node) {
  const label = node.nextElementSibling;
  return label ? Array.from(label.children, (line) => line.textContent).join(" ") : "";
}

/// Buttons and keys that zoom a graph, and nodes that light up.
function equipGraph(region) {
  const svg = region.querySelector("svg");
  if (!svg || region.dataset.equipped) return;
  region.dataset.equipped = "true";
  const width = svg.viewBox.baseVal.width;
  const height = svg.viewBox.baseVal.height;
  let zoom = 1;
  const zoomTo = (wanted) => {
    zoom = Math.min(Math.max(wanted, ZOOM_MIN), ZOOM_MAX);
    svg.setAttribute("width", width * zoom);
    svg.setAttribute("height", height * zoom);
  };
  const fit = () => region.clientWidth / width;
  const bar = document.createElement("div");
  bar.className = "zoom";
  const actions = [
    ["\u2212", "Zoom out", () => zoomTo(zoom / ZOOM_STEP)],
    ["+", "Zoom in", () => zoomTo(zoom * ZOOM_STEP)],
    ["Whole", "Fit the graph into the page", () => zoomTo(fit())],
  ];
  for (const [text, label, act] of actions) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.setAttribute("aria-label", label);
    button.addEventListener("click", act);
    bar.append(button);
  }
  region.before(bar);
  region.addEventListener("keydown", (event) => {
    const act = { "-": actions[0][2], "+": actions[1][2], "=": actions[1][2], 0: actions[2][2] }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  // A wide graph begins small, but with labels that can be read.
  if (fit() < 1) zoomTo(Math.max(fit(), READABLE_ZOOM));
  for (const node of region.querySelectorAll(".node")) {
    node.setAttribute("tabindex", "0");
    node.setAttribute("role", "img");
    node.setAttribute("aria-label", labelOf(node));
    for (const event of ["mouseenter", "focus"]) node.addEventListener(event, () => lightUp(region, node));
    for (const event of ["mouseleave", "blur"]) node.addEventListener(event, goOut);
  }
}

function equipGraphs(root) {
  root.querySelectorAll(".drawing").forEach(equipGraph);
}

/// The section as the server sent it. Sorted and searched tables are compared by this.
const sentSections = new Map();

function rememberSections(page) {
  for (const section of page.querySelectorAll("section")) {
    sentSections.set(section.id, section.innerHTML);
  }
}

/// Replaces the sections that have changed. A section that the user is in stays until the user leaves it.
function replaceSections(page) {
  const ids = Array.from(page.querySelectorAll("section"), (section) => section.id);
  const shownIds = Array.from(document.querySelectorAll("section"), (section) => section.id);
  if (ids.join() !== shownIds.join()) {
    if (document.querySelector("main").contains(document.activeElement)) return;
    document.querySelector("main").replaceWith(page.querySelector("main"));
    document.querySelector("nav").replaceWith(page.querySelector("nav"));
    rememberSections(document);
  } else {
    for (const id of ids) {
      const section = page.getElementById(id);
      const shown = document.getElementById(id);
      const isInUse = shown.contains(document.activeElement) || isSearched(shown);
      if (sentSections.get(id) === section.innerHTML || isInUse) continue;
      sentSections.set(id, section.innerHTML);
      shown.replaceWith(section);
    }
  }
  equipTables(document);
  equipGraphs(document);
  equipColumns();
}

function isSearched(section) {
  return Array.from(section.querySelectorAll("input")).some((field) => field.value);
}

/// Reads the page again. Where that fails, as when the server has ended, the page stays as it is and says so.
async function refresh() {
  const subtitle = document.querySelector("header > p.muted");
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.body.className = page.body.className;
    document.body.dataset.refresh = page.body.dataset.refresh ?? "30";
    subtitle.textContent = page.querySelector("header > p.muted").textContent;
    document.title = page.title;
    replaceSections(page);
  } catch (error) {
    subtitle.textContent = `not up to date: the page cannot be read again (${error.message})`;
  }
  setTimeout(refresh, 1000 * Number(document.body.dataset.refresh));
}

if (document.body.dataset.refresh) {
  rememberSections(document);
  setTimeout(refresh, 1000 * Number(document.body.dataset.refresh));
}
equipTables(document);
equipGraphs(document);
equipColumns();
