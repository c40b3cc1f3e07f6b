// SPDX-License-Identifier: Apache-2.0
//
// What is said of the operator that is selected, and the search for one.
"use strict";

const Details = (() => {
  let data, onSelect;

  // An element with attributes, and with texts and elements in it. Text is never read as HTML.
  function make(tag, attributes, ...content) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "onclick") element.addEventListener("click", value);
      else element.setAttribute(name, value);
    }
    element.append(...content.filter((c) => c !== null && c !== undefined));
    return element;
  }

  const ms = (v) => (v === 0 ? "0" : Math.abs(v) < 0.0005 ? (1000 * v).toPrecision(2) + " µs" : v.toFixed(3) + " ms");
  const interval = (low, high) => (high > 0 ? low.toFixed(3) + " – " + high.toFixed(3) + " ms" : "");
  const percent = (v) => (data.total_ms > 0 ? ((100 * v) / data.total_ms).toFixed(1) + "\u00a0%" : "");
  const dot = (backend) => make("span", { class: "dot b" + (backend % 8) });
  const title = (node) => node.operator + " " + node.name;

  const link = (i) =>
    make("button", { type: "button", class: "link", onclick: () => onSelect(i, true) }, title(data.nodes[i]));
  const links = (nodes) => {
    const shown = 8,
      out = [];
    nodes.slice(0, shown).forEach((i, k) => {
      if (k) out.push(", ");
      out.push(link(i));
    });
    if (nodes.length > shown) out.push(" and " + (nodes.length - shown) + " more");
    return out;
  };

  function facts(rows) {
    return make(
      "dl",
      {},
      ...rows
        .filter((r) => r && r[1].length)
        .flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, ...value)]),
    );
  }

  // What else could have run the node, as a table, and below it what could not.
  function others(part, i) {
    const all = (part.others || []).map((k) => data.others[k]).filter((o) => o.nodes.includes(i));
    if (!all.length) return [make("p", {}, "Nothing else was proposed for this operator.")];
    const possible = all.filter((o) => o.fate === "dearer" || o.fate === "bounded"),
      impossible = all.filter((o) => !possible.includes(o)),
      out = [];
    const name = (o) => [
      make(
        "button",
        { type: "button", class: "link", title: "show what it covers", onclick: () => Drawing.compare(o.nodes) },
        o.name,
      ),
      make("span", { class: "small" }, make("br", {}), "on " + o.backend + (o.kernel ? ", kernel " + o.kernel : "")),
    ];
    if (possible.length) {
      const row = (o) =>
        make(
          "tr",
          {},
          make("th", { scope: "row" }, ...name(o)),
          make(
            "td",
            { class: "cost" },
            (o.fate === "bounded" ? "at least " : "") + ms(o.estimate_ms || 0),
            o.high_ms ? make("span", { class: "small" }, make("br", {}), interval(o.low_ms || 0, o.high_ms)) : null,
          ),
          make("td", {}, o.verdict),
        );
      const head = ["Instead", "Cost", "To be taken"].map((t) => make("th", { scope: "col" }, t));
      out.push(
        make(
          "div",
          { class: "wide" },
          make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...possible.map(row))),
        ),
      );
    }
    if (impossible.length) {
      out.push(
        make(
          "details",
          {},
          make("summary", {}, "Could not be placed: " + impossible.length),
          make("ul", { class: "impossible" }, ...impossible.map((o) => make("li", {}, ...name(o), " " + o.verdict))),
        ),
      );
    }
    return out;
  }

  // What a part takes where it is: as it was seen there, else by itself.
  const took = (part) => part.in_place_ms || part.estimate_ms;
  const BARS = 12;

  // Where the time of a region goes: a bar for each of its parts, the longest first; the part of the node is marked.
  function times(region, current) {
    const named = (part) => part.nodes.filter((k) => !data.nodes[k].operator.startsWith("("));
    const all = region.parts.map((k) => data.parts[k]).filter((part) => named(part).length || took(part) > 0);
    const sum = all.reduce((so, part) => so + took(part), 0);
    if (!(sum > 0)) return [];
    all.sort((a, b) => took(b) - took(a));
    const shown = all.slice(0, BARS);
    if (!shown.includes(current) && all.includes(current)) shown.push(current);
    const row = (part) => {
      const nodes = named(part).length ? named(part) : part.nodes;
      const share = (100 * took(part)) / sum;
      return make(
        "li",
        part === current ? { "aria-current": "true" } : {},
        link(nodes[0]),
        nodes.length > 1 ? " and " + (nodes.length - 1) + " more" : "",
        make("span", { class: "n" }, ms(took(part)) + ", " + share.toFixed(1) + "\u00a0%"),
        make(
          "span",
          { class: "share" },
          make("span", { class: "b" + (part.backend % 8), style: "width:" + Math.max(share, 0.5).toFixed(1) + "%" }),
        ),
        part.in_place_ms ? null : make("span", { class: "small" }, "by itself, not seen in its place"),
      );
    };
    const seen = all.filter((part) => part.in_place_ms);
    const networks = Math.max(0, ...seen.map((part) => part.profiles || 1));
    let says = "No whole network was profiled in which these parts could be told apart: each by itself.";
    if (seen.length)
      says = `As it was seen in ${networks === 1 ? "one whole network" : networks + " whole networks"}, borders included.`;
    const more = all.length - shown.length;
    return [
      make("h4", {}, "Where the time of region " + region.id + " goes"),
      make("p", { class: "small" }, says),
      make("ol", { id: "times" }, ...shown.map(row)),
      more ? make("p", { class: "small" }, `and ${more} smaller parts`) : null,
    ].filter(Boolean);
  }

  function show(i) {
    const node = data.nodes[i],
      part = data.parts[node.part],
      panel = document.getElementById("details");
    const around = [
      ["Reads", links(node.reads || [])],
      ["Read by", links(Drawing.readers(i))],
    ];
    const parts = [make("h3", {}, title(node))];
    if (!part) {
      parts.push(make("p", {}, "The caller gives it: it is nowhere placed."), facts(around));
      panel.replaceChildren(...parts);
      return;
    }
    const region = data.regions[part.region],
      together = part.nodes.filter((k) => k !== i);
    parts.push(
      make(
        "p",
        { class: "where" },
        dot(part.backend),
        make("strong", {}, data.backends[part.backend]),
        part.composite ? " as " + part.composite : "",
        part.kernel ? ", kernel " + part.kernel : "",
      ),
      facts([
        [
          "Price",
          [
            make("span", { id: "price" }, ms(node.price_ms)),
            make("span", { class: "small" }, " its share of what the placement costs, " + percent(node.price_ms)),
          ],
        ],
        ["Shape", node.type ? [make("code", {}, node.type)] : []],
        ["From", node.span ? [node.span] : []],
        ["Together with", links(together)],
        [
          "Cost",
          [
            ms(part.estimate_ms),
            part.high_ms ? ", interval " + interval(part.low_ms || 0, part.high_ms) : "",
            make("span", { class: "small" }, " " + part.evidence),
          ],
        ],
        [
          "Region",
          [
            make(
              "button",
              {
                type: "button",
                class: "link",
                onclick: () => Drawing.look(region.parts.flatMap((k) => data.parts[k].nodes)),
              },
              "region " + region.id,
            ),
            (region.symbol ? ", " + region.symbol : ", inline") +
              ": " +
              region.operators +
              " operators, " +
              ms(region.estimate_ms),
          ],
        ],
        ...around,
      ]),
      make("h4", {}, "Why this one won"),
      make("p", { id: "won" }, part.why),
      ...others(part, i),
      ...times(region, part),
    );
    panel.replaceChildren(...parts);
  }

  // The places of the nodes that a text is found in, best ones first.
  function find(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean),
      found = [];
    if (!words.length) return found;
    data.nodes.forEach((node, i) => {
      const part = data.parts[node.part];
      const in_ = [
        node.name,
        node.operator,
        node.span || "",
        node.type || "",
        part ? data.backends[part.backend] + " " + (part.composite || "") + " " + (part.kernel || "") : "",
      ]
        .join("\n")
        .toLowerCase();
      if (words.every((w) => in_.includes(w))) found.push(i);
    });
    const exact = (i) => (data.nodes[i].name.toLowerCase() === words[0] ? 0 : 1);
    return found.sort((a, b) => exact(a) - exact(b) || a - b);
  }

  const SHOWN = 40,
    MARKED = 400;

  function search() {
    const box = document.getElementById("find"),
      list = document.getElementById("found"),
      count = document.getElementById("find-count");
    let found = [];
    const close = () => {
      list.hidden = true;
      list.replaceChildren();
    };
    const go = (i) => {
      close();
      onSelect(i, true);
    };
    box.addEventListener("input", () => {
      found = find(box.value);
      count.textContent = box.value.trim() ? (found.length === 1 ? "1 operator" : found.length + " operators") : "";
      list.replaceChildren(
        ...found.slice(0, SHOWN).map((i) => {
          const part = data.parts[data.nodes[i].part];
          return make(
            "li",
            {},
            make(
              "button",
              { type: "button", onclick: () => go(i) },
              part ? dot(part.backend) : null,
              title(data.nodes[i]),
              make("span", { class: "small" }, " " + (data.nodes[i].span || data.nodes[i].type || "")),
            ),
          );
        }),
      );
      list.hidden = !found.length;
      Drawing.mark(found.slice(0, MARKED));
    });
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && found.length) go(found[0]);
      if (event.key === "Escape") {
        box.value = "";
        box.dispatchEvent(new Event("input"));
      }
      if (event.key === "ArrowDown" && !list.hidden) {
        event.preventDefault();
        list.querySelector("button").focus();
      }
    });
    list.addEventListener("keydown", (event) => {
      const item = document.activeElement.closest("li");
      const next = { ArrowDown: item && item.nextElementSibling, ArrowUp: item && item.previousElementSibling }[
        event.key
      ];
      if (event.key === "Escape") {
        close();
        box.focus();
      }
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      event.preventDefault();
      if (next) next.querySelector("button").focus();
      else if (event.key === "ArrowUp") box.focus();
    });
  }

  return {
    begin: (given, select) => {
      data = given;
      onSelect = select;
      search();
    },
    show,
    make,
    ms,
    percent,
    dot,
  };
})();
