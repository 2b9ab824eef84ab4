"use strict";
// The crossover: what the controls choose is looked up in the exported tables; nothing is computed but ratios of their numbers.
const crossover = (() => {
  const runs = charts.data.crossover.runs || [];
  const state = { run: Math.max(0, runs.findIndex((r) => r.precisions.some((p) => p.forms.length))), precision: 0, form: 0, use: 0, size: 0 };
  const bands = { "-1": ["cpu-band", "CPU wins"], 0: ["none-band", "can't tell"], 1: ["gpu-band", "GPU wins"] };
  const styles = [["vermillion", "square", "solid"], ["purple", "diamond", "dash"], ["orange", "triangle-up", "dot"], ["green", "triangle-down", "dashdot"], ["ink", "cross", "longdash"]];
  const further = [["x", "longdash"], ["pentagon", "longdashdot"], ["hash", "dash"]]; // marker and dash of the other runs

  const found = () => runs[state.run].precisions;
  const at = (form) => form.uses[Math.min(state.use, form.uses.length - 1)];
  const current = () => { // without a GPU there is neither form nor use
    const of = found()[state.precision], form = of.forms[state.form];
    return { of, form, use: form && at(form) };
  };
  const uses = () => found()[state.precision].forms.reduce((most, f) => (f.uses.length > most.length ? f.uses : most), [{ k: 1 }]).map((u) => u.k);
  function trace(name, n, of, style, own, metric, says, shown) {
    const flops = (v) => 2 * v ** 3, cpu = new Map(own.n.map((v, i) => [v, own.cpu.s[i]]));
    const y = of.s.map((v, i) => (metric === "rate" ? flops(n[i]) / v : metric === "speedup" ? cpu.get(n[i]) / v : v));
    const made = { name, x: n, y, color: style[0], marker: style[1], dash: style[2], says: y.map((v, i) => `${name}, n = ${n[i]}: ${says(v)}`), hollow: style[3] };
    if (metric === "time" && shown) Object.assign(made, { low: of.low, high: of.high });
    return made;
  }
  function view(metric) {
    const { of, form } = current(), letter = (run) => (runs.length > 1 ? `${run.letter} ` : "");
    const says = { time: units.seconds, rate: units.flops, speedup: (v) => `${units.digits(v)} times its CPU` }[metric];
    const often = (use) => (use.k > 1 ? `, ${use.k} uses` : "");
    const traces = [trace(`${letter(runs[state.run])}CPU, best`, of.n, of.cpu, ["blue", "circle", "solid", true], of, metric, says, true)];
    of.forms.forEach((one, i) => {
      traces.push(trace(`${letter(runs[state.run])}GPU, ${one.form}${often(at(one))}`, at(one).n, at(one), styles[i % styles.length], of, metric, says, one === form));
    });
    // Of the other runs the CPU's best and the same form of a GPU call, each in its color, with marks of their own.
    runs.filter((_, i) => i !== state.run).forEach((run, i) => {
      const other = run.precisions.find((p) => p.precision === of.precision), [marker, dash] = further[i % further.length];
      if (!other) return;
      traces.push(trace(`${letter(run)}CPU, best`, other.n, other.cpu, ["blue", marker, dash], other, metric, says, false));
      const words = form ? form.form : (other.forms[0] || {}).form, same = other.forms.find((f) => f.form === words);
      const style = styles[form ? state.form % styles.length : 0];
      if (same) traces.push(trace(`${letter(run)}GPU, ${same.form}${often(at(same))}`, at(same).n, at(same), [style[0], marker, dash], other, metric, says, false));
    });
    const y = { time: { title: "time of a call", unit: "s", log: true }, rate: { title: "rate", unit: "FLOP/s", log: true }, speedup: { title: "speedup over the CPU", unit: "1", log: true } }[metric];
    return { label: "", x: { title: "n of an n x n x n product", unit: "count", log: true }, y, traces, lines: [] };
  }
  // The chosen run's answer, then the others' in the same precision and form.
  function verdict() {
    const { of, form, use } = current(), told = [];
    runs.forEach((run, i) => {
      const other = run.precisions.find((p) => p.precision === of.precision), same = other && form && other.forms.find((f) => f.form === form.form);
      const own = i === state.run ? use && use.verdict : same && at(same).verdict;
      const says = own || (run.precisions.some((p) => p.forms.length) ? "not measured in this form." : "no GPU was measured.");
      told.push([i === state.run ? 0 : 1, runs.length > 1 ? `${run.letter}: ${says}` : says]);
    });
    return told.sort((a, b) => a[0] - b[0]).map((t) => t[1]).join(" ");
  }
  function decorate(layout, narrow) {
    const { use } = current();
    layout.margin.t = 40;
    if (!use) return;
    for (const [low, high, sign] of use.spans) {
      const [name, words] = bands[sign];
      layout.shapes.push({ type: "rect", x0: low, x1: high, y0: 0, y1: 1, yref: "paper", fillcolor: charts.color(name), opacity: 0.17, line: { width: 0 }, layer: "below" });
      if (Math.log(high / low) > (narrow ? 0.7 : 0.4)) layout.annotations.push({ x: (Math.log10(low) + Math.log10(high)) / 2, y: 1, yref: "paper", yanchor: "bottom", text: words, showarrow: false, font: { size: 13 } });
    }
    for (const c of use.crossings) {
      layout.shapes.push({ type: "line", x0: c.at, x1: c.at, y0: 0, y1: 1, yref: "paper", line: { color: charts.color("ink"), width: 1.6, dash: "dot" } });
      layout.annotations.push({ x: Math.log10(c.at), y: 0.02, yref: "paper", yanchor: "bottom", xanchor: "left", text: ` ${charts.plain(c.words)}`, showarrow: false, font: { size: 13 }, bgcolor: charts.color("bg"), opacity: 0.85 });
    }
  }
  function sizes() {
    const { form, use } = current();
    document.querySelector("#chart-crossover .parts").hidden = !form;
    if (!form) return;
    get("x-size").max = Math.max(0, form.parts.length - 1);
    const first = use.crossings[0];
    const near = first ? form.parts.findIndex((p) => p[0] >= first.at) : Math.floor(form.parts.length / 2);
    state.size = Math.max(0, near);
    get("x-size").value = state.size;
  }
  function parts() {
    const { of, form, use } = current(), names = charts.data.crossover.parts;
    const row = form && form.parts[state.size];
    if (!row) return;
    const [n, cpu, ...seconds] = row, k = use.k;
    const colors = ["green", "orange", "sky", "gray"], patterns = ["", "/", "x", "."];
    const where = use.n.indexOf(n), shared = where < 0 ? seconds.reduce((a, b) => a + (b || 0), 0) : use.s[where];
    const rest = seconds.reduce((a, b, i) => a + (i === 2 ? 0 : b || 0), 0);
    const shown = seconds.map((s, i) => (i === 2 && s !== null ? shared - rest : s)); // of a copy used k times its share, as exported
    const traces = [{ name: "CPU", x: [cpu], y: ["CPU"], color: "blue", says: [`CPU: ${units.seconds(cpu)}`] }];
    shown.forEach((s, i) => {
      if (s) traces.push({ name: names[i], x: [s], y: ["GPU"], color: colors[i], pattern: patterns[i], says: [`${names[i]}: ${units.seconds(s)}`] });
    });
    get("x-size-says").textContent = n;
    charts.draw(get("x-parts"), { x: { title: "", unit: "s", log: false }, y: { title: "", unit: "text", log: false }, traces, bars: true, lines: [] });
    const told = shown.map((s, i) => (s ? `${units.seconds(s)} ${names[i]}` : "")).filter(Boolean).join(", ");
    const uses = k > 1 ? `, each copy used ${k} times` : "";
    const says = `n = ${n}, ${form.form}${uses}: the CPU (${of.cpu.side[of.n.indexOf(n)]}) takes ${units.seconds(cpu)}, the GPU ${units.seconds(shared)}: ${told}.`;
    get("x-parts-says").textContent = says;
    get("x-parts").setAttribute("aria-label", says);
  }
  function show() {
    const slider = get("x-uses");
    slider.max = uses().length - 1;
    slider.disabled = uses().length < 2;
    const k = uses()[Math.min(state.use, uses().length - 1)];
    get("x-uses-says").textContent = k;
    slider.setAttribute("aria-valuetext", `${k} use${k > 1 ? "s" : ""} of each copy`);
    const told = verdict();
    get("x-verdict").textContent = told;
    const plot = document.querySelector("#chart-crossover .plot");
    plot.setAttribute("aria-label", told);
    charts.draw(plot, view(get("x-metric").value), decorate);
    if (!plot.dataset.hovers) {
      plot.dataset.hovers = "1";
      plot.on("plotly_hover", (event) => {
        const i = !current().form ? -1 : current().form.parts.findIndex((p) => p[0] === event.points[0].x);
        if (i >= 0 && i !== state.size) { state.size = i; get("x-size").value = i; parts(); }
      });
    }
    parts();
  }
  function fill(select, words) {
    select.replaceChildren(...words.map((text, i) => new Option(text, i)));
  }
  function start() {
    if (!runs.length || !get("chart-crossover")) return;
    const forms = () => { fill(get("x-form"), found()[state.precision].forms.map((f) => f.words)); get("x-form").value = state.form; get("x-form").disabled = !found()[state.precision].forms.length; };
    // After another run or precision: the same precision and form where it has them.
    const precisions = (wanted) => {
      fill(get("x-precision"), found().map((p) => p.precision));
      state.precision = Math.max(0, found().findIndex((p) => p.precision === wanted));
      get("x-precision").value = state.precision;
    };
    const keep = (form) => {
      state.form = Math.max(0, found()[state.precision].forms.findIndex((f) => form && f.form === form.form));
      forms(); sizes(); show();
    };
    precisions("");
    forms();
    if (get("x-run")) {
      fill(get("x-run"), runs.map((r) => `${r.letter}: ${r.name}`));
      get("x-run").value = state.run;
      get("x-run").addEventListener("change", (e) => { const { of, form } = current(); state.run = Number(e.target.value); precisions(of.precision); keep(form); });
    }
    get("x-precision").addEventListener("change", (e) => { const { form } = current(); state.precision = Number(e.target.value); keep(form); });
    get("x-form").addEventListener("change", (e) => { state.form = Number(e.target.value); sizes(); show(); });
    get("x-metric").addEventListener("change", show);
    get("x-uses").addEventListener("input", (e) => {
      state.use = Number(e.target.value);
      const copied = found()[state.precision].forms.findIndex((f) => f.uses.length > 1);
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
