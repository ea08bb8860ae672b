// Draws the figures of the page and keeps their colours those of the reader's scheme; white paper when it is printed.
"use strict";
(() => {
  const CONFIG = { displayModeBar: false, responsive: true, doubleClick: "reset", showTips: false };
  const FONT = { family: 'system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif', size: 12 };
  const PRINTED = { autosize: false, width: 300, height: 190 };
  const root = document.documentElement;
  const figures = [...document.querySelectorAll(".plot")].map((place) => ({
    place,
    spec: JSON.parse(place.nextElementSibling.textContent),
  }));

  // Figures name colours as "--blue"; only under keys that hold colours, since names come from the run.
  function shaded(value, key, style) {
    if (typeof value === "string" && /color$/.test(key) && value.startsWith("--")) {
      return style.getPropertyValue(value).trim();
    }
    if (Array.isArray(value)) return value.map((part) => shaded(part, "", style));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, shaded(part, name, style)]));
  }

  function draw(size) {
    const style = getComputedStyle(root);
    const touch = matchMedia("(pointer: coarse)").matches; // a finger that drags wants to scroll
    const shared = { font: { ...FONT, color: style.getPropertyValue("--ink").trim() }, dragmode: touch ? false : "zoom" };
    for (const { place, spec } of figures) {
      Plotly.react(place, shaded(spec.data, "", style), { ...shared, ...shaded(spec.layout, "", style), ...size }, CONFIG);
    }
  }

  draw({ autosize: true });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw({ autosize: true }));
  addEventListener("beforeprint", () => {
    root.classList.add("paper");
    draw(PRINTED);
  });
  addEventListener("afterprint", () => {
    root.classList.remove("paper");
    draw({ autosize: true });
  });
})();
