// SPDX-License-Identifier: Apache-2.0

package fold

import "github.com/collage-tvm/collage/relay"

// value is what a node of a program is: a tensor, a tuple of values, or not known (zero).
type value struct {
	tensor *Tensor
	fields []value
}

func (v value) known() bool { return v.tensor != nil || v.fields != nil }

// tensors are the fields of a tuple of tensors.
func (v value) tensors() ([]*Tensor, error) {
	list := make([]*Tensor, len(v.fields))
	for i, f := range v.fields {
		if list[i] = f.tensor; list[i] == nil {
			return nil, errLeft
		}
	}
	return list, nil
}

// operator evaluates one of Relay's operators of tensors, as many as it was registered with.
type operator struct {
	inputs   int
	evaluate func(op string, in []*Tensor, attrs *relay.Attrs) (*Tensor, error)
}

func ofOne(f func(t *Tensor, attrs *relay.Attrs) (*Tensor, error)) operator {
	return operator{1, func(_ string, in []*Tensor, attrs *relay.Attrs) (*Tensor, error) { return f(in[0], attrs) }}
}

func ofTwo(f func(a, b *Tensor, attrs *relay.Attrs) (*Tensor, error)) operator {
	return operator{2, func(_ string, in []*Tensor, attrs *relay.Attrs) (*Tensor,
		error) {
		return f(in[0], in[1], attrs)
	}}
}

// operators are those that are evaluated here, but for the ones of tuples (evaluate).
var operators = map[string]operator{
	"reshape":          ofOne(reshape),
	"expand_dims":      ofOne(expandDims),
	"squeeze":          ofOne(squeeze),
	"transpose":        ofOne(transpose),
	"strided_slice":    ofOne(stridedSlice),
	"tile":             ofOne(tile),
	"repeat":           ofOne(repeat),
	"reverse":          ofOne(reverse),
	"full":             ofOne(full),
	"layout_transform": ofOne(layoutTransform),
	"take":             ofTwo(take),
	"gather":           ofTwo(gather),
	"copy":             ofOne(func(t *Tensor, _ *relay.Attrs) (*Tensor, error) { return t, nil }),
	"zeros_like":       ofOne(func(t *Tensor, _ *relay.Attrs) (*Tensor, error) { return like(t, 0) }),
	"ones_like":        ofOne(func(t *Tensor, _ *relay.Attrs) (*Tensor, error) { return like(t, 1) }),
	"cast_like":        ofTwo(func(t, other *Tensor, _ *relay.Attrs) (*Tensor, error) { return cast(t, other.DType) }),
	"full_like": ofTwo(func(t, value *Tensor, _ *relay.Attrs) (*Tensor, error) {
		if len(value.Shape) > 0 {
			return nil, errLeft
		}
		return filled(value, t.Shape, t.DType)
	}),
	"broadcast_to": ofOne(func(t *Tensor, attrs *relay.Attrs) (*Tensor, error) {
		shape, ok := attrs.Ints("shape")
		if !ok {
			return nil, errLeft
		}
		return broadcastTo(t, shape)
	}),
	"cast": ofOne(func(t *Tensor, attrs *relay.Attrs) (*Tensor, error) {
		dtype, ok := attrs.String("dtype")
		if !ok || dtype == "" {
			return nil, errLeft
		}
		return cast(t, dtype)
	}),
	"clip": ofOne(func(t *Tensor, attrs *relay.Attrs) (*Tensor, error) {
		low, ok := attrs.Float("a_min")
		high, ok2 := attrs.Float("a_max")
		if !ok || !ok2 {
			return nil, errLeft
		}
		return clip(t, low, high)
	}),
	"where": {3, func(_ string, in []*Tensor, _ *relay.Attrs) (*Tensor, error) { return choose(in[0], in[1], in[2]) }},
	"scatter_nd": {3, func(_ string, in []*Tensor, attrs *relay.Attrs) (*Tensor, error) {
		return scatter(in[0], in[1], in[2], attrs)
	}},
	"qnn.dequantize": {3, func(_ string, in []*Tensor, attrs *relay.Attrs) (*Tensor, error) {
		return dequantise(in[0], in[1], in[2], attrs)
	}},
	"arange": {3, func(_ string, in []*Tensor, attrs *relay.Attrs) (*Tensor, error) {
		return arange(in[0], in[1], in[2], attrs)
	}},
}

func init() {
	for _, op := range []string{"add", "subtract", "multiply", "divide", "floor_divide", "trunc_divide", "mod",
		"floor_mod",
		"trunc_mod", "power", "maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater",
		"greater_equal",
		"logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift",
		"right_shift"} {
		operators[op] = operator{2, func(op string, in []*Tensor, _ *relay.Attrs) (*Tensor, error) {
			return binary(op, in[0], in[1])
		}}
	}
	for _, op := range []string{"sqrt", "rsqrt", "negative", "abs", "floor", "ceil", "trunc", "round", "sign", "exp",
		"log",
		"erf", "sin", "cos", "sigmoid", "isnan", "isfinite", "isinf", "logical_not", "bitwise_not", "nn.relu"} {
		operators[op] = operator{1, func(op string, in []*Tensor, _ *relay.Attrs) (*Tensor,
			error) {
			return unary(op, in[0])
		}}
	}
	for _, op := range []string{"sum", "prod", "max", "min", "all", "any"} {
		operators[op] = operator{1, func(op string, in []*Tensor, attrs *relay.Attrs) (*Tensor, error) {
			return reduce(op, in[0], attrs)
		}}
	}
}

// evaluate gives the value of a call of an operator; errLeft where it is for TVM to find out.
func evaluate(op string, args []value, attrs *relay.Attrs) (value, error) {
	switch op {
	case "concatenate", "stack":
		at, ok := attrs.Int("axis")
		if len(args) != 1 || args[0].fields == nil || !ok {
			return value{}, errLeft
		}
		parts, err := args[0].tensors()
		if err != nil {
			return value{}, err
		}
		join := concatenate
		if op == "stack" {
			join = stack
		}
		t, err := join(parts, at)
		return value{tensor: t}, err
	case "split":
		if len(args) != 1 || args[0].tensor == nil {
			return value{}, errLeft
		}
		parts, err := split(args[0].tensor, attrs)
		if err != nil {
			return value{}, err
		}
		fields := make([]value, len(parts))
		for i, p := range parts {
			fields[i].tensor = p
		}
		return value{fields: fields}, nil
	}
	known, ok := operators[op]
	if !ok || len(args) != known.inputs {
		return value{}, errLeft
	}
	in, err := value{fields: args}.tensors()
	if err != nil {
		return value{}, err
	}
	t, err := known.evaluate(op, in, attrs)
	return value{tensor: t}, err
}
