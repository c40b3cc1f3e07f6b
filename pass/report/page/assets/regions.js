// SPDX-License-Identifier: Apache-2.0
//
// The table of regions: what is looked for, in the order that is asked for, some at a time.
"use strict";

const Regions = (() => {
  const STEP = 25;
  let data,
    shown = STEP,
    by = "estimate_ms",
    down = true;

  const named = (region) => (region.backend + "\n" + region.text + "\n" + (region.symbol || "")).toLowerCase();

  function draw(onSelect) {
    const words = document.getElementById("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = data.regions.filter((r) => r.operators > 0),
      make = Details.make;
    const rows = all.filter((r) => words.every((w) => named(r).includes(w)));
    rows.sort((a, b) => (down ? -1 : 1) * (a[by] < b[by] ? -1 : a[by] > b[by] ? 1 : 0) || a.id - b.id);
    const row = (r) => {
      const nodes = r.parts.flatMap((k) => data.parts[k].nodes);
      const backends = [...new Set(r.parts.map((k) => data.parts[k].backend))];
      return make(
        "tr",
        {},
        make(
          "th",
          { scope: "row" },
          make(
            "button",
            {
              type: "button",
              class: "link",
              onclick: () => {
                document.getElementById("network").scrollIntoView();
                onSelect(nodes[0]);
                Drawing.look(nodes);
              },
            },
            "region " + r.id,
          ),
        ),
        make("td", {}, ...backends.map(Details.dot), r.backend),
        make("td", {}, r.text),
        make("td", { class: "n" }, r.estimate_ms.toFixed(3)),
        make("td", { class: "n" }, Details.percent(r.estimate_ms)),
        make("td", { class: "symbol" }, r.symbol || "inline"),
      );
    };
    document.getElementById("region-rows").replaceChildren(...rows.slice(0, shown).map(row));
    document.getElementById("region-count").textContent = Math.min(shown, rows.length) + " of " + all.length;
    document.getElementById("more-regions").hidden = rows.length <= shown;
  }

  function begin(given, onSelect) {
    data = given;
    const again = () => draw(onSelect);
    document.getElementById("filter").addEventListener("input", () => {
      shown = STEP;
      again();
    });
    document.getElementById("more-regions").addEventListener("click", () => {
      shown += STEP;
      again();
    });
    const heads = [...document.querySelectorAll("#regions th button[data-sort]")];
    for (const head of heads) {
      head.addEventListener("click", () => {
        down = by === head.dataset.sort ? !down : head.dataset.sort === "estimate_ms";
        by = head.dataset.sort;
        for (const h of heads)
          h.parentElement.setAttribute("aria-sort", h !== head ? "none" : down ? "descending" : "ascending");
        again();
      });
    }
    again();
  }

  return { begin };
})();
