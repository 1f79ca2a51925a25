"use strict";
// Small things that all parts use: elements, numbers as text, and the two surfaces that pictures are drawn on.
const $ = (id) => document.getElementById(id);
function el(tag, attrs = {}, ...children) {
  const svg = ["svg", "g", "path", "polyline", "line", "rect", "circle", "text", "title", "defs", "pattern"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attrs)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (/^(aria|data)-/.test(name) && value != null) node.setAttribute(name, String(value));
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  for (const child of children.flat()) if (child != null && child !== "") node.append(child);
  return node;
}
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
function size(bytes) {
  let value = bytes, unit = 0;
  while (Math.abs(value) >= 1024 && unit < 4) { value /= 1024; unit++; }
  return unit === 0 ? `${bytes} B` : `${value.toFixed(value < 10 ? 2 : 1)} ${UNITS[unit]}`;
}
const exact = (n) => Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, ",");
function secs(s) {
  if (s == null || !isFinite(s)) return "–";
  if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  if (s >= 120) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  if (s >= 1) return `${s.toFixed(2)} s`;
  if (s >= 1e-3) return `${(s * 1e3).toFixed(1)} ms`;
  return `${(s * 1e6).toFixed(0)} µs`;
}
const percent = (part, whole) => whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : "–";
const figure = (v) => v == null ? "not a number" : Math.abs(v) >= 1e4 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(2) : v.toFixed(4);
const plural = (n, word) => `${exact(n)} ${word}${n === 1 ? "" : "s"}`;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function ticks(low, high, n) {
  const rough = (high - low) / Math.max(n, 1);
  if (!(rough > 0) || !isFinite(rough)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const list = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12); i++) list.push(i * step);
  return list;
}

const KINDS = ["input", "activation", "saved for gradients", "gradient", "update", "state from the file", "workspace"];
const STRATEGIES = ["kept", "given up, computed again later", "computed again", "goes to the file", "came from the file"];
const PHASES = ["forward", "backward", "update", "transfer"];
// What each pattern looks like, as strokes in a square of 8: colour says the kind, the pattern how it came to be there.
const PATTERNS = {
  1: [[0, 8, 0, 0]], // given up: upright lines
  2: [[0, 8, 8, 0], [-2, 2, 2, -2], [6, 10, 10, 6]], // computed again: hatched
  3: [[0, 0, 8, 8], [-2, 6, 2, 10], [6, -2, 10, 2], [0, 8, 8, 0], [-2, 2, 2, -2], [6, 10, 10, 6]], // to the file: crossed
  4: [[0, 4, 8, 4]], // from the file: level lines
  9: [[0, 8, 8, 0]], // holes
};

// A picture is drawn by calls to one of these two, so what is exported is what is shown.
class CanvasSurface {
  constructor(canvas, width, height) {
    const ratio = Math.min(window.devicePixelRatio || 1, 3);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    this.c = canvas.getContext("2d");
    this.c.scale(ratio, ratio);
    this.c.clearRect(0, 0, width, height);
    this.made = {};
    this.ratio = ratio;
  }
  pattern(number) {
    if (!this.made[number]) {
      const tile = document.createElement("canvas");
      tile.width = tile.height = 8;
      const t = tile.getContext("2d");
      t.strokeStyle = colour("--hatch");
      t.lineWidth = 1.2;
      for (const [x1, y1, x2, y2] of PATTERNS[number]) { t.beginPath(); t.moveTo(x1, y1); t.lineTo(x2, y2); t.stroke(); }
      this.made[number] = this.c.createPattern(tile, "repeat");
    }
    return this.made[number];
  }
  rect(x, y, w, h, fill, pattern) {
    this.c.fillStyle = fill;
    this.c.fillRect(x, y, w, h);
    if (pattern && w > 1.5 && h > 1.5) { this.c.fillStyle = this.pattern(pattern); this.c.fillRect(x, y, w, h); }
  }
  frame(x, y, w, h, stroke, width) { this.c.strokeStyle = stroke; this.c.lineWidth = width; this.c.strokeRect(x, y, w, h); }
  line(x1, y1, x2, y2, stroke, width = 1, dash = []) {
    const c = this.c;
    c.strokeStyle = stroke; c.lineWidth = width; c.setLineDash(dash);
    c.beginPath(); c.moveTo(x1, y1); c.lineTo(x2, y2); c.stroke(); c.setLineDash([]);
  }
  circle(x, y, r, stroke, width, fill) {
    const c = this.c;
    c.beginPath(); c.arc(x, y, r, 0, 7);
    if (fill) { c.fillStyle = fill; c.fill(); }
    c.strokeStyle = stroke; c.lineWidth = width; c.stroke();
  }
  poly(points, fill) {
    const c = this.c;
    c.beginPath(); points.forEach(([x, y], i) => i ? c.lineTo(x, y) : c.moveTo(x, y)); c.closePath();
    c.fillStyle = fill; c.fill();
  }
  text(x, y, text, fill, { size: px = 12, anchor = "start", weight = 400, room = Infinity, back = null } = {}) {
    const c = this.c;
    c.font = `${weight} ${px}px ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,sans-serif`;
    if (room < Infinity && c.measureText(text).width > room) {
      while (text.length > 1 && c.measureText(text + "…").width > room) text = text.slice(0, -1);
      if (text.length < 3) return;
      text += "…";
    }
    const width = c.measureText(text).width;
    const left = anchor === "end" ? x - width : anchor === "middle" ? x - width / 2 : x;
    if (back) { c.fillStyle = back; c.fillRect(left - 4, y - px + 1, width + 8, px + 4); }
    c.fillStyle = fill; c.textAlign = "left"; c.fillText(text, left, y);
  }
}
class SvgSurface {
  constructor(width, height) { this.width = width; this.height = height; this.parts = []; this.used = new Set(); }
  static clean(text) { return String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`); }
  add(text) { this.parts.push(text); }
  rect(x, y, w, h, fill, pattern) {
    const box = `x="${x.toFixed(2)}" y="${y.toFixed(2)}" width="${w.toFixed(2)}" height="${h.toFixed(2)}"`;
    this.add(`<rect ${box} fill="${fill}"/>`);
    if (pattern && w > 1.5 && h > 1.5) { this.used.add(pattern); this.add(`<rect ${box} fill="url(#p${pattern})"/>`); }
  }
  frame(x, y, w, h, stroke, width) { this.add(`<rect x="${x}" y="${y}" width="${w}" height="${h}" fill="none" stroke="${stroke}" stroke-width="${width}"/>`); }
  line(x1, y1, x2, y2, stroke, width = 1, dash = []) {
    this.add(`<line x1="${x1.toFixed(2)}" y1="${y1.toFixed(2)}" x2="${x2.toFixed(2)}" y2="${y2.toFixed(2)}" stroke="${stroke}" stroke-width="${width}"${dash.length ? ` stroke-dasharray="${dash}"` : ""}/>`);
  }
  circle(x, y, r, stroke, width, fill) { this.add(`<circle cx="${x}" cy="${y}" r="${r}" stroke="${stroke}" stroke-width="${width}" fill="${fill || "none"}"/>`); }
  poly(points, fill) { this.add(`<polygon points="${points.map((p) => p.map((v) => v.toFixed(2)).join(",")).join(" ")}" fill="${fill}"/>`); }
  text(x, y, text, fill, { size: px = 12, anchor = "start", weight = 400, room = Infinity, back = null } = {}) {
    if (room < Infinity) { const most = Math.floor(room / (px * 0.56)); if (text.length > most) { if (most < 4) return; text = text.slice(0, most - 1) + "…"; } }
    if (back) {
      const width = text.length * px * 0.55, left = anchor === "end" ? x - width : anchor === "middle" ? x - width / 2 : x;
      this.add(`<rect x="${left - 4}" y="${y - px + 1}" width="${width + 8}" height="${px + 4}" fill="${back}"/>`);
    }
    this.add(`<text x="${x.toFixed(2)}" y="${y.toFixed(2)}" fill="${fill}" font-size="${px}" font-weight="${weight}" text-anchor="${anchor}">${SvgSurface.clean(text)}</text>`);
  }
  done(title) {
    const defs = [...this.used].map((n) => `<pattern id="p${n}" width="8" height="8" patternUnits="userSpaceOnUse">${PATTERNS[n].map(([a, b, c, d]) => `<line x1="${a}" y1="${b}" x2="${c}" y2="${d}" stroke="${colour("--hatch")}" stroke-width="1.2"/>`).join("")}</pattern>`).join("");
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${this.width} ${this.height}" width="${this.width}" height="${this.height}" font-family="ui-sans-serif,system-ui,sans-serif"><title>${SvgSurface.clean(title)}</title><defs>${defs}</defs><rect width="100%" height="100%" fill="${colour("--card")}"/>${this.parts.join("")}</svg>`;
  }
}
// A small square in a kind's colour and a strategy's pattern, for legends and tables.
function swatch(fill, pattern) {
  const lines = pattern ? PATTERNS[pattern].map(([x1, y1, x2, y2]) => `<path d="M${x1} ${y1}L${x2} ${y2}" stroke="${colour("--hatch")}" stroke-width="1.2"/>`).join("") : "";
  const tile = `<svg xmlns='http://www.w3.org/2000/svg' width='8' height='8'>${lines}</svg>`;
  const style = `background-color:${fill}` + (pattern ? `;background-image:url("data:image/svg+xml,${encodeURIComponent(tile)}")` : "");
  const node = el("span", { class: "swatch", "aria-hidden": "true" });
  node.style.cssText = style;
  return node;
}
function save(name, type, content) {
  const link = el("a", { href: URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type })), download: name });
  document.body.append(link); link.click(); link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 5000);
}
