// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"

	"github.com/collage-tvm/collage/bridge"
)

// Handle returns TVM's expression of a node; nil for a graph made in Go. It belongs to the graph.
func (g *Graph) Handle(id NodeID) *bridge.Object {
	if g.handles == nil {
		return nil
	}
	return g.handles[id]
}

// Function returns the relay.Function that the graph was read from; nil for a graph made in Go.
func (g *Graph) Function() *bridge.Object { return g.function }

func (g *Graph) constantData(id NodeID) ([]byte, error) {
	return nil, errors.New("the graph was made in Go")
}
