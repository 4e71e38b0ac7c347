/* The chart of a page: readings stacked on one time axis, drawn by js/figure.js.
 *
 * #timeline has either
 *   data-figure              an endpoint that answers with a figure: rows, lanes and marks
 * or
 *   data-url, data-sources   series API; "gpu:7", "node:3 host:3", "rack:1 meter:2"
 *   data-events, data-xids, data-ecc   APIs of events, filtered to what is shown; or none
 *   data-slowdown-c, data-sm-max-mhz, data-capacity-bits-per-s
 *                            drawn where readings do not say the limit; data-budget-w too, of the
 *                            element with id data-limits-of, which is kept up to date
 *   data-meters              names of meters by id, JSON
 *   data-gpus                how many GPUs a place has
 * and
 *   data-query               the span, as the API takes it: "range=1h" or "from=…&to=…"
 *   data-live, data-length-s the span ends now; how long it is
 *   data-compare             the range before, or so much earlier, is drawn dashed
 *   data-zone                "utc" or "local"
 *   data-name                of the file of a picture
 *
 * #annotations, where it is there, lists what happened: each of its rows with data-at (Unix s) is a
 * mark, called data-mark, that leads to data-href.
 *
 * Rows without any reading are left out; #timeline-absent names them, #timeline-table has the rest
 * in numbers, where they are there. A live span is asked for again every 2 s: of a figure its tail. */
(function () {
  "use strict";
  const chart = document.getElementById("timeline");
  const note = document.getElementById("timeline-note");
  if (!chart) return;
  const data = chart.dataset;
  const zone = data.zone || "utc";
  const RETRY_MS = 10000;
  const FIGURE_MS = 2000;
  // A chart of a day changes no faster than its points are apart.
  // Sums of places are of minutes.
  const isSum = /(^| )(zone|power_domain|site):/.test(data.sources || "");
  const SERIES_MS = Math.max(isSum ? 30000 : 5000, (Number(data.lengthS) / 720) * 1000);
  const LATE_S = 60;
  const POINTS = 600;

  async function get(url, tries = 4) {
    const answer = await fetch(url, {
      headers: { Accept: "application/json" },
      signal: AbortSignal.timeout(15000),
    });
    if (answer.status === 401) return location.reload();
    if ([429, 503].includes(answer.status) && answer.headers.get("Retry-After") && tries > 1) {
      // Several charts at once are more than one person may ask for: one after the other then.
      const wait_s = Math.min(Number(answer.headers.get("Retry-After")), 5);
      await new Promise((resolve) => setTimeout(resolve, 1000 * wait_s * (0.5 + Math.random())));
      return get(url, tries - 1);
    }
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.error.message);
    return body;
  }

  function joined(url, ...queries) {
    return url + (url.includes("?") ? "&" : "?") + queries.filter(Boolean).join("&");
  }

  function iso(unix) {
    return new Date(unix * 1000).toISOString();
  }

  // How much earlier is what the range is compared with, s, and its name: as in dashboard/ranges.py.
  const EARLIER = { "24h": [86400, "24 h earlier"], "7d": [604800, "7 d earlier"] };

  function shift({ start, end }) {
    return EARLIER[data.compare] || [end - start, "before"];
  }

  function before(span) {
    const [back] = shift(span);
    return "from=" + iso(span.start - back) + "&to=" + iso(span.end - back);
  }

  function isKnown(column) {
    return column && column.some((value) => value !== null);
  }

  function scaled(column, factor) {
    return column.map((value) => (value === null ? null : value * factor));
  }

  // --- From series to rows ---------------------------------------------------------------------

  // One row of the chart: its title, its unit, and what is drawn on it. "limit" lines are dashed.
  // "near": the axis need not begin at zero.
  const HEAT = [line("temp_c", "core", 1), line("temp_mem_c", "memory", 2), limit("temp_limit_c", "slowdown", "slowdownC")];
  const GBITS = 8e-9; // of bytes
  const CLOCK = [line("sm_mhz", "SM clock", 1), limit(null, "highest", "smMaxMhz")];
  const SUM = [
    {
      title: "Sum of power",
      unit: "kW",
      lines: [
        line("gpu_power_w", "GPUs", 1, 1e-3),
        line("power_w", "nodes", 2, 1e-3),
        limit(null, "budget now", "budgetW", 1e-3),
      ],
    },
    {
      title: "Heard",
      unit: "GPUs",
      lines: [line("gpus_reporting", "heard", 3), limit(null, "in all", "gpus")],
    },
  ];
  const ROWS = {
    gpu: [
      {
        title: "Power",
        unit: "W",
        lines: [line("power_w", "power", 1), limit("power_limit_w", "power limit")],
      },
      { title: "Temperature", unit: "°C", near: true, lines: HEAT },
      { title: "SM clock", unit: "MHz", near: true, lines: CLOCK },
      { title: "Use", unit: "%", range: [0, 105], lines: [line("util", "use", 1)] },
    ],
    node: [
      {
        title: "Power",
        unit: "kW",
        lines: [
          line("power_w", "node", 1, 1e-3),
          line("gpu_power_w", "its GPUs", 2, 1e-3),
          limit("power_limit_w", "GPU limits", null, 1e-3),
        ],
      },
      { title: "Hottest GPU", unit: "°C", near: true, lines: HEAT },
      { title: "SM clock, mean", unit: "MHz", near: true, lines: CLOCK },
      { title: "GPU use, mean", unit: "%", range: [0, 105], lines: [line("util", "GPU use", 1)] },
    ],
    rack: [
      {
        title: "Power",
        unit: "kW",
        lines: [line("power_w", "measured", 1, 1e-3), limit(null, "budget now", "budgetW", 1e-3)],
      },
    ],
    // Places of several racks: the sum of what was heard, and of how many it is.
    ...Object.fromEntries(["zone", "power_domain", "site"].map((kind) => [kind, SUM])),
    meter: [
      { title: "Power", unit: "kW", lines: [line("power_w", "meter", 3, 1e-3)] },
      { title: "Temperature", unit: "°C", near: true, lines: [line("temp_c", "meter", 3)] },
    ],
    link: [
      {
        title: "Traffic",
        unit: "Gbit/s",
        lines: [
          line("tx_bytes_per_s", "out", 1, GBITS),
          line("rx_bytes_per_s", "in", 2, GBITS),
          limit(null, "capacity", "capacityBitsPerS", 1e-9),
        ],
      },
      {
        title: "Sent for jobs",
        unit: "Gbit/s",
        lines: [
          line("tx_collective_bytes_per_s", "collective", 1, GBITS),
          line("tx_checkpoint_bytes_per_s", "checkpoint", 2, GBITS),
          line("tx_data_bytes_per_s", "data", 3, GBITS),
          line("tx_artifact_bytes_per_s", "artifact", 4, GBITS),
        ],
      },
      {
        title: "Sent besides",
        unit: "Gbit/s",
        lines: [
          line("tx_control_bytes_per_s", "control", 1, GBITS),
          line("tx_log_bytes_per_s", "log", 2, GBITS),
          line("tx_operator_bytes_per_s", "operator", 3, GBITS),
        ],
      },
      { title: "Latency", unit: "ms", lines: [line("latency_s", "latency", 1, 1e3)] },
      { title: "Sent again", unit: "1/s", lines: [line("retransmits_per_s", "segments", 2)] },
    ],
    host: [
      { title: "CPU", unit: "%", range: [0, 105], lines: [line("cpu_util", "CPU", 1)] },
      {
        title: "Memory",
        unit: "GiB",
        lines: [
          line("mem_used", "memory in use", 1, 2 ** -30),
          limit("mem_total", "installed", null, 2 ** -30),
        ],
      },
      {
        title: "Network",
        unit: "Gbit/s",
        lines: [
          line("net_rx_bytes_per_s", "in", 1, GBITS),
          line("net_tx_bytes_per_s", "out", 2, GBITS),
        ],
      },
      {
        title: "Host power",
        unit: "W",
        lines: [line("power_w", "besides GPUs", 1), line("cpu_power_w", "CPUs", 2)],
      },
      {
        title: "Stalled (PSI)",
        unit: "%",
        lines: [
          line("psi_cpu", "on CPU", 1),
          line("psi_mem", "on memory", 2),
          line("psi_io", "on I/O", 3),
        ],
      },
    ],
  };

  function line(field, name, series, factor) {
    return { field, name, color: "--series-" + series, factor: factor || 1 };
  }

  function limit(field, name, rating, factor) {
    return { field, name, rating, color: "--limit", dash: "dash", factor: factor || 1 };
  }

  const meters = JSON.parse(data.meters || "{}");
  const sources = (data.sources || "").split(" ").filter(Boolean).map(function (source) {
    const [kind, id] = source.split(":");
    const name = kind === "meter" ? meters[id] : "";
    const fields = ROWS[kind].flatMap((row) => row.lines.map((each) => each.field));
    const asked = ["kind=" + kind, "id=" + id, "points=" + POINTS];
    return { kind, name, url: joined(data.url, ...asked, "fields=" + fields.filter(Boolean).join(",")) };
  });

  function values(columns, each) {
    const column = each.field && columns[each.field];
    if (isKnown(column)) return scaled(column, each.factor);
    // A rating is a level line, drawn only beside readings.
    const limits = document.getElementById(data.limitsOf)?.dataset || data;
    const rating = each.rating && (limits[each.rating] ?? data[each.rating]);
    return rating ? columns.t.map(() => Number(rating) * each.factor) : null;
  }

  function seriesRows({ kind, name }, columns) {
    return ROWS[kind]
      .filter((row) => row.lines.some((each) => isKnown(columns[each.field])))
      .map((row) => ({
        ...row,
        title: name ? row.title + " by " + name : row.title,
        t: columns.t,
        lines: row.lines
          .map((each) => ({ ...each, y: values(columns, each) }))
          .filter((each) => each.y),
      }));
  }

  // Spans of each cause, those that overlap (of several GPUs) made into one.
  function causes(events, { start, end }) {
    const byCause = new Map();
    for (const event of [...events].sort((a, b) => (a.opened_at < b.opened_at ? -1 : 1))) {
      const from = Math.max(Date.parse(event.opened_at) / 1000, start);
      const to = event.closed_at ? Math.min(Date.parse(event.closed_at) / 1000, end) : end;
      if (to <= from) continue;
      const spans = byCause.get(event.cause) || [];
      const last = spans[spans.length - 1];
      if (last && from <= last[1]) last[1] = Math.max(last[1], to);
      else spans.push([from, to]);
      byCause.set(event.cause, spans);
    }
    return [...byCause]
      .sort((a, b) => (a[0] < b[0] ? -1 : 1))
      .map(([name, spans]) => ({ name, spans, color: "--cause-" + name }));
  }

  function errors(xids, ecc) {
    return [
      ...xids.map((each) => ({
        at: Date.parse(each.ts) / 1000,
        name: "Xid " + each.xid,
        bad: each.severity === "critical",
      })),
      ...ecc.map((each) => ({
        at: Date.parse(each.at) / 1000,
        name: "ECC +" + each.count,
        bad: true,
      })),
    ];
  }

  async function seriesOf(query) {
    return Promise.all(sources.map((source) => get(joined(source.url, query))));
  }

  function rowsOf(bodies) {
    return bodies.flatMap((body, i) => seriesRows(sources[i], body.columns));
  }

  async function eventsIn(span) {
    const within = "since=" + iso(span.start) + "&until=" + iso(span.end);
    const urls = data.events ? [data.events, data.xids, data.ecc] : [];
    const [events, xids, ecc] = await Promise.all(urls.map((url) => get(joined(url, within))));
    if (!events) return { lanes: [], errors: [] };
    return { lanes: causes(events.results, span), errors: errors(xids.results, ecc.results) };
  }

  async function fromSeries() {
    const bodies = await seriesOf(data.query);
    const span = bodies[0];
    const earlier = "compare" in data ? rowsOf(await seriesOf(before(span))) : [];
    const { lanes, errors } = await eventsIn(span);
    const rows = compared(rowsOf(bodies), earlier, span);
    const shades = lanes.map((lane) => lane.name);
    return { start: span.start, end: span.end, rows, lanes, errors, shades, absent: [] };
  }

  // --- From a figure to rows -------------------------------------------------------------------

  const LANES = {
    attempt: (key) => (key === "running" ? "--series-3" : "--hatch-line"),
    throttle: (key) => "--cause-" + key,
    directive: () => "--series-4",
    restriction: () => "--series-2",
    pending: () => "--hatch-line",
    info: () => "--series-3",
    warning: () => "--series-2",
    critical: () => "--bad",
  };
  const NAMES = { failure: "failed", ecc: "memory error" };
  // Rows whose values are far from zero, and shares.
  const NEAR = ["loss", "temperature", "clock"];

  let whole = null; // the last figure, made whole of the tails that came since

  function figureRow(row) {
    const { t, ...columns } = row.columns;
    const known = Object.values(columns).flat();
    const inMs = row.unit === "s" && Math.max(...known.map(Number)) < 0.5;
    const factor = inMs ? 1000 : 1;
    const bands = new Set(row.lines.filter((each) => each.role === "band").map((each) => each.field));
    const drawn = row.lines.filter((each) => each.role !== "band");
    let series = 0;
    return {
      key: row.key,
      title: row.title,
      unit: inMs ? "ms" : row.unit,
      near: NEAR.includes(row.key),
      t,
      lines: drawn.map(function (each) {
        const isLimit = each.role === "limit";
        const column = each.value === null ? columns[each.field] : t.map(() => each.value);
        return {
          name: each.name,
          y: scaled(column, factor),
          ...(bands.has(each.field) && {
            low: scaled(columns[each.field + "_min"], factor),
            high: scaled(columns[each.field + "_max"], factor),
          }),
          color: isLimit ? "--limit" : "--series-" + (series++ % 4 + 1),
          dash: isLimit ? (each.value === null ? "dash" : "dot") : undefined,
        };
      }),
    };
  }

  function figureLanes(body) {
    const lanes = body.lanes.map((lane) => ({
      name: lane.key,
      color: LANES[lane.kind](lane.key),
      spans: lane.start.map((from, i) => [
        Math.max(from, body.start),
        Math.min(lane.end[i] ?? body.end, body.end),
      ]),
      texts: lane.text,
    }));
    const marks = body.marks;
    for (const kind of new Set(marks.kind.filter((_, i) => !marks.bad[i]))) {
      const places = marks.kind.flatMap((each, i) => (each === kind && !marks.bad[i] ? [i] : []));
      lanes.push({
        name: kind,
        color: "--text",
        spans: places.map((i) => [marks.t[i], marks.t[i]]),
        texts: places.map((i) => marks.text[i]),
      });
    }
    // The first stands on top.
    return lanes.reverse();
  }

  function figureErrors({ marks }) {
    return marks.t.flatMap((at, i) => {
      const name = NAMES[marks.kind[i]] || marks.text[i].split(" of ")[0];
      return marks.bad[i] ? [{ at, name, bad: true }] : [];
    });
  }

  // The places of a row from the start of a span on, and those before the first of its tail.
  function withTail(row, tail, start) {
    const times = row.columns.t;
    const place = (at) => (times.findIndex((t) => t >= at) + times.length + 1) % (times.length + 1);
    const [first, end] = [place(start - row.step_s), tail ? place(tail.columns.t[0]) : times.length];
    const columns = {};
    for (const [name, column] of Object.entries(row.columns)) {
      columns[name] = [...column.slice(first, end), ...(tail ? tail.columns[name] : [])];
    }
    return { ...row, columns };
  }

  // Whether a tail goes on where the figure ends; where a row is new or its steps differ, not.
  function continues(tail) {
    const rows = new Map(whole.rows.map((row) => [row.key, row]));
    return tail.rows.every(function (row) {
      const had = rows.get(row.key);
      return had && had.step_s === row.step_s && had.lines.length === row.lines.length;
    });
  }

  async function nextFigure() {
    const points = "points=" + POINTS;
    if (whole) {
      const tail = await get(joined(data.figure, data.query, points, "since=" + lastSeen()));
      if (continues(tail)) {
        const tails = new Map(tail.rows.map((row) => [row.key, row]));
        const rows = whole.rows.map((row) => withTail(row, tails.get(row.key), tail.start));
        return { ...tail, rows, absent: whole.absent };
      }
    }
    return get(joined(data.figure, data.query, points));
  }

  // What came in the last minute may still change: other GPUs report later.
  function lastSeen() {
    const newest = whole.rows.map((row) => row.columns.t[row.columns.t.length - 1] - row.step_s);
    return Math.max(whole.start, Math.max(whole.start, ...newest) - LATE_S);
  }

  async function earlierFigure(body) {
    try {
      return (await get(joined(data.figure, before(body), "points=" + POINTS))).rows.map(figureRow);
    } catch {
      return []; // there is nothing before: it had not begun
    }
  }

  async function fromFigure() {
    const body = await nextFigure();
    whole = body.live ? body : null;
    const earlier = "compare" in data ? await earlierFigure(body) : [];
    return {
      start: body.start,
      end: body.end,
      rows: compared(body.rows.map(figureRow), earlier, body),
      lanes: figureLanes(body),
      errors: figureErrors(body),
      shades: body.lanes.filter((lane) => lane.kind === "throttle").map((lane) => lane.key),
      absent: body.absent,
      grows: true,
      isLive: body.live,
    };
  }

  // --- Both ------------------------------------------------------------------------------------

  // Each row with the first line of the same row of the earlier range, at the present times.
  function compared(rows, earlier, span) {
    const [back, name] = shift(span);
    return rows.map(function (row) {
      const old = earlier.find((each) => each.title === row.title && each.unit === row.unit);
      if (!old) return row;
      const { y, color } = old.lines[0];
      const t = old.t.map((at) => at + back);
      return { ...row, lines: [...row.lines, { name, y, t, color, dash: "dash" }] };
    });
  }

  function sayNothing() {
    const text = chart.querySelector(".chart-wait") || chart.appendChild(document.createElement("p"));
    text.className = "dim chart-wait";
    text.textContent = "No reading in this range.";
  }

  function number(value) {
    const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 3;
    return value.toLocaleString("en", { maximumFractionDigits: digits });
  }

  function ends({ y, low, high }) {
    const known = y.filter((value) => value !== null);
    const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
    const [least, most] = [low || y, high || y].map((all) => all.filter((value) => value !== null));
    return [
      least.reduce((a, b) => Math.min(a, b), Infinity),
      mean,
      most.reduce((a, b) => Math.max(a, b), -Infinity),
    ];
  }

  // The chart in numbers, for who cannot see it.
  function fillTable(model) {
    const body = document.querySelector("#timeline-table tbody");
    if (!body) return;
    const lines = model.rows.flatMap((row) => row.lines.map((each) => [row, each]));
    const read = lines.filter(([, each]) => !each.dash && isKnown(each.y));
    body.replaceChildren(
      ...read.map(function ([row, each]) {
        const line = document.createElement("tr");
        line.setAttribute("role", "row");
        const head = line.appendChild(document.createElement("th"));
        head.scope = "row";
        head.setAttribute("role", "rowheader");
        const isOne = row.lines.filter((other) => !other.dash).length === 1;
        const title = isOne ? row.title : row.title + ": " + each.name;
        head.textContent = [title, row.unit].filter(Boolean).join(", ");
        ends(each).forEach(function (value, at) {
          const cell = line.appendChild(document.createElement("td"));
          cell.className = "num";
          // As dashboard/tables.py labels cells, for rows that are blocks on a phone.
          cell.setAttribute("role", "cell");
          cell.dataset.label = ["min", "mean", "max"][at];
          cell.textContent = number(value);
        });
        return line;
      }),
    );
  }

  function sayAbsent(absent) {
    const text = document.getElementById("timeline-absent");
    if (!text) return;
    const byWhy = new Map();
    for (const { title, why } of absent) byWhy.set(why, [...(byWhy.get(why) || []), title]);
    text.textContent = [...byWhy]
      .map(([why, titles]) => why[0].toUpperCase() + why.slice(1) + ": " + titles.join(", ") + ".")
      .join(" ");
  }

  // What happened, as the table under the chart lists it: so both say the same.
  function happened({ start, end }) {
    const rows = [...document.querySelectorAll("#annotations tr[data-at]")];
    return rows
      .map((row) => ({
        at: Number(row.dataset.at),
        name: row.dataset.mark,
        href: row.dataset.href || "#" + row.id,
        row: "#" + row.id,
        bad: "bad" in row.dataset,
      }))
      .filter(({ at }) => start <= at && at <= end);
  }

  let model = null;

  async function draw() {
    if (!model) return;
    sayAbsent(model.absent);
    chart.dataset.rows = model.rows.length;
    if (!model.rows.length) {
      if (window.Plotly) window.Plotly.purge(chart);
      return sayNothing();
    }
    fillTable(model);
    chart.querySelector(".chart-wait")?.remove();
    const isFirst = !chart.dataset.drawn;
    const flags = happened(model);
    await window.figure.draw(chart, { ...model, flags, key: data.query }, zone);
    chart.dataset.drawn = String(model.rows[0].t.length);
    if (isFirst) window.figure.zoomed(chart, offer);
  }

  // A zoom is a person's own until it is opened: then the page is of it, and can be shared.
  function offer(from, to) {
    const link = document.getElementById("timeline-zoomed");
    if (!link) return;
    link.hidden = from === undefined;
    if (link.hidden) return;
    const query = new URLSearchParams(location.search);
    query.delete("range");
    query.set("from", iso(from).slice(0, 19));
    query.set("to", iso(Math.max(to, from + 1)).slice(0, 19));
    link.href = "?" + query;
  }

  document.getElementById("timeline-png")?.addEventListener("click", function () {
    if (chart.dataset.drawn) window.figure.png(chart, data.name || "timeline");
  });

  const usual = note ? note.innerHTML : "";
  async function refresh() {
    let wait = data.figure ? FIGURE_MS : SERIES_MS;
    if (!document.hidden) {
      const asked = performance.now();
      try {
        model = await (data.figure ? fromFigure() : fromSeries());
        // What takes the server long is asked for less often.
        wait = Math.max(wait, Math.min(4 * (performance.now() - asked), RETRY_MS));
        await draw();
        if (note && note.dataset.failed) note.innerHTML = usual;
        if (note) delete note.dataset.failed;
      } catch (error) {
        wait = RETRY_MS;
        if (note) {
          note.dataset.failed = "1";
          note.textContent = "The readings could not be loaded (" + error.message + "); next try in 10 s.";
        }
      }
    }
    const goesOn = model?.isLive ?? "live" in data;
    if (goesOn || (note && note.dataset.failed)) setTimeout(refresh, wait);
  }

  document.addEventListener("headroom:theme", draw);
  document.addEventListener("htmx:afterSwap", function ({ detail }) {
    if (detail.target.id === "annotations") draw();
  });
  refresh();
})();
