"use strict";

// Requests of a page carry its token; answers are JSON, errors have one message.
async function call(method, path, body) {
  const headers = {"x-csrf-token": document.querySelector('meta[name="csrf"]').content};
  if (body !== undefined) headers["content-type"] = "application/json";
  const response = await fetch(path, {
    method, headers, body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (response.status === 401) location.assign("/login");
  if (response.status === 204) return {};
  const found = await response.json();
  if (!response.ok) throw new Error(found.error ? found.error.message : `HTTP ${response.status}`);
  return found;
}

const element = (id) => document.getElementById(id);

function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") made.addEventListener("click", value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function svg(name, attributes = {}, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Vectors as lines in one chart: groups of [class, vectors].
function lines(groups, label) {
  const all = groups.flatMap(([, vectors]) => vectors), width = 400, height = 200;
  const least = Math.min(0, ...all.map((each) => Math.min(...each))), most = Math.max(0, ...all.map((each) => Math.max(...each)));
  const span = most - least || 1, length = Math.max(...all.map((each) => each.length));
  const made = svg("svg", {class: "chart vectors", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label});
  const x = (place) => 34 + (width - 42) * place / Math.max(1, length - 1), y = (value) => 10 + (height - 32) * (most - value) / span;
  for (const value of new Set([least, 0, most])) {
    made.append(svg("line", {class: "grid", x1: 34, x2: width - 8, y1: y(value), y2: y(value)}));
    made.append(svg("text", {x: 30, y: y(value) + 4, "text-anchor": "end"}, short(value)));
  }
  const last = length - 1;
  for (const [place, anchor] of [[0, "start"], [last, "end"]]) {
    if (place === 0 || last > 0) made.append(svg("text", {x: x(place), y: height - 4, "text-anchor": anchor}, String(place + 1)));
  }
  for (const [name, vectors] of groups) for (const values of vectors) {
    if (length > 1) made.append(svg("path", {class: name, d: values.map((value, place) => `${place ? "L" : "M"}${x(place)} ${y(value)}`).join("")}));
    if (length <= 40) values.forEach((value, place) => made.append(svg("circle", {class: name, cx: x(place), cy: y(value), r: 2.5})));
  }
  return made;
}

const short = (value) => Math.abs(value) >= 1e4 || (value !== 0 && Math.abs(value) < 0.01) ? value.toExponential(0) : String(Number(value.toPrecision(2)));

const percent = (value, digits = 0) =>
  value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)} %`;
const clock = (time) => (time ? new Date(time).toLocaleTimeString([], {hour12: false}) : "");

function number(value) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && Math.abs(value) < 0.001) return value.toExponential(1);
  return String(Math.round(value * 1000) / 1000);
}

// A page asks again only when something has changed, and never twice at once.
function follow(refresh, atLeast) {
  let busy = false, again = false, last = 0, timer = null;
  async function run() {
    timer = null;
    if (busy) { again = true; return; }
    busy = true;
    last = Date.now();
    try { await refresh(); complain("", 0); } catch (error) { complain(error.message, 0); }
    busy = false;
    if (again) { again = false; soon(); }
  }
  function soon() {
    if (timer === null) timer = setTimeout(run, Math.max(0, last + atLeast - Date.now()));
  }
  let source = null;
  function listen() {
    source = new EventSource("/v1/stream");
    source.addEventListener("message", soon);
    source.addEventListener("error", () => complain("The service does not answer. Trying again ...", 0));
    source.addEventListener("open", () => complain("", 0));
  }
  // A browser has six connections to a service: tabs that nobody sees must not hold them.
  document.addEventListener("visibilitychange", () => {
    source.close();
    if (!document.hidden) { listen(); soon(); }
  });
  listen();
  soon();
  return soon;
}

// Messages stay long enough to be read; those of `follow` go once the service answers.
let stays = 0;
function complain(message, seconds = 8) {
  const place = element("complaint");
  if (!place || (seconds === 0 && Date.now() < stays)) return;
  stays = Date.now() + 1000 * seconds;
  place.textContent = message;
  place.hidden = message === "";
}

const logout = element("logout");
if (logout) {
  logout.addEventListener("click", async () => {
    await call("POST", "/logout");
    location.assign("/login");
  });
}
