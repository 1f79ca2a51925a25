// The page: what is said, the tabs, and news while a run goes on.
let data, chosen = 0, picture = null;
// What the log tells, in one place.
function facts(run) {
  const f = { header: null, epochs: [], steps: [], events: [], end: null };
  for (const line of run.log) {
    if (line.line === "run") { f.header = line; f.end = null; }
    else if (line.line === "epoch") f.epochs.push(line);
    else if (line.line === "step") f.steps.push(line);
    else if (line.line === "event") f.events.push(line);
    else if (line.line === "end") f.end = line;
  }
  const peaks = f.epochs.map((e) => e.memory.peak).concat(f.end ? [f.end.memory.peak] : []);
  f.measuredPeak = peaks.length ? Math.max(...peaks) : null;
  f.limit = f.header?.limit ?? run.plan?.limit ?? null;
  // The kernel's peak is that of the process. One that was above the limit before this run began is not this run's.
  const before = f.header?.memory?.peak ?? 0;
  f.sampled = f.measuredPeak != null && f.limit != null && f.measuredPeak > f.limit && f.measuredPeak <= before;
  if (f.sampled) f.measuredPeak = Math.max(f.header.memory.resident, ...f.steps.map((s) => s.resident), ...f.epochs.map((e) => e.memory.resident));
  const sum = (of) => f.epochs.reduce((total, e) => total + of(e), 0);
  f.seconds = sum((e) => e.seconds); f.input = sum((e) => e.input_wait); f.disk = sum((e) => e.disk_wait); f.done = sum((e) => e.steps);
  return f;
}
function verdict(run) {
  const f = run.facts, p = run.decoded, planned = f.header?.planned || p?.planned;
  const box = $("verdict");
  box.replaceChildren();
  const kept = f.header?.kept ?? p?.kept;
  let text;
  if (f.end?.reason === "failed") text = `Training failed: ${f.end.message}`;
  else if (f.header && !f.end) {
    const now = f.steps[f.steps.length - 1] ?? null;
    text = now ? `Training: epoch ${now.epoch} of ${f.header.epochs}, step ${exact(now.step)} of ${exact(f.header.steps_per_epoch)}.` : "Training begins.";
  } else if (f.header && f.limit != null && f.measuredPeak != null) text = f.measuredPeak <= f.limit ? `Trained inside ${size(f.limit)}: the process never held more than ${size(f.measuredPeak)}.` : `The process held ${size(f.measuredPeak)}, more than the limit of ${size(f.limit)}.`;
  else if (f.header) text = f.measuredPeak != null ? `Trained, with at most ${size(f.measuredPeak)} of memory.` : "Trained.";
  else if (p && p.limit != null) text = p.planned <= p.limit ? `Fits in ${size(p.limit)}, with ${size(p.limit - p.planned)} to spare.` : `Does not fit: ${size(p.planned)} of ${size(p.limit)}.`;
  else if (p) text = `One step needs ${size(p.planned)}.`;
  else text = "There is no plan and no log yet.";
  const how = kept ? (kept.text === "nothing had to be done" ? "Nothing had to be done to fit: whole batches, nothing computed twice, nothing moved to disk." : `To keep the limit: ${kept.text}.`) : "";
  box.append(el("p", {}, text, how ? el("small", {}, how) : null));
  const badge = (kind, strong, rest) => box.append(el("span", { class: `badge ${kind}` }, el("b", {}, strong), rest));
  if (f.measuredPeak != null && planned) {
    if (f.measuredPeak <= planned) badge("good", "✓ plan kept", `measured ${size(f.measuredPeak)} of ${size(planned)} planned`);
    else badge("warn", "! above the plan", `measured ${size(f.measuredPeak)}, planned ${size(planned)}`);
  }
  const last = f.epochs[f.epochs.length - 1];
  const arena = last?.ledger.find((a) => a.name === "arena")?.peak;
  if (arena != null && f.header) { const off = arena - f.header.arena; badge(off === 0 ? "good" : "warn", off === 0 ? "✓ arena exact" : "arena of several steps", `${exact(Math.abs(off))} bytes difference`); }
  if (f.limit != null && planned) badge(planned <= f.limit ? "good" : "bad", planned <= f.limit ? "✓ below the line" : "✗ above the line", `room left ${size(f.limit - planned)}`);
}
function tiles(run) {
  const f = run.facts, p = run.decoded, planned = f.header?.planned || p?.planned;
  const kept = f.header?.kept ?? p?.kept;
  const list = $("tiles");
  list.replaceChildren();
  const tile = (name, value, more) => list.append(el("div", {}, el("dt", {}, name), el("dd", {}, value, more ? el("small", {}, more) : null)));
  tile("Memory limit", f.limit == null ? "none" : size(f.limit), f.header?.limit_source ? f.header.limit_source.replace(/^[\d.]+ \w+ /, "") : "of the whole process");
  if (planned) tile("Planned peak", size(planned), `${exact(planned)} bytes`);
  if (f.measuredPeak != null) tile("Measured peak", size(f.measuredPeak), f.sampled ? `the largest sample; ${size(f.header.memory.peak)} before this run` : planned ? `${percent(f.measuredPeak, planned)} of the plan` : "VmHWM");
  const step = f.done ? f.seconds / f.done : null;
  if (step != null) tile("Time of a step", secs(step), kept?.seconds > 0 ? `predicted ${secs(kept.seconds)}` : "the mean of all, validation included");
  else if (kept?.seconds > 0) tile("Time of a step", secs(kept.seconds), "predicted");
  if (kept?.seconds > 0 && kept.extra_seconds >= 0 && kept.extra_seconds < kept.seconds) tile("Cost of the limit", `+${(100 * kept.extra_seconds / Math.max(kept.seconds - kept.extra_seconds, 1e-12)).toFixed(1)} %`, "time, predicted");
  if (f.seconds) tile("Lost in waiting", percent(f.input + f.disk, f.seconds), `input ${secs(f.input)}, disk ${secs(f.disk)}`);
}
function subtitle(run) {
  const f = run.facts;
  if (!f.header) return "Plan of one training step, before anything runs";
  const when = new Date(f.header.at * 1000).toISOString().slice(0, 16).replace("T", " ");
  const state = !f.end ? (data.live ? "running" : "not ended") : { done: "done", stopped: "stopped", failed: "failed" }[f.end.reason];
  return `Run of ${when} UTC · ${state} · ${plural(f.epochs.length, "epoch")} of ${f.header.epochs} · ${secs(f.seconds)}`;
}
function group(name, options, get, set) {
  const box = el("span", { class: "switch", role: "group", "aria-label": name });
  for (const [value, label, off] of options) box.append(el("button", { type: "button", "aria-pressed": get() === value, disabled: off === true, onclick: (e) => { set(value); for (const b of box.children) b.setAttribute("aria-pressed", b === e.target); } }, label));
  return box;
}
function stepTab(run) {
  const root = $("step"), p = run.decoded;
  root.replaceChildren();
  if (!p || !p.steps) { root.append(el("p", { class: "note" }, "There is no plan in this run directory.")); return; }
  const readout = el("p", { class: "readout" });
  const side = el("div", { class: "card" });
  const tableBox = el("div");
  const say = (step, i) => {
    const parts = [el("b", {}, `op ${step + 1} of ${p.steps}`), ` ${p.opName(step)}${p.opLayer(step) ? ` in ${p.opLayer(step)}` : ""} · ${p.isAgain.has(step) ? "computed again" : PHASES[p.phase[step]]} · ${size(p.alive[step])} alive`, p.opSeconds ? ` · ${secs(p.opSeconds[step])}` : ""];
    if (i != null) parts.push(el("br"), el("b", {}, nameOf(p, i)), ` ${p.type(i)} · ${size(p.size[i])} · ${KINDS[p.kind[i]]} · ${STRATEGIES[p.strategy[i]]}`);
    readout.replaceChildren(...parts);
  };
  let shown = p.peak;
  picture = new ArenaPicture(p, run, (what, step, i) => {
    say(step, i);
    if (what !== "select") return;
    details(side, p, i);
    if (step !== shown) { shown = step; tableBox.replaceChildren(aliveTable(run, step)); }
  });
  const redraw = (field) => (value) => { picture[field] = value; picture.draw(); };
  root.append(el("div", { class: "bar" },
    group("Vertical axis", [["offset", "Addresses"], ["stack", "Sizes"]], () => picture.y, redraw("y")),
    group("Horizontal axis", [["op", "Op by op"], ["time", p.measured ? "Time measured" : "Time predicted", !p.timed]], () => picture.x, redraw("x")),
    p.base > 0 ? group("What is shown", [["process", "Whole process"], ["arena", "Arena"]], () => picture.scope, redraw("scope")) : null,
    el("span", { class: "end" },
      el("button", { type: "button", onclick: () => picture.set(p.peak, null) }, "Peak"),
      el("button", { type: "button", onclick: () => save(`${run.name}-step.svg`, "image/svg+xml", picture.svg()) }, "Save SVG"),
      el("button", { type: "button", onclick: () => picture.png((blob) => save(`${run.name}-step.png`, "image/png", blob)) }, "Save PNG"))));
  root.append(picture.root, readout, legend(p));
  details(side, p, null);
  tableBox.append(aliveTable(run, p.peak));
  root.append(el("div", { class: "two" }, tableBox, side));
  say(p.peak, null);
}
function legend(p) {
  const list = el("ul", { class: "legend", "aria-label": "Colours say what it is, patterns how it came to be there" });
  const kinds = new Set(p.kind), strategies = new Set(p.strategy);
  KINDS.forEach((name, i) => kinds.has(i) && list.append(el("li", {}, swatch(colour("--k" + i)), name)));
  STRATEGIES.forEach((name, i) => i && strategies.has(i) && list.append(el("li", {}, swatch(colour("--moments"), i), name)));
  return list;
}
function details(side, p, i) {
  side.replaceChildren();
  if (i == null) {
    side.append(el("h2", {}, "Choose a tensor"), el("p", { class: "note" }, "Click one in the picture or the table, or put the picture in focus: ← → move along the step, ↑ ↓ choose among what is alive, P goes to the peak."));
    return;
  }
  const row = (name, value) => [el("dt", {}, name), el("dd", {}, value)];
  const other = p.partner.get(i);
  side.append(el("h2", {}, nameOf(p, i)), el("p", {}, why(p, i)), el("dl", {},
    ...(p.type(i) ? row("type", p.type(i)) : []), ...row("bytes", exact(p.size[i])), ...row("address", `${exact(p.offset[i])} in the arena`),
    ...row("what", KINDS[p.kind[i]]), ...row("how", STRATEGIES[p.strategy[i]]),
    ...row("from", `${p.opText(p.birth[i])}, ${PHASES[p.phase[p.birth[i]]]}`), ...row("to", `${p.opText(p.death[i])}, ${PHASES[p.phase[p.death[i]]]}`)));
  if (other != null) side.append(el("p", {}, el("button", { type: "button", onclick: () => picture.set(p.birth[other], other) }, p.birth[other] > p.birth[i] ? "Go to its later copy" : "Go to its earlier copy")));
}
// Everything that the process holds at a step; it adds up to the planned peak, byte for byte.
function aliveTable(run, step) {
  const p = run.decoded, alive = aliveAt(p, step), shown = alive.slice(0, 24), rest = alive.slice(24);
  const total = p.planned, body = el("tbody");
  let sum = 0;
  const row = (mark, name, sub, bytes, pick) => {
    sum += bytes;
    const label = pick == null ? name : el("button", { type: "button", class: "as-text", onclick: () => picture.set(step, pick) }, name);
    const meter = el("span", { class: "meter" });
    meter.style.width = `${Math.max(100 * bytes / total, 0.4)}%`;
    body.append(el("tr", { class: pick == null ? null : "pick" }, el("td", {}, mark, " ", label, sub ? el("span", { class: "sub" }, ` ${sub}`) : null, meter), el("td", { class: "n" }, exact(bytes)), el("td", { class: "n hide-small" }, percent(bytes, total))));
  };
  for (const i of shown) row(swatch(colour("--k" + p.kind[i]), p.strategy[i]), nameOf(p, i), `${p.type(i)} ${p.kind[i] === 6 ? "" : KINDS[p.kind[i]]}${p.strategy[i] ? ", " + STRATEGIES[p.strategy[i]] : ""}`.trim(), p.size[i], i);
  if (rest.length) row(swatch(colour("--k1")), `${plural(rest.length, "smaller piece")}`, "", rest.reduce((a, i) => a + p.size[i], 0));
  row(swatch(colour("--faint"), 9), step === p.peak ? "holes between them" : "not in use at this op", "", p.arena - p.alive[step]);
  for (const band of [...p.bands].reverse()) row(swatch(colour(band.fill)), band.name, "", band.bytes);
  const ok = sum === total;
  return el("table", {}, el("caption", {}, step === p.peak ? `What is alive at the peak: ${p.opText(step)}` : `What is alive at ${p.opText(step)}`),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "what"), el("th", { scope: "col", class: "n" }, "bytes"), el("th", { scope: "col", class: "n hide-small" }, "share"))), body,
    el("tfoot", {}, el("tr", {}, el("th", { scope: "row" }, ok ? "adds up exactly to the planned peak" : "does not add up"), el("td", { class: "n", id: "peak-sum", "data-exact": ok }, exact(sum)), el("td", { class: "n hide-small" }, size(sum)))));
}
// Layer, op, tensor at the peak, as wide as their bytes; beside them what is held all the time.
function peakTab(run) {
  const root = $("peak"), p = run.decoded;
  root.replaceChildren();
  if (!p || !p.steps) { root.append(el("p", { class: "note" }, "There is no plan in this run directory.")); return; }
  const tree = { name: "planned peak", bytes: p.planned, fill: "--b1", below: new Map() };
  const add = (path, bytes, fill, i) => {
    let node = tree;
    path.forEach((name, depth) => {
      if (!node.below.has(name)) node.below.set(name, { name, bytes: 0, fill, below: new Map(), i: depth === path.length - 1 ? i : null });
      node = node.below.get(name);
      node.bytes += bytes;
    });
  };
  for (const i of aliveAt(p, p.peak)) add(["one step", p.layerOf(i) || "outside layers", p.what(i), `${p.type(i) || "scratch"}#${i}`], p.size[i], "--k" + p.kind[i], i);
  if (p.arena > p.alive[p.peak]) add(["one step", "holes"], p.arena - p.alive[p.peak], "--b0");
  for (const band of p.bands) {
    if (!band.state) { add([band.name], band.bytes, band.fill); continue; }
    const role = { weights: "weight", "optimizer state": "moment" }[band.name];
    const list = p.states.filter((s) => !s.in_file && (role ? s.role === role : s.role !== "weight" && s.role !== "moment"));
    for (const s of list) { const parts = s.name.split("/"); add([band.name, role === "moment" ? parts.slice(1, -1).join("/") : parts.slice(0, -1).join("/") || s.name, s.name], Math.ceil(s.bytes / 64) * 64, band.fill); }
    const left = band.bytes - list.reduce((a, s) => a + Math.ceil(s.bytes / 64) * 64, 0);
    if (left > 0) add([band.name], left, band.fill);
  }
  const flame = el("div", { class: "flame", role: "group", "aria-label": "What is alive at the peak: layers, ops and tensors, as wide as their bytes" });
  const info = el("p", { class: "readout" });
  const focus = { node: tree };
  const show = () => {
    const rows = [];
    const place = (node, left, width, depth) => {
      (rows[depth] ??= el("div", { class: "row" }));
      const label = node.name.replace(/#\d+$/, ""), words = `${label}: ${size(node.bytes)}, ${percent(node.bytes, tree.bytes)}`;
      const button = el("button", { type: "button", title: words, "aria-label": words, onclick: () => { info.textContent = words; if (node.i != null) { picture.set(p.peak, node.i); info.replaceChildren(el("b", {}, nameOf(p, node.i)), ` ${p.type(node.i)} · ${size(node.bytes)} · ${why(p, node.i)}`); } else { focus.node = focus.node === node ? tree : node; show(); flame.querySelector("button").focus(); } } }, width > 3 ? `${label} ${width > 12 ? size(node.bytes) : ""}` : "");
      button.style.cssText = `left:${left}%;width:${width}%;background:${colour(node.fill)};color:${node.fill.startsWith("--b") ? colour("--ink") : node.fill === "--weights" ? colour("--card") : colour("--on")}`;
      rows[depth].append(button);
      let at = left, dropped = 0;
      for (const child of [...node.below.values()].sort((a, b) => b.bytes - a.bytes)) {
        const part = width * child.bytes / node.bytes;
        if (part < 0.25) { dropped++; continue; }
        place(child, at, part, depth + 1);
        at += part;
      }
    };
    place(focus.node, 0, 100, 0);
    flame.replaceChildren(...rows);
  };
  show();
  root.append(el("h2", {}, `What is alive at the peak: ${p.opText(p.peak)}`), el("p", { class: "note" }, "Layer, op and tensor, each as wide as its bytes, beside what is held all the time. Choose a part to look inside; choose it again to go back."), flame, info);
}
function costTab(run) {
  const root = $("cost"), p = run.decoded, kept = run.facts.header?.kept ?? p?.kept;
  root.replaceChildren();
  if (kept && p) {
    const base = Math.max(kept.seconds - kept.extra_seconds, 1e-12), again = [...p.isAgain];
    const againSeconds = p.opSeconds ? again.reduce((a, s) => a + p.opSeconds[s], 0) : null;
    const card = (title, big, text) => el("div", { class: "card" }, el("h2", {}, title), el("span", { class: "big" }, big), el("p", { class: "note" }, text));
    root.append(el("div", { class: "costs" },
      card("Slices", kept.slices > 1 ? `${kept.slices} of each batch` : "whole batches", kept.slices > 1 ? (kept.exact ? "Gradients are added up; every bit is as with whole batches." : "Gradients are added up; sums are rounded differently.") + (kept.barrier ? ` ${kept.barrier} needs whole batches.` : "") : "No batch is cut."),
      card("Computed again", kept.ops_again ? plural(kept.ops_again, "op") : "nothing", kept.ops_again ? `${againSeconds != null ? `${secs(againSeconds)} a step (${percent(againSeconds, p.clock[p.steps])}). ` : ""}Their results were given up meanwhile.` : "Every value is computed once."),
      card("Moved to the file", kept.written || kept.read ? `${size(kept.written)} out, ${size(kept.read)} in` : "nothing", kept.written || kept.read ? `a step${kept.states_in_file ? `; ${size(kept.states_in_file)} of weights and optimizer state live there` : ""}.` : "No spill file is used."),
      card("In all", kept.seconds > kept.extra_seconds ? `+${(100 * kept.extra_seconds / base).toFixed(1)} % time` : "no estimate", kept.seconds > kept.extra_seconds ? `predicted ${secs(kept.seconds)} a step, ${secs(base)} without the limit. The results are the same.` : "Nothing had to be weighed against time.")));
    root.append(movedTables(p, again));
  }
  if (run.sweep_svg) {
    const holder = el("div");
    holder.innerHTML = run.sweep_svg;
    root.append(el("h2", {}, "What other limits would cost"), holder);
    const body = el("tbody");
    for (const point of run.sweep.points) body.append(el("tr", {}, el("td", { class: "n" }, size(point.limit)), el("td", { class: "n" }, secs(point.kept.seconds)), el("td", {}, point.kept.text)));
    root.append(el("details", {}, el("summary", {}, "The same as a table"), el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "n" }, "limit"), el("th", { scope: "col", class: "n" }, "a step"), el("th", { scope: "col" }, "how"))), body)));
    const links = el("p", {}, el("button", { type: "button", onclick: () => save(`${run.name}-sweep.svg`, "image/svg+xml", run.sweep_svg) }, "Save SVG"));
    root.append(links);
  } else root.append(el("p", { class: "note" }, "There is no sweep over other limits in this run directory."));
}
function movedTables(p, again) {
  const box = el("div", { class: "grid moved" });
  const table = (caption, heads, rows) => {
    if (!rows.length) return;
    const cells = (row) => row.map((v, i) => el("td", { class: i ? "n" : null }, v));
    box.append(el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, ...heads.map((h, i) => el("th", { scope: "col", class: i ? "n" : null }, h)))), el("tbody", {}, ...rows.slice(0, 14).map((row) => el("tr", {}, ...cells(row)))), rows.length > 14 ? el("tfoot", {}, el("tr", {}, el("td", { colspan: heads.length }, `and ${rows.length - 14} more`))) : null));
  };
  const gather = (items, key, value) => { const map = new Map(); for (const i of items) { const k = key(i), v = value(i), e = map.get(k) ?? [0, 0]; map.set(k, [e[0] + 1, e[1] + v]); } return [...map].sort((a, b) => b[1][1] - a[1][1] || b[1][0] - a[1][0]); };
  table("Computed again, by op", ["op", "times", "time a step"], gather(again, (s) => `${p.opName(s)}${p.opLayer(s) ? ` in ${p.opLayer(s)}` : ""}`, (s) => p.opSeconds?.[s] ?? 0).map(([name, [n, t]]) => [name, exact(n), p.opSeconds ? secs(t) : "–"]));
  const fetched = [], spilled = [];
  for (let i = 0; i < p.n; i++) { if (p.strategy[i] === 4) fetched.push(i); if (p.strategy[i] === 3) spilled.push(i); }
  const moved = (list) => gather(list, (i) => nameOf(p, i), (i) => p.size[i]).map(([name, [n, bytes]]) => [name, exact(n), size(bytes)]);
  table("Goes to the file", ["tensor", "times", "memory freed"], moved(spilled));
  table("Comes from the file", ["tensor", "times", "bytes"], moved(fetched));
  return box;
}
function trainingTab(run) {
  const root = $("training"), runs = data.runs.length > 1 ? [run, ...data.runs.filter((r) => r !== run)] : [run];
  root.replaceChildren();
  const f = run.facts;
  if (!f.header) { root.append(el("p", { class: "note" }, "Nothing ran yet: this is a plan.")); return; }
  const charts = el("div", { class: "grid" });
  const names = [...new Set(runs.flatMap((r) => r.facts.epochs.flatMap((e) => Object.keys(e.figures))))];
  const prefix = (r) => runs.length > 1 ? `${r.name}: ` : "";
  for (const name of names.filter((n) => !n.startsWith("val_"))) {
    const series = [];
    runs.forEach((r, at) => {
      const stroke = runs.length > 1 ? `var(--k${[2, 3, 6, 0, 4, 5][at % 6]})` : undefined;
      const points = (key) => r.facts.epochs.map((e) => [e.epoch, e.figures[key] ?? null]);
      if (name === "loss" && runs.length === 1 && r.facts.steps.length > 1) {
        const per = r.facts.header.steps_per_epoch || 1;
        series.push({ name: "within epochs", points: r.facts.steps.map((s) => [s.epoch - 1 + s.step / per, s.loss]), thin: true, stroke: "var(--k1)", dash: "" });
      }
      if (r.facts.epochs.some((e) => name in e.figures)) series.push({ name: prefix(r) + "training", points: points(name), stroke: stroke ?? "var(--k2)", dash: "" });
      if (r.facts.epochs.some((e) => `val_${name}` in e.figures)) series.push({ name: prefix(r) + "validation", points: points(`val_${name}`), stroke: stroke ?? "var(--k3)", dash: "6 4" });
    });
    charts.append(lineChart(name.replace(/_/g, " "), series));
  }
  charts.append(lineChart("memory of the process, MiB", runs.flatMap((r) => {
    const e = r.facts.epochs, mib = (v) => v == null ? null : v / 1048576;
    const list = [{ name: prefix(r) + "peak so far", points: e.map((x) => [x.epoch, mib(x.memory.peak)]), dash: "" }, { name: prefix(r) + "now", points: e.map((x) => [x.epoch, mib(x.memory.resident)]), dash: "2 3" }];
    const limit = r.facts.limit, planned = r.facts.header?.planned;
    if (planned) list.push({ name: prefix(r) + "planned", points: e.map((x) => [x.epoch, mib(planned)]), stroke: "var(--faint)", dash: "6 4" });
    if (limit != null && planned && limit < planned * 3) list.push({ name: prefix(r) + "limit", points: e.map((x) => [x.epoch, mib(limit)]), stroke: "var(--line)", dash: "" });
    return list;
  }), { format: (v) => v == null ? "–" : v.toFixed(1), zero: true }));
  charts.append(lineChart("learning rate", runs.map((r) => ({ name: prefix(r) || "rate", points: r.facts.epochs.map((e) => [e.epoch, e.rate]) })), { format: (v) => v == null ? "–" : v.toPrecision(3), zero: true }));
  if (f.epochs.length) charts.append(timeChart(f.epochs));
  root.append(charts);
  const stages = new Map();
  for (const e of f.epochs) for (const s of e.stages) { const t = stages.get(s.name) ?? [0, 0]; stages.set(s.name, [t[0] + s.seconds, t[1] + s.elements]); }
  if (stages.size) root.append(el("h2", {}, "The input pipeline, stage by stage"), el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "stage"), el("th", { scope: "col", class: "n" }, "own time"), el("th", { scope: "col", class: "n" }, "elements"))), el("tbody", {}, ...[...stages].map(([name, [t, n]]) => el("tr", {}, el("td", {}, name), el("td", { class: "n" }, secs(t)), el("td", { class: "n" }, exact(n)))))));
  if (f.events.length) root.append(el("h2", {}, "What happened"), el("ul", { class: "events" }, ...f.events.slice(-40).map((e) => el("li", {}, el("time", {}, new Date(e.at * 1000).toISOString().slice(11, 19)), el("b", {}, e.kind), ` ${e.message}`))));
  if (f.epochs.length) {
    const keys = [...new Set(f.epochs.flatMap((e) => Object.keys(e.figures)))];
    const head = el("tr", {}, el("th", { scope: "col" }, "epoch"), ...keys.map((k) => el("th", { scope: "col", class: "n" }, k.replace(/_/g, " "))), el("th", { scope: "col", class: "n" }, "time"));
    root.append(el("details", {}, el("summary", {}, "The figures of every epoch"), el("table", {}, el("thead", {}, head), el("tbody", {}, ...f.epochs.slice(-200).map((e) => el("tr", {}, el("td", {}, e.epoch + ""), ...keys.map((k) => el("td", { class: "n" }, figure(e.figures[k]))), el("td", { class: "n" }, secs(e.seconds))))))));
  }
}
function render(all) {
  const run = data.runs[chosen];
  for (const r of data.runs) r.facts = facts(r);
  if (run.plan && !run.decoded) run.decoded = decode(run);
  $("title").textContent = run.facts.header?.job || run.plan?.title || run.name;
  $("subtitle").textContent = subtitle(run);
  document.title = `${$("title").textContent} · Plimsoll`;
  verdict(run);
  tiles(run);
  trainingTab(run);
  if (all) { stepTab(run); peakTab(run); costTab(run); }
}
function tabs() {
  const list = [...document.querySelectorAll("[role=tab]")];
  const choose = (tab, focus) => {
    for (const t of list) {
      t.setAttribute("aria-selected", t === tab);
      t.tabIndex = t === tab ? 0 : -1;
      $(t.getAttribute("aria-controls")).hidden = t !== tab;
    }
    if (focus) tab.focus();
    if (picture) picture.draw();
  };
  list.forEach((tab, i) => {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", (e) => {
      const to = { ArrowRight: (i + 1) % list.length, ArrowLeft: (i + list.length - 1) % list.length, Home: 0, End: list.length - 1 }[e.key];
      if (to != null) { choose(list[to], true); e.preventDefault(); }
    });
  });
  const from = list.find((t) => `#${t.getAttribute("aria-controls")}` === location.hash);
  if (from) choose(from);
}
function theme() {
  const button = $("theme"), wide = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (document.documentElement.dataset.theme ?? (wide.matches ? "dark" : "light")) === "dark";
  const say = () => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-pressed", dark()); button.setAttribute("aria-label", dark() ? "Switch to light colours" : "Switch to dark colours"); };
  try { const kept = localStorage.getItem("plimsoll-theme"); if (kept) document.documentElement.dataset.theme = kept; } catch { /* A page from a file may keep nothing. */ }
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("plimsoll-theme", document.documentElement.dataset.theme); } catch { /* As above. */ }
    say(); render(true);
  });
  wide.addEventListener("change", () => { say(); render(true); });
  say();
}
function follow() {
  if (!data.live) return;
  const news = new EventSource(data.live);
  let due = false;
  news.onmessage = (message) => {
    const { run, lines } = JSON.parse(message.data), target = data.runs[run];
    // A new start has a new plan, which comes with the page.
    if (lines.some((l) => l.line === "run") && (!target.plan || target.log.some((l) => l.line === "run"))) { location.reload(); return; }
    target.log.push(...lines);
    const steps = target.log.filter((l) => l.line === "step").length;
    if (steps > 3000) { let drop = false; target.log = target.log.filter((l) => l.line !== "step" || (drop = !drop)); }
    if (!due) { due = true; requestAnimationFrame(() => { due = false; render(false); }); }
  };
}
async function start() {
  const packed = Uint8Array.from(atob($("data").textContent.trim()), (c) => c.charCodeAt(0));
  data = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).json();
  if (data.runs.length > 1) {
    $("pick-label").hidden = false;
    data.runs.forEach((run, i) => $("pick").append(el("option", { value: i }, run.name)));
    $("pick").addEventListener("change", (e) => { chosen = +e.target.value; render(true); });
  }
  theme();
  tabs();
  render(true);
  follow();
  document.documentElement.dataset.ready = "yes";
}
start();
