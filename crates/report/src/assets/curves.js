// Curves over epochs, and where time went.
const DASHES = ["", "6 4", "2 3", "9 3 2 3"];
function lineChart(title, series, { xName = "epoch", format = figure, zero = false } = {}) {
  const W = 420, H = 210, L = 52, R = 14, T = 10, B = 26;
  series = series.filter((s) => s.points.some(([, y]) => y != null));
  const all = series.flatMap((s) => s.points).filter(([, y]) => y != null && isFinite(y));
  const box = el("div", { class: "chart" }, el("h2", {}, title));
  if (!all.length) { box.append(el("p", { class: "note" }, "no figures yet")); return box; }
  const xs = all.map((p) => p[0]), ys = all.map((p) => p[1]);
  let x0 = Math.min(...xs), x1 = Math.max(...xs), y0 = zero ? 0 : Math.min(...ys), y1 = Math.max(...ys);
  if (x1 === x0) { x0 -= 0.5; x1 += 0.5; }
  if (y1 === y0) { y1 += Math.abs(y1) || 1; if (!zero) y0 -= Math.abs(y0) * 0.1 || 1; }
  const X = (v) => L + (W - L - R) * (v - x0) / (x1 - x0), Y = (v) => H - B - (H - B - T) * (v - y0) / (y1 - y0);
  const words = series.map((s) => { const known = s.points.filter(([, y]) => y != null); return `${s.name}: from ${format(known[0][1])} to ${format(known[known.length - 1][1])}`; }).join("; ");
  const svg = el("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${title}. ${words}` });
  for (const t of ticks(y0, y1, 4)) svg.append(el("line", { x1: L, x2: W - R, y1: Y(t), y2: Y(t), stroke: "var(--rule)" }), el("text", { x: L - 6, y: Y(t) + 4, "text-anchor": "end" }, +t.toPrecision(4) + ""));
  const whole = xName === "epoch";
  for (const t of ticks(x0, x1, 6)) if (!whole || Number.isInteger(t)) svg.append(el("text", { x: X(t), y: H - 9, "text-anchor": "middle" }, +t.toPrecision(5) + ""));
  svg.append(el("text", { x: W - R, y: H - 9, "text-anchor": "end", "font-weight": 600 }, ""));
  const list = el("ul", { class: "legend" });
  series.forEach((s, i) => {
    const stroke = s.stroke ?? `var(--k${[2, 3, 6, 0, 4, 5, 1][i % 7]})`, dash = s.dash ?? DASHES[i % 4];
    const runs = [[]];
    for (const [x, y] of s.points) { if (y == null || !isFinite(y)) runs.push([]); else runs[runs.length - 1].push(`${X(x).toFixed(1)},${Y(y).toFixed(1)}`); }
    for (const points of runs) if (points.length) svg.append(el("polyline", { points: points.join(" "), fill: "none", stroke, "stroke-width": s.thin ? 1.2 : 2.2, "stroke-dasharray": dash, "stroke-linejoin": "round", opacity: s.thin ? 0.55 : 1 }));
    if (s.points.length < 40) for (const [x, y] of s.points) if (y != null) svg.append(el("circle", { cx: X(x), cy: Y(y), r: 2.6, fill: stroke }));
    const known = s.points.filter(([, y]) => y != null);
    const key = el("svg", { width: 26, height: 10, "aria-hidden": "true" }, el("line", { x1: 0, x2: 26, y1: 5, y2: 5, stroke, "stroke-width": 2.2, "stroke-dasharray": dash }));
    list.append(el("li", {}, key, `${s.name} ${format(known[known.length - 1][1])}`));
  });
  const cross = el("line", { y1: T, y2: H - B, stroke: "var(--faint)", "stroke-dasharray": "2 3", visibility: "hidden" });
  svg.append(cross);
  const values = el("p", { class: "values" });
  svg.addEventListener("pointermove", (e) => {
    const rect = svg.getBoundingClientRect(), at = x0 + (x1 - x0) * ((e.clientX - rect.left) / rect.width * W - L) / (W - L - R);
    const near = (s) => s.points.reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a);
    const x = near(series[0])[0];
    cross.setAttribute("x1", X(x)); cross.setAttribute("x2", X(x)); cross.setAttribute("visibility", "visible");
    values.textContent = `${xName} ${+x.toPrecision(6)}: ` + series.map((s) => `${s.name} ${format(near(s)[1])}`).join(", ");
  });
  svg.addEventListener("pointerleave", () => { cross.setAttribute("visibility", "hidden"); values.textContent = ""; });
  box.append(svg, list, values);
  return box;
}
// Each epoch's time: computing, waiting for input, waiting for the disk.
function timeChart(epochs) {
  const W = 1120, H = 190, L = 58, R = 10, T = 8, B = 26;
  const most = Math.max(...epochs.map((e) => e.seconds)) || 1, step = (W - L - R) / epochs.length;
  const total = (of) => epochs.reduce((sum, e) => sum + of(e), 0);
  const seconds = total((e) => e.seconds), input = total((e) => e.input_wait), disk = total((e) => e.disk_wait);
  const words = `Of ${secs(seconds)}, ${secs(input)} (${percent(input, seconds)}) went on waiting for input and ${secs(disk)} (${percent(disk, seconds)}) on waiting for the disk.`;
  const svg = el("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Time of each epoch. ${words}` });
  const Y = (v) => H - B - (H - B - T) * v / most;
  for (const t of ticks(0, most, 3)) svg.append(el("line", { x1: L, x2: W - R, y1: Y(t), y2: Y(t), stroke: "var(--rule)" }), el("text", { x: L - 6, y: Y(t) + 4, "text-anchor": "end" }, secs(t)));
  const pattern = el("pattern", { id: "hatch-wait", width: 6, height: 6, patternUnits: "userSpaceOnUse" }, el("path", { d: "M0 6L6 0", stroke: "var(--hatch)" }));
  const level = el("pattern", { id: "level-wait", width: 6, height: 4, patternUnits: "userSpaceOnUse" }, el("path", { d: "M0 2H6", stroke: "var(--hatch)" }));
  svg.append(el("defs", {}, pattern, level));
  epochs.forEach((e, i) => {
    const x = L + i * step + step * 0.14, w = Math.max(step * 0.72, 0.6);
    const parts = [[Math.max(e.seconds - e.input_wait - e.disk_wait, 0), "var(--k2)", null], [e.input_wait, "var(--k3)", "url(#hatch-wait)"], [e.disk_wait, "var(--k6)", "url(#level-wait)"]];
    let at = 0;
    const group = el("g", {}, el("title", {}, `epoch ${e.epoch}: ${secs(e.seconds)}, input ${secs(e.input_wait)}, disk ${secs(e.disk_wait)}`));
    for (const [value, fill, over] of parts) {
      const box = { x, width: w, y: Y(at + value), height: Math.max(Y(at) - Y(at + value), 0) };
      group.append(el("rect", { ...box, fill }));
      if (over) group.append(el("rect", { ...box, fill: over }));
      at += value;
    }
    svg.append(group);
    if (epochs.length <= 30 || i % Math.ceil(epochs.length / 15) === 0) svg.append(el("text", { x: x + w / 2, y: H - 9, "text-anchor": "middle" }, e.epoch + ""));
  });
  const key = el("ul", { class: "legend" }, el("li", {}, swatch(colour("--k2")), "computing"), el("li", {}, swatch(colour("--k3"), 2), "waiting for input"), el("li", {}, swatch(colour("--k6"), 4), "waiting for the disk"));
  return el("div", { class: "chart wide" }, el("h2", {}, "Where the time went, by epoch"), el("p", { class: "note" }, words), svg, key);
}
