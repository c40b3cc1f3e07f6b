// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/recurrent"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// formatLine begins the text of a region; libcollage_openvino.so (byoc/runtime/openvino_program.cc) reads it. Behind it
// stand a line with the precision that OpenVINO is to compute in, as OpenVINO calls it, one with the names of the
// region's groups (region.GroupsLine), and the XML, whose layers' names say to which group each belongs
// (region.LayerPrefix). The weights that it speaks of are the region's constants, each beginning at
// a multiple of alignment, as they are saved (byoc/runtime/region_constants.h); the last one is the data that the
// writer added.
const formatLine = "collage-openvino 5\n"

// alignment is where constants begin, for the sake of vector instructions.
const alignment = 64

func aligned(n int64) int64 { return (n + alignment - 1) / alignment * alignment }

// emit is the region.Emitter: it writes a region as IR. The error says which operator OpenVINO cannot run.
func emit(p *region.Program) ([]byte, []region.ValueID, error) {
	w, constants, err := write(p)
	if err != nil {
		return nil, nil, err
	}
	document, err := w.net.text()
	if err != nil {
		return nil, nil, err
	}
	groups, _ := p.Groups()
	text := append([]byte(formatLine+string(w.hint)+"\n"+region.GroupsLine(groups)), document...)
	if len(w.own) > 0 {
		constants = append(constants, p.AddConstant(relay.Tensor("uint8", int64(len(w.own))), w.own))
	}
	return text, constants, nil
}

// write appends the layers of a region to a new IR and gives the constants whose data it refers to. Where operators are
// to multiply bytes, their weights are bytes, too.
func write(p *region.Program) (*writer, []region.ValueID, error) {
	return writeWith(p, p.ConstantBytes)
}

// writeWith is write with the elements of constants that data gives.
func writeWith(p *region.Program, data func(region.ValueID) ([]byte, error)) (*writer, []region.ValueID, error) {
	w := newWriter(p.Symbol)
	precisions, err := p.Precisions()
	if err != nil {
		return nil, nil, err
	}
	if slices.Contains(precisions, byoc.BF16) {
		w.hint, w.precision = byoc.BF16, byoc.BF16
	}
	ports := make([]port, len(p.Values))
	for i, v := range p.Inputs {
		t := p.Values[v].Type
		if _, ok := elements[t.DType]; !ok {
			return nil, nil, fmt.Errorf("input %d is of %s, which OpenVINO does not know", i, t.DType)
		}
		w.prefix = "input_"
		ports[v] = w.parameter(t)
	}
	readers := p.Readers()
	var constants []region.ValueID
	w.prefix = "weight_"
	rounded := roundedWeights(p, precisions)
	for v := range ports {
		id := region.ValueID(v)
		if !p.IsConstant(id) || readers[v] == 0 {
			continue
		}
		t := p.Values[v].Type
		if rounded[id] {
			elements, err := data(id)
			if err != nil {
				return nil, nil, err
			}
			if made, ok := w.weightOfBytes(p, id, elements, &constants); ok {
				ports[v] = made
				continue
			}
		}
		if _, ok := elements[t.DType]; !ok {
			return nil, nil, fmt.Errorf("a constant is of %s, which OpenVINO does not know", t.DType)
		}
		size, _ := t.NumBytes()
		ports[v] = w.weight(t, w.base)
		constants = append(constants, id)
		w.base += aligned(size)
	}
	_, group := p.Groups()
	for _, item := range recurrent.Schedule(p) {
		i := item.Op
		if item.Layer != nil {
			i = item.Layer.Ops[0]
		}
		w.precision = precisions[i]
		if item.Layer != nil {
			w.recurrent(item.Layer, ports, group)
			continue
		}
		op := &p.Ops[i]
		c := callIn(p, op, readers)
		if err := check(c); err != nil {
			return nil, nil, err
		}
		in := make([]port, len(op.Args))
		for k, v := range op.Args {
			in[k] = ports[v]
		}
		w.prefix = region.LayerPrefix(group[i]) + plainName(op.Name) + "_"
		for k, result := range operators()[op.Name].write(w, c, in) {
			if k < len(op.Results) {
				ports[op.Results[k]] = result
			}
		}
	}
	w.prefix, w.precision = "output_", w.hint
	for _, v := range p.Outputs {
		w.result(ports[v])
	}
	return w, constants, nil
}
