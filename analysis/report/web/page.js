"use strict";
// Starts the page: what needs JavaScript shows, the theme can be changed, paper gets everything.
(() => {
  const root = document.documentElement, button = document.getElementById("theme");
  const dark = () => root.dataset.theme === "dark" || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  const say = () => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-pressed", String(dark())); button.setAttribute("aria-label", dark() ? "Show in light colors" : "Show in dark colors"); };
  root.classList.add("on");
  if (matchMedia("(max-width: 699px)").matches) document.getElementById("contents").open = false;
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; say(); charts.again(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { say(); charts.again(); });
  say();
  calculator.start();
  // Plotly's own JavaScript lies packed in the page; until it is there the pictures stand for the charts.
  async function unpack() {
    const packed = document.getElementById("plotly"), bytes = Uint8Array.from(atob(packed.textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    packed.remove();
  }
  unpack().then(() => {
    charts.start();
    crossover.start();
    rows.start();
    root.classList.add("ready");
  });
  let before = "", closed = [];
  addEventListener("beforeprint", () => {
    before = root.dataset.theme || "";
    root.dataset.theme = "light";
    closed = [...document.querySelectorAll("main details:not([open])")].filter((d) => d.querySelectorAll("tr, li").length <= 60);
    for (const d of closed) d.open = true;
    charts.all();
    charts.again();
  });
  addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before; else delete root.dataset.theme;
    for (const d of closed) d.open = false;
    charts.again();
  });
})();
