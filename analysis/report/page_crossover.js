"use strict";
// The crossover: what the controls choose is looked up in the exported tables; nothing is computed but ratios of their numbers.
const crossover = (() => {
  const found = charts.data.crossover.precisions;
  const get = (id) => document.getElementById(id);
  const state = { precision: 0, form: 0, use: 0, size: 0 };
  const bands = { "-1": ["cpu-band", "CPU wins"], 0: ["none-band", "can't tell"], 1: ["gpu-band", "GPU wins"] };
  const styles = [["vermillion", "square", "solid"], ["purple", "diamond", "dash"], ["orange", "triangle-up", "dot"], ["green", "triangle-down", "dashdot"], ["ink", "cross", "longdash"]];

  const current = () => {
    const of = found[state.precision], form = of.forms[state.form];
    return { of, form, use: form.uses[Math.min(state.use, form.uses.length - 1)] };
  };
  const uses = () => found[state.precision].forms.reduce((most, f) => (f.uses.length > most.length ? f.uses : most), []).map((u) => u.k);
  function trace(name, n, s, low, high, style, of, metric, says, shown) {
    const flops = (v) => 2 * v ** 3, cpu = new Map(of.n.map((v, i) => [v, of.cpu.s[i]]));
    const y = s.map((v, i) => (metric === "rate" ? flops(n[i]) / v : metric === "speedup" ? cpu.get(n[i]) / v : v));
    const made = { name, x: n, y, color: style[0], marker: style[1], dash: style[2], says: y.map((v, i) => `${name}, n = ${n[i]}: ${says(v)}`), hollow: name.startsWith("CPU") };
    if (metric === "time" && shown) Object.assign(made, { low, high });
    return made;
  }
  function view(metric) {
    const { of, form, use } = current();
    const says = { time: units.seconds, rate: units.flops, speedup: (v) => `${units.digits(v)} times the CPU` }[metric];
    const traces = [trace("CPU, best", of.n, of.cpu.s, of.cpu.low, of.cpu.high, ["blue", "circle", "solid"], of, metric, says, true)];
    of.forms.forEach((one, i) => {
      const at = one.uses[Math.min(state.use, one.uses.length - 1)], often = at.k > 1 ? `, ${at.k} uses` : "";
      traces.push({ ...trace(`GPU, ${one.form}${often}`, at.n, at.s, at.low, at.high, styles[i % styles.length], of, metric, says, one === form) });
    });
    for (const one of charts.data.crossover.others.filter((o) => o.precision === of.precision)) {
      if (metric === "speedup") break; // of this machine's own two sides
      traces.push(trace(one.name, one.n, one.s, one.low, one.high, [one.name.startsWith("CPU") ? "sky" : "gray", "x", "longdash"], of, metric, says, false));
    }
    const y = { time: { title: "time of a call", unit: "seconds", log: true }, rate: { title: "rate", unit: "flops", log: true }, speedup: { title: "times as fast as the CPU", unit: "times", log: true } }[metric];
    return { label: "", x: { title: "n of an n x n x n product", unit: "count", log: true }, y, traces, lines: [] };
  }
  function decorate(layout, narrow) {
    const { use } = current();
    layout.margin.t = 40;
    for (const [low, high, sign] of use.spans) {
      const [name, words] = bands[sign];
      layout.shapes.push({ type: "rect", x0: low, x1: high, y0: 0, y1: 1, yref: "paper", fillcolor: charts.color(name), opacity: 0.17, line: { width: 0 }, layer: "below" });
      if (Math.log(high / low) > (narrow ? 0.7 : 0.4)) layout.annotations.push({ x: (Math.log10(low) + Math.log10(high)) / 2, y: 1, yref: "paper", yanchor: "bottom", text: words, showarrow: false, font: { size: 13 } });
    }
    for (const c of use.crossings) {
      layout.shapes.push({ type: "line", x0: c.at, x1: c.at, y0: 0, y1: 1, yref: "paper", line: { color: charts.color("ink"), width: 1.6, dash: "dot" } });
      layout.annotations.push({ x: Math.log10(c.at), y: 0.02, yref: "paper", yanchor: "bottom", xanchor: "left", text: ` n = ${units.digits(c.at)}`, showarrow: false, font: { size: 13 }, bgcolor: charts.color("bg"), opacity: 0.85 });
    }
  }
  function sizes() {
    const { form } = current();
    get("x-size").max = Math.max(0, form.parts.length - 1);
    const first = current().use.crossings[0];
    const near = first ? form.parts.findIndex((p) => p[0] >= first.at) : Math.floor(form.parts.length / 2);
    state.size = Math.max(0, near);
    get("x-size").value = state.size;
  }
  function parts() {
    const { of, form, use } = current(), names = charts.data.crossover.parts;
    const row = form.parts[state.size];
    if (!row) return;
    const [n, cpu, ...seconds] = row, k = use.k;
    const colors = ["green", "orange", "sky", "gray"], patterns = ["", "/", "x", "."];
    const at = use.n.indexOf(n), shared = at < 0 ? seconds.reduce((a, b) => a + (b || 0), 0) : use.s[at];
    const rest = seconds.reduce((a, b, i) => a + (i === 2 ? 0 : b || 0), 0);
    const shown = seconds.map((s, i) => (i === 2 && s !== null ? shared - rest : s)); // of a copy used k times its share, as exported
    const traces = [{ name: "CPU", x: [cpu], y: ["CPU"], color: "blue", says: [`CPU: ${units.seconds(cpu)}`] }];
    shown.forEach((s, i) => {
      if (s) traces.push({ name: names[i], x: [s], y: ["GPU"], color: colors[i], pattern: patterns[i], says: [`${names[i]}: ${units.seconds(s)}`] });
    });
    get("x-size-says").textContent = n;
    charts.draw(get("x-parts"), { x: { title: "", unit: "seconds", log: false }, y: { title: "", unit: "words", log: false }, traces, bars: true, lines: [] });
    const told = shown.map((s, i) => (s ? `${units.seconds(s)} ${names[i]}` : "")).filter(Boolean).join(", ");
    const uses = k > 1 ? `, each copy used ${k} times` : "";
    const says = `n = ${n}, ${form.form}${uses}: the CPU (${of.cpu.side[of.n.indexOf(n)]}) takes ${units.seconds(cpu)}, the GPU ${units.seconds(shared)}: ${told}.`;
    get("x-parts-says").textContent = says;
    get("x-parts").setAttribute("aria-label", says);
  }
  function show() {
    const { use } = current();
    const slider = get("x-uses");
    const k = uses()[state.use];
    slider.max = uses().length - 1;
    get("x-uses-says").textContent = k;
    slider.setAttribute("aria-valuetext", `${k} use${k > 1 ? "s" : ""} of each copy`);
    get("x-verdict").textContent = use.verdict;
    const plot = document.querySelector("#chart-crossover .plot");
    plot.setAttribute("aria-label", use.verdict);
    charts.draw(plot, view(get("x-metric").value), decorate);
    if (!plot.dataset.hovers) {
      plot.dataset.hovers = "1";
      plot.on("plotly_hover", (event) => {
        const i = current().form.parts.findIndex((p) => p[0] === event.points[0].x);
        if (i >= 0 && i !== state.size) { state.size = i; get("x-size").value = i; parts(); }
      });
    }
    parts();
  }
  function fill(select, words) {
    select.replaceChildren(...words.map((text, i) => new Option(text, i)));
  }
  function start() {
    if (!found || !get("chart-crossover")) return;
    fill(get("x-precision"), found.map((p) => p.precision));
    const forms = () => { fill(get("x-form"), found[state.precision].forms.map((f) => f.words)); get("x-form").value = state.form; };
    forms();
    get("x-precision").addEventListener("change", (e) => { state.precision = Number(e.target.value); state.form = Math.min(state.form, found[state.precision].forms.length - 1); forms(); sizes(); show(); });
    get("x-form").addEventListener("change", (e) => { state.form = Number(e.target.value); sizes(); show(); });
    get("x-metric").addEventListener("change", show);
    get("x-uses").addEventListener("input", (e) => {
      state.use = Number(e.target.value);
      const copied = found[state.precision].forms.findIndex((f) => f.uses.length > 1);
      if (current().form.uses.length < 2 && copied >= 0) { state.form = copied; get("x-form").value = copied; sizes(); } // the crossover that it moves
      show();
    });
    get("x-size").addEventListener("input", (e) => { state.size = Number(e.target.value); parts(); });
    get("x-uses").disabled = uses().length < 2;
    sizes();
    let done = false;
    charts.whenNear(get("chart-crossover"), () => { if (!done) { done = true; show(); } });
  }
  return { start };
})();
