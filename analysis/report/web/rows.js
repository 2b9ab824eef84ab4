"use strict";
// All numbers: sorted, filtered, a page at a time; the distribution of any row; downloads.
const rows = (() => {
  const { heads, cells, records, runs, numbers, names, labels } = charts.data.rows; // the run, where there are several, is the first cell
  const PAGE = 100;
  const state = { order: cells.map((_, i) => i), column: -1, down: false, from: 0 };
  const texts = cells.map((row) => row.join(" ").toLowerCase());

  function matching(words) {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    return (i) => wanted.every((w) => texts[i].includes(w));
  }
  function compare(a, b, text) {
    const x = units.key(a), y = units.key(b);
    if (text || x === null || y === null) return a.localeCompare(b, "en", { numeric: true });
    return x - y;
  }
  function show() {
    const keep = matching(get("n-filter").value), run = get("n-run") && get("n-run").value !== "" ? labels[get("n-run").value].split(":")[0] : "";
    let found = cells.map((_, i) => i).filter((i) => (!run || cells[i][0] === run) && keep(i));
    if (state.column >= 0) {
      const text = found.some((i) => units.key(cells[i][state.column]) === null);
      found.sort((a, b) => compare(cells[a][state.column], cells[b][state.column], text) * (state.down ? -1 : 1) || a - b);
    }
    state.from = Math.max(0, Math.min(state.from, Math.floor((found.length - 1) / PAGE) * PAGE));
    const part = found.slice(state.from, state.from + PAGE);
    const look = (c) => (numbers.includes(c) ? "n" : !c && labels.length ? "run" : ["problem", "how"].includes(heads[c]) ? "wide" : "");
    get("n-table").tBodies[0].replaceChildren(...part.map((i) => tableRow("td", cells[i], look)));
    get("n-says").textContent = found.length ? `Rows ${state.from + 1} to ${state.from + part.length} of ${found.length}${found.length < cells.length ? ` (${cells.length} in all)` : ""}.` : "No row has all these words.";
    get("n-before").disabled = state.from === 0;
    get("n-after").disabled = state.from + PAGE >= found.length;
  }
  function sortable(table, sort) { // a button in each head
    for (const th of table.tHead.rows[0].cells) {
      const button = make("button", th.textContent);
      button.type = "button";
      button.addEventListener("click", () => sort(th.cellIndex, th));
      th.replaceChildren(button);
    }
  }
  function marked(th, down) {
    for (const other of th.parentNode.children) other.removeAttribute("aria-sort");
    th.setAttribute("aria-sort", down ? "descending" : "ascending");
  }

  function distribution() {
    const record = records[Number(get("d-row").value)];
    if (!record) return;
    const clocks = Object.entries(record.clocks), styles = [["blue", "circle", "solid"], ["vermillion", "square", "dash"], ["green", "diamond", "dot"], ["purple", "cross", "dashdot"]];
    const traces = clocks.map(([clock, of], i) => {
      const q = of.quantiles_s, part = q.map((_, j) => (q.length > 1 ? j / (q.length - 1) : 0.5));
      const [color, marker, dash] = styles[i % styles.length];
      return { name: clock, x: q, y: part, color, marker, dash, says: q.map((v, j) => `${clock}: ${units.digits(100 * part[j])} % of the samples take at most ${units.seconds(v)}`) };
    });
    const lines = clocks.slice(0, 1).map(([, of]) => [of.median_s, `median ${units.seconds(of.median_s)}`]);
    charts.draw(get("d-plot"), { x: { title: "time of a call", unit: "s", log: true }, y: { title: "share of samples that take at most so long", unit: "share", log: false }, traces, lines });
    const says = clocks.map(([clock, of]) => `${clock}: median ${units.seconds(of.median_s)} (95 % interval ${units.seconds(of.low_s)} to ${units.seconds(of.high_s)}), ${of.samples} sample${of.samples > 1 ? "s" : ""} of ${of.calls} call${of.calls > 1 ? "s" : ""}, ended: ${of.stopped || "nothing said"}`);
    const more = [record.check ? `check: ${record.check}` : "", record.flags ? `flags: ${record.flags.join(", ")}` : "", ...Object.entries(record.notes || {}).map(([k, v]) => `${k}: ${v}`)].filter(Boolean);
    get("d-says").textContent = `${[...says, ...more].join("; ")}.`;
    get("d-plot").setAttribute("aria-label", get("d-says").textContent);
    get("d-table").tHead.replaceChildren(tableRow("th", ["clock", "quantile", "time"]));
    get("d-table").tBodies[0].replaceChildren(...traces.flatMap((t) => t.x.map((v, j) => tableRow("td", [t.name, `${units.digits(100 * t.y[j])} %`, units.seconds(v)]))));
  }
  function choices() {
    const keep = matching(get("d-filter").value), chosen = get("d-row").value;
    const found = records.map((_, i) => i).filter((i) => records[i].clocks && keep(i)).slice(0, 300);
    get("d-row").replaceChildren(...found.map((i) => new Option(cells[i].slice(0, names).filter((c) => c !== "-").join(" · ").slice(0, 160), i)));
    if (chosen !== "" && found.includes(Number(chosen))) get("d-row").value = chosen;
    if (found.length && get("d-plot").dataset.asked) distribution();
  }

  // A row as names and values one level deep, for CSV.
  function flat(record, before, made) {
    for (const [name, value] of Object.entries(record)) {
      if (name === "quantiles_s") continue;
      const at = before ? `${before}.${name}` : name;
      if (value && typeof value === "object" && !Array.isArray(value)) flat(value, at, made);
      else made[at] = Array.isArray(value) ? value.join(" ") : value;
    }
    return made;
  }
  function csv() {
    const all = records.map((r) => flat(r, "", {})), names = [...new Set(all.flatMap(Object.keys))];
    // An apostrophe before what a spreadsheet would run as a formula.
    const plain = (v) => (typeof v === "string" && /^[=+@\t\r-]./s.test(v) && isNaN(v) ? `'${v}` : String(v ?? ""));
    const cell = (v) => (/[",\n\r]/.test(plain(v)) ? `"${plain(v).replace(/"/g, '""')}"` : plain(v));
    return [names.map(cell).join(","), ...all.map((r) => names.map((n) => cell(r[n])).join(","))].join("\r\n") + "\r\n";
  }
  const jsonl = () => [...runs, ...records].map((r) => JSON.stringify(r)).join("\n") + "\n";
  function save(name, text, type) {
    const a = document.createElement("a"), url = URL.createObjectURL(new Blob([text], { type }));
    Object.assign(a, { href: url, download: name });
    a.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }
  function start() {
    get("jsonl").addEventListener("click", () => save("crossover.jsonl", jsonl(), "application/jsonl"));
    get("csv").addEventListener("click", () => save("crossover.csv", csv(), "text/csv"));
    for (const table of document.querySelectorAll("table.sorts")) sorts(table);
    if (!get("numbers-tool")) return;
    get("n-table").tHead.replaceChildren(tableRow("th", heads));
    sortable(get("n-table"), (c, th) => { state.down = state.column === c && !state.down; state.column = c; state.from = 0; marked(th, state.down); show(); });
    get("n-filter").addEventListener("input", () => { state.from = 0; show(); });
    if (get("n-run")) get("n-run").addEventListener("change", () => { state.from = 0; show(); });
    get("n-before").addEventListener("click", () => { state.from -= PAGE; show(); });
    get("n-after").addEventListener("click", () => { state.from += PAGE; show(); });
    get("d-filter").addEventListener("input", choices);
    get("d-row").addEventListener("change", distribution);
    charts.whenNear(get("numbers-tool"), show);
    charts.whenNear(get("distributions-tool"), () => { if (!get("d-plot").dataset.asked) { get("d-plot").dataset.asked = "1"; choices(); } });
  }
  // Tables that are there already are sorted in place.
  function sorts(table) {
    sortable(table, (c, th) => {
      const body = table.tBodies[0], down = th.getAttribute("aria-sort") === "ascending", all = [...body.rows];
      const text = all.some((r) => units.key(r.cells[c].textContent) === null);
      all.sort((a, b) => compare(a.cells[c].textContent, b.cells[c].textContent, text) * (down ? -1 : 1));
      body.append(...all);
      marked(th, down);
    });
  }
  return { start, csv, jsonl };
})();
