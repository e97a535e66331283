// What the lanes look like: curves, dots and glyphs on canvases. Every number comes from the server.

export const PERIODS = 3;
const DOTS = 250; // more requests than this in view are drawn as ticks
const FOOT = 26; // pixels below the curve, for dots and crosses
const root = getComputedStyle(document.documentElement);
export const colour = (name) => root.getPropertyValue(`--${name}`).trim();

export function fitted(canvas) {
  const scale = window.devicePixelRatio || 1, { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const ink = canvas.getContext("2d");
  ink.setTransform(scale, 0, 0, scale, 0, 0);
  ink.clearRect(0, 0, width, height);
  return { ink, width, height };
}

// The curve of what passed in the trailing period: one value a bin, held until the next change.
function curve(ink, lane, view, width, foot, y) {
  ink.beginPath();
  ink.moveTo(0, foot);
  let before = 0;
  for (const [bin, value] of lane.curve) {
    const x = Math.max(0, view.x(bin * view.bin));
    ink.lineTo(x, y(before));
    ink.lineTo(x, y(value));
    before = value;
  }
  ink.lineTo(width, y(before));
}

export function drawPlot(canvas, lane, view) {
  const { ink, width, height } = fitted(canvas), foot = height - FOOT, { amount, period, now } = view;
  const top = Math.max(2.1 * amount, lane.most * 1.06), y = (value) => foot - (value / top) * (foot - 4);
  view.x = (time) => width * (1 - (now - time) / (PERIODS * period));
  const limit = y(amount);
  ink.lineWidth = 1;
  ink.strokeStyle = colour(lane.knows ? "shade" : "edge");
  ink.setLineDash(lane.knows ? [] : [2, 4]);
  for (let seam = Math.floor(now / period) * period; seam > now - PERIODS * period; seam -= period) {
    ink.beginPath();
    ink.moveTo(Math.round(view.x(seam)) + 0.5, 2);
    ink.lineTo(Math.round(view.x(seam)) + 0.5, foot);
    ink.stroke();
  }
  ink.setLineDash([]);
  for (const [name, from, tall] of [["pale", limit, foot - limit], ["above", 0, limit]]) {
    ink.save();
    ink.beginPath();
    ink.rect(0, from, width, tall);
    ink.clip();
    curve(ink, lane, view, width, foot, y);
    ink.lineTo(width, foot);
    ink.closePath();
    ink.fillStyle = colour(name);
    ink.fill();
    ink.restore();
  }
  ink.save();
  ink.beginPath();
  ink.rect(0, 0, width, foot + 1);
  ink.clip();
  curve(ink, lane, view, width, foot, y);
  ink.strokeStyle = colour("passed");
  ink.lineWidth = 1.5;
  ink.stroke();
  ink.restore();
  ink.setLineDash([5, 4]);
  ink.lineWidth = 1;
  ink.strokeStyle = colour("quiet");
  ink.beginPath();
  ink.moveTo(0, Math.round(limit) + 0.5);
  ink.lineTo(width, Math.round(limit) + 0.5);
  ink.stroke();
  ink.setLineDash([]);
  drawMarks(ink, lane, view, foot);
}

function drawMarks(ink, lane, view, foot) {
  const yes = foot + 7, no = foot + 18, many = lane.marks.length > DOTS || lane.ticks.length > 0;
  ink.fillStyle = ink.strokeStyle = colour("passed");
  for (const mark of lane.marks) {
    if (!mark.yes) continue;
    const x = view.x(mark.time);
    ink.beginPath();
    if (many) ink.rect(x - 0.75, yes - 4, 1.5, 8);
    else ink.arc(x, yes, lane.waits ? 2.4 : 3, 0, 7);
    if (lane.waits && !many) ink.stroke(); else ink.fill();
  }
  for (const time of lane.left) {
    ink.beginPath();
    ink.arc(view.x(time), yes, 3, 0, 7);
    ink.fill();
  }
  ink.strokeStyle = ink.fillStyle = colour("refused");
  ink.lineWidth = 1.4;
  ink.beginPath();
  for (const mark of lane.marks) {
    if (mark.yes) continue;
    const x = view.x(mark.time), arm = many ? 0 : 3;
    ink.moveTo(x - arm, no - 3);
    ink.lineTo(x + arm, no + 3);
    if (arm) {
      ink.moveTo(x + arm, no - 3);
      ink.lineTo(x - arm, no + 3);
    }
  }
  ink.stroke();
  const wide = Math.max(1, view.x(view.bin) - view.x(0));
  for (const [bin, passed, refused] of lane.ticks) {
    const x = view.x(bin * view.bin);
    ink.fillStyle = colour("passed");
    if (passed) ink.fillRect(x, yes - 4, wide, 8);
    ink.fillStyle = colour("refused");
    if (refused) ink.fillRect(x, no - 3, wide, 6);
  }
}

function vessel(ink, level, falls, clock) {
  ink.fillStyle = colour("passed");
  const side = (y) => ((y - 12) / 46) * 6; // the walls lean inwards
  const top = 58 - 46 * Math.min(1, level);
  ink.beginPath();
  ink.moveTo(10 + side(top), top);
  ink.lineTo(52 - side(top), top);
  ink.lineTo(46, 58);
  ink.lineTo(16, 58);
  ink.fill();
  ink.strokeStyle = colour("quiet");
  ink.lineWidth = 1.5;
  ink.beginPath();
  ink.moveTo(10, 12);
  ink.lineTo(16, 58);
  ink.lineTo(46, 58);
  ink.lineTo(52, 12);
  ink.stroke();
  ink.beginPath();
  ink.arc(31, falls === "in" ? 3 + clock * (top - 5) : 60 + clock * 5, 2, 0, 7);
  if (falls === "in" ? level < 1 : level > 0) ink.fill();
}

function bars(ink, values, fade) {
  const wide = Math.min(26, 58 / values.length), first = 31 - (wide * values.length) / 2;
  values.forEach((value, at) => {
    const x = first + at * wide, tall = 54 * Math.min(1, value);
    ink.strokeStyle = colour("edge");
    ink.lineWidth = 1;
    ink.strokeRect(x + 1.5, 6.5, wide - 3, 54);
    ink.globalAlpha = at === 0 && values.length > 1 ? 1 - 0.85 * fade : 1;
    ink.fillStyle = colour("passed");
    ink.fillRect(x + 2, 60 - tall, wide - 4, tall);
    ink.globalAlpha = 1;
  });
}

function dots(ink, count, amount) {
  const each = Math.max(1, Math.ceil(amount / 48)), all = Math.ceil(amount / each), side = Math.ceil(Math.sqrt(all));
  const step = Math.min(12, 56 / side);
  for (let at = 0; at < all; at++) {
    ink.fillStyle = colour(at * each < count ? "passed" : "edge");
    ink.beginPath();
    ink.arc(8 + (at % side) * step, 10 + Math.floor(at / side) * step, step * 0.38, 0, 7);
    ink.fill();
  }
}

export function drawGlyph(canvas, place, lane, view, clock) {
  const { ink } = fitted(canvas), values = lane.glyph;
  if (place === 0) vessel(ink, values[0], "in", clock);
  else if (place === 1) vessel(ink, values[0], "out", clock);
  else if (place === 5) dots(ink, values[0], view.amount);
  else bars(ink, values.slice(0, -1), values[values.length - 1]);
}
