// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"encoding/xml"
	"math"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// unaries are the operators of one tensor, element by element.
func unaries() map[string]*operator {
	all := map[string]*operator{}
	for name, kind := range map[string]string{
		"nn.relu": "ReLU", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "log": "Log", "sqrt": "Sqrt",
		"erf":   "Erf",
		"floor": "Floor", "ceil": "Ceiling", "sign": "Sign",
		"sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh",
		"cosh": "Cosh",
	} {
		all[name] = &operator{floats, layerOf(kind, "opset1"), float32Static}
	}
	for name, kind := range map[string]string{"asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh"} {
		all[name] = &operator{floats, layerOf(kind, "opset4"), float32Static}
	}
	for name, kind := range map[string]string{"abs": "Abs", "negative": "Negative"} {
		all[name] = &operator{numbers, layerOf(kind, "opset1"), "float32 or int32, static shapes"}
	}
	all["round"] = &operator{floats, writeRound, float32Static}
	all["logical_not"] = &operator{func(c *call) error { return c.static("bool") }, layerOf("LogicalNot", "opset1"),
		"bool, static shapes"}
	all["rsqrt"] = &operator{floats, func(w *writer, c *call, in []port) []port {
		root := w.one("Sqrt", "opset1", c.out[0], nil, in[0])
		return []port{w.binary("Divide", c.out[0], w.scalar("float32", 1), root)}
	}, float32Static}
	for name, base := range map[string]float64{"log2": math.Ln2, "log10": math.Ln10} {
		all[name] = &operator{floats, func(w *writer, c *call, in []port) []port {
			log := w.one("Log", "opset1", c.out[0], nil, in[0])
			return []port{w.binary("Multiply", c.out[0], log, w.scalar("float32", 1/base))}
		}, float32Static}
	}
	for name, kind := range map[string]string{"isnan": "IsNaN", "isinf": "IsInf"} {
		all[name] = &operator{checkTruth, layerOf(kind, "opset10"), float32Static}
	}
	all["isfinite"] = &operator{checkTruth, writeFinite, float32Static}
	all["clip"] = &operator{checkClip, writeClip, float32Static}
	all["nn.leaky_relu"] = &operator{floats, func(w *writer, c *call, in []port) []port {
		alpha, _ := c.attrs.Float("alpha")
		return []port{w.one("PReLU", "opset1", c.out[0], nil, in[0], w.number(tensor("float32", 1), alpha))}
	}, float32Static}
	all["nn.prelu"] = &operator{checkPrelu, writePrelu, float32Static + ", along any axis"}
	all["cast"] = &operator{checkCast, func(w *writer, c *call, in []port) []port {
		return []port{w.convert(in[0], c.out[0].DType)}
	}, "between float32, int32, int8, uint8 and bool, but not from float32 to a narrower one"}
	for _, name := range []string{"copy", "nn.dropout"} {
		all[name] = &operator{checkIdentity, func(_ *writer, _ *call, in []port) []port { return in }, movableStatic}
	}
	return all
}

// layerOf writes one layer of the arguments as they are.
func layerOf(kind, opset string, attrs ...xml.Attr) func(w *writer, c *call, in []port) []port {
	return func(w *writer, c *call, in []port) []port { return []port{w.one(kind, opset, c.out[0], attrs, in...)} }
}

func checkIdentity(c *call) error {
	if len(c.used) > 1 && slices.Contains(c.used[1:], true) {
		return c.refuse("has its mask used; only what it gives in inference is supported")
	}
	return moves(c)
}

func checkClip(c *call) error {
	if err := floats(c); err != nil {
		return err
	}
	low, ok := c.attrs.Float("a_min")
	high, ok2 := c.attrs.Float("a_max")
	if !ok || !ok2 || math.IsNaN(low) || math.IsNaN(high) || low > high {
		return c.refuse("has the bounds %g and %g", low, high)
	}
	return nil
}

// writeRound rounds halves away from zero, as TVM does. OpenVINO's own way there (its 2026.4 adds a half and cuts off)
// rounds 0.49999997 up, and makes other whole numbers of those beyond 2^23.
func writeRound(w *writer, c *call, in []port) []port {
	t := c.out[0]
	size := w.one("Abs", "opset1", t, nil, in[0])
	below := w.one("Floor", "opset1", t, nil, size)
	up := w.binary("GreaterEqual", tensor("bool", t.Shape...), w.binary("Subtract", t, size, below),
		w.scalar("float32", 0.5))
	rounded := w.binary("Add", t, below, w.convert(up, "float32"))
	return []port{w.binary("Multiply", t, rounded, w.one("Sign", "opset1", t, nil, in[0]))}
}

// writeFinite asks for what is neither: OpenVINO 2026.4's IsFinite errs.
func writeFinite(w *writer, c *call, in []port) []port {
	t := c.out[0]
	either := w.binary("LogicalOr", t, w.one("IsNaN", "opset10", t, nil, in[0]), w.one("IsInf", "opset10", t, nil, in[0]))
	return []port{w.one("LogicalNot", "opset1", t, nil, either)}
}

// halfAwayFromZero is how TVM rounds.
var halfAwayFromZero = []xml.Attr{attr("mode", "half_away_from_zero")}

// clamp brings a tensor between finite bounds.
func (w *writer) clamp(p port, low, high float64) port {
	return w.one("Clamp", "opset1", p.typ, []xml.Attr{attr("min", number32(low)), attr("max", number32(high))}, p)
}

func writeClip(w *writer, c *call, in []port) []port {
	low, _ := c.attrs.Float("a_min")
	high, _ := c.attrs.Float("a_max")
	if !math.IsInf(float64(float32(low)), 0) && !math.IsInf(float64(float32(high)), 0) {
		return []port{w.clamp(in[0], low, high)}
	}
	// Clamp has no infinite bounds.
	p := w.binary("Maximum", c.out[0], in[0], w.scalar("float32", low))
	return []port{w.binary("Minimum", c.out[0], p, w.scalar("float32", high))}
}

func checkPrelu(c *call) error {
	if err := floats(c); err != nil {
		return err
	}
	axis, err := c.axis("axis", len(c.in[0].Shape))
	if err != nil {
		return err
	}
	if alpha := c.in[1].Shape; len(alpha) != 1 || alpha[0] != c.in[0].Shape[axis] {
		return c.refuse("has slopes of the shape %s for the axis %d of %s", shapeText(c.in[1].Shape), axis,
			shapeText(c.in[0].Shape))
	}
	return nil
}

func writePrelu(w *writer, c *call, in []port) []port {
	rank := len(c.in[0].Shape)
	axis, _ := c.axis("axis", rank)
	return []port{w.one("PReLU", "opset1", c.out[0], nil, in[0], w.along(in[1], axis, rank))}
}

func checkCast(c *call) error {
	if err := c.static("float32", "int32", "int8", "uint8", "bool"); err != nil {
		return err
	}
	from, to := c.in[0].DType, c.out[0].DType
	if elements[to].bytes < elements[from].bytes {
		return c.refuse("narrows %s to %s; what does not fit is cut off otherwise there", from, to)
	}
	if elements[to].bytes == 1 && from != to {
		return c.refuse("turns %s into %s", from, to)
	}
	return nil
}

// binaries are the operators of two tensors, element by element, with NumPy's broadcasting.
func binaries() map[string]*operator {
	all := map[string]*operator{}
	for name, kind := range map[string]string{
		"add": "Add", "subtract": "Subtract", "multiply": "Multiply", "maximum": "Maximum", "minimum": "Minimum",
	} {
		all[name] = &operator{numbers, layerOf(kind, "opset1", numpyBroadcast...), "float32 or int32, static shapes"}
	}
	for name, kind := range map[string]string{"divide": "Divide", "power": "Power"} {
		all[name] = &operator{floats, layerOf(kind, "opset1", numpyBroadcast...), float32Static}
	}
	// Its Mod is a - trunc(a / b) b, as TVM's trunc_mod; TVM's mod of floats is the rest itself (C's fmod).
	for name, kind := range map[string]string{"floor_mod": "FloorMod", "trunc_mod": "Mod"} {
		all[name] = &operator{checkRest, layerOf(kind, "opset1", numpyBroadcast...),
			float32Static + ", not by a single number"}
	}
	for name, kind := range map[string]string{
		"equal": "Equal", "not_equal": "NotEqual", "less": "Less", "less_equal": "LessEqual", "greater": "Greater",
		"greater_equal": "GreaterEqual",
	} {
		all[name] = &operator{checkComparison, layerOf(kind, "opset1", numpyBroadcast...),
			"float32 or int32, static shapes"}
	}
	for name, kind := range map[string]string{"logical_and": "LogicalAnd", "logical_or": "LogicalOr",
		"logical_xor": "LogicalXor"} {
		all[name] = &operator{func(c *call) error { return c.static("bool") },
			layerOf(kind, "opset1", numpyBroadcast...), "bool, static shapes"}
	}
	all["nn.bias_add"] = &operator{checkBias, func(w *writer, c *call, in []port) []port {
		rank := len(c.in[0].Shape)
		axis, _ := c.axis("axis", rank)
		return []port{w.binary("Add", c.out[0], in[0], w.along(in[1], axis, rank))}
	}, float32Static}
	all["where"] = &operator{checkWhere, layerOf("Select", "opset1", numpyBroadcast...),
		"bool condition, float32 or int32, static shapes"}
	return all
}

func checkComparison(c *call) error {
	if err := c.static("float32", "int32", "bool"); err != nil {
		return err
	}
	if c.in[0].DType != c.in[1].DType || c.in[0].DType == "bool" || c.out[0].DType != "bool" {
		return c.refuse("compares %s with %s", c.in[0].DType, c.in[1].DType)
	}
	return nil
}

func checkRest(c *call) error {
	if n, _ := c.in[1].NumElements(); n == 1 {
		return c.refuse("divides by a single number: TVM multiplies by what is one divided by it")
	}
	return floats(c)
}

// checkTruth checks a question about each element.
func checkTruth(c *call) error {
	if err := c.tensor(c.in[0], "argument 1", []string{"float32"}); err != nil {
		return err
	}
	return c.tensor(c.out[0], "result", []string{"bool"})
}

func checkBias(c *call) error {
	if err := floats(c); err != nil {
		return err
	}
	axis, err := c.axis("axis", len(c.in[0].Shape))
	if err != nil {
		return err
	}
	if bias := c.in[1].Shape; len(bias) != 1 || bias[0] != c.in[0].Shape[axis] {
		return c.refuse("has a bias of the shape %s for the axis %d of %s", shapeText(c.in[1].Shape), axis,
			shapeText(c.in[0].Shape))
	}
	return nil
}

func checkWhere(c *call) error {
	if err := c.static("float32", "int32", "bool"); err != nil {
		return err
	}
	if c.in[0].DType != "bool" {
		return c.refuse("has a condition of %s; only bool is supported", c.in[0].DType)
	}
	if t := c.out[0].DType; t == "bool" || slices.ContainsFunc(c.in[1:],
		func(in *relay.Type) bool { return in.DType != t }) {
		return c.refuse("chooses between %s and %s", c.in[1].DType, c.in[2].DType)
	}
	return nil
}
