// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/region"
)

// formatVersion is that of the text; the runtime refuses any other.
const formatVersion = 5

// dtypes are the runtime's names of dtypes.
var dtypes = map[string]string{"float32": "f32", "bfloat16": "bf16", "int8": "s8", "uint8": "u8", "int32": "s32",
	"bool": "bool"}

// emit writes a region for the runtime (a region.Emitter).
func emit(p *region.Program) ([]byte, []region.ValueID, error) {
	l, err := lower(p)
	if err != nil {
		return nil, nil, err
	}
	l.share()
	l.attend()
	l.channelsFirst()
	l.fuse()
	l.sums()
	l.merge()
	l.strips()
	if err := l.roundWeights(p.ConstantBytes); err != nil {
		return nil, nil, err
	}
	if err := l.pairWeights(p.ConstantBytes); err != nil {
		return nil, nil, err
	}
	l.pack()
	return l.text()
}

// text writes the operations as JSON: byoc/runtime/dnnl_program.h shows how. Values are numbered in the order in which
// they are first met. The same region gives the same text.
func (l *lowering) text() ([]byte, []region.ValueID, error) {
	w := &writer{l: l, ids: map[region.ValueID]int{}}
	w.b.WriteString("{\"format\": \"collage-dnnl\", \"version\": " + strconv.Itoa(formatVersion) + ",\n\"inputs\": ")
	w.list(l.p.Inputs)
	var ops bytes.Buffer
	head := w.b
	w.b = ops
	for i, o := range l.ops {
		if i > 0 {
			w.b.WriteString(",\n  ")
		}
		w.operation(o)
	}
	ops = w.b
	w.b = head
	w.b.WriteString(", \"outputs\": ")
	w.list(l.p.Outputs)
	w.b.WriteString(",\n\"constants\": ")
	var constants []region.ValueID
	for _, v := range w.order {
		if l.isConstant(v) {
			constants = append(constants, v)
		}
	}
	w.list(constants)
	for i, v := range constants {
		if data, made := l.made[v]; made {
			constants[i] = l.p.AddConstant(l.types[v], data)
		}
	}
	w.b.WriteString(",\n\"values\": [")
	for i, v := range w.order {
		if i > 0 {
			w.b.WriteString(", ")
		}
		dtype, ok := dtypes[l.types[v].DType]
		if !ok {
			return nil, nil, fmt.Errorf("a tensor is %s, which oneDNN does not have", l.types[v].DType)
		}
		fmt.Fprintf(&w.b, "[%q, ", dtype)
		w.numbers(l.types[v].Shape)
		w.b.WriteByte(']')
	}
	w.b.WriteString("],\n\"ops\": [\n  ")
	w.b.Write(ops.Bytes())
	w.b.WriteByte(']')
	if len(l.stripRanges) > 0 {
		w.b.WriteString(",\n\"strips\": ")
		w.numbers(l.stripRanges)
	}
	w.packed()
	w.b.WriteString(",\n")
	w.groups()
	w.b.WriteString("}\n")
	return w.b.Bytes(), constants, nil
}

type writer struct {
	l *lowering
	b bytes.Buffer
	// ids are the numbers of values in the text, order the values by number.
	ids   map[region.ValueID]int
	order []region.ValueID
}

func (w *writer) id(v region.ValueID) int {
	id, ok := w.ids[v]
	if !ok {
		id = len(w.order)
		w.ids[v] = id
		w.order = append(w.order, v)
	}
	return id
}

func (w *writer) list(values []region.ValueID) {
	list := make([]int64, len(values))
	for i, v := range values {
		list[i] = int64(w.id(v))
	}
	w.numbers(list)
}

func (w *writer) numbers(list []int64) {
	w.b.WriteByte('[')
	for i, v := range list {
		if i > 0 {
			w.b.WriteString(", ")
		}
		w.b.WriteString(strconv.FormatInt(v, 10))
	}
	w.b.WriteByte(']')
}

// packed writes which values may have the rows of tokens alone, in the order of their numbers.
func (w *writer) packed() {
	if len(w.l.packed) == 0 {
		return
	}
	var axes, turned []int64
	for id, v := range w.order {
		one := w.l.packed[v]
		if one.axes > 0 {
			axes = append(axes, int64(id), int64(one.axes))
		}
		if one.turned {
			turned = append(turned, int64(id))
		}
	}
	fmt.Fprintf(&w.b, ",\n\"packed\": {\"valid\": %d, \"axes\": ", w.id(w.l.tokensOf))
	w.numbers(axes)
	if turned != nil {
		w.b.WriteString(", \"turned\": ")
		w.numbers(turned)
	}
	w.b.WriteByte('}')
}

func (w *writer) operation(o *operation) {
	fmt.Fprintf(&w.b, "{\"op\": %q", o.kind)
	if o.kernel != "" {
		fmt.Fprintf(&w.b, ", \"kernel\": %q", o.kernel)
	}
	if o.algorithm != "" {
		fmt.Fprintf(&w.b, ", \"algorithm\": %q", o.algorithm)
	}
	w.b.WriteString(", \"in\": ")
	w.list(o.in)
	fmt.Fprintf(&w.b, ", \"out\": %d", w.id(o.out))
	if o.more != nil {
		w.b.WriteString(", \"more\": ")
		w.list(o.more)
	}
	for _, f := range []struct {
		name string
		list []int64
	}{{"perm", o.perm}, {"axes", o.axes}, {"window", o.window}, {"scale", o.scale}, {"strides", o.strides},
		{"dilation", o.dilation}, {"padding", o.padding}, {"parts", o.parts}, {"times", o.times}} {
		if f.list != nil {
			fmt.Fprintf(&w.b, ", %q: ", f.name)
			w.numbers(f.list)
		}
	}
	if o.weightDims != nil {
		w.b.WriteString(", \"weight\": ")
		w.view(strides{o.weightDims, o.weightStrides, o.weightOffset})
	}
	for i, v := range o.views {
		w.b.WriteString([]string{", \"views\": [", ", "}[min(i, 1)])
		w.view(v)
		if i == len(o.views)-1 {
			w.b.WriteByte(']')
		}
	}
	if o.attention != nil {
		w.masks(o.attention.Masks)
		if o.attention.Cleared {
			w.b.WriteString(", \"cleared\": true")
		}
	}
	for _, f := range []struct {
		name string
		on   bool
	}{{"backward", o.backward}, {"transpose_a", o.transposeA}, {"transpose_b", o.transposeB}, {"bias", o.bias},
		{"bf16", o.bf16}, {"unbiased", o.unbiased}, {"unscaled", o.unscaled}, {"unshifted", o.unshifted}} {
		if f.on {
			fmt.Fprintf(&w.b, ", %q: true", f.name)
		}
	}
	if o.groups != 0 {
		fmt.Fprintf(&w.b, ", \"groups\": %d", o.groups)
	}
	w.scalar("alpha", o.alpha)
	w.scalar("beta", o.beta)
	w.scalar("epsilon", o.epsilon)
	if len(o.post) > 0 {
		w.b.WriteString(", \"post\": [")
		for i, p := range o.post {
			if i > 0 {
				w.b.WriteString(", ")
			}
			fmt.Fprintf(&w.b, "{\"op\": %q", p.function)
			if p.operand != noValue {
				fmt.Fprintf(&w.b, ", \"in\": %d", w.id(p.operand))
			}
			w.scalar("alpha", p.alpha)
			w.scalar("beta", p.beta)
			w.b.WriteByte('}')
		}
		w.b.WriteByte(']')
	}
	w.b.WriteByte('}')
}

func (w *writer) view(v strides) {
	w.b.WriteString("{\"dims\": ")
	w.numbers(v.dims)
	w.b.WriteString(", \"strides\": ")
	w.numbers(v.steps)
	if v.offset != 0 {
		fmt.Fprintf(&w.b, ", \"offset\": %d", v.offset)
	}
	w.b.WriteByte('}')
}

// masks writes what attention does with its masks.
func (w *writer) masks(masks []native.Mask) {
	for i, m := range masks {
		w.b.WriteString([]string{", \"masks\": [", ", "}[min(i, 1)])
		var b bytes.Buffer
		b, w.b = w.b, b
		if m.Chooses {
			fmt.Fprintf(&w.b, ", \"chooses\": true, \"keeps\": %t", m.Keeps)
			w.scalar("fill", m.Fill)
		}
		if m.Triangle {
			fmt.Fprintf(&w.b, ", \"sees\": %d", m.Sees)
			w.scalar("beyond", m.Beyond)
		}
		b, w.b = w.b, b
		w.b.WriteString("{" + strings.TrimPrefix(b.String(), ", ") + "}")
		if i == len(masks)-1 {
			w.b.WriteByte(']')
		}
	}
}

// scalar writes a number as the nearest float32; zero is left out.
func (w *writer) scalar(name string, v float64) {
	f := float64(float32(v))
	switch {
	case f == 0:
	case math.IsInf(f, 0):
		text := "inf"
		if f < 0 {
			text = "-inf"
		}
		fmt.Fprintf(&w.b, ", %q: %q", name, text)
	default:
		fmt.Fprintf(&w.b, ", %q: %s", name, strconv.FormatFloat(f, 'g', -1, 32))
	}
}
