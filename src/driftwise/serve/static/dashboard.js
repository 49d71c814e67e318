"use strict";

let chosen = "";

async function refresh() {
  const found = await call("GET", chosen === "" ? "/v1/dashboard" : `/v1/dashboard?label=${chosen}`);
  showFacts(found);
  showClasses(found.classes);
  drawAccuracy(found);
  drawTimeline(found);
  showVerdicts(found.verdicts, found.status);
  showEvents(found.events, found.status.names);
  showLoad(found.load);
  showStates(found.snapshots);
}

const WORDS = {classes: "new classes", watched: "monitored"};
const names = (labels, status) => labels.map((each) => status.names[each] || each).join(", ");

function showFacts({status, points, probes}) {
  const last = points[points.length - 1] || {}, probe = probes[probes.length - 1];
  const labelled = points.filter((each) => each.accuracy !== null).pop();
  const spent = status.labels.adaptation || 0;
  element("accuracy").textContent = probe ? percent(probe.correct / probe.samples) : percent(labelled && labelled.accuracy);
  element("accuracy-note").textContent = probe ? "on the last probe" : "where labels came last";
  element("estimate").textContent = percent(last.estimate);
  element("samples").textContent = status.samples.toLocaleString("en");
  element("classes").textContent = `${status.classes.length} classes, ${status.steps.toLocaleString("en")} steps`;
  element("budget").textContent = status.label_budget === null ? `${spent}` : `${spent} of ${status.label_budget}`;
  const bar = element("budget-bar");
  bar.hidden = status.label_budget === null;
  bar.max = status.label_budget || 1;
  bar.value = spent;
  element("requests").textContent = status.inbox.open;
  element("mode").textContent = status.paused ? "paused" : status.mode;
  if (document.activeElement !== element("mode-choice")) element("mode-choice").value = status.mode;
  element("mode-choice").hidden = status.paused;
  element("pause").hidden = status.paused || status.mode === "shadow";
  element("resume").hidden = !status.paused;
  element("waiting").hidden = status.waiting.length === 0;
  element("waiting-classes").textContent = names(status.waiting, status);
  element("held").hidden = status.held.length === 0;
  element("held-classes").textContent = names(status.held, status);
  element("approve").disabled = status.paused || status.mode === "shadow";
  const trouble = [status.failure && `The learner has stopped: ${status.failure}`, status.save_failure, status.publish_failure]
    .concat(status.notes).filter(Boolean);
  element("trouble").hidden = trouble.length === 0;
  element("trouble").textContent = trouble.join(" · ");
}

function showClasses(classes) {
  const select = element("class");
  const labels = classes.map((each) => String(each.label));
  if (select.dataset.labels !== labels.join()) {
    select.dataset.labels = labels.join();
    select.replaceChildren(make("option", {value: ""}, "all classes"),
      ...classes.map((each) => make("option", {value: each.label}, each.name)));
    select.value = chosen;
  }
  element("class-rows").replaceChildren(...classes.map((each) => make("tr", {},
    make("td", {}, each.name),
    make("td", {}, percent(each.accuracy)),
    make("td", {}, percent(each.estimate)),
    make("td", {}, each.samples.toLocaleString("en")),
    make("td", {}, each.buffer_earlier ? `${each.buffer} (${each.buffer_earlier} earlier)` : String(each.buffer)),
    make("td", {}, String(each.requests)),
    make("td", {class: each.drifted ? "bad" : null}, number(each.p_value)),
    make("td", {class: "words"}, each.state || (each.drifted ? "drifted" : "")))));
}

function scales(width, height, from, to, left = 40) {
  const right = 8, top = 18, bottom = 24;
  const span = Math.max(1, to - from);
  return {
    x: (value) => left + (width - left - right) * (value - from) / span,
    y: (value) => top + (height - top - bottom) * (1 - value),
    left, right, top, bottom, width, height,
  };
}

function canvas(id, height) {
  const place = element(id), width = Math.max(300, place.parentElement.clientWidth);
  place.setAttribute("viewBox", `0 0 ${width} ${height}`);
  place.replaceChildren();
  return [place, width];
}

const line = (points) => points.map(([x, y], place) => `${place ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function ticks(place, s, from, to) {
  const rough = Math.max(1, (to - from) / (s.width < 600 ? 3 : 7)), power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= rough);
  for (let value = from; value <= to; value += step) {
    const anchor = s.x(value) > s.width - 40 ? "end" : "middle";
    place.append(svg("text", {x: s.x(value), y: s.height - 6, "text-anchor": anchor}, value.toLocaleString("en")));
  }
}

function drawAccuracy({points, probes, verdicts, status}) {
  const [place, width] = canvas("curve", 260);
  const to = Math.max(status.samples, 1), s = scales(width, 260, 0, to);
  for (const value of [0, 0.25, 0.5, 0.75, 1]) {
    place.append(svg("line", {class: "grid", x1: s.left, x2: width - s.right, y1: s.y(value), y2: s.y(value)}));
    place.append(svg("text", {x: s.left - 6, y: s.y(value) + 4, "text-anchor": "end"}, `${100 * value}`));
  }
  ticks(place, s, 0, to);
  let free = -100;
  for (const verdict of verdicts.filter((each) => each.drifted && each.sample !== null)) {
    const x = s.x(verdict.sample);
    place.append(svg("line", {class: "drift", x1: x, x2: x, y1: s.top, y2: s.height - s.bottom}));
    if (x - free > 10 + 7 * verdict.name.length) {
      place.append(svg("text", {class: "drift-name", x, y: 12, "text-anchor": "middle"}, verdict.name));
      free = x;
    }
  }
  const middle = (each) => s.x(each.sample + each.samples / 2);
  const labelled = points.filter((each) => each.accuracy !== null);
  const estimated = points.filter((each) => each.estimate !== null);
  place.append(svg("path", {class: "estimate", d: line(estimated.map((each) => [middle(each), s.y(each.estimate)]))}));
  place.append(svg("path", {class: "accuracy", d: line(labelled.map((each) => [middle(each), s.y(each.accuracy)]))}));
  const scored = probes.map((each) => [s.x(each.sample), s.y(each.correct / each.samples)]);
  place.append(svg("path", {class: "probe", d: line(scored)}));
  for (const [x, y] of scored.slice(-1)) place.append(svg("circle", {class: "probe", cx: x, cy: y, r: 4}));
}

function drawTimeline({verdicts, classes, status}) {
  const shown = classes.slice(0, 20), height = 30 + 18 * Math.max(1, shown.length);
  const [place, width] = canvas("timeline", height);
  const longest = Math.min(14, Math.max(4, ...shown.map((each) => each.name.length)));
  const to = Math.max(status.samples, 1), s = scales(width, height, 0, to, 12 + 7 * longest);
  const row = (label) => 16 + 18 * shown.findIndex((each) => each.label === label);
  for (const each of shown) {
    place.append(svg("line", {class: "grid", x1: s.left, x2: width - s.right, y1: row(each.label), y2: row(each.label)}));
    place.append(svg("text", {x: s.left - 6, y: row(each.label) + 4, "text-anchor": "end"}, each.name.length > 14 ? `${each.name.slice(0, 13)}…` : each.name));
  }
  ticks(place, s, 0, to);
  for (const each of verdicts.filter((one) => one.sample !== null && row(one.label) > 0)) {
    const kind = each.drifted === null ? "unknown" : each.drifted ? "found" : "quiet";
    const dot = svg("circle", {class: kind, cx: s.x(each.sample), cy: row(each.label), r: each.drifted ? 6 : 3.5});
    dot.append(svg("title", {}, `class ${each.name} after ${each.sample + 1} samples: p = ${number(each.p_value)}`));
    place.append(dot);
  }
}

function showVerdicts(verdicts, status) {
  const drifted = verdicts.filter((each) => each.drifted).slice(-6).reverse();
  const place = element("drifts"), key = drifted.map((each) => `${each.number}${each.examples}`).join();
  element("no-drift").hidden = drifted.length > 0;
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  place.replaceChildren(...drifted.map((each) => make("li", {},
    make("h3", {}, `Class ${each.name} has drifted`),
    make("p", {class: "note"}, `${clock(each.time)}, after ${(each.sample + 1).toLocaleString("en")} samples; `
      + `${each.num_current} samples compared with ${each.num_reference}`),
    make("p", {}, [
      `p = ${number(each.p_value)}`, `limit ${number(each.threshold)}`, `effect ${number(each.score)}`,
      each.share === null ? null : `drifted fraction ${percent(each.share)}`,
      each.harm === null ? null : `harm ${number(each.harm)} points`,
      each.harm === null && each.harm_unlabelled !== null ? `estimated harm ${number(each.harm_unlabelled)} points` : null,
    ].filter(Boolean).join(" · ")),
    each.kind ? make("p", {}, `Kind of change: ${each.kind}. What to do: ${each.action}.`) : null,
    each.examples ? (status.sample_shape.length === 3 ? examples(each) : vectors(each)) : null)));
}

function examples({number: verdict, examples: counts}) {
  const place = make("div", {class: "examples"});
  ["before", "after"].forEach((which, side) => {
    place.append(make("span", {class: "which"}, which));
    for (let each = 0; each < counts[side]; each += 1) {
      place.append(make("img", {alt: "", src: `/v1/verdicts/${verdict}/examples?which=${which}&place=${each}`}));
    }
  });
  return place;
}

function vectors({number: verdict, name}) {
  const place = make("figure", {});
  call("GET", `/v1/verdicts/${verdict}/values`).then((found) => place.append(
    lines([["before", found.before], ["after", found.after]], `samples of class ${name} before and after`),
    make("figcaption", {class: "legend"}, make("span", {class: "before"}, "before"), make("span", {class: "after"}, "after")))).catch(() => {});
  return place;
}

function showEvents(events, known) {
  element("events").replaceChildren(...events.filter((each) => !["checked", "asked"].includes(each.kind)).slice(-12).reverse().map((each) => {
    const details = each.details, classes = details.classes || (details.label === undefined ? null : [details.label]);
    const text = details.text || [WORDS[each.kind] || each.kind.replace("_", " "),
      classes && `class ${classes.map((label) => known[label] || label).join(", ")}`,
      details.rows && !Array.isArray(details.rows) && `${details.rows} samples`,
      details.given !== undefined && `${details.given} labels`].filter(Boolean).join(", ");
    return make("li", {}, make("time", {}, clock(each.time)), make("span", {}, text));
  }));
}

function showLoad(load) {
  element("load").replaceChildren(...load.filter((each) => each.route.startsWith("/v1") && each.route !== "/v1/stream").map((each) => make("tr", {},
    make("td", {}, each.route.slice(4)), make("td", {}, String(each.requests)), make("td", {}, String(each.per_second)),
    make("td", {}, String(each.p50_ms)), make("td", {}, String(each.p99_ms)))));
}

function showStates(states) {
  const key = states.map((each) => each.number).join();
  element("no-states").hidden = states.length > 0;
  element("states").hidden = states.length === 0;
  if (element("states").dataset.key === key) return;
  element("states").dataset.key = key;
  element("state-rows").replaceChildren(...states.map((each) => make("tr", {},
    make("td", {}, clock(each.time)),
    make("td", {}, each.samples.toLocaleString("en")),
    make("td", {}, percent(each.accuracy)),
    make("td", {class: "words"}, each.reason),
    make("td", {class: "admin"}, make("button", {type: "button", onclick: () => askToRollBack(each)}, "Roll back")))));
}

function askToRollBack(state) {
  const dialog = element("rollback");
  element("rollback-title").textContent = `Return to the state of ${clock(state.time)}, after ${state.samples.toLocaleString("en")} samples?`;
  element("rollback-reason").value = "";
  dialog.returnValue = "no";
  dialog.dataset.to = state.number;
  dialog.showModal();
}

async function change(path, body) {
  try { await call("POST", path, body); soon(); } catch (error) { complain(error.message); }
}

element("class").addEventListener("change", (event) => { chosen = event.target.value; soon(); });
element("pause").addEventListener("click", () => change("/v1/pause", {reason: "dashboard"}));
element("resume").addEventListener("click", () => change("/v1/resume", {reason: "dashboard"}));
element("approve").addEventListener("click", () => change("/v1/approve", {reason: "dashboard"}));
element("dismiss").addEventListener("click", () => change("/v1/dismiss", {reason: "dashboard"}));
element("mode-choice").addEventListener("change", (event) => {
  event.target.blur();
  change("/v1/mode", {mode: event.target.value, reason: "dashboard"});
});
element("rollback").addEventListener("close", () => {
  const dialog = element("rollback");
  if (dialog.returnValue !== "yes") return;
  change("/v1/rollback", {to: Number(dialog.dataset.to), reason: element("rollback-reason").value || "dashboard"});
});
window.addEventListener("resize", () => soon());
const soon = follow(refresh, 1000);
