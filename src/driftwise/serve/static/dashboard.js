"use strict";

let chosen = "";

async function refresh() {
  const found = await call("GET", chosen === "" ? "/v1/dashboard" : `/v1/dashboard?label=${chosen}`);
  showFacts(found);
  showClasses(found.classes);
  drawAccuracy(found);
  drawTimeline(found);
  showKinds(found.verdicts, found.actions);
  showVerdicts(found.verdicts, found.status, found.actions);
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
    make("td", {class: "words"}, each.state || (each.drifted ? each.kind || "drift" : "")))));
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
      const anchor = x > width - s.right - 4 * verdict.name.length ? "end" : "middle";
      place.append(svg("text", {class: "drift-name", x, y: 12, "text-anchor": anchor}, verdict.name));
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

// Letters of the kinds of change on the time line.
const LETTERS = {"drift": "D", "new mode": "M", "recurring": "R", "new class": "N", "mix": "X", "harmless": "H", "corrupted": "C"};
const HEADINGS = {
  "new mode": " has a new mode", "recurring": " shows an earlier concept",
  "new class": ": samples that may be of a new class", "mix": ": the mix of classes has changed",
  "harmless": " has drifted, which does no harm", "corrupted": " has corrupted samples",
};

// What a check found on one class, or on all samples together where no class alone shows it.
function findings(verdicts) {
  const found = verdicts.filter((each) => each.sample !== null && (each.drifted || each.kind === "corrupted"));
  const shown = new Set(found.map((each) => `${each.sample} ${each.kind}`));
  for (const each of verdicts) {
    const key = `${each.sample} ${each.stream_kind}`;
    if (each.sample === null || !["mix", "new class", "corrupted"].includes(each.stream_kind) || shown.has(key)) continue;
    shown.add(key);
    found.push({sample: each.sample, time: each.time, number: `all ${each.number}`, label: null, kind: each.stream_kind});
  }
  return found;
}

function drawTimeline({verdicts, classes, status}) {
  const found = findings(verdicts), rows = classes.slice(0, 20).map((each) => [each.label, each.name]);
  if (found.some((each) => each.label === null)) rows.unshift([null, "all samples"]);
  const height = 36 + 20 * Math.max(1, rows.length);
  const [place, width] = canvas("timeline", height);
  const longest = Math.min(14, Math.max(4, ...rows.map(([, name]) => name.length)));
  const to = Math.max(status.samples, 1), s = scales(width, height, 0, to, 12 + 7 * longest);
  const row = (label) => 16 + 20 * rows.findIndex(([each]) => each === label);
  for (const [label, name] of rows) {
    place.append(svg("line", {class: "grid", x1: s.left, x2: width - s.right, y1: row(label), y2: row(label)}));
    place.append(svg("text", {x: s.left - 6, y: row(label) + 4, "text-anchor": "end"}, name.length > 14 ? `${name.slice(0, 13)}…` : name));
  }
  ticks(place, s, 0, to);
  const mark = (each, shape, text) => {
    const group = svg("g", {class: shape});
    group.append(svg("circle", {cx: s.x(each.sample), cy: row(each.label), r: shape === "quiet" || shape === "unknown" ? 3.5 : 8}));
    if (LETTERS[each.kind] && text.letter) group.append(svg("text", {x: s.x(each.sample), y: row(each.label) + 4, "text-anchor": "middle"}, LETTERS[each.kind]));
    group.append(svg("title", {}, text.title));
    place.append(group);
  };
  for (const each of verdicts.filter((one) => one.sample !== null && row(one.label) > 0 && !one.drifted && one.kind !== "corrupted")) {
    const result = each.drifted === null ? `not testable${each.reason ? `: ${each.reason}` : ""}` : `p = ${number(each.p_value)}`;
    mark(each, each.drifted === null ? "unknown" : "quiet", {title: `class ${each.name} after ${each.sample + 1} samples: ${result}`});
  }
  for (const each of found.filter((one) => row(one.label) > 0)) {
    const who = each.label === null ? "all samples" : `class ${each.name}`;
    const result = each.p_value === undefined ? "" : `, p = ${number(each.p_value)}`;
    mark(each, each.kind === "harmless" ? "harmless" : "found", {letter: true, title: `${who} after ${each.sample + 1} samples: ${each.kind || "drift"}${result}`});
  }
}

function showKinds(verdicts, actions) {
  const kinds = new Set(findings(verdicts).map((each) => each.kind));
  element("kinds").replaceChildren(...Object.entries(LETTERS).filter(([kind]) => kinds.has(kind)).map(([kind, letter]) => make("li", {},
    make("kbd", {}, letter), make("span", {}, make("strong", {}, kind), `: ${actions[kind]}`))));
}

function showVerdicts(verdicts, status, actions) {
  const found = findings(verdicts).sort((one, other) => one.sample - other.sample).slice(-6).reverse();
  const place = element("drifts"), key = found.map((each) => `${each.number}${each.examples}`).join();
  element("no-drift").hidden = found.length > 0;
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  place.replaceChildren(...found.map((each) => make("li", {},
    make("h3", {}, each.label === null ? `All samples: ${each.kind}` : `Class ${each.name}${HEADINGS[each.kind] || " has drifted"}`),
    make("p", {class: "note"}, `${clock(each.time)}, after ${(each.sample + 1).toLocaleString("en")} samples`
      + (each.label === null ? "" : `; ${each.num_current} samples compared with ${each.num_reference}`)),
    each.label === null ? null : make("p", {}, [
      `p = ${number(each.p_value)}`, `limit ${number(each.threshold)}`, `effect ${number(each.score)}`,
      each.share === null ? null : `drifted fraction ${percent(each.share)}`,
      each.harm === null ? null : `harm ${number(each.harm)} points`,
      each.harm === null && each.harm_unlabelled !== null ? `estimated harm ${number(each.harm_unlabelled)} points` : null,
    ].filter(Boolean).join(" · ")),
    each.kind ? make("p", {}, make("strong", {}, "What to do: "), `${actions[each.kind]}.`) : null,
    each.examples ? (each.texts || status.sample_shape.length !== 3 ? values(each) : examples(each)) : null)));
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

function values({number: verdict, name}) {
  const place = make("figure", {});
  call("GET", `/v1/verdicts/${verdict}/values`).then((found) => {
    if (found.texts) {
      place.append(...["before", "after"].map((which) => make("div", {class: "texts"},
        make("span", {class: "which"}, which), ...found.texts[which].slice(0, 4).map((each) => make("p", {}, each)))));
    } else {
      place.append(lines([["before", found.before], ["after", found.after]], `samples of class ${name} before and after`),
        make("figcaption", {class: "legend"}, make("span", {class: "before"}, "before"), make("span", {class: "after"}, "after")));
    }
  }).catch(() => {});
  return place;
}

function showEvents(events, known) {
  element("events").replaceChildren(...events.filter((each) => !["checked", "asked"].includes(each.kind)).slice(-12).reverse().map((each) => {
    const details = each.details, classes = details.classes || (details.label === undefined ? null : [details.label]);
    const named = (text) => text.replace(/\bclass (\d+)/g, (all, label) => known[label] ? `class ${known[label]}` : all);
    const text = details.text ? named(details.text) : [WORDS[each.kind] || each.kind.replace("_", " "),
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
