// Behaviour of the page: folded parts open for a link, for print and all at once; charts over time
// and flame graphs zoom. The page is complete without it. It has no less-than sign and no ampersand, so that the
// page stays well-formed XML.
(() => {
  "use strict";
  const all = (root, selector) => Array.from(root.querySelectorAll(selector));

  const folds = all(document, "details");
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let at = target; at; at = at.parentElement) {
      if (at.tagName === "DETAILS") at.open = true;
    }
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  if (location.hash) reveal();

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = folds.filter((fold) => !fold.open);
    for (const fold of opened) fold.open = true;
  });
  addEventListener("afterprint", () => {
    for (const fold of opened) fold.open = false;
    opened = [];
  });

  const button = (text, name, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    if (name !== text) {
      made.setAttribute("aria-label", name);
      made.title = name;
    }
    made.addEventListener("click", act);
    return made;
  };

  const sections = all(document, "section > details");
  const nav = document.querySelector("nav");
  if (sections.length > 1) {
    const every = button("Open all", "Open all", () => {
      const open = sections.some((section) => !section.open);
      for (const section of sections) section.open = open;
      every.textContent = open ? "Close all" : "Open all";
    });
    nav.append(every);
  }

  // A round distance between about eight ticks, and its decimals.
  const distance = (range) => {
    const power = Math.floor(Math.log10(range / 8));
    const step = [1, 2, 5, 10].find((factor) => factor * 10 ** power * 8 >= range * 0.999) || 10;
    return [step * 10 ** power, Math.max(0, step === 10 ? -power - 1 : -power)];
  };

  const zoomable = (chart) => {
    const [from, until, left, right] = chart.dataset.zoom.split(" ").map(Number);
    const caption = chart.closest("figure").querySelector("figcaption");
    const shown = document.createElement("output");
    let view = [from, until];
    const place = (value) => left + ((value - view[0]) / (view[1] - view[0])) * (right - left);
    const add = (parent, name, attributes) => {
      // The namespace of SVG, from an element that is in it.
      const made = document.createElementNS(chart.namespaceURI, name);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
      parent.append(made);
      return made;
    };

    const ticks = (axis) => {
      const [step, decimals] = distance(view[1] - view[0]);
      const floor = Number(axis.dataset.floor);
      axis.replaceChildren();
      for (let at = Math.ceil(view[0] / step - 1e-9); view[1] / step + 1e-9 >= at; at += 1) {
        const x = place(at * step);
        add(axis, "path", { class: "axis", d: `M${x.toFixed(1)} ${floor}v4` });
        if (axis.hasAttribute("data-texts")) {
          const end = x > right - 20;
          const text = add(axis, "text", {
            x: end ? right : x, y: floor + 18, "text-anchor": end ? "end" : "middle",
          });
          text.textContent = (at * step).toFixed(decimals);
        }
      }
    };
    const draw = () => {
      const scale = (right - left) / (until - from);
      const x = left + (view[0] - from) * scale;
      for (const plot of all(chart, "svg")) {
        const box = plot.getAttribute("viewBox").split(" ");
        plot.setAttribute("viewBox", [x, box[1], (view[1] - view[0]) * scale, box[3]].join(" "));
      }
      for (const label of all(chart, "text[data-at]")) {
        const at = Number(label.dataset.at);
        const outside = view[0] > at ? true : at > view[1];
        label.setAttribute("x", place(at) + Number(label.dataset.dx));
        label.setAttribute("visibility", outside ? "hidden" : "visible");
      }
      all(chart, "g[data-floor]").forEach(ticks);
      const [, decimals] = distance(view[1] - view[0]);
      shown.textContent = view.map((end) => end.toFixed(decimals + 1)).join(" to ") + " s";
    };
    const show = (low, high) => {
      const width = Math.min(until - from, Math.max(high - low, (until - from) / 500));
      const start = Math.min(Math.max(low, from), until - width);
      view = [start, start + width];
      draw();
    };
    const by = (factor, shift) => () => {
      const width = view[1] - view[0];
      const middle = (view[0] + view[1]) / 2 + shift * width;
      show(middle - (width * factor) / 2, middle + (width * factor) / 2);
    };

    const bar = document.createElement("div");
    bar.className = "zoom";
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", `Time shown, ${caption.textContent}`);
    bar.append(
      button("+", "Zoom in", by(0.5, 0)),
      button("\u2212", "Zoom out", by(2, 0)),
      button("\u2190", "Earlier", by(1, -0.5)),
      button("\u2192", "Later", by(1, 0.5)),
      button("Whole", "Whole", () => show(from, until)),
      shown,
    );
    caption.after(bar);
    shown.textContent = "drag across the chart to zoom";

    // With a finger the same movement scrolls, so it does not select.
    const value = (event) => {
      const box = chart.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
      const share = Math.min(1, Math.max(0, (x - left) / (right - left)));
      return view[0] + share * (view[1] - view[0]);
    };
    let drag = null;
    chart.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch") return;
      if (event.button !== 0) return;
      event.preventDefault();
      chart.setPointerCapture(event.pointerId);
      const box = add(chart, "rect", { class: "selected", y: 0, height: "100%", width: 0 });
      drag = { start: value(event), box };
    });
    chart.addEventListener("pointermove", (event) => {
      if (!drag) return;
      const [low, high] = [drag.start, value(event)].sort((a, b) => a - b);
      drag.box.setAttribute("x", place(low));
      drag.box.setAttribute("width", place(high) - place(low));
    });
    const finish = (event) => {
      if (!drag) return;
      const [low, high] = [drag.start, value(event)].sort((a, b) => a - b);
      const wide = place(high) - place(low) > 5;
      drag.box.remove();
      drag = null;
      if (event.type === "pointerup") {
        if (wide) show(low, high);
      }
    };
    chart.addEventListener("pointerup", finish);
    chart.addEventListener("pointercancel", finish);
    chart.addEventListener("dblclick", () => show(from, until));
  };
  all(document, "svg[data-zoom]").forEach(zoomable);

  // Flame graphs: a click on a call widens it, and what it called, to the whole width.
  const flame = (chart) => {
    const width = Number(chart.dataset.flame);
    const calls = all(chart, "g.call").map((call) => {
      const rect = call.querySelector("rect");
      const [x, wide] = ["x", "width"].map((name) => Number(rect.getAttribute(name)));
      const name = call.querySelector("title").textContent.split("\n")[0];
      return { call, rect, text: call.querySelector("text"), name, x, end: x + wide };
    });
    const figure = chart.closest("figure");
    const shown = document.createElement("output");
    const show = (from, end, name) => {
      const scale = width / (end - from);
      for (const one of calls) {
        const start = (Math.max(one.x, from) - from) * scale;
        const wide = (Math.min(one.end, end) - from) * scale - start;
        // Neighbours share an edge, which rounding may move.
        one.call.setAttribute("visibility", 0.1 >= wide ? "hidden" : "visible");
        one.rect.setAttribute("x", start.toFixed(2));
        one.rect.setAttribute("width", Math.max(wide, 0).toFixed(2));
        one.text.setAttribute("x", (start + 3).toFixed(1));
        const room = Math.floor((wide - 6) / 6.7);
        const fits = room >= one.name.length;
        one.text.textContent = fits ? one.name : 4 > room ? "" : "\u2026" + one.name.slice(1 - room);
      }
      shown.textContent = name;
    };
    const whole = () => show(0, width, "click a call to widen it");
    const bar = document.createElement("div");
    bar.className = "zoom";
    bar.append(button("Whole", "Whole", whole), shown);
    figure.querySelector("figcaption").after(bar);
    for (const one of calls) {
      one.call.addEventListener("click", () => show(one.x, one.end, one.name));
    }
    shown.textContent = "click a call to widen it";
  };
  all(document, "svg[data-flame]").forEach(flame);
})();
