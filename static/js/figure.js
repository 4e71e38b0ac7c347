/* Draws rows of readings on one time axis, with lanes of what happened, by Plotly.
 *
 * window.figure.draw(chart, model, zone)   draws, or draws anew; zone is "utc" or "local", or "step":
 *                                          then steps of a loop stand where times do
 * window.figure.zoomed(chart, tell)        tell(from, to) in Unix s when a person zooms; tell() when back
 * window.figure.png(chart, name)           has the browser save a picture
 *
 * A model has
 *   key         what is drawn: a person's zoom stays for as long as it is the same
 *   start, end  Unix s
 *   rows        { title, unit, near, range, t: [Unix s], lines } from the top; near: the axis need not
 *               begin at zero
 *   lines       { name, y, low, high, color, dash } of a row; low and high: a band around y; color and
 *               dash are a CSS custom property and Plotly's word. t: their own times, if not the row's
 *   lanes       { name, color, spans: [[from, to]], texts } one below the other, those of one name as
 *               one; what is at once has no length
 *   errors      { at, name, bad } a line through all rows
 *   flags       { at, name, href, row, bad } a line too, with a name that leads to href; those that
 *               are too near to each other are one flag, which leads to the row of its first
 *   shades      names of the lanes that are shaded through all rows
 *   grows       the chart is as high as its rows and lanes need; else they share its height
 *
 * Plotly is some megabytes: it is fetched once, when the page has loaded. Colors come from the CSS
 * custom properties, so the chart follows the theme. */
(function () {
  "use strict";
  // More spans than this are told by their lane alone, not by shading the rows above as well.
  const MOST_SHADES = 60;
  // More errors than this are marked without their names.
  const MOST_NAMES = 12;
  // As wide as the name of a flag may be, px.
  const FLAG_PX = 40;
  // Heights, px: of a row where a chart grows with its rows, between two rows, of a lane, and between
  // lanes and rows.
  const ROW_PX = 84;
  const NARROW_PX = 560;
  const GAP_PX = 36;
  const LANE_PX = 17;
  const ABOVE_LANES_PX = 24;
  // On a phone a title stands above the names of its lines: there is no room beside them.
  const TITLE_PX = 18;
  const MARGIN = { t: 26, b: 40, r: 14 };

  let plotly = null;

  function loaded() {
    plotly ||= new Promise(function (resolve, reject) {
      const script = document.createElement("script");
      script.src = document.querySelector("meta[name=plotly]").content;
      script.onload = () => resolve(window.Plotly);
      script.onerror = () => {
        plotly = null;
        reject(new Error("the drawing library could not be loaded"));
      };
      const fetchIt = () => document.head.append(script);
      if (document.readyState === "complete") fetchIt();
      else addEventListener("load", fetchIt, { once: true });
    });
    return plotly;
  }

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  // A moment as Plotly takes it: it shows what it is given, whatever the zone.
  function stamp(unix, zone) {
    if (zone === "step") return unix;
    const at = new Date(unix * 1000);
    if (zone === "local") at.setMinutes(at.getMinutes() - at.getTimezoneOffset());
    return at.toISOString().replace("Z", "");
  }

  function unixOf(text, zone) {
    if (zone === "step") return Number(text);
    const iso = String(text).replace(" ", "T");
    return new Date(zone === "local" ? iso : iso + "Z").getTime() / 1000;
  }

  // Plotly counts "y", "y2", "y3" …
  function numbered(name, place) {
    return place ? name + (place + 1) : name;
  }

  // d3's word for the digits that tell values of a line apart.
  function digits(line) {
    const greatest = line.y.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    if (greatest >= 1000) return ",.0f";
    return greatest >= 100 ? ".1~f" : ".4~r";
  }

  // --- Traces ----------------------------------------------------------------------------------

  // Runs of places where both ends of a band are known.
  function runs(line) {
    const found = [];
    line.low.forEach(function (low, place) {
      if (low === null || line.high[place] === null) return;
      const last = found[found.length - 1];
      if (last && last[1] === place - 1) last[1] = place;
      else found.push([place, place]);
    });
    return found;
  }

  // Bands are polygons: Plotly would fill across gaps between two lines.
  function band(row, line, times) {
    const x = [];
    const y = [];
    for (const [from, to] of runs(line)) {
      for (let i = from; i <= to; i++) x.push(times[i]), y.push(line.high[i]);
      for (let i = to; i >= from; i--) x.push(times[i]), y.push(line.low[i]);
      x.push(null);
      y.push(null);
    }
    return {
      x,
      y,
      mode: "lines",
      fill: "toself",
      fillcolor: color(line.color),
      opacity: 0.22,
      line: { width: 0 },
      hoverinfo: "skip",
      showlegend: false,
    };
  }

  function lineTrace(row, line, times) {
    const ends = line.low && line.low.map((low, i) => [low, line.high[i]]);
    const as = digits(line);
    const between = ends ? " (%{customdata[0]:" + as + "} to %{customdata[1]:" + as + "})" : "";
    const unit = row.unit && " " + row.unit;
    return {
      x: times,
      y: line.y,
      customdata: ends,
      name: line.name,
      mode: times.length === 1 ? "markers" : "lines",
      line: { color: color(line.color), width: line.dash ? 1.25 : 1.75, dash: line.dash },
      marker: { color: color(line.color) },
      hovertemplate: "%{y:" + as + "}" + unit + between + "<extra>" + line.name + "</extra>",
    };
  }

  function rowTraces(row, place, zone) {
    return row.lines.flatMap(function (line) {
      const times = (line.t || row.t).map((t) => stamp(t, zone));
      const drawn = line.low ? [band(row, line, times)] : [];
      drawn.push(lineTrace(row, line, times));
      const axes = { yaxis: numbered("y", place), legend: numbered("legend", place) };
      return drawn.map((trace) => ({ ...trace, ...axes }));
    });
  }

  function laneTraces(lanes, place, zone) {
    return lanes.flatMap(function (lane) {
      const long = lane.spans.filter(([from, to]) => to > from);
      const short = lane.spans.filter(([from, to]) => to <= from);
      const look = { yaxis: numbered("y", place), hoverinfo: "skip", showlegend: false };
      return [
        {
          ...look,
          x: long.flatMap(([from, to]) => [stamp(from, zone), stamp(to, zone), null]),
          y: long.flatMap(() => [lane.name, lane.name, null]),
          mode: "lines",
          line: { color: color(lane.color), width: 9 },
        },
        {
          ...look,
          x: short.map(([from]) => stamp(from, zone)),
          y: short.map(() => lane.name),
          mode: "markers",
          marker: { color: color(lane.color), symbol: "diamond", size: 9 },
        },
      ].filter((trace) => trace.x.length);
    });
  }

  // What happens at each reading, for the unified hover; what is at once, at the next one.
  function hoverTrace(model, zone) {
    const row = model.rows[0];
    const line = row.lines[0];
    const texts = row.t.map(function (at, i) {
      const before = i ? row.t[i - 1] : model.start;
      return model.lanes
        .flatMap(({ name, spans, texts }) =>
          spans.flatMap(function ([from, to], place) {
            const here = to > from ? from <= at && at < to : before < from && from <= at;
            return here ? [name + (texts && texts[place] ? ": " + texts[place] : "")] : [];
          }),
        )
        .slice(0, 6)
        .map((text) => (text.length > 90 ? text.slice(0, 89) + "…" : text))
        .join("<br>");
    });
    return {
      x: row.t.map((t) => stamp(t, zone)),
      y: line.y.map((value, i) => (texts[i] ? value : null)),
      text: texts.map((text) => text.replace(/<(?!br>)/g, "&lt;")),
      mode: "markers",
      marker: { opacity: 0 },
      showlegend: false,
      hovertemplate: "%{text}<extra></extra>",
    };
  }

  // --- Shapes and words ------------------------------------------------------------------------

  function shades(model, zone) {
    const spans = model.lanes
      .filter((lane) => model.shades.includes(lane.name))
      .flatMap((lane) => lane.spans.map((span) => [lane, span]));
    if (spans.length > MOST_SHADES) return [];
    return spans.map(([lane, [from, to]]) => ({
      type: "rect",
      xref: "x",
      yref: "paper",
      x0: stamp(from, zone),
      x1: stamp(to, zone),
      y0: 0,
      y1: 1,
      layer: "below",
      line: { width: 0 },
      fillcolor: color(lane.color),
      opacity: 0.1,
    }));
  }

  function errorLines(errors, zone) {
    return errors.map((error) => ({
      type: "line",
      xref: "x",
      yref: "paper",
      x0: stamp(error.at, zone),
      x1: stamp(error.at, zone),
      y0: 0,
      y1: 1,
      line: { color: color(error.bad ? "--bad" : "--edge"), width: 1.5, dash: "dot" },
    }));
  }

  function errorNames(model, zone) {
    if (model.errors.length > MOST_NAMES) return [];
    const late = model.end - 0.15 * (model.end - model.start);
    return model.errors.map((error) => ({
      text: error.name,
      xref: "x",
      x: stamp(error.at, zone),
      xanchor: error.at > late ? "right" : "left",
      yref: "paper",
      y: 0.985,
      yanchor: "top",
      showarrow: false,
      bgcolor: color("--surface"),
      font: { size: 11, color: color(error.bad ? "--bad-text" : "--text") },
    }));
  }

  // Flags from the left, those closer than their names are wide as one.
  function together(flags, model, chart) {
    const px = Math.max(chart.clientWidth - 66, 1);
    const apart = (FLAG_PX / px) * (model.end - model.start);
    const groups = [];
    for (const flag of [...flags].sort((a, b) => a.at - b.at || a.name - b.name)) {
      const last = groups[groups.length - 1];
      if (last && flag.at - last[0].at < apart) last.push(flag);
      else groups.push([flag]);
    }
    return groups;
  }

  function flagNames(model, chart, zone) {
    return together(model.flags || [], model, chart).map(function (group) {
      const [first, last] = [group[0], group[group.length - 1]];
      const isBad = group.some((each) => each.bad);
      return {
        text: group.length > 1 ? first.name + "–" + last.name : first.name,
        name: "flag:" + (group.length > 1 ? first.row : first.href),
        captureevents: true,
        xref: "x",
        x: stamp(first.at, zone),
        xanchor: "center",
        yref: "paper",
        y: 0.985,
        yanchor: "top",
        showarrow: false,
        borderpad: 2,
        bgcolor: color("--surface"),
        bordercolor: color(isBad ? "--bad" : "--edge"),
        font: { size: 11, color: color(isBad ? "--bad-text" : "--text") },
      };
    });
  }

  function follow({ annotation }) {
    const [, href] = /^flag:(.*)/.exec(annotation.name || "") || [];
    if (href) location.href = href;
  }

  function titlePx(chart, model) {
    return chart.clientWidth < NARROW_PX && !model.grows ? TITLE_PX : 0;
  }

  function title(text, top, abovePx) {
    return {
      text,
      yshift: abovePx,
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

  function namesOf(model) {
    return [...new Set(model.lanes.map((lane) => lane.name))];
  }

  // Beside the lane, where there is room; else on it.
  function laneName(name, place, axis, isNarrow) {
    const most = isNarrow ? 40 : 18;
    return {
      text: name.length > most ? name.slice(0, most - 1) + "…" : name,
      xref: "paper",
      x: 0,
      xshift: isNarrow ? 0 : -6,
      xanchor: isNarrow ? "left" : "right",
      yref: axis,
      y: place,
      showarrow: false,
      bgcolor: color("--surface"),
      font: { size: 11, color: color("--text") },
    };
  }

  // --- Layout ----------------------------------------------------------------------------------

  function timeAxis(model, anchor, zone) {
    const isStep = zone === "step";
    const words = isStep ? "step" : zone === "local" ? "local time" : "UTC";
    return {
      type: isStep ? "linear" : "date",
      range: [stamp(model.start, zone), stamp(model.end, zone)],
      anchor,
      gridcolor: color("--grid"),
      linecolor: color("--line"),
      spikecolor: color("--edge"),
      spikethickness: 1,
      hoverformat: isStep ? ",.0f" : "%Y-%m-%d %H:%M:%S " + words,
      title: { text: words, standoff: 6 },
    };
  }

  function valueAxis(row, domain) {
    return {
      domain,
      gridcolor: color("--grid"),
      linecolor: color("--line"),
      zeroline: false,
      fixedrange: true,
      nticks: 5,
      rangemode: row.near ? "normal" : "tozero",
      range: row.range,
    };
  }

  // Names stand at their own row. A click on one must not take a limit off the chart.
  function legend(top, isNarrow) {
    return {
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
  }

  function ground(model, isNarrow, abovePx) {
    return {
      margin: { ...MARGIN, t: MARGIN.t + abovePx, l: model.lanes.length && !isNarrow ? 116 : 52 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12, color: color("--dim") },
      // Where a chart grows there is no room for names on a phone: they are under the pointer, too.
      showlegend: !(isNarrow && model.grows),
      hovermode: "x unified",
      hoversubplots: "axis",
      hoverlabel: {
        bgcolor: color("--raised"),
        bordercolor: color("--edge"),
        font: { color: color("--text") },
      },
      // A finger that scrolls the page must not zoom the chart.
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      uirevision: model.key,
    };
  }

  function layout(chart, model, zone) {
    const { rows } = model;
    const lanes = namesOf(model);
    const isNarrow = chart.clientWidth < NARROW_PX;
    const abovePx = titlePx(chart, model);
    const height = chart.clientHeight - MARGIN.t - abovePx - MARGIN.b;
    const lanesPx = lanes.length && ABOVE_LANES_PX + LANE_PX * lanes.length;
    const gap = (GAP_PX + abovePx) / height;
    const share = (1 - lanesPx / height - gap * (rows.length - 1)) / rows.length;
    const laneAxis = numbered("y", rows.length);
    const out = {
      ...ground(model, isNarrow, abovePx),
      shapes: [
        ...shades(model, zone),
        ...errorLines([...model.errors, ...(model.flags || [])], zone),
      ],
      annotations: [...errorNames(model, zone), ...flagNames(model, chart, zone)],
      xaxis: timeAxis(model, lanes.length ? laneAxis : numbered("y", rows.length - 1), zone),
    };
    rows.forEach(function (row, place) {
      const top = 1 - place * (share + gap);
      out[numbered("legend", place)] = legend(top, isNarrow);
      out[numbered("yaxis", place)] = valueAxis(row, [Math.max(0, top - share), top]);
      const words = [row.title, row.unit].filter(Boolean).join(", ");
      out.annotations.push(title(words, top, abovePx));
    });
    if (lanes.length) {
      out[numbered("yaxis", rows.length)] = {
        domain: [0, (LANE_PX * lanes.length) / height],
        type: "category",
        fixedrange: true,
        showgrid: false,
        showticklabels: false,
        range: [-0.6, lanes.length - 0.4],
        categoryarray: lanes,
      };
      const names = lanes.map((name, place) => laneName(name, place, laneAxis, isNarrow));
      out.annotations.push(...names);
    }
    return out;
  }

  // --- What a page asks for --------------------------------------------------------------------

  // As high as its rows and lanes need.
  function fit(chart, model) {
    const lanes = namesOf(model);
    const abovePx = titlePx(chart, model);
    const rowsPx = model.rows.length * (ROW_PX + GAP_PX + abovePx) - GAP_PX;
    const lanesPx = lanes.length && ABOVE_LANES_PX + LANE_PX * lanes.length;
    chart.style.height = MARGIN.t + rowsPx + lanesPx + MARGIN.b + "px";
  }

  async function draw(chart, model, zone) {
    const Plotly = await loaded();
    if (model.grows) fit(chart, model);
    const traces = model.rows.flatMap((row, place) => rowTraces(row, place, zone));
    traces.push(...laneTraces(model.lanes, model.rows.length, zone));
    if (model.lanes.length) traces.push(hoverTrace(model, zone));
    chart.dataset.zoneDrawn = zone;
    const isFirst = !chart.on;
    await Plotly.react(chart, traces, layout(chart, model, zone), {
      displayModeBar: false,
      responsive: true,
    });
    if (isFirst) chart.on("plotly_clickannotation", follow);
  }

  function zoomed(chart, tell) {
    chart.on("plotly_relayout", function (change) {
      const zone = chart.dataset.zoneDrawn;
      const [from, to] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      if (from) tell(unixOf(from, zone), unixOf(to, zone));
      else if (change["xaxis.autorange"] || change["xaxis.range"]) tell();
    });
  }

  // By way of a data: URL: the content security policy lets no blob: be an image, as Plotly would.
  async function png(chart, name) {
    const { clientWidth: width, clientHeight: height } = chart;
    const Plotly = await loaded();
    const image = new Image();
    image.src = await Plotly.toImage(chart, { format: "svg", width, height });
    await image.decode();
    const canvas = document.createElement("canvas");
    const scale = 2;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const context = canvas.getContext("2d");
    context.fillStyle = color("--surface");
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    const link = document.createElement("a");
    link.href = canvas.toDataURL("image/png");
    link.download = name + ".png";
    link.click();
  }

  window.figure = { draw, zoomed, png };
})();
