"use strict";
// Elements of the page; numbers as people read them, as analysis.units writes them: three significant digits and a unit.
const get = (id) => document.getElementById(id);
const make = (tag, text, className = "") => Object.assign(document.createElement(tag), { textContent: text, className });
const tableRow = (tag, texts, classOf = () => "") => { // a row of a table
  const tr = document.createElement("tr");
  tr.append(...texts.map((text, i) => make(tag, text, classOf(i))));
  if (tag === "th") for (const th of tr.cells) th.scope = "col";
  return tr;
};
const units = (() => {
  const times = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
  function digits(value) {
    if (!isFinite(value)) return String(value);
    const rounded = Number(value.toExponential(2));
    if (rounded === 0) return "0";
    return rounded.toFixed(Math.min(20, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(rounded))))));
  }
  function seconds(value) {
    if (!value) return "0 s";
    const near = Math.abs(Number(value.toExponential(2)));
    const [size, unit] = times.find(([s]) => near >= s) || times[3];
    return `${digits(value / size)} ${unit}`;
  }
  function flops(value) {
    return value >= 9.995e11 ? `${digits(value / 1e12)} TFLOP/s` : `${digits(value / 1e9)} GFLOP/s`;
  }
  const rate = (value) => `${digits(value / 1e9)} GB/s`;
  function bytes(value) {
    for (const [power, unit] of [[3, "GiB"], [2, "MiB"], [1, "KiB"]]) {
      if (value >= 1024 ** power) return `${digits(value / 1024 ** power)} ${unit}`;
    }
    return `${Math.round(value)} bytes`;
  }
  const count = (value) => (value >= 1e15 ? value.toExponential(2) : Number(digits(value)).toLocaleString("en-US", { maximumFractionDigits: 6 }));
  const said = { s: seconds, "FLOP/s": flops, "byte/s": rate, byte: bytes, count, 1: count, share: (v) => `${digits(100 * v)} %`, text: String };
  const short = (text) => text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");

  // Ticks of a logarithmic axis between two values: 1, 2 and 5 of each power of ten (powers of two of bytes) while they are few.
  function ticks(low, high, unit) {
    const found = [];
    const decades = Math.log10(high / low);
    if (unit === "byte") {
      const first = Math.floor(Math.log2(low)), last = Math.ceil(Math.log2(high));
      const step = Math.max(1, Math.ceil((last - first) / 9));
      for (let p = first; p <= last; p += step) found.push(2 ** p);
    } else {
      const parts = decades <= 1.2 ? [1, 1.5, 2, 3, 4, 5, 7] : decades <= 4.2 ? [1, 2, 5] : [1];
      const every = Math.max(1, Math.ceil(decades / 9));
      for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p += every) {
        for (const part of parts) found.push(part * 10 ** p);
      }
    }
    const kept = found.filter((v) => v >= low * 0.999 && v <= high * 1.001);
    return { values: kept, texts: kept.map((v) => short(said[unit](v))) };
  }

  // What a cell of a table is worth when it is sorted: a number in its unit's base, else its text.
  const worth = { ns: 1e-9, µs: 1e-6, ms: 1e-3, s: 1, "GFLOP/s": 1e9, "TFLOP/s": 1e12, "GB/s": 1e9, KiB: 1024, MiB: 1048576, GiB: 1073741824 };
  function key(text) {
    const found = /^\s*([-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)\s*([A-Za-zµ/%]*)/.exec(text);
    if (!found) return text.trim() === "-" ? -Infinity : null;
    return Number(found[1].replace(/,/g, "")) * (worth[found[2]] || 1);
  }
  return { digits, seconds, flops, rate, bytes, count, said, ticks, key };
})();
