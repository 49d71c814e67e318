"use strict";

async function refresh() {
  const {runs} = await call("GET", "/v1/runs");
  element("none").hidden = runs.length > 0;
  const counts = {};
  for (const run of runs) counts[run.state] = (counts[run.state] || 0) + 1;
  element("counts").textContent = Object.entries(counts).map(([state, each]) => `${each} ${state}`).join(", ");
  element("rows").replaceChildren(...runs.map((run) => make("tr", {},
    make("td", {class: "words"}, run.name),
    make("td", {class: run.state === "unreadable" || run.state === "failed" ? "bad" : null}, run.state),
    make("td", {}, String(run.points.length)),
    make("td", {}, run.points.length ? `${run.points[run.points.length - 1].toFixed(1)} %` : "–"),
    make("td", {}, curve(run.points)),
    make("td", {class: "words"}, run.note || run.settings))));
}

function curve(points) {
  const made = svg("svg", {class: "chart", viewBox: "0 0 120 30", width: 120, height: 30, role: "img",
    "aria-label": points.map((each) => each.toFixed(1)).join(", ")});
  const x = (place) => 3 + 114 * place / Math.max(1, points.length - 1), y = (value) => 27 - 24 * value / 100;
  made.append(svg("line", {class: "grid", x1: 0, x2: 120, y1: y(0), y2: y(0)}));
  made.append(svg("path", {class: "accuracy", d: points.map((each, place) => `${place ? "L" : "M"}${x(place)} ${y(each)}`).join("")}));
  for (const each of points.slice(-1)) made.append(svg("circle", {class: "accuracy", cx: x(points.length - 1), cy: y(each), r: 2.5}));
  return made;
}

async function loop() {
  try { await refresh(); complain(""); } catch (error) { complain(error.message); }
  setTimeout(loop, 2000);
}
loop();
