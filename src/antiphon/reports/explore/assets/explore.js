"use strict";
// The page of `antiphon explore`: sliders ask /api/plan, whose answer comes in lines, each shown as it comes.

const decades = (from, to, steps) => {
  const found = [];
  for (let power = from; power < to; power++) for (const step of steps) found.push(Number(`${step}e${power}`));
  return [...found, Number(`1e${to}`)];
};
const range = (from, to, by) => Array.from({ length: Math.round((to - from) / by) + 1 },
  (_, i) => Number((from + i * by).toFixed(4)));

const NUMBERS = [
  { id: "n", name: "Records", sign: "n", stops: decades(2, 7, [1, 1.5, 2, 3, 5, 6, 7]) },
  { id: "batch", name: "Batch size", sign: "", stops: [1, 2, 4, 8, 16, 32, 50, 64, 100, 128, 150, 200, 250, 256, 300, 400,
    500, 512, 600, 800, 1000, 1024, 1500, 2000, 2048, 3000, 4000, 4096, 5000, 8192, 10000, 16384, 20000, 50000] },
  { id: "epochs", name: "Epochs", sign: "", stops: [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 150, 200] },
  { id: "epsilon", name: "Budget", sign: "ε", stops: [0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1, 1.5, 2, 2.5, 3, 4, 5, 6,
    7, 8, 10, 12, 15, 20] },
  { id: "delta", name: "Failure chance", sign: "δ", stops: decades(-10, -2, [1, 2, 5]) },
  { id: "lam", name: "Noise taken back", sign: "λ", stops: [...range(0, 0.9, 0.05), ...range(0.91, 0.99, 0.01), 0.992, 0.995,
    0.998, 0.999] },
];
const CHOICES = [
  { id: "sampling", name: "Batches", options: {
    poisson: "Poisson: a coin per record", shuffled: "Shuffled once, then in order",
    "balls-in-bins": "Balls in bins, kept", "fixed-size": "Fixed size, drawn anew",
    "one-pass": "One pass", "full-batch": "Full batches" } },
  { id: "relation", name: "Protects against", options: {
    "": "the usual for these batches", "add-remove": "add-remove: one record more or less",
    "zero-out": "zero-out: one record’s share set to 0", "replace-one": "replace-one: one record another" } },
];
const FIELDS = [...NUMBERS, ...CHOICES].map((control) => control.id);
const START = { n: "60000", batch: "600", epochs: "10", epsilon: "2", delta: "1e-6", lam: "0.9", sampling: "poisson", relation: "" };
const PRESETS = {
  "MNIST, 10 epochs": START,
  "A table of 5 000 patients": { ...START, n: "5000", batch: "250", epochs: "20", delta: "1e-5", lam: "0.6" },
  "CIFAR-10 in shuffled batches": { ...START, n: "50000", batch: "500", epochs: "20", epsilon: "8", delta: "1e-5", lam: "0.95",
    sampling: "shuffled" },
  "One pass over a million": { ...START, n: "1000000", batch: "1000", epochs: "1", delta: "1e-7", sampling: "one-pass" },
};
const STYLES = { slider: 1, independent: 2, blt: 3, banded: 4 };

const $ = (id) => document.getElementById(id);
const make = (tag, attributes = {}, ...inside) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...inside);
  return element;
};

// Four digits. Noise is rounded up: a printed multiplier is never below the one that is proved.
const round = (value, how) => {
  if (value == null) return "–";
  if (value === 0) return "0";
  const scale = 10 ** (3 - Math.floor(Math.log10(Math.abs(value))));
  const rounded = how(Number((value * scale).toPrecision(14))) / scale;
  return Math.abs(rounded) >= 1e-4 && Math.abs(rounded) < 1e6
    ? String(Number(rounded.toPrecision(4))) : rounded.toExponential(3);
};
const up = (value) => round(value, Math.ceil);
const near = (value) => round(value, Math.round);
const grouped = (text) => text.replace(/^\d{5,}(?=$|\.)/, (digits) => digits.replace(/\B(?=(\d{3})+$)/g, "\u202f"));
const whole = (value) => grouped(String(Math.round(value)));
const plain = (text) => text.replace(/[\s\u202f,_]/g, "");

// ---- controls ----

function build() {
  const form = $("controls");
  for (const { id, name, sign, stops } of NUMBERS) {
    const error = make("p", { class: "problem", id: `${id}-problem`, role: "alert", hidden: true });
    form.append(make("div", { class: "control", "data-field": id },
      make("div", { class: "line" },
        make("label", { for: id }, name, ...(sign ? [" ", make("span", { class: "soft" }, sign)] : [])),
        make("input", { id, type: "text", inputmode: "decimal", spellcheck: "false", "aria-describedby": error.id })),
      make("input", { id: `${id}-slider`, type: "range", min: 0, max: stops.length - 1, step: 1,
        "aria-label": `${name}${sign ? ", " + sign : ""}, slider` }),
      error));
    $(`${id}-slider`).addEventListener("input", (event) => {
      $(id).value = grouped(id === "delta" ? stops[event.target.value].toExponential(0) : String(stops[event.target.value]));
      changed();
    });
    $(id).addEventListener("input", () => changed());
  }
  for (const { id, name, options } of CHOICES) {
    const error = make("p", { class: "problem", id: `${id}-problem`, role: "alert", hidden: true });
    form.append(make("div", { class: "control", "data-field": id },
      make("label", { for: id }, name),
      make("select", { id, "aria-describedby": error.id },
        ...Object.entries(options).map(([value, text]) => make("option", { value }, text))),
      error));
    $(id).addEventListener("change", () => changed(0));
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const [name, values] of Object.entries(PRESETS)) {
    const button = make("button", { type: "button", class: "quiet" }, name);
    button.addEventListener("click", () => { fill(values); changed(0); });
    document.querySelector(".presets").append(button);
  }
}

function fill(values) {
  for (const id of FIELDS) $(id).value = NUMBERS.some((c) => c.id === id) ? grouped(values[id]) : values[id];
  for (const { id } of CHOICES) if ($(id).selectedIndex < 0) $(id).selectedIndex = 0;
}

const state = () => Object.fromEntries(FIELDS.map((id) => [id, plain($(id).value)]));

function syncSliders() {
  for (const { id, stops } of NUMBERS) {
    const value = Number(plain($(id).value)), slider = $(`${id}-slider`);
    if (Number.isFinite(value)) {
      const apart = (stop) => (id === "lam" ? Math.abs(stop - value) : Math.abs(Math.log(stop / value)));
      slider.value = stops.reduce((best, stop, i) => (apart(stop) < apart(stops[best]) ? i : best), 0);
    }
    slider.setAttribute("aria-valuetext", $(id).value);
  }
}

function fromHash() {
  const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  fill({ ...START, ...Object.fromEntries(FIELDS.filter((id) => id in given).map((id) => [id, given[id]])) });
}

let timer;
function changed(delay = 120) {
  syncSliders();
  history.replaceState(null, "", "#" + new URLSearchParams(state()));
  clearTimeout(timer);
  timer = setTimeout(ask, delay);
}

// ---- asking ----

let asking = new AbortController();
let view = null; // what is shown: plan, rows, points, best

async function ask() {
  asking.abort();
  const mine = (asking = new AbortController());
  busy(true);
  $("result").classList.add("stale");
  try {
    const answer = await fetch("/api/plan?" + new URLSearchParams(state()), { signal: mine.signal });
    if (!answer.ok) return refused(await answer.json());
    refused(null);
    const next = { asked: state(), rows: {}, points: [], best: null };
    for await (const part of lines(answer.body)) {
      if (mine.signal.aborted) return;
      take(next, part);
    }
  } catch (error) {
    if (error.name === "AbortError" || mine.signal.aborted) return;
    refused({ field: null, error: "The server does not answer: is antiphon explore still running?" });
  } finally {
    if (mine === asking) busy(false);
  }
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}

function take(next, part) {
  if (part.kind === "plan") next.plan = part;
  else if (part.kind === "row") next.rows[part.key] = part;
  else if (part.kind === "lambda") next.points.push(part);
  else if (part.kind === "best") next.best = part;
  else if (part.kind === "error") refused({ field: null, error: part.error });
  // Old numbers stay, dimmed, until there is something to compare: nothing jumps.
  if (Object.values(next.rows).some((row) => row.is_final) || next.best) { view = next; draw(); }
}

function busy(is) {
  $("result").setAttribute("aria-busy", is);
  $("state").className = is ? "state busy" : "state";
  $("state").textContent = is ? "computing…" : "";
}

function refused(problem) {
  for (const element of document.querySelectorAll(".control")) element.classList.remove("wrong");
  for (const element of document.querySelectorAll(".problem")) { element.hidden = true; element.textContent = ""; }
  for (const id of FIELDS) $(id).removeAttribute("aria-invalid");
  $("refusal").hidden = !problem;
  $("result").classList.toggle("refused", Boolean(problem));
  if (!problem) return;
  const place = FIELDS.includes(problem.field) ? problem.field : null;
  $("refusal").textContent = place ? "There is no such plan: see the note beside the control." : problem.error;
  $("glance").textContent = problem.error;
  if (place) {
    document.querySelector(`[data-field="${place}"]`).classList.add("wrong");
    $(place).setAttribute("aria-invalid", "true");
    $(`${place}-problem`).textContent = problem.error;
    $(`${place}-problem`).hidden = false;
  }
  $("result").classList.add("stale");
}

// ---- showing ----

let due = false;
function draw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => { due = false; show(); });
}

function show() {
  if (!view || !view.plan) return;
  $("result").classList.remove("stale", "empty");
  const { plan, rows, best } = view;
  const chosen = best && best.key ? rows[best.key] : null;
  $("best").textContent = chosen ? chosen.label : "…";
  if (best) {
    const text = best.is_final ? best.why : `So far: ${best.why}`;
    if ($("why").textContent !== text) $("why").textContent = text;
  }
  $("caveat").hidden = !plan.caveat;
  $("caveat").textContent = plan.caveat || "";
  $("glance").textContent = chosen ? `${chosen.label} · noise ${up(chosen.noise)} · left ${near(chosen.product)}` : "computing…";
  cards(plan, chosen);
  table(plan, rows, best);
  pictures(plan);
  choices(plan, rows);
  snippets(chosen);
}

function cards(plan, chosen) {
  const facts = [
    ["noise multiplier", chosen ? up(chosen.noise) : "…", "noise"],
    ["noise left in sums", chosen ? near(chosen.product) : "…", "product"],
    ["steps", whole(plan.steps), "steps"],
    ["expected batch", grouped(near(plan.expected_batch)), "expected"],
    ["protects against", plan.relation, "relation"],
  ];
  $("cards").replaceChildren(...facts.map(([name, value, id]) =>
    make("div", { class: "card" }, make("dt", {}, name), make("dd", { id: `card-${id}` }, value))));
}

function table(plan, rows, best) {
  const focused = document.activeElement?.dataset?.certify;
  const body = $("mechanisms").tBodies[0];
  body.replaceChildren(...plan.keys.map((key) => {
    const row = rows[key], isBest = best?.is_final && best.key === key;
    if (!row) {
      return make("tr", { "data-key": key }, make("th", { scope: "row" }, "λ-CGD, best λ"),
        make("td", { colspan: 5, class: "pending" }, "computing…"));
    }
    const cell = (name, ...inside) => make("td", { class: "num", "data-name": name }, make("span", {}, ...inside));
    const noise = row.is_final ? make("span", { "data-value": row.noise }, up(row.noise))
      : make("span", { class: "pending", "data-value": row.noise }, row.noise == null ? "computing…" : `≤ ${up(row.noise)}, computing…`);
    const route = row.route ? `by ${plan.routes[row.route]}` : row.refusal || "";
    const pair = (a, b) => (row.is_final && a != null ? `${near(a)} · ${near(b)}` : "…");
    const button = make("button", { type: "button", class: "quiet", "data-certify": key }, "Certify…");
    button.setAttribute("aria-label", `Certify ${row.label}`);
    button.addEventListener("click", () => { $("which").value = key; $("certify").scrollIntoView(); start(); });
    return make("tr", { "data-key": key, class: isBest && "chosen" },
      make("th", { scope: "row" }, row.label, ...(isBest ? [make("span", { class: "badge" }, "recommended")] : []),
        make("span", { class: "route" }, route)),
      cell("noise multiplier", noise), cell("error of sums, rms · max", `${near(row.error_rms)} · ${near(row.error_max)}`),
      cell("noise left, rms · max", pair(row.product, row.product_max)),
      cell("copies of the model", String(row.copies)), make("td", {}, button));
  }));
  if (focused) body.querySelector(`[data-certify="${focused}"]`)?.focus();
}

// ---- pictures ----

const svg = (tag, attributes, text) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text != null) element.textContent = text;
  return element;
};

const ticks = (low, high, count) => {
  const raw = (high - low) / count, scale = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((s) => s * scale >= raw * 0.999) * scale;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-9); i++) found.push(Number((i * step).toPrecision(10)));
  return found;
};

function chart(figure, { title, series, x, y, marks = [] }) {
  const place = $(figure).querySelector(".plot"), open = place.querySelector("details")?.open;
  const wide = Math.max(260, Math.round(place.clientWidth)), high = Math.round(Math.min(340, Math.max(220, wide * 0.5)));
  const labels = y.ticks.map((t) => near(t));
  const left = 14 + 7 * Math.max(...labels.map((t) => t.length)), bottom = high - 40, top = 12, right = wide - 22;
  const px = (v) => left + ((v - x.low) / (x.high - x.low || 1)) * (right - left);
  const py = (v) => bottom - ((v - y.low) / (y.high - y.low || 1)) * (bottom - top);
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": title });
  const clip = svg("clipPath", { id: `${figure}-clip` });
  clip.append(svg("rect", { x: left - 6, y: top - 6, width: right - left + 12, height: bottom - top + 12 }));
  picture.append(clip);
  y.ticks.forEach((t, i) => {
    picture.append(svg("path", { class: "grid", d: `M${left} ${py(t)}H${right}` }),
      svg("text", { class: "soft", x: left - 8, y: py(t) + 4, "text-anchor": "end" }, labels[i]));
  });
  let last = -99;
  for (const [t, label] of x.ticks) {
    const at = px(t);
    if (at - last < 26 + 4 * label.length) continue;
    last = at;
    picture.append(svg("path", { class: "axis", d: `M${at} ${bottom}v5` }),
      svg("text", { class: "soft", x: at, y: bottom + 19, "text-anchor": "middle" }, label));
  }
  picture.append(svg("path", { class: "axis", d: `M${left} ${bottom}H${right}` }),
    svg("text", { class: "soft", x: right, y: high - 4, "text-anchor": "end" }, x.name));
  const drawn = svg("g", { "clip-path": `url(#${figure}-clip)` });
  for (const { style, points, dots } of series) {
    drawn.append(svg("path", { class: `line s${style}`,
      d: points.map(([a, b], i) => `${i ? "L" : "M"}${px(a).toFixed(1)} ${py(b).toFixed(1)}`).join("") }));
    if (dots) for (const [a, b] of points) drawn.append(svg("circle", { class: `f${style}`, cx: px(a), cy: py(b), r: 2.8 }));
  }
  for (const { at, kind, style, label } of marks) {
    if (at[1] > y.high) continue;
    drawn.append(svg("circle", { class: kind === "ring" ? "ring" : `dot f${style}`, cx: px(at[0]), cy: py(at[1]), r: kind === "ring" ? 9 : 6 }));
    const isRight = px(at[0]) > wide * 0.6;
    drawn.append(svg("text", { x: px(at[0]) + (isRight ? -13 : 13), y: py(at[1]) + (kind === "ring" ? 20 : -10),
      "text-anchor": isRight ? "end" : "start" }, label));
  }
  picture.append(drawn);
  const legend = make("ul", { class: "legend" }, ...series.map(({ style, name }) => {
    const sample = svg("svg", { viewBox: "0 0 32 12", "aria-hidden": "true" });
    sample.append(svg("path", { class: `line s${style}`, d: "M0 6H32" }));
    return make("li", {}, sample, name);
  }));
  place.replaceChildren(picture, legend, numbers(title, series, x, open));
}

function numbers(title, series, x, open) {
  const xs = [...new Set(series.flatMap((s) => s.points.map(([a]) => a)))].sort((a, b) => a - b);
  const every = Math.max(1, Math.ceil(xs.length / 10));
  const kept = xs.filter((_, i) => i % every === 0 || i === xs.length - 1);
  const rows = kept.map((a) => make("tr", {}, make("th", { scope: "row", class: "num" }, x.show(a)),
    ...series.map((s) => make("td", { class: "num" }, near(s.points.find(([b]) => b === a)?.[1])))));
  return make("details", { open: Boolean(open) }, make("summary", {}, "The same as a table"),
    make("div", { class: "scroll" }, make("table", {}, make("caption", {}, title),
      make("thead", {}, make("tr", {}, make("th", { scope: "col", class: "num" }, x.name),
        ...series.map((s) => make("th", { scope: "col", class: "num" }, s.name)))), make("tbody", {}, ...rows))));
}

function pictures(plan) {
  const rows = Object.keys(STYLES).map((key) => view.rows[key]).filter((row) => row?.is_final && row.noise != null);
  if (rows.length) {
    const series = rows.map((row) => ({ name: row.label, style: STYLES[row.key],
      points: plan.shown.map((step, i) => [step, (row.noise * row.errors[i]) / plan.expected_batch]) }));
    const top = Math.max(...series.flatMap((s) => s.points.map(([, b]) => b)));
    const low = plan.steps > 1 ? 1 : 0;
    chart("sums", { title: "Noise in the sum of all steps so far, by step", series,
      x: { name: "step", low, high: plan.steps, ticks: ticks(low, plan.steps, 6).map((t) => [t, whole(t)]), show: whole },
      y: { low: 0, high: top * 1.03, ticks: ticks(0, top, 4) } });
  }
  lags(plan, rows);
  lambdas();
}

function lags(plan, rows) {
  const most = Math.min(20, plan.steps - 1), correlated = rows.filter((row) => row.key !== "independent");
  $("lags").hidden = most < 1 || !correlated.length;
  if ($("lags").hidden) return;
  const series = correlated.map((row) => ({ name: row.label, style: STYLES[row.key], dots: true,
    points: row.taken_back.slice(0, most).map((share, i) => [i + 1, share]) }));
  const values = series.flatMap((s) => s.points.map(([, b]) => b));
  const low = Math.min(0, ...values), high = Math.max(0.1, ...values) * 1.05;
  chart("lags", { title: "Share of a step’s noise taken back, by lag", series,
    x: { name: "steps later", low: 1, high: Math.max(2, most), ticks: range(1, most, 1).map((t) => [t, String(t)]), show: String },
    y: { low, high, ticks: ticks(low, high, 4) } });
}

function lambdas() {
  const { rows, points } = view;
  const known = new Map();
  const add = (lam, row) => { if (row?.is_final !== false && row?.product != null && lam < 1) known.set(lam, row.product); };
  add(0, rows.independent);
  points.forEach((point) => add(point.lam, point));
  if (rows.slider) add(rows.slider.lam, rows.slider);
  $("lambda").hidden = !rows.slider;
  if (known.size < 2) return;
  const at = (lam) => -Math.log10(1 - lam);
  const line = [...known].sort(([a], [b]) => a - b).map(([lam, product]) => [at(lam), product]);
  const least = Math.min(...known.values()), high = Math.min(Math.max(...known.values()), 4 * least) * 1.08;
  const marks = [];
  if (rows.best) marks.push({ at: [at(rows.best.lam), rows.best.product], kind: "ring", label: `least: λ = ${rows.best.lam}` });
  if (rows.slider?.is_final && known.has(rows.slider.lam)) {
    marks.push({ at: [at(rows.slider.lam), rows.slider.product], style: 1, label: "your λ" });
  }
  const shown = [0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999];
  const furthest = Math.max(...line.map(([a]) => a));
  chart("lambda", { title: "Noise left in sums for λ-CGD, by λ", marks,
    series: [{ name: "λ-CGD", style: 1, points: line, dots: true }],
    x: { name: "λ", low: 0, high: furthest, ticks: shown.filter((lam) => at(lam) <= furthest + 1e-9).map((lam) => [at(lam), String(lam)]),
      show: (a) => near(1 - 10 ** -a) },
    y: { low: 0, high, ticks: ticks(0, high, 4) } });
}

// ---- certification ----

let job = null;

function choices(plan, rows) {
  const before = $("which").value, known = plan.keys.filter((key) => rows[key]);
  if (document.activeElement === $("which")) return;
  $("which").replaceChildren(...known.map((key) => make("option", { value: key }, rows[key].label)));
  const wanted = $("which").dataset.chosen ? before : view.best?.key;
  $("which").value = known.includes(wanted) ? wanted : known[0];
}

const post = (path, values) => fetch(path, {
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(values) });

async function start() {
  const key = $("which").value, row = view?.rows[key];
  if (!row) return;
  if (job?.state === "running") await cancel();
  const asked = { ...view.asked, mechanism: key };
  if (row.lam != null) asked.lam = String(row.lam);
  $("job-error").hidden = $("certificate").hidden = true;
  const answer = await post("/api/certify", asked);
  const told = await answer.json();
  if (answer.status === 409) { // of this page before it was loaded again, or of another one: shown, to be waited for or ended
    $("certified-for").textContent = "that was asked for before";
    job = told.job;
    follow(job.id);
    $("job-error").textContent = told.error;
    $("job-error").hidden = false;
    return;
  }
  if (!answer.ok) return failed(told.error);
  job = told;
  $("certified-for").textContent = `of ${row.label}, ε = ${asked.epsilon}, δ = ${asked.delta}`;
  follow(told.id);
}

async function follow(id) {
  while (job?.id === id) {
    showJob();
    if (job.state !== "running") return;
    await new Promise((resolve) => setTimeout(resolve, 300));
    try {
      const told = await (await fetch(`/api/jobs/${id}`)).json();
      if (job?.id === id && job.state === "running") job = told;
    } catch {
      return failed("The server does not answer: is antiphon explore still running?");
    }
  }
}

async function cancel() {
  if (!job) return;
  job = await (await post(`/api/jobs/${job.id}/cancel`, {})).json();
  showJob();
}

function showJob() {
  const isRunning = job.state === "running";
  $("job").hidden = !isRunning && job.state !== "cancelled";
  $("progress").hidden = !isRunning;
  $("cancel").hidden = !isRunning;
  $("start").disabled = isRunning;
  if (job.all) { $("progress").max = job.all; $("progress").value = job.done; } else $("progress").removeAttribute("value");
  if (!isRunning) $("job-error").hidden = true;
  $("doing").textContent = isRunning ? `${job.what}…` : job.state === "cancelled" ? "cancelled" : "";
  if (job.state === "failed") failed(job.error);
  if (job.state !== "done") return;
  const { lines: told, plan, certificate, noise } = job.result;
  $("certificate").hidden = false;
  $("certificate").querySelector("dl").replaceChildren(
    make("dt", {}, "noise"), make("dd", { id: "certified-noise", "data-value": noise }, `${up(noise)} × clip norm, before correlation`),
    ...told.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
  for (const [id, values] of [["plan-json", plan], ["certificate-json", certificate]]) {
    URL.revokeObjectURL($(id).href);
    $(id).href = URL.createObjectURL(new Blob([JSON.stringify(values, null, 1)], { type: "application/json" }));
  }
}

function failed(text) {
  $("job").hidden = true;
  $("start").disabled = false;
  $("cancel").hidden = true;
  $("job-error").textContent = text;
  $("job-error").hidden = false;
}

// ---- snippets ----

function snippets(chosen) {
  const { asked, plan } = view;
  const size = asked.sampling === "full-batch" ? "" : `batch_size=${asked.batch}, `;
  const relation = asked.relation ? `, relation="${asked.relation}"` : "";
  $("python").textContent = [
    "import antiphon as ap", "",
    `run = ap.make_private(  # ${whole(plan.n)} records`,
    "    model, optimizer, dataset,",
    `    epsilon=${asked.epsilon}, delta=${asked.delta}, epochs=${asked.epochs}, ${size}clip_norm=1.0,`,
    `    sampling="${asked.sampling}"${relation},`,
    `    mechanism=${chosen ? chosen.python : '"auto"'},`,
    ")",
    "for x, y in run.batches():",
    '    run.step(loss_fn(model(x), y))  # one loss per example: reduction="none"',
  ].join("\n");
  const option = asked.relation ? ` --relation ${asked.relation}` : "";
  $("shell").textContent = `antiphon plan --n ${asked.n} --batch-size ${asked.batch} --epochs ${asked.epochs} --epsilon ${asked.epsilon}`
    + ` --delta ${asked.delta} --sampling ${asked.sampling}${option}`;
}

async function copy(button) {
  const code = $(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(code);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

// ---- start ----

build();
fromHash();
$("which").addEventListener("change", () => { $("which").dataset.chosen = "yes"; });
$("start").addEventListener("click", start);
$("cancel").addEventListener("click", cancel);
for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copy(button));
addEventListener("hashchange", () => { fromHash(); changed(0); });
let width = 0;
new ResizeObserver(() => {
  const now = document.querySelector(".plot").clientWidth;
  if (now !== width) { width = now; if (view) draw(); }
}).observe($("result"));
changed(0);
