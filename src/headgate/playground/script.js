// The page: sends what the user does, keeps what the server counts, and draws it.

import { PERIODS, drawGlyph, drawPlot } from "/drawing.js";

const by = (id) => document.getElementById(id);
const token = document.querySelector("meta[name=headgate-token]").content;
const still = window.matchMedia("(prefers-reduced-motion: reduce)");
const NEAR = 9; // pixels from a dot or cross at which it is pointed at
const FRAME = 34; // milliseconds between two frames
const STEP = 500; // milliseconds between two drawings where motion is not wanted
const view = { amount: 10, period: 1e7, bin: 1, now: 0 };
let page = "", lanes = [], head = null, frames = [], drawnAt = 0, chosen = 5, lines = [], acted = Promise.resolve();

async function send(action, value) {
  const answer = await fetch("/act", {
    method: "POST", headers: { "X-Headgate-Token": token }, body: JSON.stringify({ page, do: action, value }),
  });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told.told;
}

// One after the other, on whatever connections: the last thing that the user did is the last thing that happens.
function act(action, value) {
  acted = acted.then(() => send(action, value)).then(() => complain(""), (error) => complain(error.message));
}

function complain(text) {
  by("mistake").textContent = text;
  by("limit").setAttribute("aria-invalid", text ? "true" : "false");
}

const seconds = (us) => (us >= 6e7 ? `${+(us / 6e7).toFixed(1)} min` : `${+(us / 1e6).toFixed(us < 1e6 ? 3 : 1)} s`);
const written = (limit) => limit.replace(" seconds", "s").replace("/second", "/1s");
const logarithmic = (at, least, most) => least * (most / least) ** (at / 100);
const placeOf = (value, least, most) => (100 * Math.log(value / least)) / Math.log(most / least);
const rounded = (value) => (value < 10 ? +value.toFixed(1) : Math.round(value));

function element(name, parent, text = "", kind = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return parent.appendChild(made);
}

function makeLane(told, place) {
  const row = element("article", by("lanes"), "", "lane"), who = element("div", row, "", "who");
  row.setAttribute("aria-label", told.name);
  element("h2", who, told.name);
  const glyph = element("canvas", who, "", "glyph");
  glyph.setAttribute("aria-hidden", "true");
  element("p", who, told.words, "words");
  const plot = element("canvas", row, "", "plot"), list = element("dl", row), cells = {};
  plot.tabIndex = 0;
  plot.setAttribute("role", "img");
  for (const name of ["passed", "refused", "most", place === 1 ? "longest wait" : "next yes"]) {
    element("dt", list, name === "most" ? `most in ${seconds(view.period)}` : name);
    cells[name] = element("dd", list, "0");
  }
  const lane = {
    ...told, place, row, plot, glyphCanvas: glyph, cells, waits: place === 1, curve: [], marks: [], ticks: [], left: [],
    most: 0, glyph: [0, 0], pointed: -1,
  };
  plot.addEventListener("pointermove", (event) => point(lane, event.offsetX));
  plot.addEventListener("pointerdown", (event) => point(lane, event.offsetX));
  plot.addEventListener("pointerleave", () => hide());
  plot.addEventListener("blur", () => hide());
  plot.addEventListener("keydown", (event) => walk(lane, event));
  who.addEventListener("click", () => choose(place));
  plot.addEventListener("focus", () => choose(place));
  return lane;
}

function begin(told) {
  const anew = !head || told.begun !== head.begun;
  head = told;
  Object.assign(view, { amount: told.amount, period: told.period, bin: told.bin });
  if (anew) {
    by("lanes").replaceChildren();
    lanes = told.lanes.map(makeLane);
    view.now = 0;
    frames = [];
    lines = [];
    hide();
  }
  if (document.activeElement !== by("limit")) by("limit").value = written(told.limit);
  by("amount").value = told.amount;
  by("amount-is").textContent = by("burst-is").textContent = told.amount;
  by("per").value = told.period / 1e6;
  by("per-is").textContent = seconds(told.period);
  by("speed").value = placeOf(told.speed, 1, 200);
  by("speed-is").textContent = `${rounded(told.speed)}x`;
  by("rate").value = placeOf(told.rate, 0.1, 1000);
  by("rate-is").textContent = `${rounded(told.rate)}/s`;
  by("pause").setAttribute("aria-pressed", told.paused);
  for (const chip of by("traffic").querySelectorAll("[data-traffic]")) {
    chip.setAttribute("aria-pressed", chip.dataset.traffic === told.traffic);
  }
  by("log").setAttribute("aria-pressed", told.traffic === "log");
  by("client").hidden = told.traffic !== "log";
  by("client").replaceChildren(...told.clients.map((client) => new Option(`${client.name} (${client.requests})`, client.key)));
  if (told.client) by("client").value = told.client;
  writeCode();
}

function take(frame) {
  frames = [...frames.slice(-19), { at: performance.now(), time: frame.t }];
  const old = frame.t - PERIODS * view.period - 2 * view.bin;
  frame.lanes.forEach((told, place) => takeLane(lanes[place], told, frame, old));
  if (by("caption").textContent !== frame.caption) tell(frame.caption);
  if (frame.lines.length) {
    lines = [...lines, ...frame.lines].slice(-60);
    by("lines").textContent = [`${"".padEnd(12)}   tb   lb   fw   sw  sw6   sl`, ...lines.slice().reverse()].join("\n");
  }
}

// The sentence, with the names of lanes in bold.
function tell(text) {
  const names = head.lanes.map((lane) => lane.name).sort((one, other) => other.length - one.length);
  const parts = text.split(new RegExp(`(${names.join("|")})`));
  by("caption").replaceChildren(...parts.map((part, at) => {
    if (at % 2 === 0) return part;
    const bold = document.createElement("strong");
    bold.textContent = part;
    return bold;
  }));
}

function takeLane(lane, told, frame, old) {
  for (let at = 0; at < told.c.length; at += 2) {
    const [bin, value] = [told.c[at], told.c[at + 1]], last = lane.curve[lane.curve.length - 1];
    if (last && last[0] === bin) last[1] = value;
    else lane.curve.push([bin, value]);
  }
  while (lane.curve.length > 1 && lane.curve[1][0] * view.bin < old) lane.curve.shift();
  (frame.q || []).forEach((time, at) => lane.marks.push({ time, yes: told.a[at] === "1", number: frame.i + at }));
  while (lane.marks.length && lane.marks[0].time < old) lane.marks.shift();
  for (let at = 0; at < (told.b || []).length; at += 3) lane.ticks.push(told.b.slice(at, at + 3));
  while (lane.ticks.length && lane.ticks[0][0] * view.bin < old) lane.ticks.shift();
  lane.left.push(...(told.d || []));
  while (lane.left.length && lane.left[0] < old) lane.left.shift();
  lane.most = told.m;
  lane.glyph = told.g;
  const over = told.m > view.amount, { passed, refused, most } = lane.cells;
  passed.textContent = told.p.toLocaleString("en");
  refused.textContent = told.r.toLocaleString("en");
  most.textContent = over ? `${(told.m / view.amount).toFixed(1)}x ${told.m}` : `${told.m}`;
  most.classList.toggle("over", over);
  if (lane.waits) lane.cells["longest wait"].textContent = seconds(told.w);
  else lane.cells["next yes"].textContent = told.n > 0 ? seconds(told.n) : "now";
  lane.plot.setAttribute("aria-label", `${lane.name}: ${told.p} passed, ${told.r} refused, at most ${told.m} in a period`);
}

function draw(at) {
  requestAnimationFrame(draw);
  if (!head || !frames.length || (still.matches && at - drawnAt < STEP)) return;
  drawnAt = at;
  // Between two frames time runs on at the speed of the last ones. It never runs back.
  const first = frames[0], last = frames[frames.length - 1];
  const speed = last.at > first.at ? (last.time - first.time) / (last.at - first.at) : 0;
  const ahead = still.matches || head.paused ? 0 : Math.min(FRAME, performance.now() - last.at) * speed;
  view.now = Math.max(view.now, last.time + ahead);
  const clock = still.matches || head.paused ? 0.3 : (at % 900) / 900;
  for (const lane of lanes) {
    drawPlot(lane.plot, lane, view);
    drawGlyph(lane.glyphCanvas, lane.place, lane, view, clock);
  }
}

function point(lane, x) {
  let nearest = null, distance = NEAR;
  for (const mark of lane.marks) {
    const far = Math.abs(view.x(mark.time) - x);
    if (far < distance) [nearest, distance] = [mark, far];
  }
  if (nearest) show(lane, nearest);
  else hide();
}

function walk(lane, event) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], { marks } = lane;
  if (!step || !marks.length) return;
  event.preventDefault();
  const at = marks.findIndex((mark) => mark.number === lane.pointed);
  const next = at < 0 ? marks.length - 1 : Math.min(marks.length - 1, Math.max(0, at + step));
  show(lane, marks[next]);
}

async function show(lane, mark) {
  if (lane.pointed === mark.number && !by("answer").hidden) return;
  lane.pointed = mark.number;
  const box = by("answer");
  try {
    box.textContent = await send("answer", [lane.place, mark.number]);
  } catch (error) {
    box.textContent = error.message;
  }
  if (lane.pointed !== mark.number) return;
  box.hidden = false;
  const frame = lane.plot.getBoundingClientRect(), x = frame.left + view.x(mark.time);
  box.style.left = `${Math.max(4, Math.min(x, window.innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${window.scrollY + frame.bottom - 4}px`;
}

function hide() {
  by("answer").hidden = true;
  for (const lane of lanes) lane.pointed = -1;
}

function choose(place) {
  chosen = place;
  writeCode();
}

function writeCode() {
  const { name } = head.lanes[chosen], limit = written(head.limit); // not the text of a user who is still typing
  const queue = ["from headgate import Shaper", "", `shaper = Shaper("${limit} queue ${head.amount}")`, "",
    'shaper.shape("user:42")  # waits for its turn'];
  const plain = ["from headgate import Limiter", "", `limiter = Limiter("${limit} by ${name}")`, "",
    'decision = limiter.hit("user:42")', "if not decision:", "    print(decision.retry_after)"];
  by("code").textContent = (chosen === 1 ? queue : plain).join("\n");
}

async function call() {
  by("call").disabled = true; // one call after the other, so that the answer shown is the last one
  const answer = await fetch("/api/hello"), fields = [];
  for (const [name, value] of answer.headers) if (/^(ratelimit|retry-after)/.test(name)) fields.push(`${name}: ${value}`);
  by("called").textContent = [`${answer.status} ${answer.statusText}`, ...fields, "", (await answer.text()).trim()].join("\n");
  by("call").disabled = false;
}

async function upload() {
  const [file] = by("file").files;
  if (!file) return;
  const answer = await fetch(`/log?page=${page}`, { method: "POST", headers: { "X-Headgate-Token": token }, body: file });
  const told = await answer.json();
  complain(answer.ok ? "" : told.error);
  by("file").value = "";
}

function connect() {
  const source = new EventSource(`/events?token=${token}`);
  source.addEventListener("page", (event) => { page = JSON.parse(event.data); head = null; });
  source.addEventListener("head", (event) => begin(JSON.parse(event.data)));
  source.addEventListener("frame", (event) => take(JSON.parse(event.data)));
  source.onerror = () => { by("caption").textContent = "The playground has ended, or too many pages are open. Start it again and load this page."; };
}

const KEYS = { s: "attack", b: "burst", " ": "one", r: "restart" };
document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input:not([type=range]), select");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === " " && event.target.matches("button")) return; // space presses a button
  if (event.key === "p") by("pause").click();
  else if (KEYS[event.key]) act(KEYS[event.key]);
  else return;
  event.preventDefault();
});
// A pointer leaves no focus on a button: space sends a request then. The keyboard's clicks have no detail.
document.addEventListener("click", (event) => event.detail && event.target.closest("button")?.blur());
for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", () => act(button.dataset.do));
by("pause").addEventListener("click", () => act("pause", !head.paused));
by("traffic").addEventListener("click", (event) => {
  const chip = event.target.closest("[data-traffic]");
  if (chip) act("traffic", chip.dataset.traffic);
});
by("log").addEventListener("click", () => (head.clients.length && head.traffic !== "log" ? act("client", head.clients[0].key) : by("file").click()));
by("file").addEventListener("change", upload);
by("client").addEventListener("change", () => act("client", by("client").value));
by("limit").addEventListener("input", () => act("limit", by("limit").value));
for (const name of ["amount", "per"]) {
  by(name).addEventListener("input", () => {
    by("limit").value = `${by("amount").value}/${by("per").value}s`;
    act("limit", by("limit").value);
  });
}
by("speed").addEventListener("input", () => act("speed", logarithmic(+by("speed").value, 1, 200)));
by("rate").addEventListener("input", () => act("rate", logarithmic(+by("rate").value, 0.1, 1000)));
by("call").addEventListener("click", call);
by("copy").addEventListener("click", () => navigator.clipboard.writeText(by("code").textContent));
connect();
requestAnimationFrame(draw);
