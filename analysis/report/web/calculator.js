"use strict";
// The look-up of analysis.report.calculator, on the tables that it exports: straight lines between the sizes, in the logarithms.
const calculator = (() => {
  const runs = charts.data.tools; // of each machine by itself
  const names = { cpu: "CPU", gpu: "GPU" };
  const ways = { roundtrip: "copied in and out, as written", "roundtrip-pinned": "copied through pinned buffers", "roundtrip-pageable": "copied through pageable memory" };

  function between(values, value) {
    const last = values.length - 2;
    if (last < 0) return [0, 0];
    const above = values.findIndex((v) => v > value);
    const i = Math.max(0, Math.min(last, (above < 0 ? values.length : above) - 1));
    return [i, Math.log(value / values[i]) / Math.log(values[i + 1] / values[i])];
  }
  function lookUp(table, at) {
    let corners = [[0, 1]], outside = false; // [index so far, weight]
    table.axes.forEach((axis, d) => {
      const [low, part] = between(axis.values, at[d]), size = axis.values.length;
      outside = outside || at[d] < axis.values[0] || at[d] > axis.values[size - 1];
      const ends = size > 1 ? [[low, 1 - part], [low + 1, part]] : [[0, 1]];
      corners = corners.flatMap(([index, weight]) => ends.map(([i, w]) => [index * size + i, weight * w]));
    });
    let total = 0, known = true;
    for (const [index, weight] of corners) {
      if (!weight) continue;
      total += weight * Math.log(table.seconds[index]);
      if (table.known.length && table.known[index] !== 1) known = false;
    }
    return { seconds: Math.exp(total), extrapolated: outside || !known };
  }
  // What copying adds; to a product that is no square as to the square one whose matrices have as many elements together.
  function copying({ copies }, way, at) {
    const [m, n, k] = at;
    return lookUp(copies[way], at.length > 1 ? [Math.sqrt((m * n + m * k + k * n) / 3)] : at);
  }
  function call(tool, at, way, uses) {
    const made = {};
    for (const side of Object.keys(tool.sides)) made[side] = lookUp(tool.sides[side], at);
    if (way) {
      const copied = copying(tool, way, at);
      made.gpu = { seconds: made.gpu.seconds + copied.seconds / uses, extrapolated: made.gpu.extrapolated || copied.extrapolated };
    }
    return made;
  }
  function job(tool, batch, epochs) {
    const made = {};
    for (const side of Object.keys(tool.once)) {
      const once = lookUp(tool.once[side], [batch]), epoch = lookUp(tool.epoch[side], [batch]);
      made[side] = { seconds: once.seconds + epochs * epoch.seconds, extrapolated: once.extrapolated || epoch.extrapolated };
    }
    return made;
  }
  const chosen = () => runs[get("c-run") ? Number(get("c-run").value) : 0];
  const tool = () => chosen().tools[Number(get("c-tool").value)];
  function fields(before = {}) { // before: sizes to keep
    const of = tool(), axes = of.sides.cpu.axes;
    get("c-sizes").replaceChildren(...axes.map((axis) => {
      const p = make("p", ""), label = make("label", axis.name), input = make("input", "");
      const middle = axis.values[Math.floor(axis.values.length / 2)];
      Object.assign(input, { type: "number", min: 1, step: 1, value: before[axis.name] || Math.round(middle), id: `c-${axis.name}` });
      input.dataset.size = axis.name;
      label.htmlFor = input.id;
      p.append(label, input);
      return p;
    }));
    const own = Object.keys(of.copies);
    get("c-way").replaceChildren(new Option("are resident on the GPU", ""), ...own.map((w) => new Option(ways[w] || w, w)));
    get("c-copying").hidden = !own.length;
    get("c-job").hidden = of.kind !== "training";
    show();
  }
  function answer(judged, doubt) {
    if (!judged.gpu) return `The CPU is predicted to need ${units.seconds(judged.cpu.seconds)}${doubt}; no GPU was measured on this machine.`;
    const winner = judged.gpu.seconds < judged.cpu.seconds ? "gpu" : "cpu", other = winner === "gpu" ? "cpu" : "gpu";
    return `The ${names[winner]} is predicted to be ${units.digits(judged[other].seconds / judged[winner].seconds)}x faster: ${units.seconds(judged[winner].seconds)} against ${units.seconds(judged[other].seconds)}${doubt}.`;
  }
  const number = (input) => Math.max(1, Number(input.value) || 1);
  function show() {
    const of = tool(), at = [...get("c-sizes").querySelectorAll("input")].map(number), way = get("c-way").value;
    const uses = number(get("c-uses")), epochs = number(get("c-epochs"));
    const rows = Object.entries(call(of, at, way, uses)).map(([side, found]) => [of.kind === "training" ? `${names[side]}, a step` : names[side], found, side]);
    const whole = of.kind === "training" ? job(of, at[0], epochs) : null;
    const jobWords = `, whole training of ${epochs} epoch${epochs > 1 ? "s" : ""}`;
    if (whole) for (const [side, found] of Object.entries(whole)) rows.push([names[side] + jobWords, found, side]);
    const judged = whole || Object.fromEntries(rows.map(([, found, side]) => [side, found]));
    const beyond = rows.some(([, found]) => found.extrapolated), doubt = beyond ? " (extrapolated: beyond what was measured)" : "";
    get("c-form").classList.toggle("beyond", beyond);
    get("c-answer").textContent = answer(judged, doubt);
    for (const run of runs.filter((r) => r !== chosen())) { // the same on the other machines
      const same = run.tools.find((t) => t.name === of.name), letter = run.run.split(":")[0];
      if (!same) continue;
      const found = of.kind === "training" ? job(same, at[0], epochs) : call(same, at, same.copies[way] ? way : "", uses);
      for (const [side, one] of Object.entries(found)) rows.push([`${letter}: ${names[side]}${whole ? jobWords : ""}`, one, side]);
    }
    get("c-table").tBodies[0].replaceChildren(...rows.map(([name, found, side]) => {
      const tr = tableRow("td", [name, units.seconds(found.seconds) + (found.extrapolated ? " (extrapolated)" : "")], (i) => (i ? "n" : ""));
      Object.assign(tr.dataset, { side, seconds: found.seconds });
      return tr;
    }));
    const ranges = of.sides.cpu.axes.map((a) => `${a.name} ${[a.values[0], a.values.at(-1)].map((v) => v.toLocaleString("en-US")).join(" to ")}`);
    const shown = [`measured over ${ranges.join(", ")}`, ...of.constants.map(([name, value]) => `${name}: ${value}`)];
    if (way) shown.push(`copying adds ${units.seconds(copying(of, way, at).seconds)}, shared by ${uses} use${uses > 1 ? "s" : ""}`);
    if (whole) for (const side of Object.keys(of.once)) shown.push(`${names[side]}: once ${units.seconds(lookUp(of.once[side], at).seconds)}, an epoch ${units.seconds(lookUp(of.epoch[side], at).seconds)}`);
    get("c-constants").textContent = `${shown.join("; ")}.`;
  }
  function start() {
    if (!get("c-form") || !runs.length) return;
    const fill = () => {
      const before = get("c-tool").selectedOptions[0], kept = before ? chosen().tools.findIndex((t) => t.name === before.textContent) : 0;
      get("c-tool").replaceChildren(...chosen().tools.map((t, i) => new Option(t.name, i)));
      get("c-tool").value = Math.max(0, kept);
    };
    if (get("c-run")) {
      get("c-run").replaceChildren(...runs.map((r, i) => new Option(r.run, i)));
      get("c-run").addEventListener("change", () => {
        const before = Object.fromEntries([...get("c-sizes").querySelectorAll("input")].map((input) => [input.dataset.size, input.value]));
        fill();
        fields(before);
      });
    }
    fill();
    get("c-tool").addEventListener("change", () => fields());
    get("c-form").addEventListener("input", (e) => { if (!["c-tool", "c-run"].includes(e.target.id)) show(); });
    get("c-form").addEventListener("submit", (e) => e.preventDefault());
    fields();
  }
  return { start, lookUp, call, job };
})();
