// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"encoding/xml"
	"slices"

	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// scatters write elements to places that are given, or read them there.
func scatters() map[string]*operator {
	const scattered = "float32 or int32, static shapes, indices int32 or int64 within the data"
	return map[string]*operator{
		"scatter_nd":       {checkScatterND, writeScatterND, scattered + ", in the mode update constants that differ"},
		"scatter_elements": {checkScatterElements, writeScatterElements, scattered + ", not the mode mean"},
		"gather_nd": {checkGatherND, writeGatherND,
			movableStatic + ", indices int32 or int64 within the data"},
		"one_hot": {checkOneHot, writeOneHot, "float32 or int32 of int32 or int64, static shapes"},
	}
}

// scatterModes are OpenVINO's names of Relay's.
var scatterModes = map[string]string{"update": "none", "add": "sum", "mul": "prod", "min": "min", "max": "max"}

// checkScattered checks data, indices and updates; name is the attribute that says what is done with an update.
func (c *call) checkScattered(name string) error {
	if len(c.in) != 3 || slices.Contains(c.in, nil) {
		return c.refuse("has arguments that are no three tensors")
	}
	if err := c.indices(1); err != nil {
		return err
	}
	if mode, _ := c.attrs.String(name); scatterModes[mode] == "" {
		return c.refuse("has the %s %q", name, mode)
	}
	data := *c
	data.in = []*relay.Type{c.in[0], c.in[2]}
	return numbers(&data)
}

// indices checks that an argument has whole numbers that may be places.
func (c *call) indices(i int) error {
	return c.tensor(c.in[i], "indices", []string{"int32", "int64"})
}

func checkScatterND(c *call) error {
	if err := c.checkScattered("mode"); err != nil {
		return err
	}
	if mode, _ := c.attrs.String("mode"); mode == "update" {
		// Threads share the updates: where a place stands there twice, anybody's is the last one.
		if err := region.Apart(c.graph, c.nodes[1], c.in[0].Shape); err != nil {
			return c.refuse("%w", err)
		}
	}
	return nil
}

func writeScatterND(w *writer, c *call, in []port) []port {
	mode, _ := c.attrs.String("mode")
	return []port{w.one("ScatterNDUpdate", "opset15", c.out[0], []xml.Attr{attr("reduction", scatterModes[mode])},
		in[0], w.lastFirst(in[1]), in[2])}
}

// lastFirst moves the first dimension of indices, in which Relay has the coordinates of a place, behind the others,
// where OpenVINO wants it.
func (w *writer) lastFirst(indices port) port {
	shape := indices.typ.Shape
	if len(shape) < 2 {
		return indices
	}
	order := make([]int64, 0, len(shape))
	for i := 1; i < len(shape); i++ {
		order = append(order, int64(i))
	}
	moved := append(slices.Clone(shape[1:]), shape[0])
	return w.one("Transpose", "opset1", tensor(indices.typ.DType, moved...), nil, indices, w.ints(append(order, 0)...))
}

func checkScatterElements(c *call) error {
	if err := c.checkScattered("reduction"); err != nil {
		return err
	}
	return c.indicesAlong()
}

func writeScatterElements(w *writer, c *call, in []port) []port {
	axis, _ := c.axis("axis", len(c.in[0].Shape))
	mode, _ := c.attrs.String("reduction")
	return []port{w.one("ScatterElementsUpdate", "opset12", c.out[0],
		[]xml.Attr{attr("reduction", scatterModes[mode]), attrBool("use_init_val", true)}, in[0], in[1], in[2],
		w.number(relay.Tensor("int64"), float64(axis)))}
}

func checkGatherND(c *call) error { return checkIndexed(c) }

func writeGatherND(w *writer, c *call, in []port) []port {
	batch, _ := c.attrs.Int("batch_dims")
	return []port{w.one("GatherND", "opset8", c.out[0], []xml.Attr{attrInts("batch_dims", batch)}, in[0],
		w.lastFirst(in[1]))}
}

func checkOneHot(c *call) error {
	if len(c.in) != 3 || slices.Contains(c.in, nil) {
		return c.refuse("has arguments that are no three tensors")
	}
	if err := c.indices(0); err != nil {
		return err
	}
	if len(c.in[1].Shape) != 0 || len(c.in[2].Shape) != 0 {
		return c.refuse("has values that are no numbers")
	}
	values := *c
	values.in = c.in[1:]
	if err := numbers(&values); err != nil {
		return err
	}
	_, err := c.axis("axis", len(c.out[0].Shape))
	return err
}

func writeOneHot(w *writer, c *call, in []port) []port {
	axis, _ := c.axis("axis", len(c.out[0].Shape))
	depth := w.number(relay.Tensor("int64"), float64(c.out[0].Shape[axis]))
	return []port{w.one("OneHot", "opset1", c.out[0], []xml.Attr{attrInts("axis", int64(axis))}, in[0], depth, in[1],
		in[2])}
}
