// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"encoding/xml"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// movements change where elements stand, or how often they stand there, and not what they are.
func movements() map[string]*operator {
	all := map[string]*operator{}
	for _, name := range []string{"reshape", "squeeze", "expand_dims", "nn.batch_flatten", "reshape_like",
		"contrib_reverse_reshape"} {
		all[name] = &operator{checkReshape, func(w *writer, c *call, in []port) []port {
			if target, err := c.openTarget(); err == nil && c.isOpen() {
				return []port{w.reshapeOpen(in, c.out[0], target)}
			}
			return []port{w.reshape(in[0], c.out[0].Shape...)}
		}, movableStatic}
	}
	all["transpose"] = &operator{checkTranspose, writeTranspose, movableStatic}
	all["concatenate"] = &operator{checkJoin(false), writeConcatenate, movableStatic}
	all["stack"] = &operator{checkJoin(true), writeStack, movableStatic}
	all["split"] = &operator{checkSplit, writeSplit, movableStatic}
	all["broadcast_to"] = &operator{moves, writeBroadcast, movableStatic}
	all["tile"] = &operator{checkTile, writeTile, movableStatic}
	for _, name := range []string{"full", "zeros", "ones", "full_like", "zeros_like", "ones_like"} {
		all[name] = &operator{checkFull, writeFull(name), movableStatic}
	}
	all["nn.pad"] = &operator{checkPad, writePad, "float32, static shapes, a constant number, edge or reflected"}
	all["nn.mirror_pad"] = &operator{checkPad, writePad, float32Static}
	for name, kind := range map[string]string{"nn.depth_to_space": "DepthToSpace",
		"nn.space_to_depth": "SpaceToDepth"} {
		all[name] = &operator{checkBlocks, writeBlocks(kind), float32Static + ", layout NCHW"}
	}
	return all
}

// checkReshape looks at the data only: of reshape_like's other argument nothing but the shape is used.
func checkReshape(c *call) error {
	if len(c.in) > 1 {
		only := *c
		only.in = c.in[:1]
		return moves(&only)
	}
	return moves(c)
}

func checkTranspose(c *call) error {
	if err := moves(c); err != nil {
		return err
	}
	if _, ok := c.permutation(); !ok {
		return c.refuse("has no usable attribute axes")
	}
	return nil
}

// permutation is the attribute axes; null means that the dimensions are reversed.
func (c *call) permutation() ([]int64, bool) {
	rank := len(c.in[0].Shape)
	if v, _ := c.attrs.Get("axes"); v == nil {
		axes := make([]int64, rank)
		for i := range axes {
			axes[i] = int64(rank - 1 - i)
		}
		return axes, true
	}
	list, ok := c.list("axes")
	if !ok || len(list) != rank {
		return nil, false
	}
	axes := slices.Clone(list)
	for i := range axes {
		if axes[i] < 0 {
			axes[i] += int64(rank)
		}
	}
	return axes, true
}

func writeTranspose(w *writer, c *call, in []port) []port {
	axes, _ := c.permutation()
	if len(axes) == 0 {
		return in
	}
	return []port{w.one("Transpose", "opset1", c.out[0], nil, in[0], w.ints(axes...))}
}

func checkJoin(anew bool) func(c *call) error {
	return func(c *call) error {
		if err := moves(c); err != nil {
			return err
		}
		rank := len(c.out[0].Shape)
		if len(c.in) == 0 || rank == 0 {
			return c.refuse("joins nothing")
		}
		for _, t := range c.in {
			if anew && len(t.Shape) != rank-1 || !anew && len(t.Shape) != rank {
				return c.refuse("joins tensors of %d dimensions to one of %d", len(t.Shape), rank)
			}
		}
		_, err := c.axis("axis", rank)
		return err
	}
}

func writeConcatenate(w *writer, c *call, in []port) []port {
	if len(in) == 1 {
		return in
	}
	axis, _ := c.axis("axis", len(c.out[0].Shape))
	return []port{w.one("Concat", "opset1", c.out[0], []xml.Attr{attrInts("axis", int64(axis))}, in...)}
}

func writeStack(w *writer, c *call, in []port) []port {
	axis, _ := c.axis("axis", len(c.out[0].Shape))
	lifted := make([]port, len(in))
	for i, p := range in {
		lifted[i] = w.reshape(p, slices.Insert(slices.Clone(p.typ.Shape), axis, 1)...)
	}
	return writeConcatenate(w, c, lifted)
}

func checkSplit(c *call) error {
	if err := c.static(movable...); err != nil {
		return err
	}
	if len(c.in) != 1 {
		return c.refuse("has %d arguments", len(c.in))
	}
	for _, t := range c.out { // all of them are written, used or not
		if err := c.tensor(t, "result", movable); err != nil {
			return err
		}
	}
	_, err := c.axis("axis", len(c.in[0].Shape))
	return err
}

func writeSplit(w *writer, c *call, in []port) []port {
	axis, _ := c.axis("axis", len(c.in[0].Shape))
	lengths := make([]int64, len(c.out))
	for i, t := range c.out {
		lengths[i] = t.Shape[axis]
	}
	return w.layer("VariadicSplit", "opset1", nil,
		[]port{in[0], w.number(relay.Tensor("int64"), float64(axis)), w.ints(lengths...)}, c.out...)
}

func writeBroadcast(w *writer, c *call, in []port) []port {
	return []port{w.broadcast(in[0], c.out[0])}
}

func (w *writer) broadcast(p port, to *relay.Type) port {
	if slices.Equal(p.typ.Shape, to.Shape) {
		return p
	}
	return w.one("Broadcast", "opset3", to, []xml.Attr{attr("mode", "numpy")}, p, w.ints(to.Shape...))
}

func checkTile(c *call) error {
	if err := moves(c); err != nil {
		return err
	}
	if times, ok := c.list("reps"); !ok || len(times) == 0 || slices.Min(times) < 1 {
		return c.refuse("has no usable attribute reps")
	}
	return nil
}

func writeTile(w *writer, c *call, in []port) []port {
	times, _ := c.list("reps")
	return []port{w.one("Tile", "opset1", c.out[0], nil, in[0], w.ints(times...))}
}

func checkFull(c *call) error {
	value := *c
	if c.op != "full" && c.op != "full_like" {
		value.in = nil // of what it is like, nothing but the type is used
	}
	if err := value.static(movable...); err != nil {
		return err
	}
	if at := len(value.in) - 1; at >= 0 {
		if t := c.in[at]; len(t.Shape) != 0 || t.DType != c.out[0].DType {
			return c.refuse("is filled with a tensor of %s", t)
		}
	}
	return nil
}

func writeFull(name string) func(w *writer, c *call, in []port) []port {
	return func(w *writer, c *call, in []port) []port {
		var value port
		switch name {
		case "full", "full_like":
			value = in[len(in)-1]
		case "ones", "ones_like":
			value = w.scalar(c.out[0].DType, 1)
		default:
			value = w.scalar(c.out[0].DType, 0)
		}
		return []port{w.broadcast(value, c.out[0])}
	}
}

// padModes are OpenVINO's names of Relay's.
var padModes = map[string]string{"constant": "constant", "edge": "edge", "reflect": "reflect", "REFLECT": "reflect",
	"SYMMETRIC": "symmetric"}

func (c *call) padMode() string {
	for _, name := range []string{"pad_mode", "mode"} {
		if mode, ok := c.attrs.String(name); ok {
			return mode
		}
	}
	return ""
}

// padWidths are the attribute pad_width, front and back.
func (c *call) padWidths() (begin, end []int64, ok bool) {
	v, _ := c.attrs.Get("pad_width")
	pairs, ok := v.([]any)
	if !ok || len(pairs) != len(c.in[0].Shape) {
		return nil, nil, false
	}
	for _, p := range pairs {
		pair, ok := p.([]any)
		if !ok || len(pair) != 2 {
			return nil, nil, false
		}
		front, okFront := pair[0].(int64)
		back, okBack := pair[1].(int64)
		if !okFront || !okBack || front < 0 || back < 0 {
			return nil, nil, false
		}
		begin, end = append(begin, front), append(end, back)
	}
	return begin, end, true
}

func checkPad(c *call) error {
	data := *c
	data.in = c.in[:1]
	if err := floats(&data); err != nil {
		return err
	}
	if padModes[c.padMode()] == "" {
		return c.refuse("has the mode %q", c.padMode())
	}
	begin, end, ok := c.padWidths()
	if !ok {
		return c.refuse("has no attribute pad_width with two numbers of at least 0 for each dimension")
	}
	if mode := padModes[c.padMode()]; mode == "reflect" || mode == "symmetric" {
		for i, d := range c.in[0].Shape {
			if most := max(begin[i], end[i]); most > d || most == d && mode == "reflect" {
				return c.refuse("mirrors %d elements of %d", most, d)
			}
		}
	}
	if padModes[c.padMode()] != "constant" {
		return nil // what it would be filled with does not matter
	}
	if len(c.in) != 2 || c.in[1] == nil || len(c.in[1].Shape) != 0 || c.in[1].DType != "float32" &&
		c.in[1].DType != "int32" {
		return c.refuse("is filled with something else than a number")
	}
	if c.constants[1] == nil {
		return c.refuse("is filled with a number that is no constant: OpenVINO takes 0 in its place")
	}
	return nil
}

func writePad(w *writer, c *call, in []port) []port {
	begin, end, _ := c.padWidths()
	mode := padModes[c.padMode()]
	args := []port{in[0], w.ints(begin...), w.ints(end...)}
	if mode == "constant" {
		args = append(args, w.convert(in[1], "float32"))
	}
	return []port{w.one("Pad", "opset1", c.out[0], []xml.Attr{attr("pad_mode", mode)}, args...)}
}

func checkBlocks(c *call) error {
	if err := floats(c); err != nil {
		return err
	}
	if err := c.ranks(4); err != nil {
		return err
	}
	if err := c.layout("layout", "NCHW"); err != nil {
		return err
	}
	if mode, _ := c.attrs.String("mode"); c.op == "nn.depth_to_space" && mode != "DCR" && mode != "CDR" {
		return c.refuse("has the mode %q; DCR and CDR are supported", mode)
	}
	return nil
}

func writeBlocks(kind string) func(w *writer, c *call, in []port) []port {
	return func(w *writer, c *call, in []port) []port {
		size, _ := c.attrs.Int("block_size")
		mode := "blocks_first"
		if m, _ := c.attrs.String("mode"); m == "CDR" && kind == "DepthToSpace" {
			mode = "depth_first"
		}
		return []port{w.one(kind, "opset1", c.out[0], []xml.Attr{attrInts("block_size", size), attr("mode", mode)},
			in[0])}
	}
}
