// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"encoding/xml"
	"fmt"
	"slices"
)

// pool is one of Relay's pooling operators.
type pool struct {
	dims   int
	max    bool
	layout string
}

func pools() map[string]*operator {
	all := map[string]*operator{}
	for dims, layout := range map[int]string{1: "NCW", 2: "NCHW", 3: "NCDHW"} {
		for kind, isMax := range map[string]bool{"max": true, "avg": false} {
			p := pool{dims, isMax, layout}
			limits := "float32, static shapes, layout " + layout
			all[fmt.Sprintf("nn.%s_pool%dd", kind, dims)] = &operator{p.check, p.write, limits}
			all[fmt.Sprintf("nn.adaptive_%s_pool%dd", kind, dims)] = &operator{p.checkAdaptive, p.writeAdaptive, limits}
			if dims == 2 {
				all["nn.global_"+kind+"_pool2d"] = &operator{p.checkAdaptive, p.writeAdaptive, limits}
			}
		}
	}
	return all
}

func (p pool) checkTensors(c *call) error {
	if err := c.static("float32"); err != nil {
		return err
	}
	if err := c.ranks(p.dims + 2); err != nil {
		return err
	}
	if err := c.layout("layout", p.layout); err != nil {
		return err
	}
	return c.layout("out_layout", p.layout)
}

func (p pool) check(c *call) error {
	if err := p.checkTensors(c); err != nil {
		return err
	}
	w, err := p.window(c)
	if err != nil {
		return err
	}
	for i, size := range w.size {
		extent := (size-1)*w.dilation[i] + 1
		if w.begin[i] >= extent || w.end[i] >= extent {
			return c.refuse("has padding %s and %s for windows of %s: some windows would lie wholly outside",
				shapeText(w.begin), shapeText(w.end), shapeText(w.size))
		}
		// The last window of ceil_mode must not begin behind the data.
		if (c.out[0].Shape[i+2]-1)*w.strides[i]-w.begin[i] >= c.in[0].Shape[i+2] {
			return c.refuse("has windows that begin behind the data (ceil_mode)")
		}
		if !p.max && w.dilation[i] != 1 {
			return c.refuse("has the dilation %s; average pools are supported without", shapeText(w.dilation))
		}
	}
	return nil
}

// window is where a pool looks.
type window struct {
	size, strides, dilation, begin, end []int64
	// reach is by how much the last window reaches beyond the data on each side behind; at least 0.
	reach []int64
	// beyond says that some window reaches beyond the padding, which only happens with ceil_mode.
	beyond bool
}

func (p pool) window(c *call) (w window, err error) {
	if w.size, err = c.spatial("pool_size", p.dims); err != nil {
		return w, err
	}
	if w.strides, err = c.spatial("strides", p.dims); err != nil {
		return w, err
	}
	if w.dilation, err = c.spatial("dilation", p.dims); err != nil {
		return w, err
	}
	if w.begin, w.end, err = c.paddings(p.dims); err != nil {
		return w, err
	}
	w.reach = make([]int64, p.dims)
	for i := range w.reach {
		last := (c.out[0].Shape[i+2]-1)*w.strides[i] + (w.size[i]-1)*w.dilation[i] + 1
		w.reach[i] = max(w.end[i], last-w.begin[i]-c.in[0].Shape[i+2], 0)
		w.beyond = w.beyond || w.reach[i] > w.end[i]
	}
	return w, nil
}

func (p pool) write(w *writer, c *call, in []port) []port {
	win, _ := p.window(c)
	data, begin, end := in[0], win.begin, win.reach
	attrs := []xml.Attr{attrInts("kernel", win.size...), attrInts("strides", win.strides...),
		attr("rounding_type", "floor"), attr("auto_pad", "explicit")}
	if p.max {
		// What lies outside never wins, so that the padding may be made as long as the last window needs.
		attrs = append(attrs, attrInts("pads_begin", begin...), attrInts("pads_end", end...))
		if slices.Max(win.dilation) == 1 {
			return []port{w.one("MaxPool", "opset1", c.out[0], attrs, data)}
		}
		attrs = append(attrs, attrInts("dilations", win.dilation...), attr("index_element_type", "i32"),
			attr("axis", "0"))
		return w.layer("MaxPool", "opset8", attrs, []port{data}, c.out[0], tensor("int32", c.out[0].Shape...))[:1]
	}
	counted := c.truth("count_include_pad")
	if counted && win.beyond {
		// Relay counts the padding it was told of and nothing beyond it; OpenVINO counts all or nothing. So the padding
		// becomes data.
		data = p.pad(w, data, win.begin, win.end)
		begin = make([]int64, p.dims)
		end = slices.Clone(win.reach)
		for i := range end {
			end[i] -= win.end[i]
		}
		counted = false
	}
	attrs = append(attrs, attrInts("pads_begin", begin...), attrInts("pads_end", end...),
		attrBool("exclude-pad", !counted))
	return []port{w.one("AvgPool", "opset1", c.out[0], attrs, data)}
}

// pad surrounds data with zeros.
func (p pool) pad(w *writer, data port, begin, end []int64) port {
	before, after := append([]int64{0, 0}, begin...), append([]int64{0, 0}, end...)
	shape := slices.Clone(data.typ.Shape)
	for i := range shape {
		shape[i] += before[i] + after[i]
	}
	return w.one("Pad", "opset1", tensor("float32", shape...), []xml.Attr{attr("pad_mode", "constant")},
		data, w.ints(before...), w.ints(after...), w.scalar("float32", 0))
}

func (p pool) checkAdaptive(c *call) error { return p.checkTensors(c) }

func (p pool) writeAdaptive(w *writer, c *call, in []port) []port {
	from, to := c.in[0].Shape[2:], c.out[0].Shape[2:]
	one, tiles := true, true
	axes, size := make([]int64, p.dims), make([]int64, p.dims)
	for i := range to {
		one = one && to[i] == 1
		tiles = tiles && from[i]%to[i] == 0
		axes[i], size[i] = int64(i+2), from[i]/to[i]
	}
	zeros := make([]int64, p.dims)
	switch {
	case one:
		kind := "ReduceMean"
		if p.max {
			kind = "ReduceMax"
		}
		return []port{w.one(kind, "opset1", c.out[0], []xml.Attr{attrBool("keep_dims", true)}, in[0], w.ints(axes...))}
	case tiles:
		attrs := []xml.Attr{attrInts("kernel", size...), attrInts("strides", size...), attrInts("pads_begin", zeros...),
			attrInts("pads_end", zeros...), attr("rounding_type", "floor"), attr("auto_pad", "explicit")}
		if p.max {
			return []port{w.one("MaxPool", "opset1", c.out[0], attrs, in[0])}
		}
		return []port{w.one("AvgPool", "opset1", c.out[0], append(attrs, attrBool("exclude-pad", true)), in[0])}
	case p.max:
		return w.layer("AdaptiveMaxPool", "opset8", []xml.Attr{attr("index_element_type", "i32")},
			[]port{in[0], w.ints(to...)}, c.out[0], tensor("int32", c.out[0].Shape...))[:1]
	}
	return []port{w.one("AdaptiveAvgPool", "opset8", c.out[0], nil, in[0], w.ints(to...))}
}
