/* The power chart of the Rack page: readings of the last hour, with the budget of now as a line.
 * #chart has data-url (series API), #rack-panel, which is kept up to date, data-budget-w. Fetched
 * again every 10 s while it can be seen. */
(function () {
  "use strict";
  const REFRESH_MS = 10000;
  const chart = document.getElementById("chart");
  const note = document.getElementById("chart-note");
  if (!chart || !window.Plotly) return;
  let columns = null;
  let span = []; // the hour that was asked for

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function moment(unix) {
    return new Date(unix * 1000).toISOString();
  }

  function axis(more) {
    return {
      gridcolor: color("--grid"),
      linecolor: color("--line"),
      zeroline: false,
      fixedrange: true,
      ...more,
    };
  }

  function draw() {
    const budgetKw = Number(document.getElementById("rack-panel").dataset.budgetW) / 1000;
    const times = columns.t.map(moment);
    const kw = columns.power_w.map((w) => (w === null ? null : w / 1000));
    const data = [
      {
        x: times,
        y: kw,
        name: "measured",
        mode: "lines",
        line: { color: color("--series-1"), width: 1.75 },
        hovertemplate: "%{y:.1f} kW<extra></extra>",
      },
      {
        x: span,
        y: span.map(() => budgetKw),
        name: "budget now",
        mode: "lines",
        line: { color: color("--limit"), width: 1.5, dash: "dash" },
        hoverinfo: "skip",
      },
    ];
    const layout = {
      margin: { l: 48, r: 12, t: 8, b: 36 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12, color: color("--dim") },
      hovermode: "x unified",
      hoverlabel: {
        bgcolor: color("--raised"),
        bordercolor: color("--edge"),
        font: { color: color("--text") },
      },
      showlegend: true,
      legend: { orientation: "h", x: 1, xanchor: "right", y: 1.12 },
      xaxis: axis({ type: "date", range: span, hoverformat: "%H:%M:%S UTC", title: { text: "UTC" } }),
      yaxis: axis({ rangemode: "tozero", title: { text: "kW" } }),
    };
    return window.Plotly.react(chart, data, layout, { displayModeBar: false, responsive: true });
  }

  function say(text) {
    if (note && note.textContent !== text) note.textContent = text;
  }

  async function refresh() {
    if (document.hidden) return;
    const answer = await fetch(chart.dataset.url, { signal: AbortSignal.timeout(8000) });
    if (!answer.ok) throw new Error(String(answer.status));
    const body = await answer.json();
    columns = body.columns;
    span = [body.start, body.end].map(moment);
    const heard = columns.power_w.some((w) => w !== null);
    say(heard ? "measured sum of the rack's nodes" : "no readings in the last hour");
    await draw();
  }

  async function loop() {
    try {
      await refresh();
    } catch (error) {
      say("the chart could not be loaded (" + error.message + "); next try in 10 s");
    }
    setTimeout(loop, REFRESH_MS);
  }

  document.addEventListener("headroom:theme", () => columns && draw());
  loop();
})();
