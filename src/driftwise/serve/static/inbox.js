"use strict";

const AHEAD = 4;
const KEYS = "0123456789abcdefghijklmnopqrstuvwxyz";
// One per tab: two tabs are two labellers.
const labeller = Array.from(crypto.getRandomValues(new Uint8Array(8)), (each) => each.toString(16).padStart(2, "0")).join("");
let cards = [], done = [], classes = [], corrects = false, fetching = false, sent = Promise.resolve(), count = 0;

async function refill() {
  if (fetching) return;
  fetching = true;
  try {
    const held = cards.slice(corrects ? 1 : 0).map((card) => card.id);
    const found = await call("POST", "/v1/requests/lease", {labeller, held, count: Math.max(0, AHEAD - held.length)});
    // Meanwhile cards may have been answered, and others may have got what was held for too long.
    const answered = new Set(done.slice(-50).map((each) => each.card.id)), lost = new Set(held);
    for (const card of found.cards) lost.delete(card.id);
    cards = cards.filter((card, place) => (corrects && place === 0) || !lost.has(card.id));
    const known = new Set(cards.map((card) => card.id));
    cards = cards.concat(found.cards.filter((card) => !known.has(card.id) && !answered.has(card.id)));
    showClasses(found.classes);
    showProgress(found);
    show();
  } finally { fetching = false; }
}

function showClasses(found) {
  if (JSON.stringify(found) === JSON.stringify(classes)) return;
  classes = found;
  element("keys").replaceChildren(...classes.map((each, place) => make("button", {
    type: "button", onclick: () => answer(each.label), "data-label": each.label,
  }, place < KEYS.length ? make("kbd", {}, KEYS[place]) : null, make("span", {}, each.name))));
}

function showProgress(found) {
  element("open").textContent = found.open;
  element("by-class").textContent = Object.entries(found.by_class).map(([name, each]) => `${name}: ${each}`).join(", ");
  const limited = found.budget !== null;
  element("spent").textContent = limited ? `${found.spent} of ${found.budget} labels` : `${found.spent} labels`;
  element("budget-bar").hidden = !limited;
  element("budget-bar").max = found.budget || 1;
  element("budget-bar").value = found.spent;
}

function show() {
  const card = cards[0];
  element("card").hidden = !card;
  element("empty").hidden = Boolean(card);
  element("count").textContent = count;
  element("undo").disabled = done.length === 0;
  if (!card) return;
  if (element("card").dataset.id === String(card.id) + corrects) return;
  element("card").dataset.id = String(card.id) + corrects;
  element("question").textContent = corrects ? "Another answer for this sample?"
    : card.predicted < 0 ? "What is this?" : `The model takes this for ${card.name}. What is it?`;
  element("sample").replaceChildren(picture(card));
  element("beliefs").replaceChildren(...card.beliefs.map((each) => make("li", {},
    make("span", {}, each.name),
    make("progress", {max: 1, value: each.probability, "aria-label": `probability of ${each.name}`}),
    make("span", {}, percent(each.probability)))));
  for (const next of cards.slice(1, 3)) if (next.url) new Image().src = next.url;
}

function picture(card) {
  if (card.kind === "image") return make("img", {src: card.url, alt: `sample ${card.id}`});
  if (card.kind === "text") return make("p", {}, card.text);
  const shown = card.values.length < card.length ? `, the first ${card.values.length} are shown` : "";
  const text = `${card.length} values${shown}`;
  return make("figure", {}, lines([["accuracy", [card.values]]], `sample ${card.id}, ${text}`), make("figcaption", {class: "note"}, text));
}

// Answers are sent in their order; the next sample is shown at once.
function answer(label) {
  const card = cards.shift();
  if (!card) return;
  const correct = corrects;
  corrects = false;
  done.push({card, label});
  done = done.slice(-200);
  count += correct ? 0 : 1;
  const body = {ids: [card.id], labels: [label], correct, key: `${labeller}-${Date.now()}-${card.id}`};
  sent = sent.then(() => call("POST", "/v1/labels", body)).catch((error) => {
    complain(error.message);
    done = done.filter((each) => each.card !== card);
    cards.unshift(card);
    count -= correct ? 0 : 1;
    show();
  });
  remember();
  show();
  if (cards.length < AHEAD - 1) sent.then(refill).catch((error) => complain(error.message));
}

async function skip() {
  const card = cards.shift();
  if (!card) return;
  if (corrects) { corrects = false; show(); return; }
  show();
  try {
    await call("POST", "/v1/requests/skip", {labeller, id: card.id});
    if (cards.length < AHEAD - 1) await refill();
  } catch (error) { complain(error.message); }
}

function undo() {
  const last = done.pop();
  if (!last) return;
  corrects = true;
  cards.unshift(last.card);
  remember();
  show();
}

function remember() {
  const name = (label) => label === null ? "not in the list" : (classes.find((each) => each.label === label) || {name: label}).name;
  element("done").replaceChildren(...done.slice(-12).map((each) => make("li", {}, name(each.label))));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  if (event.key === " " && event.target.matches("button, a")) return; // it presses what has the focus
  const place = KEYS.indexOf(event.key.toLowerCase());
  if (event.key === "Backspace") undo();
  else if (event.key === " ") skip();
  else if (event.key === "-") answer(null);
  else if (event.key.length === 1 && place >= 0 && place < classes.length) answer(classes[place].label);
  else return;
  event.preventDefault();
});
// After a click with the mouse the space bar skips again.
document.addEventListener("click", (event) => { if (event.detail && event.target.closest("button")) document.activeElement.blur(); });
element("undo").addEventListener("click", undo);
element("skip").addEventListener("click", skip);
element("unknown").addEventListener("click", () => answer(null));
element("import").addEventListener("change", async (event) => {
  const file = event.target.files[0];
  if (!file) return;
  const kinds = {csv: "text/csv", jsonl: "application/x-ndjson", json: "application/json"};
  const kind = kinds[file.name.split(".").pop().toLowerCase()] || "text/csv";
  const response = await fetch("/v1/labels/import", {method: "POST", body: file,
    headers: {"content-type": kind, "x-csrf-token": document.querySelector('meta[name="csrf"]').content}});
  const found = await response.json();
  complain(response.ok ? `${found.labels} labels imported.` : found.error.message);
  event.target.value = "";
});
follow(refill, 1000);
