// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// convolution is one of Relay's convolution operators.
type convolution struct {
	op         string
	composite  string // without epilogue
	dims       int    // spatial dimensions
	transposed bool
	// layouts are the pairs of data and kernel layout that TVM itself can lower on a CPU.
	layouts [][2]string
	// upsampled takes the upsampling before it along, see upsampling.go.
	upsampled bool
}

var convolutions = []convolution{
	{op: "nn.conv1d", composite: "dnnl.conv1d", dims: 1, layouts: [][2]string{{"NCW", "OIW"}, {"NWC", "WIO"}}},
	{op: "nn.conv2d", composite: "dnnl.conv2d", dims: 2,
		layouts: [][2]string{{"NCHW", "OIHW"}, {"NHWC", "HWIO"}, {"NHWC", "HWOI"}}},
	{op: "nn.conv3d", composite: "dnnl.conv3d", dims: 3, layouts: [][2]string{{"NCDHW", "OIDHW"}, {"NDHWC", "DHWIO"}}},
	{op: "nn.conv1d_transpose", composite: "dnnl.deconv1d", dims: 1, transposed: true,
		layouts: [][2]string{{"NCW", "IOW"}, {"NCW", "OIW"}}},
	{op: "nn.conv2d_transpose", composite: "dnnl.deconv2d", dims: 2, transposed: true,
		layouts: [][2]string{{"NCHW", "IOHW"}, {"NCHW", "OIHW"}, {"NHWC", "HWIO"}, {"NHWC", "HWOI"}, {"NHWC", "IOHW"}}},
	{op: "nn.conv3d_transpose", composite: "dnnl.deconv3d", dims: 3, transposed: true,
		layouts: [][2]string{{"NCDHW", "IODHW"}, {"NCDHW", "OIDHW"}}},
}

// ConvolutionRules offers each convolution with each epilogue, and bare. A transposed convolution cannot
// accumulate: the runtime would ask oneDNN for a sum and give it nothing to add to.
func ConvolutionRules() []*Rule {
	var all []*Rule
	for _, c := range convolutions {
		for _, e := range epilogues(!c.transposed) {
			all = append(all, c.fused(e))
		}
	}
	for _, c := range convolutions {
		r := Bare(c.op, []string{roleData, roleWeight},
			func(g *relay.Graph, m *relay.Match) error { return c.check(g, m, epilogue{}) }, c.limitsText(),
			func(g *relay.Graph, m *relay.Match) (Layer, error) { return c.read(g, m, epilogue{}) })
		r.Own = c.op == "nn.conv1d_transpose"
		all = append(all, r)
	}
	return all
}

func (c convolution) fused(e epilogue) *Rule {
	anchor := relay.Named(roleAnchor, relay.Op(c.op, c.operand(), relay.Named(roleWeight, relay.Wildcard())))
	name := c.composite + e.suffix()
	return &Rule{
		Pattern: byoc.Pattern{
			Composite:  name,
			Shape:      e.on(anchor),
			Limits:     func(g *relay.Graph, m *relay.Match) error { return c.check(g, m, e) },
			LimitsText: c.limitsText(),
		},
		Read: func(g *relay.Graph, m *relay.Match) (Layer, error) { return c.read(g, m, e) },
		Own:  c.op == "nn.conv1d_transpose" || e.own(),
		Ours: e.ours(),
	}
}

func (c convolution) limitsText() string {
	pairs := make([]string, len(c.layouts))
	for i, l := range c.layouts {
		pairs[i] = l[0] + "/" + l[1]
	}
	return "float32, static shapes, layouts " + strings.Join(pairs, ", ")
}

func (c convolution) check(g *relay.Graph, m *relay.Match, e epilogue) error {
	for _, role := range []string{roleData, roleWeight} {
		if m.Covers(m.Named[role]) {
			return fmt.Errorf("the %s of %s is made inside the pattern", role, c.op)
		}
	}
	conv, err := CheckedCall(g, m.Named[roleAnchor], roleData, roleWeight)
	if err != nil {
		return err
	}
	n, rank := conv.Node, c.dims+2
	if len(conv.In) != 2 || len(conv.In[0].Shape) != rank || len(conv.In[1].Shape) != rank ||
		len(conv.Out.Shape) != rank {
		return fmt.Errorf("%s has operands of other than %d dimensions", c.op, rank)
	}
	dataLayout, err := c.checkLayouts(n)
	if err != nil {
		return err
	}
	for _, name := range []string{"strides", "dilation"} {
		if _, err := spatial(n, name, c.dims); err != nil {
			return err
		}
	}
	if _, err := paddings(n, c.dims); err != nil {
		return err
	}
	if err := c.checkGroups(g, m, conv, dataLayout); err != nil {
		return err
	}
	if rewritten, ok := n.Attrs.String("auto_scheduler_rewritten_layout"); ok && rewritten != "" {
		return fmt.Errorf("the weight of %s has been laid out for TVM's auto-scheduler (%s)", c.op, rewritten)
	}
	if list, ok := n.Attrs.Get("meta_schedule_original_shape"); ok {
		if l, isList := list.([]any); isList && len(l) > 0 {
			return fmt.Errorf("the weight of %s has been laid out for TVM's meta-schedule", c.op)
		}
	}
	if c.upsampled {
		if err := c.checkUpsampled(g, m, conv); err != nil {
			return err
		}
	}
	if e.sum && !c.transposed {
		if err := c.checkWindows(conv, dataLayout); err != nil {
			return err
		}
	}
	return e.check(g, m, conv.Out, strings.IndexByte(dataLayout, 'C'))
}

// checkWindows makes sure that a convolution which accumulates has no window that lies wholly in the padding.
// oneDNN 2.6's direct kernels for AVX-512 leave out what begins such a row: they lose the bias, and an activation
// reads its constants from nowhere.
func (c convolution) checkWindows(conv *Call, dataLayout string) error {
	w := window{}
	w.strides, _ = spatial(conv.Node, "strides", c.dims)
	w.dilation, _ = spatial(conv.Node, "dilation", c.dims)
	w.padding, _ = paddings(conv.Node, c.dims)
	layout, _ := conv.Node.Attrs.String("kernel_layout")
	// The spatial dimensions are in order and follow each other in every layout.
	kernel, data := strings.IndexAny(layout, "DHW"), strings.IndexAny(dataLayout, "DHW")
	w.size = conv.In[1].Shape[kernel : kernel+c.dims]
	for i := range w.size {
		if w.missesAll(i, conv.In[0].Shape[data+i], conv.Out.Shape[data+i]) {
			return fmt.Errorf("%s adds to another value, and has windows that lie wholly in the padding", c.op)
		}
	}
	return nil
}

// checkLayouts gives the data layout if the runtime reads the combination as TVM does.
func (c convolution) checkLayouts(n *relay.Node) (string, error) {
	data, _ := n.Attrs.String("data_layout")
	kernel, _ := n.Attrs.String("kernel_layout")
	out, _ := n.Attrs.String("out_layout")
	if !slices.Contains(c.layouts, [2]string{data, kernel}) {
		return "", fmt.Errorf("%s has data in %s and weights in %s; %s", c.op, data, kernel, c.limitsText())
	}
	if out != "" && out != data {
		return "", fmt.Errorf("%s stores its result in %s and reads %s; they must be equal", c.op, out, data)
	}
	return data, nil
}

// checkGroups makes sure that the runtime splits weights into groups as TVM does.
func (c convolution) checkGroups(g *relay.Graph, m *relay.Match, conv *Call, dataLayout string) error {
	groups, ok := conv.Node.Attrs.Int("groups")
	if !ok || groups < 1 {
		return fmt.Errorf("%s has no usable attribute \"groups\"", c.op)
	}
	channel := strings.IndexByte(dataLayout, 'C')
	in, out := conv.In[0].Shape[channel], conv.Out.Shape[channel]
	if in%groups != 0 || out%groups != 0 {
		return fmt.Errorf("%s has %d input and %d output channels in %d groups", c.op, in, out, groups)
	}
	layout, _ := conv.Node.Attrs.String("kernel_layout")
	weight := func(letter byte) int64 { return conv.In[1].Shape[strings.IndexByte(layout, letter)] }
	wantO, wantI := out, in/groups
	switch {
	case c.transposed:
		wantO, wantI = out/groups, in
	case layout == "HWOI" && groups > 1:
		// Depthwise weights [H, W, C, 1]. With more than one output for each channel Relay means [H, W, C, M],
		// which the runtime would read as M input channels.
		if out != in || groups != in {
			return fmt.Errorf("%s has weights in HWOI and %d groups of %d channels; only one channel a group is "+
				"supported",
				c.op, groups, in/groups)
		}
	}
	if weight('O') != wantO || weight('I') != wantI {
		return fmt.Errorf("%s has weights of shape %s in %s, which do not fit %d input and %d output channels in %d "+
			"groups",
			c.op, relay.ShapeText(conv.In[1].Shape), layout, in, out, groups)
	}
	if c.transposed && groups > 1 {
		if !strings.HasPrefix(layout, "IO") {
			return fmt.Errorf("%s has %d groups and weights in %s; groups need the weights in IO…", c.op, groups,
				layout)
		}
		if g.Nodes[m.Named[roleWeight]].Kind != relay.KindConstant && !isParameter(g, m.Named[roleWeight]) {
			return fmt.Errorf("%s has %d groups, and its weight is not a constant", c.op, groups)
		}
	}
	return nil
}

// isParameter says that a value is a variable: inside a Composite function that is where a constant of the
// region around it comes in.
func isParameter(g *relay.Graph, id relay.NodeID) bool { return g.Nodes[id].Kind == relay.KindVar }

func (c convolution) read(g *relay.Graph, m *relay.Match, e epilogue) (Layer, error) {
	n := &g.Nodes[m.Named[roleAnchor]]
	l := &Convolution{
		Operator: c.op, Transposed: c.transposed, Dims: c.dims,
		Data: m.Named[roleData], Weight: m.Named[roleWeight], Epilogue: e.read(g, m),
	}
	var err error
	if l.Strides, err = spatial(n, "strides", c.dims); err != nil {
		return nil, err
	}
	if l.Dilation, err = spatial(n, "dilation", c.dims); err != nil {
		return nil, err
	}
	if l.Padding, err = paddings(n, c.dims); err != nil {
		return nil, err
	}
	if c.upsampled {
		if l.Scale, err = c.scale(g, m); err != nil {
			return nil, err
		}
	}
	l.Groups, _ = n.Attrs.Int("groups")
	l.DataLayout, _ = n.Attrs.String("data_layout")
	l.KernelLayout, _ = n.Attrs.String("kernel_layout")
	return l, nil
}
