/* Two runs on one axis by step, drawn by js/figure.js.
 *
 * #compared has data-url, an endpoint that answers with two runs, and data-name, of the file of a
 * picture. #compared-note says what is missing. Lines of the other run are dashed. */
(function () {
  "use strict";
  const chart = document.getElementById("compared");
  const note = document.getElementById("compared-note");
  if (!chart) return;
  // Rows whose values are far from zero.
  const NEAR = ["loss", "temperature", "clock"];

  async function get(url) {
    const answer = await fetch(url, {
      headers: { Accept: "application/json" },
      signal: AbortSignal.timeout(30000),
    });
    if (answer.status === 401) return location.reload();
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.error.message);
    return body;
  }

  function lines(row, run, dash) {
    const drawn = row.lines.filter((each) => each.role === "mean");
    return drawn.map((each, place) => ({
      name: each.name + ", " + run,
      t: row.columns.step,
      y: row.columns[each.field],
      color: "--series-" + ((place % 4) + 1),
      dash,
    }));
  }

  function rows({ this: ours, other }) {
    const keys = [...new Set([...ours.rows, ...other.rows].map((row) => row.key))];
    return keys.map(function (key) {
      const [one, two] = [ours, other].map((run) => run.rows.find((row) => row.key === key));
      const { title, unit } = one || two;
      const drawn = [
        ...(one ? lines(one, "this") : []),
        ...(two ? lines(two, "other", "dash") : []),
      ];
      return { key, title, unit, near: NEAR.includes(key), t: (one || two).columns.step, lines: drawn };
    });
  }

  function say(body) {
    const missing = [body.this, body.other].filter((run) => run.why);
    note.textContent = missing.map((run) => run.attempt + ": " + run.why + ".").join(" ");
  }

  async function draw() {
    const body = await get(chart.dataset.url);
    const found = rows(body);
    say(body);
    if (!found.length) return (chart.hidden = true);
    const steps = found.flatMap((row) => row.lines.flatMap((line) => [line.t[0], line.t.at(-1)]));
    const model = {
      key: chart.dataset.url,
      start: Math.min(...steps),
      end: Math.max(...steps),
      rows: found,
      lanes: [],
      errors: [],
      shades: [],
      grows: true,
    };
    chart.replaceChildren();
    await window.figure.draw(chart, model, "step");
  }

  document.getElementById("compared-png").addEventListener("click", () => {
    window.figure.png(chart, chart.dataset.name);
  });
  addEventListener("DOMContentLoaded", function () {
    draw().catch((error) => (note.textContent = "It could not be drawn: " + error.message));
  });
})();
