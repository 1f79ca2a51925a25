// The memory of one training step: a plan decoded, its picture, and what is alive at a step.
function decode(run) {
  const p = run.plan, b = p.buffers, n = b.offset.length, steps = p.op.length;
  const plan = { ...p, n, steps, measured: run.times.length === steps && steps > 0 };
  plan.offset = Float64Array.from(b.offset, (v) => v * 64);
  plan.size = Float64Array.from(b.size, (v) => v * 64);
  plan.birth = new Uint32Array(n);
  plan.death = new Uint32Array(n);
  for (let i = 0, at = 0; i < n; i++) { at += b.birth[i]; plan.birth[i] = at; plan.death[i] = at + b.length[i]; }
  plan.kind = b.kind; plan.strategy = b.strategy;
  plan.partner = new Map(b.partner);
  const text = (i) => p.texts[i];
  plan.what = (i) => text(b.what[i]);
  plan.type = (i) => text(b.ty[i]);
  plan.layerOf = (i) => text(b.layer[i]);
  plan.opName = (s) => text(p.op[s]);
  plan.opLayer = (s) => text(p.layer[s]);
  plan.opText = (s) => `op ${s + 1} (${text(p.op[s])}${text(p.layer[s]) ? `, ${text(p.layer[s])}` : ""})`;
  plan.isAgain = new Set(p.again);
  plan.alive = new Float64Array(steps + 1);
  for (let i = 0; i < n; i++) { plan.alive[plan.birth[i]] += plan.size[i]; plan.alive[plan.death[i] + 1] -= plan.size[i]; }
  for (let s = 1; s <= steps; s++) plan.alive[s] += plan.alive[s - 1];
  // Where each op begins, in seconds; the last entry is the end.
  const seconds = plan.measured ? run.times : p.seconds;
  plan.timed = seconds.length === steps && seconds.some((s) => s > 0);
  plan.opSeconds = plan.timed ? seconds : null;
  plan.clock = new Float64Array(steps + 1);
  for (let s = 0; s < steps; s++) plan.clock[s + 1] = plan.clock[s] + (plan.timed ? seconds[s] : 1);
  plan.bands = bands(plan);
  plan.base = plan.bands.reduce((sum, band) => sum + band.bytes, 0);
  plan.planned = plan.base + plan.arena;
  plan.transferPairs = pairs(plan);
  return plan;
}
// Who holds memory for the whole step, from the bottom up: everything in the ledger but the arena. The states by what they are for.
function bands(plan) {
  const whole = plan.ledger.filter((a) => !a.name.includes("/"));
  const held = (name) => whole.find((a) => a.name === name)?.held ?? null;
  const list = [];
  const words = { process: "the process itself", runtime: "runtime", results: "results", gemm: "matrix products", spill: "file buffers", log: "log" };
  for (const a of whole) if (a.name !== "state" && a.name !== "arena" && a.held > 0) list.push({ name: words[a.name] ?? a.name, bytes: a.held, fill: "--b" + list.length % 3 });
  const more = (held("arena") ?? plan.arena) - plan.arena;
  if (more > 0) list.push({ name: "arena of other steps", bytes: more, fill: "--b2" });
  const roles = { weight: 0, moment: 0, other: 0 };
  for (const s of plan.states) if (!s.in_file) roles[s.role in roles ? s.role : "other"] += Math.ceil(s.bytes / 64) * 64;
  const total = held("state") ?? plan.state_bytes;
  roles.other += total - roles.weight - roles.moment - roles.other;
  if (roles.other > 0) list.push({ name: "statistics and sums", bytes: roles.other, fill: "--b0", state: true });
  if (roles.weight > 0) list.push({ name: "weights", bytes: roles.weight, fill: "--weights", state: true });
  if (roles.moment > 0) list.push({ name: "optimizer state", bytes: roles.moment, fill: "--moments", state: true });
  return list;
}
function pairs(plan) {
  const open = new Map(), list = [];
  for (const [step, slot, bytes, what] of plan.transfers) {
    if (what % 2 === 0) open.set(slot + ":" + what, [step, bytes]);
    else {
      const begun = open.get(slot + ":" + (what - 1));
      if (begun) list.push({ write: what === 1, from: begun[0], to: step, bytes: begun[1] });
    }
  }
  return list;
}
// What is alive at a step, the largest first.
function aliveAt(plan, step) {
  const list = [];
  for (let i = 0; i < plan.n; i++) if (plan.birth[i] <= step && step <= plan.death[i] && plan.size[i] > 0) list.push(i);
  return list.sort((a, b) => plan.size[b] - plan.size[a] || a - b);
}
const nameOf = (plan, i) => plan.layerOf(i) ? `${plan.layerOf(i)} · ${plan.what(i)}` : plan.what(i);
function why(plan, i) {
  const made = plan.birth[i], gone = plan.death[i], other = plan.partner.get(i);
  const cost = plan.opSeconds ? ` That op takes ${secs(plan.opSeconds[made])}.` : "";
  const gap = other == null ? "" : other > i ? `between ops ${gone + 1} and ${plan.birth[other] + 1}` : `between ops ${plan.death[other] + 1} and ${made + 1}`;
  switch (plan.strategy[i]) {
    case 1: return `Given up after its last use here, and computed again later: its ${size(plan.size[i])} are free ${gap}.`;
    case 2: return `Computed again, because an earlier copy was given up: ${size(plan.size[i])} were free ${gap}.${cost}`;
    case 3: return `Goes to the spill file: its ${size(plan.size[i])} are free ${gap || "after the write"}.`;
    case 4: return `Read from the spill file${gap ? `: its ${size(plan.size[i])} were free ${gap}` : ""}.`;
  }
  switch (plan.kind[i]) {
    case 0: return "Given before the step.";
    case 6: return `Scratch memory of this op alone.`;
    case 2: return `Kept from ${plan.opText(made)} until the gradients need it at op ${gone + 1}.${plan.opSeconds ? ` Computing it again would take about ${secs(plan.opSeconds[made])}.` : ""}`;
    default: return `Kept from ${plan.opText(made)} to its last use at op ${gone + 1}.`;
  }
}

class ArenaPicture {
  constructor(plan, run, onChange) {
    Object.assign(this, { plan, run, onChange, cursor: plan.peak, selected: null, y: "offset" });
    this.x = "op";
    this.scope = plan.arena < plan.planned * 0.3 ? "arena" : "process";
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.root = el("div", { class: "picture", tabindex: "0", role: "slider", "aria-label": "Step of the plan: left and right move, up and down choose a tensor, P goes to the peak",
      "aria-valuemin": 1, "aria-valuemax": Math.max(plan.steps, 1), onkeydown: (e) => this.key(e), onpointermove: (e) => e.pointerType === "mouse" && this.point(e, false), onpointerdown: (e) => this.point(e, true), onpointerleave: () => this.leave() }, this.canvas);
    this.announce();
    // In the next frame: a picture that changes its own height while sizes are told would be told again at once.
    new ResizeObserver(() => requestAnimationFrame(() => this.root.clientWidth !== this.drawnWidth && this.draw())).observe(this.root);
  }
  // The measured peak of the process, if the run has one.
  measured() { return this.run.facts.measuredPeak; }
  shape(width) {
    const small = width < 560, disk = this.plan.transferPairs.length > 0;
    const height = small ? 380 : 560;
    const bottom = 44 + (disk ? 26 : 0);
    return { width, height, left: small ? 52 : 76, right: 10, top: 30, bottom, disk, small };
  }
  range() {
    const p = this.plan, arena = this.scope === "arena";
    const low = arena ? p.base : 0, full = p.planned;
    const reach = full + (full - low) * 0.7;
    const limit = p.limit;
    const far = limit != null && limit > reach;
    return { low, high: limit == null || far ? full + (full - low) * 0.1 : Math.max(limit, full) + (full - low) * 0.05, far };
  }
  draw() {
    const width = this.root.clientWidth - 16;
    if (width < 50) return;
    const shape = this.shape(width);
    this.frame = shape;
    this.drawnWidth = this.root.clientWidth;
    this.paint(new CanvasSurface(this.canvas, shape.width, shape.height), shape);
  }
  paint(s, f) {
    const p = this.plan, { low, high, far } = this.range();
    const w = f.width - f.left - f.right, h = f.height - f.top - f.bottom;
    const clock = this.x === "time" ? p.clock : null, end = clock ? clock[p.steps] : p.steps;
    const X = (step) => f.left + w * (clock ? clock[step] : step) / (end || 1);
    const Y = (bytes) => f.top + h * (1 - (bytes - low) / (high - low || 1));
    this.X = X; this.Y = Y;
    const ink = colour("--ink"), soft = colour("--soft"), rule = colour("--rule"), card = colour("--card"), line = colour("--line"), on = colour("--on");
    const kinds = KINDS.map((_, i) => colour("--k" + i));
    for (const tick of ticks(low / 1048576, high / 1048576, 6)) {
      const y = Y(tick * 1048576);
      s.line(f.left, y, f.left + w, y, rule);
      s.text(f.left - 7, y + 4, f.small ? `${+tick.toFixed(2)}` : `${+tick.toFixed(2)} MiB`, soft, { size: 11, anchor: "end" });
    }
    if (f.small) s.text(4, 14, "MiB", soft, { size: 11 });
    let at = 0;
    for (const band of p.bands) {
      const top = Math.min(at + band.bytes, high), bottom = Math.max(at, low);
      if (top > bottom) {
        const y = Y(top), height = Y(bottom) - y;
        s.rect(f.left, y, w, Math.max(height - (height > 3 ? 1 : 0), 0.5), colour(band.fill));
        if (height > 13) s.text(f.left + 8, y + height / 2 + 4, `${band.name} ${size(band.bytes)}`, band.fill.startsWith("--b") ? ink : band.fill === "--weights" ? card : ink, { size: 11.5, room: w - 16 });
      }
      at += band.bytes;
    }
    this.boxes = this.y === "stack" ? this.stacked() : null;
    const put = (i, from, to, bottom) => {
      const x = X(from), width = X(to) - x, y = Y(p.base + bottom + p.size[i]), height = Y(p.base + bottom) - y;
      if (height < 0.08) return;
      s.rect(x, y, Math.max(width - (width > 4 ? 0.7 : 0), 0.35), Math.max(height - (height > 4 ? 0.7 : 0), 0.35), kinds[p.kind[i]], p.strategy[i]);
      if (width > 58 && height > 13) s.text(x + 5, y + Math.min(height / 2 + 4, 18), nameOf(p, i), on, { size: 11, room: width - 10, back: p.strategy[i] ? kinds[p.kind[i]] : null });
    };
    if (this.boxes) for (const [i, from, to, bottom] of this.boxes) put(i, from, to, bottom);
    else for (let i = 0; i < p.n; i++) put(i, p.birth[i], p.death[i] + 1, p.offset[i]);
    s.line(f.left, Y(p.base), f.left + w, Y(p.base), ink, 1);
    this.selection(s, ink, card);
    // The planned peak and what was measured.
    const peakY = Y(p.planned), px = X(Math.min(p.peak + 0.5, p.steps));
    s.line(f.left, peakY, f.left + w, peakY, ink, 1.2, [5, 4]);
    const peakX = clock ? (X(p.peak) + X(p.peak + 1)) / 2 : px;
    s.poly([[peakX, peakY + 2], [peakX - 6, peakY + 12], [peakX + 6, peakY + 12]], ink);
    const room = p.limit == null ? "" : f.small ? "" : ` · room left ${size(p.limit - p.planned)}`;
    const right = peakX < f.left + w / 2;
    const limitY = p.limit == null ? null : far ? f.top - 12 : Y(p.limit);
    const lineGap = limitY == null ? 99 : peakY - limitY;
    s.text(right ? f.left + w - 6 : f.left + 8, peakY + (lineGap > 40 ? -6 : 15), `planned peak ${size(p.planned)}${room}`, ink, { size: 11.5, weight: 600, anchor: right ? "end" : "start", back: card });
    const measured = this.measured();
    if (measured != null && measured < high && measured > low) {
      const y = Y(measured);
      s.line(f.left, y, f.left + w, y, ink, 1, [1.5, 3]);
      s.text(f.left + w - 6, y + 13, `measured peak ${size(measured)}`, soft, { size: 11, anchor: "end", back: card });
    }
    if (limitY != null) this.loadLine(s, f, w, limitY, line, card, far);
    this.lanes(s, f, w, X, clock, end, { ink, soft, rule, kinds, card });
    if (this.cursor != null && p.steps) {
      const x = X(this.cursor), x2 = X(this.cursor + 1);
      s.line((x + x2) / 2, f.top, (x + x2) / 2, f.height - 26, ink, 1, [2, 2]);
    }
  }
  // The limit, with the mark that ships carry where their load line is.
  loadLine(s, f, w, y, line, card, far) {
    s.line(f.left, y, f.left + w, y, line, 3, far ? [14, 6] : []);
    const x = f.left + w * (f.small ? 0.86 : 0.62);
    s.circle(x, y, 9, line, 3, card);
    s.line(x - 16, y, x + 16, y, line, 3);
    const text = `memory limit ${size(this.plan.limit)}${far ? ", above this picture" : ""}`;
    s.text(f.left + 8, y - 7 < 12 ? y + 15 : y - 7, text, line, { size: 12, weight: 650, back: card });
  }
  lanes(s, f, w, X, clock, end, { ink, soft, rule, kinds, card }) {
    const p = this.plan;
    let y = f.height - f.bottom + 4;
    const fills = [colour("--k1"), colour("--k3"), colour("--k4"), colour("--k5")];
    let from = 0;
    const key = (step) => p.isAgain.has(step) ? 9 : p.phase[step];
    for (let step = 1; step <= p.steps; step++) {
      if (step < p.steps && key(step) === key(from)) continue;
      const x = X(from), width = X(step) - x, again = key(from) === 9;
      s.rect(x, y, Math.max(width, 0.3), 11, fills[p.phase[from]], again ? 2 : 0);
      if (width > 62) s.text(x + 4, y + 9.5, again ? "computed again" : PHASES[p.phase[from]], colour("--on"), { size: 10, room: width - 8 });
      from = step;
    }
    y += 15;
    if (f.disk) {
      s.text(f.left - 7, y + 13, f.small ? "disk" : "spill file", soft, { size: 11, anchor: "end" });
      s.line(f.left, y + 20, f.left + w, y + 20, rule);
      for (const t of p.transferPairs) {
        const x = X(t.from), x2 = Math.max(X(t.to + 1), x + 1);
        s.rect(x, y + (t.write ? 2 : 11), x2 - x, 8, t.write ? colour("--k6") : colour("--k0"), t.write ? 3 : 4);
        if (x2 - x > 9) { const m = (x + x2) / 2, u = t.write ? 1 : -1, c = y + (t.write ? 6 : 15); s.poly([[m - 3, c - 2 * u], [m + 3, c - 2 * u], [m, c + 3 * u]], card); }
      }
      y += 26;
    }
    for (const tick of ticks(0, end * (clock ? 1e3 : 1), f.small ? 4 : 8)) {
      const x = f.left + w * tick / (end * (clock ? 1e3 : 1) || 1);
      s.line(x, y - 2, x, y + 3, soft);
      s.text(x, y + 15, clock ? `${+tick.toPrecision(3)} ms` : `${Math.round(tick)}`, soft, { size: 11, anchor: tick === 0 ? "start" : x > f.left + w - 20 ? "end" : "middle" });
    }
    if (!f.small) s.text(f.left - 7, y + 15, clock ? (p.measured ? "measured" : "predicted") : "op", soft, { size: 11, anchor: "end" });
  }
  selection(s, ink, card) {
    const p = this.plan, i = this.selected;
    if (i == null) return;
    const mark = (b, from, to, bottom, strong) => {
      const x = this.X(from), y = this.Y(p.base + bottom + p.size[b]);
      const width = Math.max(this.X(to) - x, 2), height = Math.max(this.Y(p.base + bottom) - y, 2);
      s.frame(x, y, width, height, card, strong ? 5 : 3);
      s.frame(x, y, width, height, ink, strong ? 2.5 : 1.5);
    };
    for (const b of [p.partner.get(i), i]) {
      if (b == null) continue;
      if (this.boxes) this.boxes.filter((box) => box[0] === b).forEach(([, from, to, bottom]) => mark(b, from, to, bottom, b === i));
      else mark(b, p.birth[b], p.death[b] + 1, p.offset[b], b === i);
    }
  }
  // Sizes without the holes: what is alive, one on another, in the order of birth. A box ends where what is below it changes.
  stacked() {
    const p = this.plan, boxes = [], every = Math.max(1, Math.floor(p.steps / 1500));
    let alive = [], next = 0;
    const open = new Map();
    for (let step = 0; step < p.steps; step += every) {
      const last = Math.min(step + every - 1, p.steps - 1);
      while (next < p.n && p.birth[next] <= last) alive.push(next++);
      alive = alive.filter((i) => p.death[i] >= step);
      let bottom = 0;
      const seen = new Set();
      for (const i of alive) {
        const box = open.get(i);
        if (box && box[3] === bottom) box[2] = last + 1;
        else { const fresh = [i, step, last + 1, bottom]; open.set(i, fresh); boxes.push(fresh); }
        seen.add(i);
        bottom += p.size[i];
      }
      for (const i of open.keys()) if (!seen.has(i)) open.delete(i);
    }
    return boxes;
  }
  stepAt(x) {
    const f = this.frame, p = this.plan;
    const part = (x - f.left) / (f.width - f.left - f.right);
    if (this.x === "op") return Math.min(Math.max(Math.floor(part * p.steps), 0), p.steps - 1);
    let low = 0, high = p.steps - 1;
    const t = part * p.clock[p.steps];
    while (low < high) { const mid = (low + high + 1) >> 1; if (p.clock[mid] <= t) low = mid; else high = mid - 1; }
    return low;
  }
  point(event, choose) {
    if (!this.frame || !this.plan.steps) return;
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const step = this.stepAt(x), p = this.plan;
    const { low, high } = this.range(), f = this.frame;
    const bytes = low + (high - low) * (1 - (y - f.top) / (f.height - f.top - f.bottom)) - p.base;
    let hit = null;
    if (bytes >= 0) {
      if (this.boxes) { for (const [i, from, to, bottom] of this.boxes) if (from <= step && step < to && bottom <= bytes && bytes < bottom + p.size[i]) hit = i; }
      else for (let i = 0; i < p.n; i++) if (p.birth[i] <= step && step <= p.death[i] && p.offset[i] <= bytes && bytes < p.offset[i] + p.size[i]) hit = i;
    }
    if (choose) { this.set(step, hit); this.root.focus({ preventScroll: true }); } else this.onChange("hover", step, hit);
  }
  leave() { this.onChange("cursor", this.cursor, this.selected); }
  set(step, selected) {
    this.cursor = step;
    this.selected = selected;
    this.draw();
    this.announce();
    this.onChange("select", step, selected);
  }
  announce() {
    const p = this.plan, step = this.cursor ?? 0;
    if (!p.steps) return;
    this.root.setAttribute("aria-valuenow", step + 1);
    const chosen = this.selected == null ? "" : `; chosen: ${nameOf(p, this.selected)}, ${size(p.size[this.selected])}`;
    this.root.setAttribute("aria-valuetext", `${plainStep(p, step)}${chosen}`);
  }
  key(event) {
    const p = this.plan;
    if (!p.steps || event.ctrlKey || event.metaKey || event.altKey) return;
    const far = event.shiftKey ? 10 : 1;
    const to = { ArrowRight: this.cursor + far, ArrowLeft: this.cursor - far, Home: 0, End: p.steps - 1, p: p.peak, P: p.peak, PageUp: this.cursor - 25, PageDown: this.cursor + 25 }[event.key];
    if (to != null) this.set(Math.min(Math.max(to, 0), p.steps - 1), null);
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      const alive = aliveAt(p, this.cursor).sort((a, b) => p.offset[a] - p.offset[b]);
      if (!alive.length) return;
      const at = alive.indexOf(this.selected), next = event.key === "ArrowUp" ? at + 1 : at < 0 ? alive.length - 1 : at - 1;
      this.set(this.cursor, alive[(next + alive.length) % alive.length]);
    } else if (event.key === "Escape") this.set(this.cursor, null);
    else return;
    event.preventDefault();
  }
  svg() {
    const shape = this.shape(1100), s = new SvgSurface(shape.width, shape.height), kept = this.frame;
    this.frame = shape;
    this.paint(s, shape);
    this.frame = kept;
    this.draw();
    return s.done(`${this.run.name}: memory of one step`);
  }
  png(done) {
    const shape = this.shape(1100), canvas = document.createElement("canvas");
    const s = new CanvasSurface(canvas, shape.width, shape.height);
    s.rect(0, 0, shape.width, shape.height, colour("--card"));
    this.paint(s, shape);
    this.draw();
    canvas.toBlob(done, "image/png");
  }
}
const plainStep = (p, step) => `op ${step + 1} of ${p.steps}: ${p.opName(step)}${p.opLayer(step) ? ` in ${p.opLayer(step)}` : ""}, ${p.isAgain.has(step) ? "computed again" : PHASES[p.phase[step]]}, ${size(p.alive[step])} alive`;
