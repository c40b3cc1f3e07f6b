// SPDX-License-Identifier: Apache-2.0

package region

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// Apart says why writing to places may write twice to one: TVM's last update wins there, an engine's is the one whose
// thread comes last. places is a node of g with indices as scatter_nd reads them, of int32 or int64, the first
// dimension the coordinates of a place in a tensor of shape; relay.NoNode for what is no node of g. The error is nil
// where they are a constant, lie within the tensor, and none of them stands there twice.
func Apart(g *relay.Graph, places relay.NodeID, shape []int64) error {
	if places == relay.NoNode || g.Nodes[places].Kind != relay.KindConstant {
		return fmt.Errorf("has places that may repeat, since they are no constant")
	}
	constant := g.Nodes[places].Constant
	tensor, err := g.Tensor(places)
	if err != nil {
		return fmt.Errorf("has places that may repeat: %w", err)
	}
	defer tensor.Release()
	data, err := tensor.Bytes()
	if err != nil {
		return fmt.Errorf("has places that may repeat: %w", err)
	}
	if len(constant.Shape) == 0 {
		return fmt.Errorf("has places without coordinates")
	}
	return apart(wholeNumbers(constant.DType, data), int(constant.Shape[0]), shape)
}

// apart is Apart for the numbers: depth coordinates, each of all places.
func apart(coordinates []int64, depth int, shape []int64) error {
	if depth < 1 || depth > len(shape) || len(coordinates)%depth != 0 {
		return fmt.Errorf("has %d coordinates of places, %d of each, in %d dimensions", len(coordinates), depth, len(shape))
	}
	count := len(coordinates) / depth
	places := make([]int64, count)
	for i := range places {
		at := int64(0)
		for d := range depth {
			c := coordinates[d*count+i]
			if c < 0 || c >= shape[d] {
				return fmt.Errorf("has the index %d into a dimension of %d", c, shape[d])
			}
			at = at*shape[d] + c
		}
		places[i] = at
	}
	slices.Sort(places) // of millions of places a set would take many times the memory
	if len(slices.Compact(places)) < count {
		return fmt.Errorf("updates one place more than once, and which update is the last one is the engine's")
	}
	return nil
}

// wholeNumbers reads little-endian int32 or int64; nil for anything else.
func wholeNumbers(dtype string, data []byte) []int64 {
	var numbers []int64
	switch dtype {
	case "int32":
		for ; len(data) >= 4; data = data[4:] {
			numbers = append(numbers, int64(int32(binary.LittleEndian.Uint32(data))))
		}
	case "int64":
		for ; len(data) >= 8; data = data[8:] {
			numbers = append(numbers, int64(binary.LittleEndian.Uint64(data)))
		}
	}
	return numbers
}
