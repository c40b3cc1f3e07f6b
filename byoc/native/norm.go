// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/relay"
)

// NormKernel is the kernel of normalisations (byoc/runtime/native/norm.h).
const NormKernel = "norm"

// Norm is a normalisation: what stands in a row is brought to mean 0 and deviation 1, times a gain, plus a shift.
type Norm struct {
	// Kind is one of
	//   layer_norm    (x - mean) / sqrt(variance + epsilon), over the last axes
	//   standardise   (x - mean) / (sqrt(variance) + epsilon), likewise, which oneDNN has not
	//   rms_norm      x / sqrt(mean square + epsilon), likewise
	//   group_norm    as layer_norm, over some channels and all pixels of an image
	//   channel_scale x: a batch normalisation that was taken apart and not folded
	Kind string
	Data relay.NodeID
	// Addend is added to the data first: a tensor of its shape, or one row, or, to images, a number for each channel
	// (OfChannels); NoNode for nothing. The code generator adds more where it finds sums in the region.
	Addend relay.NodeID
	// Gain and Shift have an element for each of a row, or for each channel; NoNode for 1 and 0.
	Gain, Shift relay.NodeID
	Epsilon     float64
	// Unbiased says that the variance is divided by one less than the number of elements.
	Unbiased bool
	// Axes are those of a row; of channel_scale and group_norm that of the channels.
	Axes []int64
	// Groups is the number of groups of channels (group_norm).
	Groups     int64
	Activation *onednn.Elementwise
}

const normLimits = "float32, static shapes, at most 6 dimensions"

// The names that patterns give to nodes.
const (
	normData   = "data"
	normAddend = "addend"
	normParts  = "parts"  // the data, its channels in groups
	normResult = "normal" // the normalisation's result, without what follows
	normGain   = "gain"
	normShift  = "shift"
)

// normRules offers normalisations as TVM's SimplifyInference, front ends and exporters write them.
func normRules() []*onednn.Rule {
	images := []onednn.Activation{"hardswish", "swish", "relu", "leaky", "clip", ""}
	rows := []onednn.Activation{""}
	var all []*onednn.Rule
	for _, form := range []struct {
		composite   string
		activations []onednn.Activation
		shape       relay.Pattern
		read        func(g *relay.Graph, m *relay.Match) (*Norm, error)
		text        string
	}{
		{"native.sum_standardise", rows, standardised(sumPattern()), readStandardise,
			"of a sum, over the last axes, with scale and shift"},
		{"native.sum_layer_norm", rows, scaledAndShifted(onednn.Normalised(sumPattern())), readLayerNorm,
			"of a sum, over the last axes"},
		{"native.sum_rms_norm", rows, scaledAndShifted(rootMeanSquare(sumPattern())), readRMSNorm,
			"of a sum, over the last axes"},
		{"native.standardise", rows, standardised(dataPattern()), readStandardise,
			"over the last axes, with scale and shift"},
		{"native.sum_group_norm", images, grouped(sumPattern()), readGroupNorm,
			"of a sum, channels in the second dimension or the last"},
		{"native.sum_instance_norm", images, scaledAndShifted(onednn.Normalised(sumPattern())), readInstanceNorm,
			"of a sum, channels in the second dimension, with scale or shift, or in the last"},
		{"native.sum_channel_scale", images,
			channelScaled(relay.Op("add", notScaled(normData), notScaled(normAddend))), readChannelScale,
			"of a sum, with scale and shift along one axis"},
		{"native.group_norm", images, grouped(dataPattern()), readGroupNorm,
			"channels in the second dimension or the last"},
		{"native.instance_norm", images, scaledAndShifted(onednn.Normalised(dataPattern())), readInstanceNorm,
			"channels in the second dimension, with scale or shift, or in the last"},
		{"native.layer_norm", rows, scaledAndShifted(onednn.Normalised(dataPattern())), readLayerNorm,
			"over the last axes"},
		{"native.rms_norm", rows, scaledAndShifted(rootMeanSquare(dataPattern())), readRMSNorm,
			"over the last axes"},
		{"native.channel_scale", images, channelScaled(notScaled(normData)), readChannelScale,
			"with scale and shift along one axis"},
	} {
		for _, activation := range form.activations {
			all = append(all, normRule(form.composite, activation, form.shape, form.read, form.text))
		}
	}
	return all
}

func dataPattern() relay.Pattern { return relay.Named(normData, relay.Wildcard()) }

// sumPattern is a sum that nobody but the normalisation reads, which is then made on the way in.
func sumPattern() relay.Pattern {
	return relay.Op("add", dataPattern(), relay.Named(normAddend, relay.Wildcard()))
}

// normRule is the rule of a normalisation with an activation behind it.
func normRule(composite string, activation onednn.Activation, shape relay.Pattern,
	read func(g *relay.Graph, m *relay.Match) (*Norm, error), text string) *onednn.Rule {
	layer := func(g *relay.Graph, m *relay.Match) (onednn.Layer, error) {
		n, err := read(g, m)
		if err != nil {
			return nil, err
		}
		n.Activation = activation.Read(g, m)
		return n, checkNorm(g, m, n)
	}
	return &onednn.Rule{
		Pattern: byoc.Pattern{
			Composite: composite + activation.Suffix(),
			Kernel:    NormKernel,
			Shape:     activation.On(relay.Named(normResult, shape)),
			Limits: func(g *relay.Graph, m *relay.Match) error {
				if err := activation.Check(g, m); err != nil {
					return err
				}
				_, err := layer(g, m)
				return err
			},
			LimitsText: normLimits + ", " + text,
		},
		Read: layer,
		Own:  true,
	}
}

// scaledAndShifted is p with a gain and a shift, or with one of them, or with none. With less than both it is so only
// where nothing follows that could be the other one.
func scaledAndShifted(p relay.Pattern) relay.Pattern {
	gain, shift := relay.Named(normGain, relay.Wildcard()), relay.Named(normShift, relay.Wildcard())
	scaled := relay.Op("multiply", p, gain)
	return relay.Or(
		relay.Op("add", scaled, shift),
		relay.Where(scaled, notFollowedBy("add")),
		relay.Where(relay.Op("add", p, shift), notFollowedBy()),
		relay.Where(p, notFollowedBy("multiply", "add")))
}

// notFollowedBy says that no reader of a value is one of the operators with a tensor of fewer elements: a gain or a
// shift.
func notFollowedBy(operators ...string) func(g *relay.Graph, id relay.NodeID) bool {
	return func(g *relay.Graph, id relay.NodeID) bool {
		return !slices.ContainsFunc(g.Consumers(id), func(reader relay.NodeID) bool {
			n := &g.Nodes[reader]
			return slices.Contains(operators, n.Op) && slices.ContainsFunc(n.Inputs, func(in relay.NodeID) bool {
				t := g.Nodes[in].Type
				return in != id && t != nil && t.Kind == relay.TypeTensor && n.Type != nil &&
					relay.Elements(t.Shape) < relay.Elements(n.Type.Shape)
			})
		})
	}
}

// standardised is gain * (x - mean) / (deviation + epsilon) + shift.
func standardised(x relay.Pattern) relay.Pattern {
	mean := relay.Op("mean", x)
	centred := relay.Op("subtract", x, mean)
	spread := relay.Named("variance", relay.Or(
		relay.Op("variance", x, mean),
		relay.Op("variance", x, relay.Op("mean", x)))) // computed a second time
	deviation := relay.Op("add", relay.Op("sqrt", spread), relay.Named("epsilon", relay.IsConstant()))
	gain := relay.Named(normGain, relay.Wildcard())
	scaled := relay.Or(
		relay.Op("divide", relay.Op("multiply", gain, centred), deviation),
		relay.Op("multiply", gain, relay.Op("divide", centred, deviation)))
	return relay.Op("add", scaled, relay.Named(normShift, relay.Wildcard()))
}

// grouped is the normalisation of channels that a reshape has put into groups, and another one back.
func grouped(x relay.Pattern) relay.Pattern {
	parts := relay.Named(normParts, relay.Op("reshape", x))
	return scaledAndShifted(relay.Op("reshape", onednn.Normalised(parts)))
}

// rootMeanSquare is x / sqrt(mean(x^2) + epsilon).
func rootMeanSquare(x relay.Pattern) relay.Pattern {
	square := relay.Op("mean", relay.Or(relay.Op("power", x, relay.Scalar(2)), relay.Op("multiply", x, x)))
	return onednn.DividedByRoot(x, square)
}

// channelScaled is x * gain + shift.
func channelScaled(x relay.Pattern) relay.Pattern {
	scaled := relay.Op("multiply", x, relay.Named(normGain, relay.Wildcard()))
	return relay.Op("add", scaled, relay.Named(normShift, relay.Wildcard()))
}

// notScaled is what channelScaled may be of. What was normalised just before is no such thing: its gain and shift
// belong to it.
func notScaled(role string) relay.Pattern {
	return relay.Named(role, relay.Where(relay.Wildcard(), func(g *relay.Graph, id relay.NodeID) bool {
		n := &g.Nodes[id]
		if n.Op == "reshape" {
			n = &g.Nodes[n.Inputs[0]]
		}
		return n.Op != "divide" && n.Op != "multiply" && n.Kind != relay.KindConstant
	}))
}

// readNorm reads what all normalisations have.
func readNorm(g *relay.Graph, m *relay.Match, kind string) (*Norm, error) {
	named := func(role string) relay.NodeID {
		if id, ok := m.Named[role]; ok {
			return id
		}
		return relay.NoNode
	}
	l := &Norm{Kind: kind, Data: named(normData), Addend: named(normAddend), Gain: named(normGain),
		Shift: named(normShift)}
	if id := named("epsilon"); id != relay.NoNode {
		epsilon := g.Nodes[id].Constant
		if epsilon == nil || !(epsilon.Scalar >= 0) || len(epsilon.Shape) > 1 {
			return nil, fmt.Errorf("the epsilon is not a single number that is not negative")
		}
		l.Epsilon = epsilon.Scalar
	}
	if id := named("variance"); id != relay.NoNode {
		l.Unbiased, _ = g.Nodes[id].Attrs.Bool("unbiased")
	}
	data, err := onednn.TensorAt(g, l.Data, "the argument")
	if err != nil {
		return nil, err
	}
	if len(data.Shape) == 0 {
		return nil, fmt.Errorf("the argument is a single number")
	}
	if err := checkResult(g, m, data); err != nil {
		return nil, err
	}
	return l, nil
}

// reducedAxes are those that all means and variances of a match go over, and which they keep as axes of one element.
func reducedAxes(g *relay.Graph, m *relay.Match) ([]int64, error) {
	var axes []int64
	for _, id := range m.Nodes {
		n := &g.Nodes[id]
		if n.Op != "mean" && n.Op != "variance" {
			continue
		}
		own, err := onednn.SomeReducedAxes(g, n)
		if err != nil {
			return nil, err
		}
		if keep, _ := n.Attrs.Bool("keepdims"); !keep {
			return nil, fmt.Errorf("the %s inside the pattern drops its axes", n.Op)
		}
		if axes != nil && !slices.Equal(axes, own) {
			return nil, fmt.Errorf("the mean and the variance inside the pattern are over different axes")
		}
		axes = own
	}
	return axes, nil
}

// areLast says whether axes, which are in order, are the last ones of a rank.
func areLast(axes []int64, rank int) bool { return axes[0] == int64(rank-len(axes)) }

// overLastAxes says that axes are the last ones of a rank.
func overLastAxes(axes []int64, rank int) error {
	if !areLast(axes, rank) {
		return fmt.Errorf("the pattern works over the axes %v of %d; only the last axes are supported", axes, rank)
	}
	return nil
}

func readRows(kind string) func(g *relay.Graph, m *relay.Match) (*Norm, error) {
	return func(g *relay.Graph, m *relay.Match) (*Norm, error) {
		l, err := readNorm(g, m, kind)
		if err != nil {
			return nil, err
		}
		if l.Axes, err = reducedAxes(g, m); err != nil {
			return nil, err
		}
		data := g.Nodes[l.Data].Type.Shape
		if err := overLastAxes(l.Axes, len(data)); err != nil {
			return nil, err
		}
		row := data[l.Axes[0]:]
		if l.Unbiased && relay.Elements(row) == 1 {
			return nil, fmt.Errorf("the unbiased variance of one element is not a number")
		}
		if err := checkAddend(g, m, l); err != nil {
			return nil, err
		}
		return l, checkScales(g, m, l, l.Axes)
	}
}

// checkAddend wants what is added first to have the data's shape, or that of one of its rows, or, for images, a number
// for each channel.
func checkAddend(g *relay.Graph, m *relay.Match, l *Norm) error {
	if l.Addend == relay.NoNode {
		return nil
	}
	t, err := onednn.TensorAt(g, l.Addend, "what is added")
	if err != nil {
		return err
	}
	data := g.Nodes[l.Data].Type.Shape
	part, fits := "one row", false
	if l.Kind == "group_norm" || l.Kind == "channel_scale" {
		part, fits = "a number for each channel", OfChannels(t.Shape, data, l.Axes[0])
	} else {
		row := slices.Clone(data)
		for i := range row[:l.Axes[0]] {
			row[i] = 1
		}
		fits = slices.Equal(aligned(t.Shape, len(data)), row)
	}
	if m.Covers(l.Addend) || !fits && !slices.Equal(aligned(t.Shape, len(data)), data) {
		return fmt.Errorf("what is added to %s has the shape %s; it must be the same, or %s, made outside of the pattern",
			relay.ShapeText(data), relay.ShapeText(t.Shape), part)
	}
	return nil
}

// OfChannels says that a tensor holds a number for each channel, which are along that axis of the data, be it the same
// in all images or not; images are along the first axis.
func OfChannels(shape, data []int64, channels int64) bool {
	given := aligned(shape, len(data))
	for i := range given {
		switch {
		case i >= len(data):
			return false
		case int64(i) == channels || i == 0 && given[0] != 1:
			if given[i] != data[i] {
				return false
			}
		case given[i] != 1:
			return false
		}
	}
	return true
}

var (
	readStandardise = readRows("standardise")
	readLayerNorm   = readRows("layer_norm")
	readRMSNorm     = readRows("rms_norm")
)

func readInstanceNorm(g *relay.Graph, m *relay.Match) (*Norm, error) {
	return readChannels(g, m, normData, func(data, _ *relay.Type, axes []int64) (int64, int64, error) {
		last := len(data.Shape) - 1
		switch {
		case axes[0] == 2 && areLast(axes, len(data.Shape)):
			if _, gain := m.Named[normGain]; !gain {
				if _, shift := m.Named[normShift]; !shift {
					return 0, 0, fmt.Errorf("without scale and shift it is native.layer_norm's")
				}
			}
			return 1, data.Shape[1], nil
		case axes[0] == 1 && len(axes) == last-1 && axes[len(axes)-1] == int64(last-1):
			return int64(last), data.Shape[last], nil
		}
		return 0, 0, fmt.Errorf("the pattern works over the axes %v; only those behind the second, or between the "+
			"first and the last, are supported", axes)
	})
}

func readGroupNorm(g *relay.Graph, m *relay.Match) (*Norm, error) {
	return readChannels(g, m, normParts, func(data, parts *relay.Type, axes []int64) (int64, int64, error) {
		rank, last := len(parts.Shape), len(data.Shape)-1
		if last < 1 || parts.Shape[0] != data.Shape[0] || relay.Elements(data.Shape) == 0 {
			return 0, 0, noGroups(data, parts)
		}
		if axes[0] == 2 && areLast(axes, rank) && data.Shape[1]%parts.Shape[1] == 0 {
			return 1, parts.Shape[1], nil
		}
		// Channels that lie innermost: [batch, pixels in any number of axes, groups, channels of a group], over all but
		// the first and the last but one.
		if rank >= 4 && len(axes) == rank-2 && axes[0] == 1 && axes[rank-4] == int64(rank-3) &&
			areLast(axes[rank-3:], rank) && parts.Shape[rank-2]*parts.Shape[rank-1] == data.Shape[last] {
			return int64(last), parts.Shape[rank-2], nil
		}
		return 0, 0, noGroups(data, parts)
	})
}

func noGroups(data, parts *relay.Type) error {
	return fmt.Errorf("the pattern makes %s of %s, which are no groups of channels", relay.ShapeText(parts.Shape),
		relay.ShapeText(data.Shape))
}

// readChannels reads a normalisation of groups of channels, which is made of the value of that role; groups says which
// axis of the data has the channels, and how many groups there are.
func readChannels(g *relay.Graph, m *relay.Match, role string,
	groups func(data, over *relay.Type, axes []int64) (channels, groups int64, err error)) (*Norm, error) {
	l, err := readNorm(g, m, "group_norm")
	if err != nil {
		return nil, err
	}
	axes, err := reducedAxes(g, m)
	if err != nil {
		return nil, err
	}
	over, err := onednn.TensorAt(g, m.Named[role], "what is normalised")
	if err != nil {
		return nil, err
	}
	axis, count, err := groups(g.Nodes[l.Data].Type, over, axes)
	if err != nil {
		return nil, err
	}
	l.Axes, l.Groups = []int64{axis}, count
	if err := checkAddend(g, m, l); err != nil {
		return nil, err
	}
	return l, checkScales(g, m, l, l.Axes)
}

func readChannelScale(g *relay.Graph, m *relay.Match) (*Norm, error) {
	l, err := readNorm(g, m, "channel_scale")
	if err != nil {
		return nil, err
	}
	gain, err := onednn.TensorAt(g, l.Gain, "the gain")
	if err != nil {
		return nil, err
	}
	rank := len(g.Nodes[l.Data].Type.Shape)
	for i, d := range gain.Shape {
		if d != 1 || i == len(gain.Shape)-1 && l.Axes == nil {
			l.Axes = append(l.Axes, int64(i+rank-len(gain.Shape)))
		}
	}
	if len(l.Axes) != 1 || l.Axes[0] < 0 {
		return nil, fmt.Errorf("the gain has the shape %s, which is not along one axis", relay.ShapeText(gain.Shape))
	}
	if err := checkAddend(g, m, l); err != nil {
		return nil, err
	}
	return l, checkScales(g, m, l, l.Axes)
}

// checkScales wants gain and shift made outside of the pattern, with an element for each index along axes.
func checkScales(g *relay.Graph, m *relay.Match, l *Norm, axes []int64) error {
	data := g.Nodes[l.Data].Type.Shape
	for _, scale := range []struct {
		role string
		id   relay.NodeID
	}{{normGain, l.Gain}, {normShift, l.Shift}} {
		if scale.id == relay.NoNode {
			continue
		}
		t, err := onednn.TensorAt(g, scale.id, "the "+scale.role)
		if err != nil {
			return err
		}
		want := slices.Repeat([]int64{1}, len(data))
		for _, axis := range axes {
			want[axis] = data[axis]
		}
		if given := aligned(t.Shape, len(data)); m.Covers(scale.id) || !slices.Equal(given, want) {
			return fmt.Errorf("the %s has the shape %s; it must be %s, made outside of the pattern", scale.role,
				relay.ShapeText(t.Shape),
				relay.ShapeText(want))
		}
	}
	return nil
}

// aligned is a shape with ones in front, so that it has so many dimensions, or as it is where it has more.
func aligned(shape []int64, rank int) []int64 {
	return append(slices.Repeat([]int64{1}, max(0, rank-len(shape))), shape...)
}

func checkResult(g *relay.Graph, m *relay.Match, data *relay.Type) error {
	result, err := onednn.TensorAt(g, m.Named[normResult], "the result")
	if err != nil {
		return err
	}
	if !slices.Equal(result.Shape, data.Shape) {
		return fmt.Errorf("the pattern makes %s of %s", relay.ShapeText(result.Shape), relay.ShapeText(data.Shape))
	}
	return nil
}

// checkNorm wants what is made inside of the pattern to be of float32 and of the data's rank.
func checkNorm(g *relay.Graph, m *relay.Match, l *Norm) error {
	data := g.Nodes[l.Data].Type
	if m.Covers(l.Data) {
		return fmt.Errorf("the argument is made inside of the pattern")
	}
	rank := len(data.Shape)
	if parts, ok := m.Named[normParts]; ok {
		rank = len(g.Nodes[parts].Type.Shape)
	}
	for _, id := range m.Nodes {
		t, err := onednn.TensorAt(g, id, "a value inside the pattern")
		if err != nil {
			return err
		}
		// A number of the shape [1, 1, 1, 1, 1] would add dimensions.
		if len(t.Shape) != rank && len(t.Shape) != len(data.Shape) {
			return fmt.Errorf("a value inside the pattern has the shape %s", relay.ShapeText(t.Shape))
		}
	}
	return onednn.FitsFloat32("the epsilon", l.Epsilon)
}
