// SPDX-License-Identifier: Apache-2.0

package region

import (
	"encoding/json"
	"math"

	"github.com/collage-tvm/collage/relay"
)

// description is a Program for somebody outside of Go.
type description struct {
	Symbol     string         `json:"symbol"`
	Inputs     []ValueID      `json:"inputs"`
	InputNames []string       `json:"input_names"`
	Outputs    []ValueID      `json:"outputs"`
	Operators  []operatorText `json:"operators"`
	Composites []string       `json:"composites"`
	Values     []valueText    `json:"values"`
}

type operatorText struct {
	Name      string         `json:"name"`
	Attrs     map[string]any `json:"attrs"`
	Arguments []ValueID      `json:"arguments"`
	Results   []ValueID      `json:"results"`
	Composite int            `json:"composite"`
}

type valueText struct {
	Shape    []int64 `json:"shape"`
	DType    string  `json:"dtype"`
	Constant bool    `json:"constant"`
}

// Describe writes a program as JSON, but for the constants' data.
func (p *Program) Describe() (string, error) {
	d := description{Symbol: p.Symbol, Inputs: p.Inputs, Outputs: p.Outputs, Composites: p.Composites,
		Operators: []operatorText{}, Values: []valueText{}}
	for _, param := range p.Graph.Params {
		n := &p.Graph.Nodes[param]
		for range tensors(n.Type) {
			d.InputNames = append(d.InputNames, n.Name)
		}
	}
	for _, op := range p.Ops {
		attrs := map[string]any{}
		if op.Attrs != nil {
			for _, f := range op.Attrs.Fields {
				attrs[f.Name] = finite(f.Value)
			}
		}
		d.Operators = append(d.Operators, operatorText{op.Name, attrs, op.Args, op.Results, op.CompositeIndex})
	}
	for v := range p.Values {
		t := p.Values[v].Type
		d.Values = append(d.Values, valueText{append([]int64{}, t.Shape...), t.DType, p.IsConstant(ValueID(v))})
	}
	text, err := json.Marshal(d)
	return string(text), err
}

// tensors counts the tensors of a type.
func tensors(t *relay.Type) int {
	if t.Kind != relay.TypeTuple {
		return 1
	}
	n := 0
	for _, f := range t.Fields {
		n += tensors(f)
	}
	return n
}

// finite writes what JSON has no numbers for as text, which Python's float() reads.
func finite(v any) any {
	if f, ok := v.(float64); ok && (math.IsInf(f, 0) || math.IsNaN(f)) {
		switch {
		case math.IsInf(f, 1):
			return "inf"
		case math.IsInf(f, -1):
			return "-inf"
		}
		return "nan"
	}
	return v
}
