"use strict";
// Themes, plots, a live search, and the few buttons. The pages work without it, but for the plots.

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const figures = new Map(); // by name: the figure as it came, with names for colours
let hovers = {}; // what points say, by the page that a click on them opens

// --- themes ---------------------------------------------------------------------------------------

const THEMES = ["system", "light", "dark"];

function stored(storage, name, value) {
  try {
    if (value === undefined) return storage.getItem(name) || "";
    storage.setItem(name, value);
  } catch { /* storage is switched off */ }
  return value || "";
}

function theme() {
  return document.documentElement.dataset.theme || "system";
}

function setTheme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  stored(localStorage, "theme", name);
  $("#theme").textContent = `Theme: ${name}`;
  drawAll();
}

// --- plots ----------------------------------------------------------------------------------------

// The styles say both themes at once: only a property of a real element is one of the two.
const probe = document.body.appendChild(document.createElement("i"));
probe.hidden = true;

function colour(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

function colours(value) {
  if (typeof value === "string" && /^@[a-z0-9-]+$/.test(value)) return colour(value.slice(1));
  if (Array.isArray(value)) return value.map(colours);
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, colours(part)]));
  return value;
}

function layoutOf(figure, width) {
  const axis = { gridcolor: "@line", linecolor: "@muted", zeroline: false, automargin: true };
  const narrow = width < 600;
  const base = {
    autosize: true, height: 400, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: "@text", family: "system-ui, sans-serif", size: narrow ? 11 : 12 },
    margin: { l: 10, r: 10, t: 10, b: 10 },
    hoverlabel: { align: "left", bgcolor: "@card", bordercolor: "@muted", font: { color: "@text" } },
    legend: { orientation: "h", y: -0.25, yanchor: "top", x: 0, bgcolor: "rgba(0,0,0,0)" },
    hovermode: "closest", dragmode: narrow ? false : "zoom",
  };
  const own = figure.layout;
  const layout = { ...base, ...own };
  for (const name of ["xaxis", "yaxis"]) {
    const given = own[name] || {};
    layout[name] = { ...axis, ...given, title: { standoff: 8, font: { size: 12 }, ...given.title } };
  }
  // What has no time stands on the upper edge of the plot, on an axis of its own.
  layout.yaxis2 = { overlaying: "y", range: [0, 1.03], visible: false, fixedrange: true };
  return colours(layout);
}

function said(trace) {
  const isShared = trace.hovertemplate?.includes("%{text}") && !trace.text;
  return isShared ? { ...trace, text: trace.customdata.map((page) => hovers[page]) } : trace;
}

function draw(name) {
  const place = $(`[data-plot="${name}"]`);
  const figure = figures.get(name);
  for (const part of [place, $(`[data-save="${name}"]`)]) part.hidden = !figure;
  $(`[data-empty="${name}"]`).hidden = Boolean(figure);
  if (!figure || !window.Plotly) return;
  if (place.closest("details:not([open])")) {
    place.dataset.drawn = "when it is opened";
    return;
  }
  const title = $("h3", place.parentElement).textContent;
  place.setAttribute("aria-label", `${title}. ${figure.said}`);
  const layout = layoutOf(figure, place.clientWidth);
  const data = colours(figure.data.map(said));
  Plotly.react(place, data, layout, { displayModeBar: false, responsive: true }).then(() => {
    place.dataset.drawn = "yes";
    if (place.dataset.listens) return;
    place.dataset.listens = "yes";
    place.on("plotly_click", (event) => {
      const target = event.points[0].customdata;
      if (typeof target === "string" && /^\/(trials|keys)\/\d+$/.test(target)) location.href = target;
    });
  });
}

function drawAll() {
  for (const name of figures.keys()) draw(name);
}

function readFigures(root) {
  const shared = $("script[data-hovers]", root);
  if (shared) hovers = JSON.parse(shared.textContent);
  for (const script of $$("script[data-figure]", root))
    figures.set(script.dataset.figure, JSON.parse(script.textContent));
}

function save(button) {
  const place = $(`[data-plot="${button.dataset.save}"]`);
  const filename = document.title.replace(/[^A-Za-z0-9]+/g, "-").slice(0, 80) + "-" + button.dataset.save;
  const picture = { data: place.data, layout: { ...place.layout, paper_bgcolor: colour("card") } };
  Plotly.downloadImage(picture, {
    format: "png", filename, width: Math.max(900, place.clientWidth), height: place.clientHeight,
  });
}

// --- a search while it runs -----------------------------------------------------------------------

const IDLE_MS = 10 * 60 * 1000;
const REFRESH_MS = 1500;

function watch(box) {
  let newest = Number(box.dataset.newest), published = box.dataset.published;
  let last = Date.now(), source = null, waiting = null;
  const said = $("[data-said]", box);

  function open() {
    if (source) return;
    source = new EventSource(box.dataset.events);
    source.addEventListener("progress", (event) => {
      const now = JSON.parse(event.data);
      said.textContent = progressOf(now);
      const running = now.search || (now.job && now.job.state === "running");
      box.classList.toggle("running", Boolean(running) || now.newest > newest);
      if (now.newest > newest || (now.published || "") !== published) {
        [newest, published] = [now.newest, now.published || ""];
        last = Date.now();
        waiting = waiting || setTimeout(refresh, REFRESH_MS);
      }
    });
  }

  function close() {
    if (source) source.close();
    source = null;
  }

  function refresh() {
    waiting = null;
    renew();
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  setInterval(() => {
    if (!source || Date.now() - last < IDLE_MS) return;
    close();
    box.classList.remove("running");
    said.textContent += " · not watched any more: reload to go on";
  }, 5000);
  open();
}

// Takes over what has changed on this page; what somebody is using, or has just done, stays.
async function renew(from = location.pathname + location.search) {
  try {
    const answer = await fetch(from, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const isNew = (part) => !$(`[data-live="${part.dataset.live}"]`);
    if ($$("[data-live]", fresh).some(isNew)) return location.reload(); // it is another page by now
    localTimes(fresh);
    for (const part of $$("[data-live]")) {
      const newer = $(`[data-live="${part.dataset.live}"]`, fresh);
      if (!newer) continue;
      for (const log of $$("pre.log", part)) extend(log.firstElementChild, $(`#${log.id} > code`, newer)?.textContent);
      const inUse = part.contains(document.activeElement) && !document.activeElement.matches("pre.log");
      if (inUse || part.innerHTML === newer.innerHTML) continue;
      for (const [place, details] of $$("details", newer).entries()) details.open = $$("details", part)[place]?.open ?? details.open;
      const form = $("form.token", part); // it was moved to where somebody looked
      if (form) part.after(form);
      part.replaceChildren(...newer.childNodes);
      part.dataset.poll = newer.dataset.poll || "";
    }
    fillToken();
    readFigures(fresh);
    drawAll();
  } catch { /* the server is gone: it is asked again */ }
}

// In its place, so that who scrolled, focused or selected some of it is left alone.
function extend(log, text) {
  const before = log.textContent;
  if (!text || text === before) return;
  if (text.startsWith(before)) log.append(text.slice(before.length));
  else log.textContent = text;
}

// Pages say UTC; who points at a time sees it in their own zone.
function localTimes(root = document) {
  for (const time of $$("time", root)) time.title = new Date(time.dateTime).toLocaleString();
}

function poll(part) {
  if (part.dataset.poll) setTimeout(async () => {
    if (!document.hidden) await renew(part.dataset.from);
    poll(part);
  }, Number(part.dataset.poll) * 1000);
}

function progressOf(now) {
  const counts = Object.entries(now.outcomes).map(([kind, n]) => `${n} ${kind}`).join(", ");
  const parts = [`${now.trials} trials: ${counts || "none yet"}`];
  if (now.search) parts.unshift(`${now.search.done} of ${now.search.goal}: ${now.search.note}`);
  if (now.best_us) parts.push(`best trial ${now.best_us.toLocaleString("en", { maximumFractionDigits: 1 })} µs, estimated${now.best_verified ? "" : ", not verified"}`);
  if (now.times_default) parts.push(`${now.times_default.toFixed(2)}× the default`);
  if (now.job) parts.push(`job ${now.job.number} is ${now.job.state}, ${now.job.done} of ${now.job.goal}${now.job.note ? ": " + now.job.note : ""}`);
  return parts.join(" · ");
}

// --- buttons --------------------------------------------------------------------------------------

function bearer(token) {
  return { Authorization: `Bearer ${token}` };
}

function fillToken() {
  const field = $("#token");
  if (field && !field.value) field.value = stored(sessionStorage, "token");
}

async function message(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `the service answered ${answer.status}`;
  }
}

async function postAll(button) {
  const said = $(".said", button.parentElement);
  const wanted = () => $$('button[data-post="/v1/jobs"]:not(:disabled)');
  let asked = 0;
  button.disabled = true;
  for (const next of wanted()) {
    await post(next); // one after another: a service takes only so many writes in a second
    if (!next.disabled) break;
    asked += 1;
    said.textContent = `${asked} requested`;
  }
  button.disabled = wanted().length === 0;
}

// What a button does needs a token; what came of it stands beside it.
async function post(button) {
  const said = $(".said", button.parentElement);
  const field = $("#token");
  if (!field.value) {
    said.textContent = "give a token first";
    const form = field.closest("form");
    form.waiting = button;
    button.parentElement.append(form); // where somebody looks
    field.focus();
    return;
  }
  button.disabled = true;
  try {
    const answer = await fetch(button.dataset.post, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...bearer(field.value) },
      body: button.dataset.body || undefined,
    });
    const made = answer.ok && (await answer.json());
    if (made && made.snapshot) said.textContent = `done: snapshot ${made.snapshot}`;
    else if (made) said.replaceChildren(linkTo(`/jobs/${made.number}`, `job ${made.number} is ${made.state || "changed"}`));
    else said.textContent = await message(answer);
    button.disabled = answer.ok;
    if (answer.ok) for (const used of [button, field]) used.blur(); // what is in use is not renewed
  } catch {
    said.textContent = "the service does not answer";
    button.disabled = false;
  }
}

function linkTo(path, text) {
  const link = document.createElement("a");
  link.href = path;
  link.textContent = text;
  return link;
}

async function openSession(form) {
  const answer = await fetch("/session", { headers: bearer($("input", form).value.trim()) });
  if (answer.ok) location.reload();
  else $(".said", form).textContent = await message(answer);
}

// On plain HTTP there is no clipboard: then the old command, and else the text is shown, selected.
async function copy(button) {
  const source = $("#" + button.dataset.copy);
  const said = $(".said", button.parentElement);
  try {
    await navigator.clipboard.writeText(source.textContent);
    said.textContent = "copied";
    return;
  } catch { /* not allowed, or not there */ }
  const hidden = source.closest("details:not([open])");
  if (hidden) hidden.open = true;
  source.hidden = false;
  getSelection().selectAllChildren(source);
  let done = false;
  try {
    done = document.execCommand("copy");
  } catch { /* it says no by false, or so */ }
  if (done && hidden) hidden.open = false;
  said.textContent = done ? "copied" : "this browser does not allow copying: the text is selected, press Ctrl+C";
}

// --- views: an address with a name, in this browser --------------------------------------------------

function views(change) {
  let known = {};
  try {
    known = JSON.parse(stored(localStorage, "views") || "{}");
  } catch { /* not ours */ }
  if (change) {
    change(known);
    stored(localStorage, "views", JSON.stringify(known));
  }
  const rows = Object.entries(known).filter(([, at]) => /^\/(?!\/)/.test(at)).map(([name, at]) => {
    const row = document.createElement("li"), forget = document.createElement("button");
    forget.className = "quiet";
    forget.dataset.forget = name;
    forget.textContent = "×";
    forget.setAttribute("aria-label", `Forget the view ${name}`);
    row.append(linkTo(at, name), forget);
    return row;
  });
  if (rows.length || change) $("[data-views]").replaceChildren(...rows);
}

document.addEventListener("click", (event) => {
  for (const menu of $$("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  const button = event.target.closest("button");
  if (!button) return;
  if (button.id === "theme") setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
  if (button.dataset.save) save(button);
  if (button.dataset.post) post(button);
  if ("jobs" in button.dataset) postAll(button);
  if (button.dataset.copy) copy(button);
  if (button.dataset.forget) views((known) => delete known[button.dataset.forget]);
});

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.matches("[data-token], [data-session], [data-save-view]")) event.preventDefault();
  if (form.matches("[data-save-view]")) {
    views((known) => (known[$("input", form).value.trim()] = location.pathname + location.search));
    form.reset();
  }
  if (form.matches("[data-session]")) openSession(form);
  const { waiting } = form;
  if (waiting && !waiting.disabled && $("#token").value) post(waiting);
});

$("#theme").textContent = `Theme: ${theme()}`;
fillToken();
views();
document.addEventListener("input", (event) => {
  if (event.target.id === "token") stored(sessionStorage, "token", event.target.value);
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.matches("input, select, textarea")) return;
  event.preventDefault();
  $(".find input").focus();
});
// A phone or a tablet shows the answer; the other sections open at a tap, or when a link leads to them.
function fold() {
  const wanted = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  for (const details of $$("details.fold")) details.open = innerWidth > 900 || Boolean(wanted && details.contains(wanted));
  if (wanted) wanted.scrollIntoView();
}

function unfold() {
  const wanted = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  const closed = wanted && wanted.closest("details.fold");
  if (closed) closed.open = true;
}

fold();
localTimes();
window.addEventListener("hashchange", unfold);
window.addEventListener("beforeprint", () => {
  for (const details of $$("details.fold")) details.open = true; // paper cannot be opened
  drawAll();
});
document.addEventListener("toggle", (event) => {
  if (event.target.open && event.target.matches("details.fold")) drawAll();
}, true);
readFigures(document);
drawAll();
const plotly = $('script[src*="plotly"]'); // megabytes: buttons work before it is there
if (plotly) plotly.addEventListener("load", drawAll);
for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", drawAll);
const live = $("[data-events]");
if (live) watch(live);
const polled = $("[data-poll]");
if (polled) poll(polled);
