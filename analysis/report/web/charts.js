"use strict";
// Draws the views that analysis.report.charts.chart wrote. Colors are names here, so that both themes have their own.
const charts = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const probe = document.body.appendChild(document.createElement("i")); // its color is that of a name in the theme that shows
  probe.hidden = true;
  const color = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const wrapped = (text, width) => {
    const lines = [""];
    for (const word of String(text).split(" ")) {
      const last = lines[lines.length - 1];
      if (last && last.length + word.length >= width) lines.push(word); else lines[lines.length - 1] = last ? `${last} ${word}` : word;
    }
    return lines.map((line) => plain(line.length > 3 * width ? `${line.slice(0, 3 * width)}...` : line)).join("<br>");
  };
  const drawn = new Map(); // element -> how to draw it again

  function axis(of, values, narrow) {
    const made = { title: { text: plain(of.title), standoff: 8 }, gridcolor: color("grid"), linecolor: color("line"), zeroline: false, automargin: true, fixedrange: narrow };
    if (of.unit === "text") return { ...made, type: "category", autorange: "reversed", tickfont: { size: narrow ? 9.5 : 12 }, categoryarray: (of.lines || []).map((line) => wrapped(line, narrow ? 20 : 60)) };
    const good = values.filter((v) => v > 0 && isFinite(v));
    if (of.log && of.ends) return { ...made, type: "log", range: of.ends.map(Math.log10), ...texts(of.ends[0], of.ends[1], of.unit, narrow) };
    if (of.log && good.length) {
      const low = good.reduce((a, b) => Math.min(a, b)), high = good.reduce((a, b) => Math.max(a, b)), room = Math.max(1.06, (high / low) ** 0.04);
      return { ...made, type: "log", range: [Math.log10(low / room), Math.log10(high * room)], ...texts(low / room, high * room, of.unit, narrow) };
    }
    const least = values.reduce((a, b) => Math.min(a, b), 0), most = values.reduce((a, b) => Math.max(a, b), 0);
    return { ...made, type: "linear", zeroline: true, zerolinecolor: color("soft"), ...even(least, most, of.unit, narrow) };
  }
  function texts(low, high, unit, narrow) {
    let { values, texts: words } = units.ticks(low, high, unit);
    while (values.length > (narrow ? 5 : 14)) { words = words.filter((_, i) => i % 2 === 0); values = values.filter((_, i) => i % 2 === 0); }
    return { tickmode: "array", tickvals: values, ticktext: words };
  }
  function even(least, most, unit, narrow) {
    const wide = most - least || 1, rough = wide / (narrow ? 3 : 6), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const values = [];
    for (let v = Math.ceil(least / step) * step; v <= most + step / 2; v += step) values.push(v);
    return { tickmode: "array", tickvals: values, ticktext: values.map((v) => (Math.abs(v) < step / 2 ? "0" : units.said[unit](v))) };
  }
  const faded = (name, alpha) => color(name).replace("rgb(", "rgba(").replace(")", `, ${alpha})`);

  function lines(t, narrow) {
    const ink = color(t.color), says = (t.says || []).map((s) => wrapped(s, narrow ? 34 : 70));
    const y = t.y.map((v) => (typeof v === "string" ? wrapped(v, narrow ? 20 : 60) : v));
    const mode = [t.line === false ? "" : "lines", t.marker ? "markers" : ""].filter(Boolean).join("+") || "lines";
    const made = [{
      type: "scatter", mode, name: wrapped(t.name, narrow ? 40 : 34), x: t.x, y, text: says, opacity: t.band ? 0.45 : 1, hoverinfo: says.length ? "text" : "skip", showlegend: t.legend !== false && (narrow || !t.label),
      line: { color: ink, dash: t.dash || "solid", width: t.band ? 13 : 1.8 }, connectgaps: false, legendgroup: plain(t.name),
      marker: { symbol: t.marker ? t.marker + (t.hollow ? "-open" : "") : "circle", size: 7, color: ink, line: { color: ink, width: 1.4 } },
    }];
    if (t.low && t.low.length && t.line === false) { // points in no order
      made[0].error_y = { type: "data", symmetric: false, array: t.high.map((v, i) => v - t.y[i]), arrayminus: t.low.map((v, i) => t.y[i] - v), color: faded(t.color, 0.5), thickness: 1, width: 2 };
    } else if (t.low && t.low.length && t.low.some((v, i) => v < t.y[i] * 0.985)) {
      made.unshift({ type: "scatter", mode: "lines", x: [...t.x, ...[...t.x].reverse()], y: [...t.high, ...[...t.low].reverse()], fill: "toself", fillcolor: faded(t.color, 0.18), line: { width: 0 }, hoverinfo: "skip", showlegend: false, legendgroup: plain(t.name) });
    }
    return made;
  }
  function bars(t, narrow) {
    return [{
      type: "bar", orientation: "h", name: wrapped(t.name, 34), x: t.x, y: t.y.map((w) => wrapped(w, narrow ? 14 : 26)), hovertext: (t.says || []).map((s, i) => wrapped(t.captions ? `${s}. ${t.captions[i]}` : s, 60)),
      text: t.captions && !narrow ? t.says : "", textposition: "auto", hoverinfo: "text", marker: { color: color(t.color), pattern: { shape: t.pattern || "", fillmode: "overlay", fgcolor: color("bg"), size: 8, solidity: 0.22 }, line: { color: color("bg"), width: 0.6 } },
    }];
  }

  function layout(view, narrow, values) {
    const notes = [], shapes = [];
    let wide = 0;
    for (const t of narrow ? [] : view.traces.filter((one) => one.label)) {
      if (!t.label_left && t.label_at !== undefined) {
        wide = Math.max(wide, t.label.length);
        notes.push({ x: 1.005, xref: "paper", y: t.label_at, yref: "paper", text: plain(t.label), showarrow: false, xanchor: "left", yanchor: "middle", font: { size: 11.5, color: color(t.color) } });
      } else if (t.label_left) {
        notes.push({ x: 0.005, xref: "paper", y: t.label_at, yref: "paper", text: plain(t.label), showarrow: false, xanchor: "left", yanchor: "bottom", font: { size: 11.5, color: color(t.color) }, bgcolor: color("bg"), borderpad: 0 });
      } else {
        const i = t.x.length - 1;
        notes.push({ x: Math.log10(t.x[i]), y: Math.log10(t.y[i]), text: plain(t.label), showarrow: false, xanchor: "right", yanchor: "bottom", font: { size: 11, color: color(t.color) } });
      }
    }
    // Words stand right of where they belong, left of it in the last part of the plot, in as many lines as they need.
    const xs = values.x.filter((v) => v > 0 && isFinite(v)), ends = [xs.reduce((a, b) => Math.min(a, b), Infinity), xs.reduce((a, b) => Math.max(a, b), 0)];
    const place = (v) => (view.x.log ? Math.log10(v) : v); // where a note stands on the axis
    const start = view.x.log ? place(ends[0]) : 0;
    let deep = 0;
    const above = (low, high, words, row = 0) => { // row: so many lines higher
      const left = place(low) - start < 0.55 * (place(ends[1]) - start), text = wrapped(words, narrow ? 26 : 60);
      deep = Math.max(deep, text.split("<br>").length + row);
      notes.push({ x: place(left ? low : high), y: 1, yref: "paper", yshift: 16 * row, text, align: left ? "left" : "right", showarrow: false, xanchor: left ? "left" : "right", yanchor: "bottom", font: { size: narrow ? 11 : 12, color: color("ink") } });
    };
    for (const [low, high, words] of view.bands || []) {
      shapes.push({ type: "rect", x0: low, x1: high, y0: 0, y1: 1, yref: "paper", fillcolor: color("soft"), opacity: 0.15, line: { width: 0 }, layer: "below" });
      above(low, high, words);
    }
    for (const [i, [at, words]] of (view.lines || []).entries()) {
      shapes.push({ type: "line", x0: at, x1: at, y0: 0, y1: 1, yref: "paper", line: { color: color("soft"), width: 1.5, dash: "dot" } });
      if (words) above(at, at, words, view.bars ? i : 0);
    }
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: color("ink"), family: "system-ui, sans-serif", size: narrow ? 11 : 12.5 },
      margin: { l: 10, r: wide ? 24 + 6.3 * wide : 12, t: deep ? 12 + 16 * deep : 12, b: 10 }, hovermode: "closest", barmode: "relative",
      hoverlabel: { bgcolor: color("card"), bordercolor: color("line"), font: { color: color("ink"), size: 12.5 }, align: "left" },
      xaxis: axis(view.x, values.x, narrow), yaxis: axis(view.y, values.y, narrow), annotations: notes, shapes, dragmode: narrow ? false : "zoom",
      legend: narrow || view.traces.length > 14 || wide ? { orientation: "h", y: -0.16, yanchor: "top", x: 0, xanchor: "left" } : { x: 1.01, y: 1 },
    };
  }

  function draw(element, view, extra) {
    const narrow = element.clientWidth < 620;
    element.classList.add("on");
    const made = view.traces.flatMap((t) => (view.bars ? bars(t, narrow) : lines(t, narrow)));
    const sums = (t) => { // of stacked bars: the ends of each stack
      const up = new Map(), down = new Map();
      for (const one of view.traces) one.y.forEach((w, i) => (one.x[i] < 0 ? down : up).set(w, ((one.x[i] < 0 ? down : up).get(w) || 0) + one.x[i]));
      return [...up.values(), ...down.values()];
    };
    const values = view.bars ? { x: [...sums(), ...(view.lines || []).map(([at]) => at)], y: [] } : { x: view.traces.flatMap((t) => t.x), y: view.traces.flatMap((t) => [...t.y]) };
    const made_layout = layout(view, narrow, values);
    if (extra) extra(made_layout, narrow);
    element.dataset.unitX = view.x.unit;
    element.dataset.unitY = view.y.unit;
    const more = (view.y.unit === "text" ? view.traces.length : made_layout.legend.orientation === "h" ? view.traces.filter((t) => t.legend !== false).length : 0);
    if (view.y.unit === "text") made_layout.height = 90 + (view.bars ? 44 : narrow ? 40 : 24) * new Set(view.traces.flatMap((t) => t.y)).size + (narrow ? 22 * more : 60);
    else made_layout.height = (narrow ? 330 : 480) + (made_layout.legend.orientation === "h" ? Math.ceil(more / (narrow ? 1 : 3)) * (narrow ? 24 : 20) : 0);
    element.style.height = `${made_layout.height}px`;
    if (view.y.unit === "text" || made_layout.legend.orientation === "h") made_layout.legend = { orientation: "h", y: 0, yref: "container", yanchor: "bottom", x: 0, xanchor: "left", maxheight: 0.99 };
    Plotly.react(element, made, made_layout, { responsive: true, displaylogo: false, displayModeBar: false, doubleClick: "reset" });
    const figure = element.closest("figure");
    if (figure) figure.classList.add("drawn");
    drawn.set(element, () => draw(element, view, extra));
    if (!element.dataset.heard) {
      element.dataset.heard = "1";
      element.on("plotly_relayout", (event) => zoomed(element, event));
    }
  }
  // After a zoom the ticks are written anew for what is seen.
  function zoomed(element, event) {
    const update = {};
    for (const [name, unit] of [["xaxis", element.dataset.unitX], ["yaxis", element.dataset.unitY]]) {
      const low = event[`${name}.range[0]`], high = event[`${name}.range[1]`];
      if (low === undefined || element.layout[name].type !== "log") continue;
      const ticks = texts(10 ** low, 10 ** high, unit, false);
      Object.assign(update, { [`${name}.tickvals`]: ticks.tickvals, [`${name}.ticktext`]: ticks.ticktext });
    }
    if (Object.keys(update).length) Plotly.relayout(element, update);
  }
  const again = () => drawn.forEach((redraw) => redraw());

  // Charts are drawn when they come near the window, so that the page is there at once.
  function whenNear(element, job) {
    const watch = new IntersectionObserver((seen) => {
      if (seen.some((s) => s.isIntersecting)) { watch.disconnect(); job(); }
    }, { rootMargin: "600px" });
    watch.observe(element);
    waiting.add(job);
    return () => { watch.disconnect(); job(); };
  }
  const waiting = new Set();

  function start() {
    for (const figure of document.querySelectorAll("figure[data-chart]")) {
      const { views } = data.charts[figure.dataset.chart], plot = figure.querySelector(".plot"), choose = figure.querySelector("select"), says = figure.querySelector("figcaption");
      const show = () => {
        const view = views[choose ? Number(choose.value) : 0];
        draw(plot, view);
        if (view.says) { says.textContent = view.says; plot.setAttribute("aria-label", view.says); }
      };
      let done = false;
      whenNear(figure, () => { if (!done) { done = true; show(); } });
      if (choose) choose.addEventListener("change", () => { done = true; show(); });
    }
  }
  return { data, draw, color, plain, again, whenNear, start, all: () => waiting.forEach((job) => job()) };
})();
