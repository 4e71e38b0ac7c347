/* Keeps the heatmap of the Fleet page up to date, moves in it by arrow keys, and shows all numbers of
 * the rack that is pointed at.
 *
 * #heatmap has data-url (the poll), data-generation (of the inventory; when it changes, the page is
 * loaded anew), data-kind and data-says (how a value is written and read out: dashboard/live.py).
 * The poll answers columns, or 304. Only cells that changed are touched. */
(function () {
  "use strict";
  const POLL_MS = 1000;
  const RELOAD_AFTER_MS = 5000;
  const LEVELS = ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9", "m10", "over", "stale", "unknown"];
  const OVER = 11;
  const STALE = 12;
  const UNKNOWN = 13;
  const DIMENSIONS = [
    "power",
    "heat",
    "links",
    "its feed",
    "its feed if the other fails",
    "its site",
    "its cooling zone",
  ];

  const map = document.getElementById("heatmap");
  if (!map) return;
  const cells = Array.from(map.querySelectorAll(".cell"));
  const byId = new Map(cells.map((cell) => [Number(cell.dataset.rack), cell]));
  const { url, generation, kind, says } = map.dataset;

  // --- Numbers: as in dashboard/units.py and dashboard/live.py ---

  function number(value, digits) {
    if (value === null || value === undefined) return "–";
    const text = Math.abs(value).toLocaleString("en-US", {
      minimumFractionDigits: digits,
      maximumFractionDigits: digits,
    });
    return value < 0 && Number(text) !== 0 ? "−" + text : text;
  }

  function figure(value) {
    if (kind === "age") return window.headroom.age(value);
    if (value === null) return "–";
    if (kind === "percent") return number(value, 0) + " %";
    if (kind === "kw") return number(value, 1) + " kW";
    if (kind === "celsius") return number(value, 0) + " °C";
    return number(value, 0);
  }

  function words(level, staleNodes) {
    if (level === UNKNOWN) return "never heard from";
    let text = kind === "kw" ? says.replace(/^kW /, "") : says;
    if (level === OVER) text += ", over";
    if (level === STALE) text += ", stale";
    else if (staleNodes) text += ", " + staleNodes + (staleNodes === 1 ? " node" : " nodes") + " stale";
    return text;
  }

  // --- Cells ---

  let racks = null; // columns of the last answer
  const rowOf = new Map();

  function paint(cell, level, value, staleNodes) {
    const partly = staleNodes && level !== STALE && level !== UNKNOWN;
    cell.className = "cell " + LEVELS[level] + (partly ? " part-stale" : "");
    const name = cell.firstElementChild.textContent;
    const shown = level === UNKNOWN ? "–" : figure(value);
    cell.lastElementChild.textContent = shown;
    cell.setAttribute("aria-label", name + " " + shown + " " + words(level, staleNodes));
  }

  function take(next) {
    const before = racks;
    const { id, level, value, stale_nodes: stale } = next;
    for (let i = 0; i < id.length; i++) {
      const same =
        before !== null &&
        before.id[i] === id[i] &&
        before.level[i] === level[i] &&
        before.value[i] === value[i] &&
        before.stale_nodes[i] === stale[i];
      const cell = same ? null : byId.get(id[i]);
      if (cell) paint(cell, level[i], value[i], stale[i]);
      rowOf.set(id[i], i);
    }
    racks = next;
    sums.forEach(sum);
    if (isChosen) describe();
    else point(tightest(), false);
  }

  // --- Rows: as in dashboard/cells.py ---

  const sums = Array.from(map.querySelectorAll(".row-sum"), (text) => ({
    text,
    ids: Array.from(text.parentElement.querySelectorAll(".cell"), (cell) => Number(cell.dataset.rack)),
  }));

  function total(column, places) {
    const values = places.map((i) => column[i]);
    return values.includes(null) ? null : values.reduce((sum, value) => sum + value, 0);
  }

  function sum({ text, ids }) {
    const places = ids.map((id) => rowOf.get(id)).filter((i) => i !== undefined);
    const left = places.map((i) => racks.tightest[i]).filter((value) => value !== null);
    const least = left.length ? share(left.reduce((a, b) => Math.min(a, b))) : "not known";
    const load = number(total(racks.load_kw, places), 1);
    const says = load + " of " + number(total(racks.budget_kw, places), 1) + " kW · tightest " + least;
    if (text.textContent !== says) text.textContent = says;
  }

  // --- Details ---

  const title = document.getElementById("details-title");
  const list = document.getElementById("details-list");
  const slots = {};
  for (const slot of list.querySelectorAll("[data-show]")) slots[slot.dataset.show] = slot;
  let shownCell = null;
  let isChosen = false; // by pointer or focus; until then the tightest rack is shown

  function tightest() {
    let least = 0;
    const left = racks.tightest;
    for (let i = 1; i < left.length; i++) {
      if (left[i] !== null && (left[least] === null || left[i] < left[least])) least = i;
    }
    return byId.get(racks.id[least]);
  }

  function unit(value, digits, suffix) {
    return value === null ? "–" : number(value, digits) + suffix;
  }

  function share(percent) {
    return unit(Math.abs(percent), 0, percent < 0 ? " % over" : " % left");
  }

  function describe() {
    if (!shownCell || !racks) return;
    const i = rowOf.get(Number(shownCell.dataset.rack));
    if (i === undefined) return;
    const at = (name) => racks[name][i];
    const left = at("load_kw") === null || at("budget_kw") === null ? null : at("budget_kw") - at("load_kw");
    const texts = {
      load: unit(at("load_kw"), 1, "") + " of " + unit(at("budget_kw"), 1, " kW"),
      left: unit(left, 1, " kW"),
      measured: unit(at("measured_kw"), 1, " kW"),
      enforced: unit(at("enforced_kw"), 1, " kW"),
      hottest: unit(at("hottest_c"), 0, " °C"),
      heat: unit(at("heat_margin_c"), 0, " °C"),
      clock: unit(at("clock"), 0, " % of max"),
      throttling: unit(at("throttling"), 0, at("throttling") === 1 ? " GPU" : " GPUs"),
      link: unit(at("link_free"), 0, " %"),
      tightest: at("tightest") === null ? "–" : DIMENSIONS[at("dimension")] + ", " + share(at("tightest")),
      age: window.headroom.age(at("age_s")),
      stale: unit(at("stale_nodes"), 0, ""),
    };
    for (const [name, text] of Object.entries(texts)) {
      if (slots[name].textContent !== text) slots[name].textContent = text;
    }
  }

  function point(cell, chosen = true) {
    if (!cell) return;
    const same = cell === shownCell && chosen === isChosen;
    shownCell = cell;
    isChosen = chosen;
    if (same) return describe();
    const row = cell.closest(".heat-row")?.querySelector(".row-name")?.textContent;
    const site = cell.closest(".heat-site")?.querySelector("h3")?.textContent;
    title.textContent = [(chosen ? "" : "tightest now: ") + "rack " + cell.firstElementChild.textContent, row, site].filter(Boolean).join(" · ");
    list.hidden = false;
    describe();
  }

  map.addEventListener("pointerover", (event) => point(event.target.closest(".cell")));

  // --- Arrow keys: one cell at a time is in the tab order ---

  let current = cells[0];
  for (const cell of cells) cell.tabIndex = cell === current ? 0 : -1;

  function focus(cell) {
    if (!cell) return;
    current.tabIndex = -1;
    current = cell;
    current.tabIndex = 0;
    current.focus();
  }

  /** The nearest cell above (-1) or below (1), by where cells are on the screen. */
  function vertical(direction) {
    const from = current.getBoundingClientRect();
    const x = from.left + from.width / 2;
    let best = null;
    let least = Infinity;
    for (const cell of cells) {
      const to = cell.getBoundingClientRect();
      const down = (to.top - from.top) * direction;
      if (down < from.height / 2) continue;
      const far = down * 1000 + Math.abs(to.left + to.width / 2 - x);
      if (far < least) [best, least] = [cell, far];
    }
    return best;
  }

  map.addEventListener("focusin", function (event) {
    const cell = event.target.closest(".cell");
    if (!cell) return;
    if (cell !== current) {
      current.tabIndex = -1;
      current = cell;
      current.tabIndex = 0;
    }
    point(cell);
  });

  map.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const place = cells.indexOf(current);
    const moves = {
      ArrowRight: () => cells[place + 1],
      ArrowLeft: () => cells[place - 1],
      ArrowDown: () => vertical(1),
      ArrowUp: () => vertical(-1),
      Home: () => cells[0],
      End: () => cells[cells.length - 1],
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    focus(moves[event.key]());
  });

  // --- Poll ---

  let etag = "";
  let last = { newest: null, now: 0, heard: 0 };
  let otherSince = 0;

  function heard(newest, now) {
    last = { newest, now, heard: performance.now() };
    window.headroom.pulse(newest, now);
  }

  async function poll() {
    const answer = await fetch(url, {
      headers: etag ? { "If-None-Match": etag } : {},
      cache: "no-store",
      signal: AbortSignal.timeout(8000),
    });
    if (answer.status === 401 || answer.status === 403) return window.headroom.signedOut();
    if (answer.status === 304) {
      return heard(last.newest, last.now + (performance.now() - last.heard) / 1000);
    }
    if (!answer.ok) throw new Error(String(answer.status));
    const body = await answer.json();
    if (String(body.generation) !== generation) {
      // Another process may still answer from the inventory of a moment ago.
      otherSince = otherSince || performance.now();
      if (performance.now() - otherSince > RELOAD_AFTER_MS) location.reload();
    } else otherSince = 0;
    etag = answer.headers.get("ETag") || "";
    take(body.racks);
    heard(body.newest, body.now);
  }

  async function loop() {
    const began = performance.now();
    if (!document.hidden) {
      try {
        await poll();
      } catch {
        window.headroom.lost();
      }
    }
    setTimeout(loop, Math.max(100, POLL_MS - (performance.now() - began)));
  }

  document.addEventListener("visibilitychange", function () {
    if (!document.hidden) poll().catch(window.headroom.lost);
  });
  loop();
})();
