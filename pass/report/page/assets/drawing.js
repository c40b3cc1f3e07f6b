// SPDX-License-Identifier: Apache-2.0
//
// The network as cytoscape draws it: operators in the colour of their backend, what is selected, the keyboard.
"use strict";

const Drawing = (() => {
  // From here on the drawing moves as a picture, and is drawn anew when it stands still.
  const MANY = 1500;
  let cy,
    data,
    readers,
    onSelect = () => {},
    touched = false;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function style() {
    const many = data.nodes.length > MANY;
    const rules = [
      {
        selector: "node",
        style: {
          shape: "round-rectangle",
          width: "data(width)",
          height: Layout.HEIGHT,
          label: "data(label)",
          "font-size": 12,
          "font-family": "system-ui, sans-serif",
          "text-valign": "center",
          color: colour("--on-backend"),
          "min-zoomed-font-size": 6,
          "background-color": colour("--input"),
        },
      },
      { selector: "node.small", style: { "background-opacity": 0.4, "font-size": 10, color: colour("--ink") } },
      { selector: "node.input", style: { color: colour("--ink"), shape: "round-tag" } },
      {
        selector: "edge",
        style: {
          width: 1.5,
          "line-color": colour("--edge"),
          "curve-style": many ? "haystack" : "straight",
          events: "no",
          "target-arrow-color": colour("--edge"),
          "target-arrow-shape": many ? "none" : "triangle",
          "arrow-scale": 0.7,
        },
      },
      {
        selector: "edge.bent",
        style: {
          "curve-style": "segments",
          "edge-distances": "node-position",
          "segment-weights": (edge) => edge.data("weights"),
          "segment-distances": (edge) => edge.data("distances"),
        },
      },
    ];
    for (let i = 0; i < 8; i++) {
      const shade = colour("--b" + i);
      rules.push({ selector: "node.b" + i, style: { "background-color": shade } });
      rules.push({ selector: "edge.b" + i, style: { "line-color": shade, "target-arrow-color": shade, width: 4 } });
    }
    rules.push(
      {
        selector: "edge.far",
        style: {
          "line-style": "dashed",
          "line-opacity": 0.5,
          "line-color": colour("--edge"),
          "target-arrow-shape": "none",
          width: 1.5,
        },
      },
      {
        selector: "node.region",
        style: { "border-width": 2, "border-color": colour("--ink"), "border-style": "dotted" },
      },
      {
        selector: "node.part",
        style: { "border-width": 3, "border-color": colour("--ink"), "border-style": "solid" },
      },
      {
        selector: "node.other",
        style: { "outline-width": 4, "outline-color": colour("--other"), "outline-offset": 3 },
      },
      {
        selector: "node.match",
        style: { "outline-width": 4, "outline-color": colour("--match"), "outline-offset": 3 },
      },
      {
        selector: "node.selected",
        style: { "outline-width": 6, "outline-color": colour("--accent"), "outline-offset": 3 },
      },
    );
    return rules;
  }

  function begin(container, given, select) {
    data = given;
    onSelect = select;
    readers = data.nodes.map(() => []);
    data.nodes.forEach((node, i) => (node.reads || []).forEach((v) => readers[v].push(i)));
    const many = data.nodes.length > MANY;
    cy = cytoscape({
      container,
      style: style(),
      minZoom: 0.002,
      maxZoom: 4,
      autoungrabify: true,
      autounselectify: true,
      boxSelectionEnabled: false,
      textureOnViewport: many,
      hideEdgesOnViewport: many,
      pixelRatio: many ? 1 : "auto",
    });
    cy.on("tap", "node", (event) => onSelect(Number(event.target.id())));
    for (const kind of ["wheel", "pointerdown", "keydown"])
      container.addEventListener(
        kind,
        () => {
          touched = true;
        },
        { passive: true },
      );
    // Cytoscape keeps where the container is until it is told of a scroll or another size. A page that moved otherwise,
    // or whose scroll has not been told yet, would have it look for the pointer's node elsewhere.
    container.addEventListener("pointerdown", () => cy.resize(), { capture: true, passive: true });
    container.addEventListener("keydown", key);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => cy.style(style()));
    let width = container.clientWidth;
    new ResizeObserver(() => {
      cy.resize();
      if (container.clientWidth !== width) {
        width = container.clientWidth;
        cy.fit(undefined, 24);
      }
    }).observe(container);
  }

  // Where a line bends, as cytoscape takes it: how far along the way from middle to middle, and how far beside it.
  function bent(from, to, points) {
    const dx = to.x - from.x,
      dy = to.y - from.y,
      length = Math.hypot(dx, dy) || 1;
    return {
      weights: points.map((p) => ((p.x - from.x) * dx + (p.y - from.y) * dy) / (length * length)),
      distances: points.map((p) => ((p.y - from.y) * dx - (p.x - from.x) * dy) / length),
    };
  }

  // What has a place, and of it what is drawn so far. The first pieces are shown at once; then each time there is as
  // much again, since drawing takes longer and longer.
  const placed = new Map(),
    FIRST = 300;
  let waiting = [],
    drawn = 0;

  function add(places, bends) {
    const elements = waiting;
    places.forEach((position, i) => {
      const node = data.nodes[i],
        part = data.parts[node.part];
      placed.set(i, position);
      const classes = part ? "b" + (part.backend % 8) + (node.operator.startsWith("(") ? " small" : "") : "input";
      elements.push({
        group: "nodes",
        data: { id: String(i), label: Layout.label(node), width: Layout.width(node) },
        position,
        classes,
      });
    });
    const connect = (v, i) => {
      const id = v + ">" + i,
        reader = data.nodes[i],
        read = data.nodes[v],
        points = bends.get(id);
      const edge = { group: "edges", data: { id, source: String(v), target: String(i) }, classes: "" };
      const region = (node) => (node.part < 0 ? -1 : data.parts[node.part].region);
      if (region(reader) >= 0 && region(reader) === region(read))
        edge.classes = "b" + (data.parts[reader.part].backend % 8);
      if (points) {
        Object.assign(edge.data, bent(placed.get(v), placed.get(i), points));
        edge.classes += " bent";
      } else if (!places.has(v) || !places.has(i)) {
        edge.classes += " far";
      }
      elements.push(edge);
    };
    places.forEach((_, i) => {
      for (const v of new Set(data.nodes[i].reads || [])) if (placed.has(v)) connect(v, i);
      for (const r of new Set(readers[i])) if (placed.has(r) && !places.has(r)) connect(i, r);
    });
    if (placed.size === data.nodes.length || placed.size - drawn >= Math.max(FIRST, drawn)) {
      cy.batch(() => cy.add(waiting));
      waiting = [];
      drawn = placed.size;
      if (!touched) cy.fit(undefined, 24);
    }
  }

  const only = (name, nodes) => {
    cy.batch(() => {
      cy.nodes("." + name).removeClass(name);
      nodes.forEach((i) => cy.getElementById(String(i)).addClass(name));
    });
  };

  // Marks a node, what runs with it, and its region; shows it where it is out of sight or too small to read.
  function select(i, show) {
    const part = data.parts[data.nodes[i].part];
    only("selected", [i]);
    only("part", part ? part.nodes : []);
    only("region", part ? data.regions[part.region].parts.flatMap((k) => data.parts[k].nodes) : []);
    only("other", []);
    if (show) look([i], Math.max(cy.zoom(), 0.7));
  }

  function look(nodes, zoom) {
    touched = true;
    const these = cy.collection(nodes.map((i) => cy.getElementById(String(i))));
    if (these.empty()) return;
    if (zoom) cy.viewport({ zoom, pan: cy.pan() });
    if (zoom) cy.center(these);
    else cy.fit(these, 60);
  }

  function zoom(by) {
    touched = true;
    cy.zoom({ level: cy.zoom() * by, renderedPosition: { x: cy.width() / 2, y: cy.height() / 2 } });
  }

  const fit = () => cy.fit(undefined, 24);

  let at = -1; // where the keyboard is

  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const near = {
      ArrowDown: () => (at < 0 ? 0 : readers[at][0]),
      ArrowUp: () => (at < 0 ? 0 : (data.nodes[at].reads || [])[0]),
      ArrowRight: () => Math.min(at + 1, data.nodes.length - 1),
      ArrowLeft: () => Math.max(at - 1, 0),
    }[event.key];
    const act = {
      "+": () => zoom(1.3),
      "=": () => zoom(1.3),
      "-": () => zoom(1 / 1.3),
      0: fit,
      "/": () => document.getElementById("find").focus(),
      Enter: () => document.getElementById("details").focus(),
    }[event.key];
    if (!near && !act) return;
    event.preventDefault();
    if (act) {
      act();
      return;
    }
    const next = near();
    if (next !== undefined) onSelect(next, true);
  }

  return {
    begin,
    add,
    look,
    zoom,
    fit,
    readers: (i) => readers[i],
    core: () => cy,
    select: (i, show) => {
      at = i;
      select(i, show);
    },
    mark: (nodes) => only("match", nodes),
    compare: (nodes) => only("other", nodes),
  };
})();
