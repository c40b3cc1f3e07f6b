// SPDX-License-Identifier: Apache-2.0

package runmodel

import (
	"encoding/json"
	"fmt"
)

// parseGraph gives the names of a graph's arguments, inputs and parameters, in the graph's order. The graph is
// the JSON text of TVM's graph executor.
func parseGraph(text []byte) ([]string, error) {
	var graph struct {
		Nodes []struct {
			Op   string `json:"op"`
			Name string `json:"name"`
		} `json:"nodes"`
		Arguments []int `json:"arg_nodes"`
	}
	if err := json.Unmarshal(text, &graph); err != nil {
		return nil, fmt.Errorf("the model's graph is not the JSON of TVM's graph executor: %w", err)
	}
	names := make([]string, 0, len(graph.Arguments))
	for _, node := range graph.Arguments {
		if node < 0 || node >= len(graph.Nodes) {
			return nil, fmt.Errorf("the model's graph names a node %d and has %d", node, len(graph.Nodes))
		}
		names = append(names, graph.Nodes[node].Name)
	}
	return names, nil
}
