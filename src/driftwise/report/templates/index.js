"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const MISSING = "–", AT_ONCE = 500, MOST_SEEDS = 10, MOST_OPTIONS = 100, MOST_REASONS = 5, SINGLE = ["view", "sort", "find"];
const DONE = data.states.indexOf("done"), FAILED = data.states.indexOf("failed");

const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};
const shown = (value) => (value === null ? MISSING : String(value));
const same = (values) => new Set(values).size < 2;

const cells = data.cells.map(([sweeps, coordinates]) => ({ sweeps: sweeps.map((n) => data.sweeps[n]), coordinates }));
const runs = data.runs.map(([cell, id, seed, state, reason, measures]) => {
  const run = { cell: cells[cell], place: cell, id, seed, state, reason, measures };
  run.words = [...run.cell.sweeps, ...run.cell.coordinates.map(shown), id, "seed " + seed, data.states[state], reason].join(" ").toLowerCase();
  return run;
});

// What runs can be chosen by: a key, a title, and the values that a run has.
const nominal = data.names.findIndex((name) => name.key === "buffer_size");
const isRedundant = (name, index) => name.key === "real_buffer"
  && cells.every(({ coordinates: each }) => each[index] === null || each[index] === each[nominal]);
const names = data.names.map((name, index) => ({ ...name, index, values: (run) => [run.cell.coordinates[index]] }))
  .filter((name) => !isRedundant(name, name.index));
const filters = [
  { key: "sweep", title: "sweep", values: (run) => run.cell.sweeps },
  ...names,
  { key: "seed", title: "seed", values: (run) => [run.seed] },
  { key: "state", title: "state", values: (run) => [data.states[run.state]] },
];
for (const filter of filters) {
  filter.options = [...new Set(runs.flatMap(filter.values))];
  if (filter.options.every((value) => value === null || typeof value === "number")) filter.options.sort((a, b) => (a === null) - (b === null) || a - b);
  if (filter.key === "state") filter.options.sort((a, b) => data.states.indexOf(a) - data.states.indexOf(b));
}
// Where there are too many values to choose from, the search finds the one that is wanted.
const useful = filters.filter((filter) => filter.options.length > 1 && (filter.key === "sweep" || filter.options.length <= MOST_OPTIONS));

// The view: read from the address, and written there after each change.
const view = { view: "cells", sort: "", find: "", chosen: new Map() };
const readAddress = () => {
  const given = new URLSearchParams(location.hash.slice(1));
  view.view = given.get("view") === "runs" ? "runs" : "cells";
  view.sort = given.get("sort") || "";
  view.find = given.get("find") || "";
  view.chosen = new Map(useful.map((filter) => [filter.key, new Set(filter.options.map(shown).filter((text) => given.getAll(filter.key).includes(text)))]));
};
const writeAddress = () => {
  const kept = new URLSearchParams();
  for (const key of SINGLE) if (view[key] && view[key] !== "cells") kept.set(key, view[key]);
  for (const [key, values] of view.chosen) for (const value of values) kept.append(key, value);
  history.replaceState(null, "", "#" + kept);
};

const fits = (run, filter) => {
  const wanted = view.chosen.get(filter.key);
  return wanted.size === 0 || filter.values(run).some((value) => wanted.has(shown(value)));
};
const found = () => {
  const words = view.find.toLowerCase().split(/\s+/).filter(Boolean);
  return runs.filter((run) => words.every((word) => run.words.includes(word)));
};

// Numbers, written as the tables in the report write them.
const plain = (value) => {
  if (Math.abs(value) >= 100 || Number.isInteger(value)) return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
  return Math.abs(value) >= 1 ? value.toFixed(1) : String(Number(value.toPrecision(2)));
};
const SECONDS = [[86400, "days"], [3600, "h"], [60, "min"]], FLOPS = [[1e9, "E"], [1e6, "P"], [1e3, "T"], [1, "G"], [1e-3, "M"]];
const scaled = (value, units, least, rest) => {
  const [size, unit] = units.find(([each]) => value >= least * each) || [1, rest];
  return plain(Number((value / size).toFixed(size === 1 && rest === "s" ? 6 : 1))) + " " + unit;
};
const written = (value, measure) => {
  if (measure.key === "seconds") return scaled(value, SECONDS, 1.5, "s");
  if (measure.key === "gflops") return value ? scaled(value, FLOPS, 1, "G") : "0";
  return measure.digits === null ? plain(value) : value.toFixed(measure.digits);
};
const statistic = (row, index) => {
  const known = row.runs.map((run) => run.measures[index]).filter((value) => value !== null && value !== undefined);
  if (!known.length) return null;
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  const squares = known.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, sd: known.length > 1 ? Math.sqrt(squares / (known.length - 1)) : null };
};

// A row is a cell with those of its runs that are chosen; in the view of runs, with one of them.
const rowsOf = (chosen) => {
  if (view.view === "runs") return chosen.map((run) => ({ cell: run.cell, runs: [run] }));
  const rows = new Map();
  for (const run of chosen) {
    if (!rows.has(run.place)) rows.set(run.place, { cell: run.cell, runs: [] });
    rows.get(run.place).runs.push(run);
  }
  return [...rows.values()];
};

const seedOf = (run) => {
  if (run.state === DONE) {
    return make("a", { href: "pages/" + encodeURIComponent(run.id) + ".html" + location.hash, textContent: run.seed, title: run.id, ariaLabel: "seed " + run.seed + " of " + run.id });
  }
  const kind = run.state === FAILED ? "broken" : "waiting";
  return make("span", { className: kind, textContent: run.seed, title: [data.states[run.state], run.reason].filter(Boolean).join(": ") });
};
const seedsOf = (row) => {
  const most = row.runs.length > MOST_SEEDS ? MOST_SEEDS / 2 : MOST_SEEDS, rest = row.runs.length - most;
  return [...row.runs.slice(0, most).map(seedOf), ...(rest > 0 ? [make("span", { className: "waiting", textContent: "and " + rest.toLocaleString("en-US") + " more" })] : [])];
};
const stateOf = (row) => {
  const counts = data.states.map((_, state) => row.runs.filter((run) => run.state === state).length);
  const present = data.states.filter((_, state) => counts[state]);
  const words = present.length === 1 ? present[0] : data.states.map((name, state) => (counts[state] ? counts[state] + " " + name : "")).filter(Boolean).join(", ");
  const reasons = [...new Set(row.runs.map((run) => run.reason).filter(Boolean))];
  const rest = reasons.length - MOST_REASONS;
  const named = reasons.slice(0, MOST_REASONS).concat(rest > 0 ? ["and " + rest + " more reasons"] : []);
  return [words, ...named.map((reason) => make("span", { className: "why", textContent: reason }))];
};
const coordinateOf = (row, name) => {
  const value = row.cell.coordinates[name.index];
  const colour = name.key === "adaptation" ? data.colours[value] : undefined;
  if (!colour) return [shown(value)];
  const dot = make("i", { className: "dot" });
  dot.style.background = colour;
  return [dot, shown(value)];
};
const measureOf = (row, measure, index) => {
  const value = statistic(row, index);
  if (!value) return [MISSING];
  const parts = [written(value.mean, measure)];
  // Of a run that is done, the reason is why it was not adapted.
  if (measure.key === "faa" && row.runs.some((run) => run.state === DONE && run.reason)) parts.push("*");
  if (value.sd !== null && measure.spread) parts.push(make("span", { className: "sd", textContent: " ± " + written(value.sd, measure) }));
  return parts;
};

// Coordinates that all rows share stand once, above the table.
const shared = names.filter((name) => name.key !== "adaptation" && name.options.length < 2);
const columns = [
  ...names.filter((name) => !shared.includes(name)).map((name) => ({
    ...name, isName: name.options.some((value) => typeof value === "string"), order: (row) => row.cell.coordinates[name.index], fill: (row) => coordinateOf(row, name),
  })),
  { key: "seed", title: "seed", meaning: "One run each; a seed leads to its page.", isName: true, order: (row) => (view.view === "runs" ? row.runs[0].seed : row.runs.length), fill: seedsOf },
  ...data.measures.map((measure, index) => ({
    ...measure, order: (row) => statistic(row, index)?.mean ?? null, fill: (row) => measureOf(row, measure, index),
    tip: (row) => { const value = statistic(row, index); return value && value.sd !== null ? "± " + written(value.sd, measure) + " over " + row.runs.length + " seeds" : ""; },
    share: measure.key === "faa" ? (row) => statistic(row, index)?.mean : undefined,
  })),
  { key: "state", title: "state", meaning: "Whether the runs are done, why their adaptation had nothing to act on (*), and what broke those that failed.", isName: true, order: (row) => row.runs.filter((run) => run.state === DONE).length / row.runs.length, fill: stateOf },
  ...(data.sweeps.length > 1 ? [{ key: "sweep", title: "sweep", meaning: "The sweeps that ask for it.", isName: true, order: (row) => row.cell.sweeps.join(", "), fill: (row) => [row.cell.sweeps.join(", ")] }] : []),
];

const sorted = (rows) => {
  const falling = view.sort.startsWith("-");
  const column = columns.find((each) => each.key === view.sort.slice(falling ? 1 : 0));
  if (!column) return rows;
  const keys = new Map(rows.map((row) => [row, column.order(row)]));
  return rows.sort((a, b) => {
    const [x, y] = [keys.get(a), keys.get(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
    return falling ? -order : order;
  });
};

const box = document.getElementById("table");
const head = box.querySelector("thead tr"), body = box.querySelector("tbody"), more = document.getElementById("more");
const waiting = document.getElementById("waiting"), search = document.getElementById("find"), drawer = box.querySelector(".filters"), groups = box.querySelector(".groups");
let most = AT_ONCE, isUnfolded = false;

for (const column of columns) {
  const button = make("button", { type: "button", textContent: column.title, title: column.meaning || "" });
  button.addEventListener("click", () => change({ sort: view.sort === column.key ? "-" + column.key : column.key }));
  head.append(make("th", { scope: "col", className: column.isName ? "name" : "" }, button));
}
const chips = [];
for (const filter of useful) {
  const options = make("div", { className: "options" });
  for (const value of filter.options) {
    const input = make("input", { type: "checkbox", name: filter.key, value: shown(value) });
    const count = make("small"), chip = make("span", { title: shown(value) }, shown(value) + " ", count);
    input.addEventListener("change", () => {
      view.chosen.get(filter.key)[input.checked ? "add" : "delete"](shown(value));
      change();
    });
    options.append(make("label", {}, input, chip));
    chips.push({ filter, value: shown(value), input, chip, count });
  }
  groups.append(make("fieldset", {}, make("legend", { textContent: filter.title }), options));
}

const countChips = (candidates) => {
  for (const filter of useful) {
    const others = useful.filter((other) => other !== filter);
    const left = candidates.filter((run) => others.every((other) => fits(run, other)));
    const ids = new Map(filter.options.map((value) => [shown(value), new Set()]));
    for (const run of left) for (const value of filter.values(run)) ids.get(shown(value)).add(run.id);
    for (const each of chips.filter((chip) => chip.filter === filter)) {
      const count = ids.get(each.value).size;
      each.count.textContent = count;
      each.chip.classList.toggle("none", count === 0);
      each.input.checked = view.chosen.get(filter.key).has(each.value);
    }
  }
};
const showCount = (rows, chosen) => {
  const numRuns = (some) => new Set(some.map((run) => run.id)).size.toLocaleString("en-US");
  const numCells = new Set(runs.map((run) => run.place)).size.toLocaleString("en-US");
  const line = box.querySelector(".count");
  const inCells = view.view === "cells" ? rows.length.toLocaleString("en-US") + " of " + numCells + " cells, " : "";
  line.replaceChildren(make("b", { textContent: inCells + numRuns(chosen) + " of " + numRuns(runs) + " runs" }));
  const known = shared.filter((name) => name.options.length && name.options[0] !== null);
  if (known.length) line.append(". All: " + known.map((name) => name.title + " " + name.options[0]).join(", "));
};
// Rows of which nothing is known yet are folded away where they would bury the others, unless somebody looks for them.
const isWaiting = (row) => row.runs.every((run) => run.state !== DONE && run.state !== FAILED && !run.reason);
const unfolded = (rows) => {
  const known = rows.filter((row) => !isWaiting(row)), rest = rows.length - known.length;
  const isFolded = !isUnfolded && !view.find && !view.chosen.get("state")?.size && known.length > 0 && rest > known.length;
  waiting.parentElement.hidden = !isFolded;
  waiting.textContent = "Show " + rest.toLocaleString("en-US") + " " + view.view + " that have not been run yet";
  return isFolded ? known : rows;
};
const draw = () => {
  const candidates = found();
  const chosen = candidates.filter((run) => useful.every((filter) => fits(run, filter)));
  const rows = unfolded(sorted(rowsOf(chosen)));
  countChips(candidates);
  showCount(rows, chosen);
  // Coordinates of other sweeps' grids only are left out.
  const visible = columns.filter((column) => column.index === undefined || rows.some((row) => column.order(row) !== null));
  [...head.cells].forEach((cell, index) => {
    cell.hidden = rows.length > 0 && !visible.includes(columns[index]);
    const falling = view.sort === "-" + columns[index].key;
    if (falling || view.sort === columns[index].key) cell.setAttribute("aria-sort", falling ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  });
  body.replaceChildren(...rows.slice(0, most).map((row) => make("tr", {}, ...visible.map((column) => {
    const cell = make("td", { className: (column.isName ? "name " : "") + column.key, title: column.tip ? column.tip(row) : "" }, ...column.fill(row));
    const share = column.share && column.share(row);
    if (share !== undefined) cell.style.setProperty("--share", share + "%");
    return cell;
  }))));
  if (!rows.length) body.append(make("tr", {}, make("td", { colSpan: columns.length, className: "name", textContent: "No run fits these filters." })));
  more.parentElement.hidden = rows.length <= most;
  more.textContent = "Show " + Math.min(AT_ONCE, rows.length - most).toLocaleString("en-US") + " more of " + rows.length.toLocaleString("en-US") + " rows";
  box.querySelector("input[name=view][value=" + view.view + "]").checked = true;
  if (search.value !== view.find) search.value = view.find;
  const numChosen = [...view.chosen.values()].reduce((sum, values) => sum + values.size, 0);
  drawer.querySelector("summary").textContent = numChosen ? "Filters (" + numChosen + ")" : "Filters";
  document.getElementById("clear").hidden = !numChosen && !view.find;
};
const change = (changes = {}) => {
  Object.assign(view, changes);
  most = AT_ONCE;
  writeAddress();
  draw();
};
const goTo = (place) => {
  place.scrollIntoView();
  place.focus({ preventScroll: true });
};

for (const input of box.querySelectorAll("input[name=view]")) input.addEventListener("change", () => change({ view: input.value }));
search.addEventListener("input", () => change({ find: search.value }));
more.addEventListener("click", () => { most += AT_ONCE; draw(); });
waiting.addEventListener("click", () => { isUnfolded = true; draw(); });
const clear = () => { for (const values of view.chosen.values()) values.clear(); view.find = ""; };
document.getElementById("clear").addEventListener("click", () => { clear(); change(); search.focus(); });
for (const button of document.querySelectorAll(".only")) {
  button.hidden = data.sweeps.length < 2;
  button.addEventListener("click", () => {
    clear();
    view.chosen.get("sweep").add(button.dataset.sweep);
    change();
    goTo(document.getElementById("runs"));
  });
}
// A jump within the page must not cost the view that the address keeps.
for (const link of document.querySelectorAll("nav a")) {
  link.addEventListener("click", (event) => { event.preventDefault(); goTo(document.querySelector(link.getAttribute("href"))); });
}
addEventListener("hashchange", () => { readAddress(); draw(); });
readAddress();
box.hidden = false;
drawer.open = innerWidth > 820;
drawer.hidden = useful.length === 0;
draw();
// Whoever comes with a view wants to see it.
if (location.hash.includes("=")) addEventListener("load", () => document.getElementById("runs").scrollIntoView());
