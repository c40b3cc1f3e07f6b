// SPDX-License-Identifier: Apache-2.0
//
// Begins everything. An address that ends in #12 opens the page at node 12.
"use strict";

(async () => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const data = read("data"),
    container = document.getElementById("drawing"),
    progress = document.getElementById("progress");
  const address = (node) => node.name.replace(/^%/, "");
  const select = (i, show) => {
    Drawing.select(i, show);
    Details.show(i);
    history.replaceState(null, "", "#" + encodeURIComponent(address(data.nodes[i])));
  };
  document.getElementById("details").tabIndex = -1;
  document.getElementById("guessed").hidden = !data.guessed;
  Drawing.begin(container, data, select);
  Details.begin(data, select);
  Regions.begin(data, select);
  document.getElementById("closer").addEventListener("click", () => Drawing.zoom(1.5));
  document.getElementById("farther").addEventListener("click", () => Drawing.zoom(1 / 1.5));
  document.getElementById("fit").addEventListener("click", Drawing.fit);
  await Layout.run(
    data.nodes,
    read("layout-program"),
    container.clientWidth / container.clientHeight,
    (places, bends, done) => {
      Drawing.add(places, bends);
      progress.textContent = "Drawing the network: " + done + " of " + data.nodes.length;
      return new Promise((next) => setTimeout(next));
    },
  );
  progress.textContent = "";
  document.documentElement.dataset.drawn = data.nodes.length;
  const named = decodeURIComponent(location.hash.slice(1)),
    there = data.nodes.findIndex((node) => address(node) === named);
  if (there >= 0) select(there, true);
})();
