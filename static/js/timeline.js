/* The chart of the Node and GPU pages: readings stacked on one time axis, with throttle spans.
 *
 * #timeline has
 *   data-url, data-sources   series API; "gpu:7", or "node:3 host:3"
 *   data-query               the span, as the API takes it: "range=1h" or "from=…&to=…"
 *   data-live, data-length-s the span ends now; how long it is
 *   data-events              throttle-events API, filtered to what is shown
 *   data-xids, data-ecc      xid-events and ecc-events APIs, likewise
 *   data-slowdown-c, data-sm-max-mhz   ratings, drawn where readings do not say the limit
 *
 * Rows without any reading are left out. A live span is fetched again every 5 s, longer ones less
 * often. Colors come from the CSS custom properties, so the chart follows the theme. */
(function () {
  "use strict";
  const chart = document.getElementById("timeline");
  const note = document.getElementById("timeline-note");
  if (!chart) return;
  const data = chart.dataset;
  const isLive = "live" in data;
  const REFRESH_MS = Math.max(5000, (Number(data.lengthS) / 720) * 1000);
  const RETRY_MS = 10000;
  const POINTS = 600;
  // More spans than this are told by their lane alone, not by shading the rows above as well.
  const MOST_SHADES = 60;
  // More errors than this are marked without their names.
  const MOST_NAMES = 12;

  // One row of the chart: its title, which ends with the unit, and what is drawn on it. "limit"
  // lines are dashed. "near": the axis need not begin at zero.
  const ROWS = {
    gpu: [
      {
        title: "Power, W",
        lines: [line("power_w", "power", 1), limit("power_limit_w", "power limit")],
      },
      {
        title: "Temperature, °C",
        near: true,
        lines: [
          line("temp_c", "core", 1),
          line("temp_mem_c", "memory", 2),
          limit("temp_limit_c", "slowdown", "slowdownC"),
        ],
      },
      {
        title: "SM clock, MHz",
        near: true,
        lines: [line("sm_mhz", "SM clock", 1), limit(null, "highest", "smMaxMhz")],
      },
      { title: "Use, %", range: [0, 105], lines: [line("util", "use", 1)] },
    ],
    node: [
      {
        title: "Power, kW",
        lines: [
          line("power_w", "node", 1, 1e-3),
          line("gpu_power_w", "its GPUs", 2, 1e-3),
          limit("power_limit_w", "GPU limits", null, 1e-3),
        ],
      },
      {
        title: "Hottest GPU, °C",
        near: true,
        lines: [
          line("temp_c", "core", 1),
          line("temp_mem_c", "memory", 2),
          limit("temp_limit_c", "slowdown", "slowdownC"),
        ],
      },
      {
        title: "SM clock, mean, MHz",
        near: true,
        lines: [line("sm_mhz", "SM clock", 1), limit(null, "highest", "smMaxMhz")],
      },
      { title: "GPU use, mean, %", range: [0, 105], lines: [line("util", "GPU use", 1)] },
    ],
    host: [
      { title: "CPU, %", range: [0, 105], lines: [line("cpu_util", "CPU", 1)] },
      {
        title: "Memory, GiB",
        lines: [
          line("mem_used", "memory in use", 1, 2 ** -30),
          limit("mem_total", "installed", null, 2 ** -30),
        ],
      },
      {
        title: "Network, MB/s",
        lines: [
          line("net_rx_bytes_per_s", "in", 1, 1e-6),
          line("net_tx_bytes_per_s", "out", 2, 1e-6),
        ],
      },
      {
        title: "Host power, W",
        lines: [line("power_w", "besides GPUs", 1), line("cpu_power_w", "CPUs", 2)],
      },
      {
        title: "Stalled (PSI), %",
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

  const sources = data.sources.split(" ").map(function (source) {
    const [kind, id] = source.split(":");
    const fields = ROWS[kind].flatMap((row) => row.lines.map((each) => each.field));
    const query = [
      "kind=" + kind,
      "id=" + id,
      "fields=" + fields.filter(Boolean).join(","),
      "points=" + POINTS,
      data.query,
    ];
    return { kind, url: data.url + "?" + query.join("&") };
  });

  let found = null; // { series: [...], events: [...], errors: [...] } of the last answer

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function utc(unix) {
    return new Date(unix * 1000).toISOString();
  }

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

  // --- From answers to what Plotly takes -----------------------------------------------------

  function values(columns, each, length) {
    const column = each.field && columns[each.field];
    if (column && column.some((value) => value !== null)) {
      return column.map((value) => (value === null ? null : value * each.factor));
    }
    // A rating is a level line, drawn only beside readings.
    const rating = each.rating && data[each.rating];
    return rating ? Array(length).fill(Number(rating)) : null;
  }

  function rowsWithReadings() {
    return found.series.flatMap(({ kind, body }) =>
      ROWS[kind]
        .map((row) => ({ ...row, columns: body.columns }))
        .filter((row) => row.lines.some((each) => !each.dash && values(row.columns, each, 0))),
    );
  }

  function digits(each) {
    return each.factor === 1 ? ",.0f" : ",.2f";
  }

  function traces(rows) {
    return rows.flatMap(function (row, place) {
      const x = row.columns.t.map(utc);
      const unit = row.title.split(", ").pop();
      return row.lines.flatMap(function (each) {
        const y = values(row.columns, each, x.length);
        if (!y) return [];
        return {
          x,
          y,
          name: each.name,
          yaxis: axisName(place),
          legend: numbered("legend", place),
          mode: x.length === 1 ? "markers" : "lines",
          line: { color: color(each.color), width: each.dash ? 1.25 : 1.75, dash: each.dash },
          marker: { color: color(each.color) },
          hovertemplate: "%{y:" + digits(each) + "} " + unit + "<extra>" + each.name + "</extra>",
        };
      });
    });
  }

  // Plotly counts "y", "y2", "y3" …
  function numbered(name, place) {
    return place ? name + (place + 1) : name;
  }

  function axisName(place) {
    return numbered("y", place);
  }

  // Spans of each cause, those that overlap (of several GPUs) made into one.
  function lanes(start, end) {
    const byCause = new Map();
    for (const event of [...found.events].sort((a, b) => (a.opened_at < b.opened_at ? -1 : 1))) {
      const from = Math.max(Date.parse(event.opened_at) / 1000, start);
      const to = event.closed_at ? Math.min(Date.parse(event.closed_at) / 1000, end) : end;
      if (to <= from) continue;
      const spans = byCause.get(event.cause) || [];
      const last = spans[spans.length - 1];
      if (last && from <= last[1]) last[1] = Math.max(last[1], to);
      else spans.push([from, to]);
      byCause.set(event.cause, spans);
    }
    return [...byCause].sort((a, b) => (a[0] < b[0] ? -1 : 1));
  }

  function laneTraces(byCause, place) {
    return byCause.map(([cause, spans]) => ({
      x: spans.flatMap(([from, to]) => [utc(from), utc(to), null]),
      y: spans.flatMap(() => [cause, cause, null]),
      yaxis: axisName(place),
      mode: "lines",
      line: { color: color("--cause-" + cause), width: 9 },
      hoverinfo: "skip",
      showlegend: false,
    }));
  }

  // What throttles at each reading, for the unified hover.
  function hoverTrace(byCause, rows) {
    const t = rows[0].columns.t;
    const text = t.map((at) =>
      byCause
        .filter(([, spans]) => spans.some(([from, to]) => from <= at && at < to))
        .map(([cause]) => cause)
        .join(", "),
    );
    const first = rows[0].lines[0];
    const y = values(rows[0].columns, first, t.length) || [];
    return {
      x: t.map(utc),
      y: y.map((value, i) => (text[i] ? value : null)),
      text,
      mode: "markers",
      marker: { opacity: 0 },
      showlegend: false,
      hovertemplate: "%{text}<extra>throttling</extra>",
    };
  }

  function shades(byCause) {
    const spans = byCause.flatMap(([cause, all]) => all.map((span) => [cause, span]));
    if (spans.length > MOST_SHADES) return [];
    return spans.map(([cause, [from, to]]) => ({
      type: "rect",
      xref: "x",
      yref: "paper",
      x0: utc(from),
      x1: utc(to),
      y0: 0,
      y1: 1,
      layer: "below",
      line: { width: 0 },
      fillcolor: color("--cause-" + cause),
      opacity: 0.1,
    }));
  }

  // A line through all rows for each Xid or memory error, with its name on top.
  function errorLines() {
    return found.errors.map((error) => ({
      type: "line",
      xref: "x",
      yref: "paper",
      x0: utc(error.at),
      x1: utc(error.at),
      y0: 0,
      y1: 1,
      line: { color: color(error.severity === "critical" ? "--bad" : "--edge"), width: 1.5, dash: "dot" },
    }));
  }

  function errorNames() {
    if (found.errors.length > MOST_NAMES) return [];
    return found.errors.map((error) => ({
      text: error.name,
      xref: "x",
      x: utc(error.at),
      xanchor: "left",
      yref: "paper",
      y: 0.985,
      yanchor: "top",
      showarrow: false,
      bgcolor: color("--surface"),
      font: { size: 11, color: color(error.severity === "critical" ? "--bad-text" : "--text") },
    }));
  }

  function title(text, top) {
    return {
      text,
      xref: "paper",
      yref: "paper",
      x: 0,
      y: top,
      xanchor: "left",
      yanchor: "bottom",
      showarrow: false,
      // Not <b>: Plotly would make a style attribute of it, which the content security policy refuses.
      font: { size: 12, weight: 600, color: color("--text") },
    };
  }

  function layout(rows, byCause, start, end) {
    const laneShare = byCause.length ? 0.05 + 0.035 * byCause.length : 0;
    const gap = 0.055;
    const isNarrow = chart.clientWidth < 560;
    const share = (1 - laneShare - gap * (rows.length - 1)) / rows.length;
    const out = {
      margin: { l: 52, r: 14, t: 26, b: 40 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12, color: color("--dim") },
      showlegend: true,
      hovermode: "x unified",
      hoversubplots: "axis",
      hoverlabel: {
        bgcolor: color("--raised"),
        bordercolor: color("--edge"),
        font: { color: color("--text") },
      },
      // A finger that scrolls the page must not zoom the chart.
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      uirevision: data.query,
      shapes: [...shades(byCause), ...errorLines()],
      annotations: errorNames(),
      xaxis: {
        type: "date",
        range: [utc(start), utc(end)],
        anchor: axisName(byCause.length ? rows.length : rows.length - 1),
        gridcolor: color("--grid"),
        linecolor: color("--line"),
        spikecolor: color("--edge"),
        spikethickness: 1,
        hoverformat: "%Y-%m-%d %H:%M:%S UTC",
        title: { text: "UTC", standoff: 6 },
      },
    };
    rows.forEach(function (row, place) {
      const top = 1 - place * (share + gap);
      // Names stand at their own row. A click on one must not take a limit off the chart.
      out[numbered("legend", place)] = {
        orientation: "h",
        x: 1,
        xanchor: "right",
        y: top,
        yanchor: "bottom",
        bgcolor: "rgba(0,0,0,0)",
        font: { size: isNarrow ? 10 : 12 },
        itemclick: false,
        itemdoubleclick: false,
      };
      out[numbered("yaxis", place)] = {
        domain: [Math.max(0, top - share), top],
        gridcolor: color("--grid"),
        linecolor: color("--line"),
        zeroline: false,
        fixedrange: true,
        nticks: 5,
        rangemode: row.near ? "normal" : "tozero",
        range: row.range,
      };
      // On a phone the names have to do: there is no room for a title beside them.
      out.annotations.push(title(isNarrow ? row.title.split(", ").pop() : row.title, top));
    });
    if (byCause.length) {
      out[numbered("yaxis", rows.length)] = {
        domain: [0, laneShare - 0.05],
        type: "category",
        fixedrange: true,
        showgrid: false,
        showticklabels: false,
        range: [-0.6, byCause.length - 0.4],
      };
      byCause.forEach(function ([cause], lane) {
        out.annotations.push({
          text: cause,
          xref: "paper",
          x: 0,
          xanchor: "left",
          yref: axisName(rows.length),
          y: lane,
          showarrow: false,
          bgcolor: color("--surface"),
          font: { size: 11, color: color("--text") },
        });
      });
    }
    return out;
  }

  // --- Drawing and fetching --------------------------------------------------------------------

  function draw() {
    if (!found) return;
    const { start, end } = found.series[0].body;
    const rows = rowsWithReadings();
    const wait = chart.querySelector(".chart-wait");
    if (!rows.length) {
      window.Plotly.purge(chart);
      const text = wait || chart.appendChild(document.createElement("p"));
      text.className = "dim chart-wait";
      text.textContent = "No reading in this range.";
      chart.dataset.rows = "0";
      return;
    }
    wait?.remove();
    chart.dataset.rows = rows.length;
    const byCause = lanes(start, end);
    const all = [
      ...traces(rows),
      ...laneTraces(byCause, rows.length),
      ...(byCause.length ? [hoverTrace(byCause, rows)] : []),
    ];
    window.Plotly.react(chart, all, layout(rows, byCause, start, end), {
      displayModeBar: false,
      responsive: true,
    });
    chart.dataset.drawn = String(found.series[0].body.columns.t.length);
  }

  async function fetchAll() {
    const bodies = await Promise.all(sources.map((source) => get(source.url)));
    const { start, end } = bodies[0];
    const span = "&since=" + utc(start) + "&until=" + utc(end);
    const [events, xids, ecc] = await Promise.all(
      [data.events, data.xids, data.ecc].map((url) => get(url + span)),
    );
    found = {
      series: bodies.map((body, i) => ({ kind: sources[i].kind, body })),
      events: events.results,
      errors: [
        ...xids.results.map((each) => ({
          at: Date.parse(each.ts) / 1000,
          name: "Xid " + each.xid,
          severity: each.severity,
        })),
        ...ecc.results.map((each) => ({
          at: Date.parse(each.at) / 1000,
          name: "ECC +" + each.count,
          severity: "critical",
        })),
      ],
    };
  }

  const usual = note ? note.innerHTML : "";
  async function refresh() {
    let wait = REFRESH_MS;
    if (!document.hidden) {
      try {
        await fetchAll();
        draw();
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
    if (isLive || (note && note.dataset.failed)) setTimeout(refresh, wait);
  }

  document.addEventListener("headroom:theme", draw);
  refresh();
})();
