"use strict";
// Keys, the theme, the filter and what a plot says where one points at it. Without this script the
// page shows all the same.
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const marks = [...document.querySelectorAll(".matrix .mark a")];
  const rows = [...document.querySelectorAll(".matrix tbody tr")];

  // Cells -------------------------------------------------------------------------------------
  const goTo = (id) => {
    const target = byId(id);
    if (!target) return;
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    target.scrollIntoView({ block: "start" });
    (target.querySelector("summary") || target).focus({ preventScroll: true });
  };
  const follow = () => location.hash && goTo(decodeURIComponent(location.hash.slice(1)));
  addEventListener("hashchange", follow);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    // A second click on the same link changes no hash.
    if (link && link.hash === location.hash) follow();
  });
  follow();

  // One stop of the Tab key for the whole matrix; arrows within it.
  marks.forEach((mark, i) => (mark.tabIndex = i ? -1 : 0));
  const focusMark = (mark) => {
    if (!mark) return;
    marks.forEach((each) => (each.tabIndex = -1));
    mark.tabIndex = 0;
    mark.focus();
  };
  const marksOf = (row) => [...row.querySelectorAll(".mark a")];
  const move = (mark, across, down) => {
    const shown = rows.filter((row) => row.offsetParent !== null && marksOf(row).length);
    const row = mark.closest("tr");
    const place = marksOf(row).indexOf(mark);
    const next = down ? shown[shown.indexOf(row) + down] : row;
    if (next) focusMark(marksOf(next)[Math.min(place, marksOf(next).length - 1) + across]);
  };
  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

  // The next or the previous cell that did not pass.
  const bad = [...document.querySelectorAll("details.cell:not(.passed)")];
  const step = (by) => {
    const here = bad.findIndex((each) => each.contains(document.activeElement));
    const next = bad[here < 0 ? (by > 0 ? 0 : bad.length - 1) : here + by];
    if (next) goTo(next.id);
  };

  // Filter, theme, help -----------------------------------------------------------------------
  const filter = byId("only-bad");
  const toggleFilter = () => {
    if (!filter) return;
    const on = document.body.classList.toggle("only-bad");
    filter.setAttribute("aria-pressed", String(on));
  };
  const theme = byId("theme");
  const toggleTheme = () => {
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  };
  const help = byId("keys");
  const showHelp = () => (help.open ? help.close() : help.showModal());
  filter?.addEventListener("click", toggleFilter);
  theme.addEventListener("click", toggleTheme);
  byId("help").addEventListener("click", showHelp);
  byId("keys-close").addEventListener("click", () => help.close());
  for (const each of document.querySelectorAll(".tools, #only-bad")) each.hidden = false;

  const KEYS = {
    n: () => step(1),
    p: () => step(-1),
    m: () => (marks.length ? focusMark(marks.find((mark) => mark.tabIndex === 0)) : 0),
    f: toggleFilter,
    t: toggleTheme,
    "?": showHelp,
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const mark = event.target.closest?.(".matrix .mark a");
    if (mark && ARROWS[event.key]) {
      move(mark, ...ARROWS[event.key]);
      event.preventDefault();
    } else if (KEYS[event.key] && (!help.open || event.key === "?")) {
      KEYS[event.key]();
      event.preventDefault();
    }
  });

  // Plots -------------------------------------------------------------------------------------
  const SVG = "http://www.w3.org/2000/svg";
  const clock = (s) => {
    const all = Math.round(s);
    const two = (n) => String(n).padStart(2, "0");
    const [h, m] = [Math.floor(all / 3600), Math.floor(all / 60) % 60];
    return h ? `${h}:${two(m)}:${two(all % 60)}` : `${m}:${two(all % 60)}`;
  };
  const shown = (value, size) =>
    (value / size).toLocaleString("en-US", { maximumSignificantDigits: 4 });

  // A path's coordinates are times and values.
  const linesOf = (plot) =>
    (plot.lines ??= [...plot.querySelectorAll(".art path[data-name]")].map((path) => ({
      name: path.dataset.name,
      points: path.getAttribute("d").split(/[ML]/).slice(1).map((pair) => pair.split(" ").map(Number)),
    })));
  const nearest = (points, at) =>
    points.reduce((best, each) => (Math.abs(each[0] - at) < Math.abs(best[0] - at) ? each : best));

  const point = (plot, at) => {
    const end = Number(plot.dataset.end);
    plot.at = Math.min(Math.max(at, 0), end);
    const art = plot.querySelector(".art");
    let cursor = art.querySelector(".cursor");
    if (!cursor) {
      cursor = art.appendChild(document.createElementNS(SVG, "path"));
      cursor.setAttribute("class", "cursor");
    }
    const { width, height } = art.viewBox.baseVal;
    cursor.setAttribute("d", `M${(width * plot.at) / end} 0V${height}`);
    const lines = linesOf(plot).filter((line) => line.points.length);
    const values = lines.map((line) => {
      const value = shown(nearest(line.points, plot.at)[1], Number(plot.dataset.size));
      return lines.length > 1 ? `${line.name} ${value}` : value;
    });
    plot.querySelector(".readout").textContent =
      `at ${clock(plot.at)}: ${values.join(", ")} ${plot.dataset.unit}`.trim();
  };
  const leave = (plot) => {
    plot.querySelector(".cursor")?.remove();
    plot.querySelector(".readout").textContent = "";
  };
  for (const plot of document.querySelectorAll(".plot")) {
    const art = plot.querySelector(".plot-art");
    art.addEventListener("pointermove", (event) => {
      const box = art.getBoundingClientRect();
      point(plot, ((event.clientX - box.left) / box.width) * Number(plot.dataset.end));
    });
    art.addEventListener("pointerleave", () => leave(plot));
    plot.addEventListener("blur", () => leave(plot));
    plot.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      const end = Number(plot.dataset.end);
      point(plot, (plot.at ?? (by > 0 ? -end / 100 : end)) + (by * end) / 100);
      event.preventDefault();
    });
  }
})();
