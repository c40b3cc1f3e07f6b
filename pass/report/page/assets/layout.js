// SPDX-License-Identifier: Apache-2.0
//
// Where the nodes stand. The network is cut into pieces where few values cross, each piece is laid out from the top
// down by elk, in a worker, and the pieces stand beside each other as the columns of a newspaper do: so that all of a
// long network is seen at once, and ten thousand operators are laid out piece by piece.
"use strict";

const Layout = (() => {
  const HEIGHT = 26,
    BETWEEN_LAYERS = 22,
    BETWEEN_NODES = 18,
    GUTTER = 70;
  // Elk's stack does not bear a few thousand nodes at once.
  const MOST = 400;

  // What a node is called in the drawing.
  const label = (node) => node.operator.replace(/^nn\./, "");
  const width = (node) => Math.max(34, 16 + 7.2 * label(node).length);

  // The nodes from first to last; what callers give stands before who reads it first.
  function ordered(nodes) {
    const order = [],
      seen = new Array(nodes.length).fill(false);
    const add = (i) => {
      if (!seen[i]) {
        seen[i] = true;
        order.push(i);
      }
    };
    nodes.forEach((node, i) => {
      if (node.part < 0) return;
      (node.reads || []).filter((v) => nodes[v].part < 0).forEach(add);
      add(i);
    });
    nodes.forEach((_, i) => add(i));
    return order;
  }

  // How many layers the longest path has.
  function depth(nodes, order) {
    const layer = new Array(nodes.length).fill(1);
    let most = 1;
    for (const i of order) {
      for (const v of nodes[i].reads || []) layer[i] = Math.max(layer[i], layer[v] + 1);
      most = Math.max(most, layer[i]);
    }
    return most;
  }

  // Pieces of the order, for a drawing so many times as wide as it is high.
  function pieces(nodes, order, aspect) {
    const n = order.length,
      position = new Array(n);
    order.forEach((i, k) => {
      position[i] = k;
    });
    // How many lines go across each gap between two of the order.
    const crossing = new Array(n + 1).fill(0);
    nodes.forEach((node, i) => {
      for (const v of node.reads || []) {
        crossing[position[v] + 1]++;
        crossing[position[i] + 1]--;
      }
    });
    for (let k = 1; k <= n; k++) crossing[k] += crossing[k - 1];
    const layers = depth(nodes, order),
      across = 150 * Math.min(4, n / layers) + GUTTER;
    const fitting = Math.sqrt((aspect * layers * (HEIGHT + BETWEEN_LAYERS)) / across);
    const columns = Math.max(1, Math.ceil(n / MOST), Math.min(Math.round(fitting), Math.ceil(n / 8)));
    const cuts = [];
    for (let from = 0; from < n;) {
      const wanted = n / columns;
      if (n - from <= 1.4 * wanted) {
        cuts.push([from, n]);
        break;
      }
      let best = from + Math.round(wanted),
        cost = Infinity;
      for (let k = from + Math.max(1, Math.floor(0.65 * wanted)); k <= from + Math.ceil(1.3 * wanted) && k < n; k++) {
        const here = crossing[k] + Math.abs(k - from - wanted) / wanted;
        if (here < cost) {
          cost = here;
          best = k;
        }
      }
      cuts.push([from, best]);
      from = best;
    }
    return cuts.map(([from, to]) => order.slice(from, to));
  }

  const OPTIONS = {
    "elk.algorithm": "layered",
    "elk.direction": "DOWN",
    "elk.edgeRouting": "POLYLINE",
    "elk.padding": "[top=0,left=0,bottom=0,right=0]",
    "elk.layered.spacing.nodeNodeBetweenLayers": String(BETWEEN_LAYERS),
    "elk.spacing.nodeNode": String(BETWEEN_NODES),
    "elk.layered.nodePlacement.strategy": "BRANDES_KOEPF",
    "elk.layered.nodePlacement.bk.fixedAlignment": "BALANCED",
  };

  // One piece as elk takes it; edges are named by who reads and what is read.
  function graph(nodes, piece) {
    const inside = new Set(piece),
      edges = [];
    for (const i of piece)
      for (const v of nodes[i].reads || []) {
        if (inside.has(v)) edges.push({ id: v + ">" + i, sources: [String(v)], targets: [String(i)] });
      }
    return {
      id: "piece",
      layoutOptions: OPTIONS,
      edges,
      children: piece.map((i) => ({ id: String(i), width: width(nodes[i]), height: HEIGHT })),
    };
  }

  // What is done where no worker can be had: layer by layer, in order.
  function plain(nodes, piece) {
    const inside = new Set(piece),
      layer = new Map(),
      right = new Map(),
      children = [];
    for (const i of piece) {
      const above = (nodes[i].reads || []).filter((v) => inside.has(v)).map((v) => layer.get(v) + 1);
      const at = Math.max(0, ...above),
        x = right.get(at) || 0,
        wide = width(nodes[i]);
      layer.set(i, at);
      right.set(at, x + wide + BETWEEN_NODES);
      children.push({ id: String(i), x, y: at * (HEIGHT + BETWEEN_LAYERS), width: wide, height: HEIGHT });
    }
    return {
      children,
      edges: [],
      width: Math.max(...right.values()),
      height: (1 + Math.max(...layer.values())) * (HEIGHT + BETWEEN_LAYERS),
    };
  }

  // A worker that lays out one graph after the other: ask(graph) gives a promise.
  function worker(program) {
    const address = URL.createObjectURL(new Blob([program], { type: "text/javascript" }));
    const elk = new Worker(address),
      waiting = new Map();
    let next = 0,
      broken = null;
    const fail = (why) => {
      broken = why;
      waiting.forEach((w) => w.reject(why));
      waiting.clear();
    };
    elk.onmessage = (message) => {
      const { id, data, error } = message.data,
        w = waiting.get(id);
      waiting.delete(id);
      if (w) {
        if (error) w.reject(error);
        else w.resolve(data);
      }
    };
    elk.onerror = (event) => {
      event.preventDefault();
      fail(new Error(event.message || "the worker does not start"));
    };
    const call = (message) =>
      new Promise((resolve, reject) => {
        if (broken) {
          reject(broken);
          return;
        }
        waiting.set(next, { resolve, reject });
        elk.postMessage({ ...message, id: next++ });
      });
    call({ cmd: "register", algorithms: ["layered"] }).catch(() => {});
    return {
      ask: (g) => call({ cmd: "layout", graph: g, layoutOptions: {}, options: {} }),
      end: () => {
        elk.terminate();
        URL.revokeObjectURL(address);
      },
    };
  }

  // Calls each(places, bends, done) for one piece after the other: places by node, with the middle of each; bends by
  // edge ("3>5"), the points between its ends. done is how many nodes have a place.
  async function run(nodes, program, aspect, each) {
    const order = ordered(nodes);
    let elk = null,
      left = 0,
      done = 0;
    try {
      elk = worker(program);
    } catch (why) {
      console.info("the layout is a plain one:", why.message);
    }
    for (const piece of pieces(nodes, order, aspect)) {
      let laid;
      try {
        laid = elk ? await elk.ask(graph(nodes, piece)) : plain(nodes, piece);
      } catch (why) {
        console.info("a part of the layout is a plain one:", why.message || String(why));
        laid = plain(nodes, piece);
      }
      const places = new Map(),
        bends = new Map();
      for (const child of laid.children) {
        places.set(Number(child.id), { x: left + child.x + child.width / 2, y: child.y + HEIGHT / 2 });
      }
      for (const edge of laid.edges) {
        const section = (edge.sections || [])[0];
        if (section && section.bendPoints)
          bends.set(
            edge.id,
            section.bendPoints.map((p) => ({ x: left + p.x, y: p.y })),
          );
      }
      left += (laid.width || 0) + GUTTER;
      done += piece.length;
      await each(places, bends, done);
    }
    if (elk) elk.end();
  }

  return { run, label, width, HEIGHT };
})();
