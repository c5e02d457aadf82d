"use strict";
// Text from outside only ever becomes a text node: no markup is parsed here.
const SVG = "http://www.w3.org/2000/svg", REFRESH = 5000, SHOWN = 6;
const $ = (id) => document.getElementById(id);
const opened = new Set(), histories = new Map();
let last = null, lastAt = 0, failedAt = 0, everything = false;

function make(tag, about = {}, ...children) {
  const found = document.createElement(tag);
  for (const [key, value] of Object.entries(about)) {
    if (key === "on") for (const [what, act] of Object.entries(value)) found.addEventListener(what, act);
    else if (value !== null && value !== undefined) found.setAttribute(key, value);
  }
  found.append(...children.filter((child) => child !== null && child !== undefined));
  return found;
}
function shape(tag, about, ...children) {
  const found = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(about)) found.setAttribute(key, value);
  found.append(...children);
  return found;
}

// -- numbers for people
const short = (value) => value >= 100 ? Math.round(value).toString() : String(Number(value.toPrecision(3)));
function count(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (value >= unit) return short(value / (name === "k" ? 1e3 : unit)) + name;
  }
  return short(value);
}
function bytes(value) {
  let unit = 0;
  while (value >= 1024 && unit < 4) { value /= 1024; unit += 1; }
  return `${short(value)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}
function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.95) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${short(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
}
function ago(iso, now) {
  if (!iso) return "never";
  const seconds = (Date.parse(now) - Date.parse(iso)) / 1000;
  return seconds < 2 ? "just now" : `${span(seconds)} ago`;
}
const newest = (series) => { const known = series.filter((value) => value !== null); return known.length ? known[known.length - 1] : null; };
const most = (series) => series.reduce((found, value) => value !== null && value > found ? value : found, 0);

// -- what is wrong
const MARKS = { good: "M9 17.5l5 5 11-11", bad: "M17 9v10M17 24.5v.1", warning: "M17 9v10M17 24.5v.1", note: "M17 15v10M17 9.5v.1" };
function verdict(data) {
  const groups = grouped(data.troubles), worst = data.troubles.length ? data.troubles[0].severity : "good";
  const mark = shape("svg", { class: "mark", viewBox: "0 0 34 34", "aria-hidden": "true" }, shape("circle", { cx: 17, cy: 17, r: 16 }), shape("path", { d: MARKS[worst] }));
  const tables = data.tables.length, ready = data.tables.filter((table) => table.ready).length;
  const rate = data.tables.reduce((sum, table) => sum + table.rows_per_second, 0);
  const visible = most(data.tables.map((table) => newest(table.plots.visible)));
  const failing = data.tables.filter((table) => table.ready && table.state === "failing").length;
  const flow = `${ready} of ${tables} table${tables === 1 ? "" : "s"} ready${failing ? `, ${failing} of them failing for a moment` : ""} · ${count(rate)} rows/s` + (visible ? ` · visible within ${span(visible)}` : "");
  const said = worst === "good" ? "All is well" : groups.length === 1 ? "One thing is wrong" : `${groups.length} things are wrong`;
  const found = [make("div", { class: `sum ${worst}` }, mark, make("div", {}, make("b", {}, said), make("span", {}, flow)))];
  if (groups.length) {
    const shown = everything ? groups : groups.slice(0, SHOWN);
    found.push(make("ul", { class: "troubles" }, ...shown.map(trouble)));
    if (groups.length > SHOWN) {
      const text = everything ? "show fewer" : `show ${groups.length - SHOWN} more`;
      found.push(make("button", { class: "more", type: "button", on: { click: () => { everything = !everything; draw(); } } }, text));
    }
  }
  replace($("verdict"), JSON.stringify([data.troubles, everything, flow]), found);
  document.title = groups.length ? `(${groups.length}) Bookkeeper` : "Bookkeeper";
}
// The same trouble of many tables is one trouble.
function grouped(troubles) {
  const found = new Map();
  for (const item of troubles) {
    const plain = item.do.replaceAll(item.table, "NAME"), key = [item.severity, item.alert, item.what.replaceAll(item.table, "NAME"), plain].join("\n");
    if (found.has(key)) found.get(key).tables.push(item.table);
    else found.set(key, { ...item, plain, tables: [item.table] });
  }
  return [...found.values()];
}
function trouble(item) {
  const many = item.tables.length > 3;
  const names = (many ? item.tables.slice(0, 3) : item.tables).map((table) => make("button", { class: "where", type: "button", on: { click: () => show(table) } }, table));
  return make("li", { class: `trouble ${item.severity}` },
    make("p", { class: "what" }, ...names.flatMap((name) => [name, " "]), many ? `and ${item.tables.length - 3} more tables: ` : "", item.what),
    item.do ? make("p", { class: "do" }, make("b", {}, "Do "), ...coded(item.tables.length > 1 ? item.plain : item.do)) : null,
    make("small", { class: "alert", title: item.alert }, `runbook: docs/operate.md#${item.alert.toLowerCase()}`));
}
// `like this` becomes code that can be copied.
function coded(text) {
  return text.split(/(`[^`]+`)/).flatMap((part) => {
    if (!part.startsWith("`") || part.length < 3) return [part];
    const command = part.slice(1, -1);
    if (/(^|[ =])[A-Z]{3,}( |$)/.test(command)) return [make("code", {}, command)]; // a placeholder: nothing to run as it is
    const copied = make("button", { class: "copy", type: "button", "aria-label": `copy ${command}` }, "copy");
    copied.addEventListener("click", () => copy(command, copied));
    return [make("code", {}, command), copied];
  });
}
async function copy(text, button) {
  try { await navigator.clipboard.writeText(text); button.textContent = "copied"; } catch { button.textContent = "select it"; }
  setTimeout(() => { button.textContent = "copy"; }, 1500);
}
function show(table) {
  $("find").value = ""; $("only").checked = false;
  opened.add(table); draw();
  const found = [...document.querySelectorAll("details")].find((item) => item.dataset.table === table);
  if (found) { found.open = true; found.scrollIntoView({ behavior: "smooth", block: "start" }); found.firstChild.focus({ preventScroll: true }); }
}

// -- tables
function tables(data) {
  const wanted = $("find").value.trim().toLowerCase(), only = $("only").checked;
  const chosen = data.tables.filter((table) => table.table.toLowerCase().includes(wanted) && (!only || table.severity));
  $("bar").hidden = data.tables.length < 2; $("head").hidden = !chosen.length; $("none").hidden = chosen.length > 0;
  const there = new Map([...$("tables").children].map((item) => [item.dataset.table, item])), focused = document.activeElement;
  chosen.forEach((table, place) => {
    const item = there.get(table.table) || folded(table.table);
    there.delete(table.table);
    if ($("tables").children[place] !== item) $("tables").insertBefore(item, $("tables").children[place] || null);
    replace(item.firstChild.firstChild, JSON.stringify([table, data.now]), cells(table, data.now));
    if (item.open) unfolded(item, table, data);
  });
  for (const item of there.values()) item.remove();
  // A moved element loses focus.
  if (document.activeElement !== focused && focused.isConnected) focused.focus({ preventScroll: true });
}
// Once it is drawn, the element itself says whether it is open: `toggle` comes later than the click, and a redraw
// between the two would undo the click.
function folded(name) {
  const item = make("details", { "data-table": name, open: opened.has(name) ? "" : null }, make("summary", {}, make("div", { class: "row" })), make("div", { class: "inside" }));
  item.addEventListener("toggle", () => { if (item.open) { opened.add(name); history(name).then(draw); } else opened.delete(name); });
  return item;
}
function cells(table, now) {
  const rows = rates(table.plots.rows, last_step()), visible = newest(table.plots.visible);
  const late = table.oldest_age > 60, held = table.held ? ` · ${table.held} held` : "";
  const state = table.state === "ready" && !table.ready ? "not ready" : table.state;
  return [
    make("div", { class: "name" }, make("span", { class: `dot ${table.severity || (table.state === "standby" || table.state === "starting" ? "idle" : "")}` }),
      make("div", {}, make("b", { title: table.table }, table.table), make("small", {}, `${state} · last commit ${ago(table.last_commit, now)}`))),
    make("div", { class: "cell flow" }, curve(rows, { class: "spark", "aria-hidden": "true" }), make("b", {}, `${count(table.rows_per_second)}/s`)),
    cell("pending", table.pending === null ? "?" : count(table.pending), table.pending ? `${span(table.oldest_age)} old${held}` : "", late ? (table.ready ? "warning" : "bad") : ""),
    cell("visible in", span(visible), "", ""),
    cell("consumers behind", table.behind === null ? "–" : table.behind < 1 ? "none" : span(table.behind), "", table.behind > 900 ? "warning" : table.behind === null ? "zero" : ""),
    cell("rejected", count(table.rejected), "", table.rejected ? "warning" : "zero"),
  ];
}
function cell(label, value, more, kind) {
  return make("div", { class: `cell ${kind}` }, make("span", { class: "label" }, label), value, more ? make("small", {}, ` ${more}`) : null);
}
// The present step is not over: its sum would look like a fall.
const rates = (values, step) => values.slice(0, -1).map((value) => value === null ? null : value / step);
const last_step = () => (last ? last.step : 10);

// -- one table, unfolded
const CHARTS = [
  ["rows", "Rows per second", count, rates],
  ["visible", "Visible after (slowest txlog)", span],
  ["commit", "A commit takes (slowest)", span],
  ["pending", "Txlogs pending", count],
  ["age", "Oldest pending txlog", span],
  ["lag", "Slowest consumer is behind", span],
  ["snapshots", "Snapshots kept", count],
  ["files", "Live data files", count],
  ["unfolded", "Unfolded delete files", count],
];
async function history(name) {
  try {
    const answer = await fetch(`/history.json?table=${encodeURIComponent(name)}`);
    if (answer.ok) histories.set(name, await answer.json());
  } catch { /* the page itself shows that a request failed */ }
}
function unfolded(item, table, data) {
  const past = histories.get(table.table);
  replace(item.lastChild, JSON.stringify([table, past && past.now]), [
    ...(past ? [make("div", { class: "charts" }, ...CHARTS.map((about) => chart(past, ...about)).filter(Boolean))] : []),
    facts(table, data.now), ...consumers(table), ...rejections(table, data.now),
  ]);
}
function facts(table, now) {
  const stand = table.stand || {}, found = [];
  const add = (label, value) => found.push(make("span", {}, `${label} `, make("b", {}, value)));
  if (table.why) add("state:", table.why);
  if (table.next_try) add("next try", new Date(table.next_try).toLocaleTimeString());
  if (table.stand) { add("rows", count(stand.rows)); add("data", bytes(stand.bytes)); add("manifests", count(stand.manifests)); add("writers", count(stand.writers)); add("marks", bytes(stand.marks_bytes)); }
  if (table.stand) add("live files", count(table.stand.files));
  const done = table.rewrites || {};
  if (done.committed || done.pending || done.rejected) add("rewrites", `${count(done.committed)} committed, ${done.pending} pending, ${count(done.rejected)} rejected`);
  const deletes = table.deletes;
  if (deletes && table.stand) {
    const { delete_files: files, position_deletes: hidden } = table.stand, waits = deletes.unfolded_files;
    add("rows hidden by deletes", count(hidden)); add("delete files", count(files));
    add("unfolded", waits ? `${count(waits)}, the oldest for ${span(deletes.oldest_age)}` : waits === null ? "–" : "none");
    add("folds", count(deletes.folds));
  }
  add("last success", ago(table.last_success, now));
  if (table.disk) add("disk free", bytes(table.disk.free));
  return make("p", { class: "facts" }, ...found);
}
function consumers(table) {
  if (!table.consumers.length) return [];
  const lines = table.consumers.map((item) => {
    const kind = item.used >= 0.8 || item.state === "cut off" ? "bad" : item.used >= 0.5 ? "warning" : "", bar = make("i", {});
    bar.style.width = `${Math.min(100, Math.round(item.used * 100))}%`;
    return make("tr", {}, make("td", {}, make("b", {}, item.name)), make("td", {}, item.state + (item.why ? `: ${item.why}` : "")),
      make("td", {}, item.lag ? (item.lag.rows ? `${count(item.lag.rows)} rows, ${span(item.lag.behind)} behind` : "nothing unread") : "unknown"),
      make("td", {}, make("span", { class: `hold ${kind}`, role: "img", "aria-label": `${Math.round(item.used * 100)}% of max-hold` }, bar), `${Math.round(item.used * 100)}% of max-hold`));
  });
  const head = make("tr", {}, ...["consumer", "state", "unread", "held for it"].map((text) => make("th", { scope: "col" }, text)));
  const omitted = table.consumers_omitted ? [make("p", { class: "facts" }, `and ${table.consumers_omitted} more`)] : [];
  return [make("h3", {}, "Consumers"), make("table", { class: "list" }, make("thead", {}, head), make("tbody", {}, ...lines)), ...omitted];
}
function rejections(table, now) {
  if (!table.rejections.length) return [];
  return [make("h3", {}, `Rejected (${count(table.rejected)})`), ...table.rejections.map((item) => make("div", { class: "rejection" },
    make("b", {}, item.reason || item.error || "no reason is written down"), ` · ${ago(item.at, now)}`,
    item.hint ? make("p", { class: "do" }, make("b", {}, "Do "), ...coded(item.hint)) : null, make("p", {}, make("code", {}, item.name))))];
}

// -- plots
function curve(values, about, ceiling = 0) {
  const top = Math.max(most(values), ceiling) || 1, wide = Math.max(values.length - 1, 1), lines = [], areas = [];
  let run = [];
  const end = () => {
    if (run.length) {
      if (run.length === 1) run.push([run[0][0] + 0.4, run[0][1]]);
      const path = run.map(([x, y], place) => `${place ? "L" : "M"}${x},${y}`).join("");
      lines.push(path); areas.push(`${path}L${run[run.length - 1][0]},100L${run[0][0]},100Z`);
    }
    run = [];
  };
  values.forEach((value, place) => { if (value === null) end(); else run.push([place, Number((100 - 94 * value / top).toFixed(2))]); });
  end();
  return shape("svg", { viewBox: `0 0 ${wide} 100`, preserveAspectRatio: "none", ...about },
    shape("path", { class: "fill", d: areas.join("") }), shape("path", { class: "stroke", d: lines.join("") }));
}
function chart(past, name, label, format, change) {
  const values = change ? change(past.series[name], past.step) : past.series[name];
  if (values.every((value) => value === null)) return null;
  const now = newest(values), top = most(values), length = span(values.length * past.step);
  const image = curve(values, { role: "img", "aria-label": `${label} over the last ${length}: now ${format(now)}, at most ${format(top)}` });
  const plot = make("div", { class: "plot" }, image, make("span", { class: "top", "aria-hidden": "true" }, top ? format(top) : ""));
  pointed(plot, values, format, past.step);
  return make("figure", {}, make("figcaption", {}, label, make("b", {}, format(now))), plot, make("div", { class: "axis", "aria-hidden": "true" }, make("span", {}, `${length} ago`), make("span", {}, "now")));
}
function pointed(plot, values, format, step) {
  const tip = make("span", { class: "tip" }), line = make("span", { class: "line" });
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect(), part = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const place = Math.round(part * (values.length - 1)), value = values[place];
    tip.textContent = `${value === null ? "no tick" : format(value)} · ${span((values.length - 1 - place) * step)} ago`;
    line.style.left = `${part * 100}%`;
    tip.style.left = part < 0.5 ? `calc(${part * 100}% + 6px)` : "auto"; tip.style.right = part < 0.5 ? "auto" : `calc(${(1 - part) * 100}% + 6px)`;
    plot.append(line, tip);
  });
  plot.addEventListener("pointerleave", () => { tip.remove(); line.remove(); });
}

// -- over and over
const drawn = new WeakMap();
function replace(place, key, children) {
  if (drawn.get(place) === key) return;
  drawn.set(place, key);
  place.replaceChildren(...children);
}
function draw() {
  if (last === null) return;
  verdict(last); tables(last);
  $("version").textContent = `Iceberg Bookkeeper ${last.version}`;
}
function silent() {
  const text = "The bookkeeper does not answer", more = lastAt ? ` What is below is ${span((Date.now() - lastAt) / 1000)} old.` : "";
  const mark = shape("svg", { class: "mark", viewBox: "0 0 34 34", "aria-hidden": "true" }, shape("circle", { cx: 17, cy: 17, r: 16 }), shape("path", { d: MARKS.bad }));
  replace($("verdict"), `silent ${more}`, [make("div", { class: "sum bad" }, mark, make("div", {}, make("b", {}, text), make("span", {}, `Is its process running? Writers go on publishing meanwhile; nothing is lost.${more}`)))]);
  document.title = "(!) Bookkeeper";
}
async function refresh() {
  try {
    const answer = await fetch("/status.json");
    if (!answer.ok) throw new Error(answer.status);
    const data = await answer.json();
    await Promise.all([...opened].map(history));
    const first = last === null;
    if (first && data.tables.length === 1) { opened.add(data.tables[0].table); await history(data.tables[0].table); }
    last = data; lastAt = Date.now(); failedAt = 0;
    draw();
  } catch {
    failedAt = failedAt || Date.now();
    if (Date.now() - failedAt > REFRESH || last === null) silent();
  }
  $("age").textContent = lastAt ? (failedAt ? `no answer for ${span((Date.now() - lastAt) / 1000)}` : `as of ${new Date(lastAt).toLocaleTimeString()}`) : "no answer";
  $("age").className = failedAt ? "late" : "";
}
async function forever() {
  if (!document.hidden) await refresh();
  setTimeout(forever, REFRESH);
}
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
for (const id of ["find", "only"]) $(id).addEventListener("input", draw);
forever();
