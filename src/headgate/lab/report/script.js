// Draws the plots. Text from the data enters the page as text only: textContent, or letters on a canvas.
"use strict";
{
  const data = JSON.parse(document.getElementById("data").textContent);
  const place = (name) => document.getElementById(name);
  const colour = (name) => () => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const ink = colour("ink"), quiet = colour("quiet"), line = colour("line"), panel = colour("panel");
  const face = getComputedStyle(document.body).fontFamily;
  const number = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 3 });
  const plots = [];

  const times = data.offered.map((_, at) => data.start + at * data.width);
  const middles = times.map((each) => each + data.width / 2);
  const end = data.start + data.offered.length * data.width;
  const instant = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ");
  const bin = (at) => `${instant(times[at])} to ${instant(times[at] + data.width)} UTC`;

  // A plot as wide as its place, for as long as the page is shown.
  function plot(host, height, options, values) {
    const made = new uPlot({
      width: host.clientWidth, height, legend: { show: false }, padding: [8, 20, 0, 0],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"), ...options,
    }, values, host);
    new ResizeObserver(() => {
      if (host.clientWidth && host.clientWidth !== made.width) made.setSize({ width: host.clientWidth, height });
    }).observe(host);
    plots.push(made);
    return made;
  }

  const axis = (more) => ({
    stroke: quiet, font: `12px ${face}`, grid: { stroke: line, width: 1 }, ticks: { show: false }, gap: 6, ...more,
  });

  // A horizontal line across a plot, in the pixels of its canvas.
  function rule(u, value, dash) {
    const { ctx, bbox } = u, top = Math.round(u.valToPos(value, "y", true)) + 0.5;
    ctx.save();
    ctx.strokeStyle = ink();
    ctx.lineWidth = uPlot.pxRatio;
    ctx.setLineDash(dash.map((length) => length * uPlot.pxRatio));
    ctx.beginPath();
    ctx.moveTo(bbox.left, top);
    ctx.lineTo(bbox.left + bbox.width, top);
    ctx.stroke();
    ctx.restore();
  }

  // Passed above the line, refused below it. The scale is that of all limits, so that they can be compared.
  const paths = uPlot.paths.bars({ size: [1, 40, 1] });
  const bars = (fillTo, fill) => ({ fill, stroke: fill, width: 0, fillTo, paths, points: { show: false } });
  const days = end - data.start >= 86400;
  const time = {
    values: (u, splits, _, __, step) => splits.map((each) => {
      const text = new Date(each * 1000).toISOString();
      return step >= 86400 || (days && each % 86400 === 0) ? text.slice(5, 10) : text.slice(11, step < 60 ? 19 : 16);
    }),
    space: 64, size: 30, grid: { show: false },
  };
  const cursor = { sync: { key: "time" }, y: false, drag: { x: false, y: false }, points: { show: false } };
  let shown = 0;

  const passed = (at) => data.offered.map((all, place) => all - data.limits[at].refused[place]);
  const below = (at) => data.limits[at].refused.map((each) => (each ? -each : null));
  const highest = Math.max(1, ...data.limits.map((_, at) => Math.max(...passed(at))));
  const lowest = Math.max(0, ...data.limits.map((each) => Math.max(...each.refused)));

  function readTime(u) {
    const at = u.cursor.idx, readout = place("time-readout");
    if (at == null || u.cursor.left < 0) return readout.textContent = "";
    const refused = data.limits[shown].refused[at];
    readout.textContent = `${bin(at)}: ${number(data.offered[at] - refused)} passed, ${number(refused)} refused`;
  }
  const overTime = plot(place("time-plot"), 280, {
    cursor,
    scales: { x: { range: [data.start, end] }, y: { range: [-lowest * 1.06, highest * 1.04] } },
    axes: [
      axis(time),
      axis({ size: 58, values: (u, splits) => splits.map((each) => number(Math.abs(each))) }),
    ],
    series: [{}, bars(0, colour("passed")), bars(0, colour("refused"))],
    hooks: { draw: [(u) => rule(u, 0, [])], setCursor: [readTime] },
  }, [middles, passed(0), below(0)]);
  for (const each of document.querySelectorAll("input[name=limit]")) {
    each.addEventListener("change", () => {
      shown = Number(each.value);
      place("time-finding").textContent = data.limits[shown].finding;
      overTime.setData([middles, passed(shown), below(shown)], false);
      overTime.redraw();
    });
  }
  const steered = [[place("time-plot"), overTime]];

  // A strip for each limit that was compared with exact windows: only what is above the dashed line is coloured.
  const limits = data.limits.filter((each) => each.compared);
  const multiples = limits.map((each) => each.above.map((above) => (above ? 1 + above / each.amount : null)));
  const most = Math.max(1, ...multiples.map((each) => Math.max(...each)));
  const multiple = (value) => `${value.toFixed(value > 1 && value < 1.05 ? 2 : 1)}x`;
  const roof = most > 1 ? 1 + (most - 1) * 1.08 : 2;

  function readOvershoot(u) {
    const at = u.cursor.idx, readout = place("overshoot-readout");
    if (at == null || u.cursor.left < 0) return readout.textContent = "";
    const over = limits.filter((each) => each.above[at]).map(
      (each) => `${each.name} ${number(each.amount + each.above[at])} in ${each.period}`);
    readout.textContent = `${bin(at)}: ${over.join(", ") || "none above"}`;
  }
  const strips = [...document.querySelectorAll("#overshoot .strip")].map((host, at, all) => {
    const last = at === all.length - 1;
    return plot(host, last ? 98 : 72, {
      cursor,
      scales: { x: { range: [data.start, end] }, y: { range: [1 - (roof - 1) * 0.12, roof] } },
      axes: [
        axis(last ? time : { ...time, size: 4, values: () => [] }),
        axis({
          size: 50, grid: { show: false },
          splits: () => [1, most > 1 ? most : 2], values: (u, splits) => splits.map(multiple),
        }),
      ],
      series: [{}, bars(1, colour("above"))],
      hooks: { draw: [(u) => rule(u, 1, [5, 4])], setCursor: at ? [] : [readOvershoot] },
    }, [middles, multiples[at]]);
  });
  if (strips.length) steered.push([place("overshoot-plot"), strips[0]]);

  // Arrow keys move the cursor from bin to bin; the readout tells what is there.
  for (const [host, u] of steered) {
    host.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (!step) return;
      event.preventDefault();
      const from = u.cursor.left < 0 || u.cursor.idx == null ? -Math.sign(step) : u.cursor.idx;
      const at = Math.min(times.length - 1, Math.max(0, from + step));
      u.setCursor({ left: u.valToPos(middles[at], "x"), top: 10 }, true, true);
    });
  }

  // A stem for each limit: wrongly passed below, wrongly refused on it. Labels avoid each other.
  let measure = "same";
  const known = () => limits.filter((each) => each.wrong[measure]).sort((one, other) => one.bytes - other.bytes);
  const share = (each) => (100 * (each.wrong[measure][0] + each.wrong[measure][1])) / data.requests;
  const points = () => [known().map((each) => Math.log2(each.bytes)), known().map(share)];

  function overlap(one, other) {
    return one.left < other.left + other.width && other.left < one.left + one.width &&
      one.top < other.top + other.height && other.top < one.top + one.height;
  }
  function drawPoints(u) {
    const { ctx, bbox } = u, ratio = uPlot.pxRatio, taken = [];
    const spots = known().map((each) => ({
      each, x: u.valToPos(Math.log2(each.bytes), "x", true), y: u.valToPos(share(each), "y", true),
      middle: u.valToPos((100 * each.wrong[measure][0]) / data.requests, "y", true),
    }));
    const floor = u.valToPos(0, "y", true), stem = 6 * ratio;
    const stems = spots.map(({ x, y }) => ({ left: x - stem / 2, top: y, width: stem, height: floor - y }));
    ctx.save();
    for (const { x, y, middle } of spots) {
      ctx.fillStyle = colour("above")();
      ctx.fillRect(x - stem / 2, middle, stem, floor - middle);
      ctx.fillStyle = colour("refused")();
      ctx.fillRect(x - stem / 2, y, stem, middle - y);
      taken.push({ left: x - 7 * ratio, top: y - 7 * ratio, width: 14 * ratio, height: 14 * ratio });
    }
    rule(u, 0, []);
    ctx.font = `600 ${13 * ratio}px ${face}`;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.lineJoin = "round";
    for (const { each, x, y } of spots) {
      ctx.beginPath();
      ctx.arc(x, y, 5.5 * ratio, 0, 2 * Math.PI);
      ctx.fillStyle = ink();
      ctx.strokeStyle = panel();
      ctx.lineWidth = 2 * ratio;
      ctx.fill();
      ctx.stroke();
      const width = ctx.measureText(each.name).width, height = 17 * ratio, near = 11 * ratio;
      const boxes = [0, -18, 18, -36, 36, -54].flatMap((shift) => [x + near, x - near - width, x - width / 2].map(
        (left) => ({ left, top: y - height / 2 + shift * ratio, width, height })));
      const inside = boxes.filter((box) => box.left >= bbox.left && box.left + width <= bbox.left + bbox.width + near &&
        box.top >= 0 && box.top + height <= floor && !taken.some((other) => overlap(box, other)));
      const box = inside.find((one) => !stems.some((other) => overlap(one, other))) || inside[0] || boxes[0];
      taken.push(box);
      ctx.lineWidth = 4 * ratio;
      ctx.strokeText(each.name, box.left, box.top + height / 2);
      ctx.fillText(each.name, box.left, box.top + height / 2);
    }
    ctx.restore();
  }
  if (limits.length) {
    const sizes = limits.map((each) => Math.log2(each.bytes));
    const left = Math.floor(Math.min(...sizes)) - 0.6, right = Math.ceil(Math.max(...sizes)) + 0.6;
    const powers = (u) => {
      const every = (right - left) / u.width > 0.02 ? 2 : 1, first = Math.ceil(left);
      return Array.from({ length: Math.floor((right - first) / every) + 1 }, (_, at) => first + at * every);
    };
    const accuracy = plot(place("accuracy-plot"), 320, {
      cursor: { show: false }, padding: [14, 20, 0, 0],
      scales: {
        x: { time: false, range: [left, right] },
        y: { range: () => [0, Math.max(...known().map(share), 0) * 1.12 || 1] },
      },
      axes: [
        axis({
          size: 30, splits: powers, values: (u, splits) => splits.map((each) => number(2 ** each)),
          label: "bytes a client", labelFont: `12px ${face}`, labelSize: 22, labelGap: 2,
        }),
        axis({ size: 62, values: (u, splits) => splits.map((each) => `${number(each)} %`) }),
      ],
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: { draw: [drawPoints] },
    }, points());
    for (const each of document.querySelectorAll("input[name=measure]")) {
      each.addEventListener("change", () => {
        measure = each.value;
        place("accuracy-finding").textContent = data.findings[measure];
        accuracy.setData(points());
      });
    }
  }

  // Paper is light, whatever the screen is.
  const dark = matchMedia("screen and (prefers-color-scheme: dark)");
  dark.addEventListener("change", () => plots.forEach((each) => each.redraw()));
  document.documentElement.classList.add("runs");
}
